/* A card with virtual functions behind a bridge. The input changes both, by five bytes for each
 * change: what is read, or which bits can be written. The windows of the functions must be within
 * the bridge's window, and none may overlap another. What a VM writes to configuration space may
 * change the register COMMAND only. Resets must end. */
#include <stdlib.h>
#include <string.h>

#include "../unit/fake_machine.h"
#include "../unit/fake_pci.h"
#include "passthrough/mediate.h"
#include "passthrough/reset.h"
#include "pci/sriov.h"

static void machine(void) {
    struct fake_pci *port = fake_pci_add(PCI_BDF(0, 8, 0), 0x000c1b36, 0x06040000), *card;

    port->space[PCI_HEADER] = 1;
    port->space[PCI_SECONDARY] = port->space[PCI_SUBORDINATE] = 1;
    fake_set(port, PCI_WINDOW, 4, 0xfe50fe40);
    fake_pci_cap(port, 0x54, PCI_CAP_EXPRESS);
    fake_pci_extended(port, 0x148, PCI_EXT_ACS);
    for (u32 i = 0; i < 2; i++) {
        card = fake_pci_add(PCI_BDF(1, i, 0), 0x10c98086, 0x02000001);
        fake_pci_bar(card, 0, 0xfe400000 + i * 0x80000, 0x20000, 0);
        fake_pci_cap(card, 0x40, PCI_CAP_PM);
        fake_pci_cap(card, 0x70, PCI_CAP_MSIX);
        fake_pci_cap(card, 0xa0, PCI_CAP_EXPRESS);
        fake_set(card, 0xa4, 4, BIT(28));
        fake_pci_extended(card, 0x150, PCI_EXT_ARI);
        fake_pci_sriov(card, 0x160, 8, 0x80 - 7 * i, 2);
    }
}

static void check_places(void) {
    for (u32 i = 0; i < pci_count() * 6; i++) {
        const struct pci_device *d = pci_at(i / 6), *bridge;
        const struct pci_bar *a = &d->bar[i % 6];

        if (!d->pf || !a->size) continue;
        bridge = pci_bridge_of(d->pf->bdf >> 8);
        if (!bridge || a->io ||
            a->addr < (u64)(pci_read(bridge->bdf, PCI_WINDOW, 2) & 0xfff0) << 16)
            abort();
        if (a->addr + a->size - 1 >
            ((u64)(pci_read(bridge->bdf, PCI_WINDOW + 2, 2) & 0xfff0) << 16 | 0xfffff))
            abort();
        for (u32 k = 0; k < pci_count() * 6; k++) {
            const struct pci_bar *b = &pci_at(k / 6)->bar[k % 6];

            if (k != i && b->size && !b->io && a->addr < b->addr + b->size &&
                b->addr < a->addr + a->size)
                abort();
        }
    }
}

static void use(struct pci_device *d, struct fake_pci *f, const u8 *at, size_t size) {
    u8 before[sizeof(f->space)];

    memcpy(before, f->space, sizeof(before));
    for (; size >= 8; at += 8, size -= 8) {
        u32 offset = at[0] | (u32)at[1] << 8, width = at[2], value;

        memcpy(&value, at + 4, 4);
        mediate_read(assignment_of(d), offset, width);
        mediate_write(assignment_of(d), offset, width, value);
    }
    memcpy(before + PCI_COMMAND, f->space + PCI_COMMAND, 2);
    if (memcmp(before, f->space, sizeof(before)) != 0) abort();
    for (u32 phase = 0; assign_reset(assignment_of(d), phase); phase++)
        if (phase > PCI_RESET_PHASES) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const u8 *at = data, *end = data + size;
    u32 functions = 7;

    fake_machine("null");
    fake_pci_reset();
    machine();
    for (u32 n = 0; n < 256 && end - at >= 5; n++, at += 5) {
        struct fake_pci *f = &fake_device[at[0] % fake_nr_devices];
        u32 offset = (at[1] | (u32)at[2] << 8) % 4096;

        if (at[0] & 0x80)
            f->writable[offset] = at[4];
        else
            f->space[offset] = at[3];
    }
    pci_enumerate();
    if (size > 0) functions = data[0] & 15;
    if (sriov_enable(functions)) sriov_find();
    assign_init();
    check_places();
    for (u32 i = 0; i < pci_count(); i++)
        for (u32 k = 0; k < fake_nr_devices; k++)
            if (fake_device[k].bdf == pci_at(i)->bdf) use(pci_at(i), &fake_device[k], data, size);
    return 0;
}
