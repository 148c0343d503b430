/* PCI functions whose configuration space has any contents: the input says how up to eight
 * functions differ from good ones, in what they show and in which bits can be written. The
 * hypervisor finds them, gives a VM those that it does not refuse, uses them and takes them
 * back. */
#include <stdlib.h>
#include <string.h>
#include <takt/errno.h>

#include "../unit/fake_machine.h"
#include "../unit/fake_pci.h"
#include "passthrough/give.h"

static struct fake_pci *good(u32 bdf) {
    struct fake_pci *f = fake_pci_add(bdf, 0x100e8086, 0x02000000);

    fake_pci_bar(f, 0, 0xf0000000 + (bdf << 20), 0x20000, 0);
    fake_pci_bar(f, 1, 0xc000 + bdf * 64, 0x40, 1);
    fake_pci_bar(f, 2, 0xf0020000 + (bdf << 20), 0x4000, 4);
    fake_pci_cap(f, 0x40, PCI_CAP_MSI);
    if (bdf & 8) fake_pci_cap(f, 0x60, PCI_CAP_MSIX);
    fake_set(f, 0x64, 4, 2);
    fake_pci_cap(f, 0x80, PCI_CAP_EXPRESS);
    fake_set(f, 0x84, 4, BIT(28));
    if (bdf & 16) f->space[PCI_STATUS] = 0;
    return f;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const struct acpi_info acpi = { .nr_overrides = 1,
                                           .override = { { .irq = 9, .gsi = 20, .flags = 0x0d } } };
    static const struct memmap ram = { 1, { { 0, 1ull << 30 } } };
    static const u8 *at;
    static bool warm;
    struct config_vm c = fake_config("fuzz", 1);
    struct vm *vm;
    u64 frames;

    fake_machine("null");
    if (!warm) fake_destroy(fake_vm(&c)); /* the heap keeps pages from the first on */
    warm = true;
    fake_pci_reset();
    for (at = data; at < data + size && fake_nr_devices < 8;) {
        u64 n = MIN((u64)(data + size - at), 512ull);
        struct fake_pci *f = good((u32)(*at & 7) << 3);

        for (u64 i = 4; i < n; i++) {
            if (i < 256)
                f->space[i] ^= at[i];
            else
                f->writable[i - 256] ^= at[i];
        }
        memset(f->writable + PCI_CLASS_REV, 0, 8);
        at += n;
    }
    pci_enumerate();
    give_init(&acpi, &ram);
    fake_machine_gives(&pci_claim_part, &pci_part);
    c.unsafe_dma = true;
    for (u32 i = 0; i < pci_count() && c.nr_pci < CONFIG_MAX_PCI; i++)
        if (!give_refused(pci_at(i))) c.pci[c.nr_pci++] = pci_at(i)->bdf;
    frames = frame_free_count();
    vm = fake_vm(&c);
    if (vm) {
        for (u32 i = 0; i < vm->nr_pci; i++) {
            for (u32 n = 0; n < 25 && vm->pci[i]->nr_vectors; n++)
                fake_interrupt(vm->pci[i]->entry[n % vm->pci[i]->nr_vectors].vector);
            give_info(vm, i, 0x1000);
            give_eoi(vm, i);
            for (const u8 *p = at; p + 8 <= data + size; p += 8)
                give_write(vm, i, p[0] | (u32)p[1] << 8, p[2], p[3] | (u32)p[4] << 8);
        }
        fake_destroy(vm);
    }
    if (frame_free_count() != frames || fake_vectors_used) abort();
    return 0;
}
