/* A machine with a network card 00:03.0, and a VM called "driver" whose configuration asks for
 * that card. */
#ifndef TESTS_GIVE_RIG_H
#define TESTS_GIVE_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "fake_log.h"
#include "fake_machine.h"
#include "fake_pci.h"
#include "fake_timer.h"
#include "npt_model.h"
#include "passthrough/give.h"

#define NIC PCI_BDF(0, 3, 0)

static const struct acpi_info acpi = { .nr_ioapics = 1,
                                       .ioapic = { { 0xfec00000, 0 } },
                                       .nr_overrides = 1,
                                       .override = { { .irq = 5, .gsi = 20, .flags = 0x0d } } };
static const struct memmap ram = {
    3, { { 0, 0x30000000 }, { 0x31000000, 1ull << 30 }, { 4ull << 30, 6ull << 30 } }
};
static struct fake_pci *nic;
static struct config_vm config;
static u64 frames, heap;

static inline void no_vms(void) {
    frames = frame_free_count();
    heap = heap_in_use();
}

/* RAM of the machine ends at 1 GiB and at 6 GiB. */
static inline void init(void) {
    pci_enumerate();
    give_init(&acpi, &ram);
    fake_machine_gives(&pci_claim_part, &pci_part);
    no_vms();
}

static inline int group_setup(void **state) {
    struct config_vm c = fake_config("first", 1);

    fake_machine("credit");
    fake_destroy(fake_vm(&c));
    return 0;
}

static inline int setup(void **state) {
    fake_pci_reset();
    nic = fake_pci_add(NIC, 0x100e8086, 0x02000003);
    fake_pci_bar(nic, 0, 0xfebc0000, 0x20000, 0);
    fake_pci_bar(nic, 1, 0xc040, 0x40, 1);
    config = fake_config("driver", 1);
    config.memory = 6 << 20;
    config.pci[config.nr_pci++] = NIC;
    config.unsafe_dma = true;
    init();
    fake_clock(1000);
    return 0;
}

static inline int teardown(void **state) {
    assert_int_equal(frame_free_count(), frames);
    assert_int_equal(heap_in_use(), heap);
    assert_int_equal(fake_vectors_used, 0);
    assert_false(fake_get(nic, PCI_COMMAND, 2) & PCI_COMMAND_MASTER);
    for (u32 i = 0; i < pci_count(); i++) assert_null(assignment_of(pci_at(i))->owner);
    return 0;
}

static inline void refused(int error, const char *why) {
    assert_null(fake_vm(&config));
    assert_int_equal(fake_error, error);
    assert_string_equal(fake_why, why);
    assert_false(nic->master_once);
}

static inline struct vm *driver(void) {
    struct vm *vm = fake_vm(&config);

    assert_non_null(vm);
    return vm;
}

/* Of the MSI-X table of its first device. */
static inline u32 entry_word(const struct vm *vm, u32 n, u32 at) {
    return *(volatile u32 *)(vm->pci[0]->pci->msix_table + 16 * n + at);
}

#endif
