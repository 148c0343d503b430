/* The configuration space of a device as its VM sees it: each register can be read, is emulated,
 * or is refused; only COMMAND can be written, and only some of its bits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <takt/errno.h>

#include "fake_machine.h"
#include "fake_pci.h"
#include "passthrough/mediate.h"
#include "pci/sriov.h"

static struct fake_pci *card;
static struct assignment *a;

static int group_setup(void **state) {
    fake_machine("credit");
    return 0;
}

/* Every byte has a value, and can be written. */
static int setup(void **state) {
    fake_pci_reset();
    srand(1);
    card = fake_pci_add(PCI_BDF(1, 0, 0), 0x10c98086, 0x02000001);
    for (u32 at = 0x40; at < 4096; at++) card->space[at] = (u8)(rand() | 1);
    fake_set(card, 0x100, 4, 0);
    fake_pci_bar(card, 0, 0xfe400000, 0x20000, 0);
    fake_pci_bar(card, 2, 0xc000, 0x20, 1);
    fake_pci_bar(card, 3, 0x2fe440000, 0x4000, 4);
    fake_set(card, 0x30, 4, 0xfe500001);
    fake_pci_cap(card, 0x40, PCI_CAP_PM);
    fake_pci_cap(card, 0x50, PCI_CAP_MSI);
    fake_pci_cap(card, 0x70, PCI_CAP_MSIX);
    fake_pci_cap(card, 0xa0, PCI_CAP_EXPRESS);
    /* The VPD capability: a write to its address register makes the card read or write its
     * EEPROM. */
    fake_pci_cap(card, 0xe0, 0x03);
    fake_set(card, 0x72, 2, 0xc018);
    fake_set(card, 0x74, 4, 3);
    fake_pci_extended(card, 0x100, 0x01);
    fake_pci_extended(card, 0x140, 0x03);
    fake_pci_extended(card, 0x150, PCI_EXT_ARI);
    fake_pci_extended(card, 0x160, PCI_EXT_SRIOV);
    fake_pci_extended(card, 0x1a0, 0x0b); /* vendor's own */
    pci_enumerate();
    assign_init();
    a = assignment_of(pci_at(0));
    memset(card->writable, 0xff, sizeof(card->writable));
    return 0;
}

static i64 read(u32 at, u32 size) { return mediate_read(a, at, size); }

static void as_it_is(u32 from, u32 to) {
    for (u32 at = from; at < to; at++)
        for (u32 size = 1; size <= 4 && at % size == 0 && at + size <= to; size *= 2)
            assert_int_equal(read(at, size), (i64)fake_get(card, at, size));
}

static void refused(u32 from, u32 to) {
    for (u32 at = from; at < to; at++)
        for (u32 size = 1; size <= 4 && at % size == 0; size *= 2) {
            u64 before = a->refused;

            assert_int_equal(read(at, size), -EPERM);
            assert_int_equal(a->refused, before + 1);
        }
}

static void test_reads(void **state) {
    as_it_is(0x00, 0x10);
    as_it_is(0x28, 0x30);
    as_it_is(0x34, 0x48);
    refused(0x48, 0x50);
    as_it_is(0x50, 0x52); /* MSI: its head leads on */
    refused(0x52, 0x70);
    as_it_is(0x74, 0x7c);
    refused(0x7c, 0xa0);
    as_it_is(0xa0, 0xdc);
    refused(0xdc, 0xe0);
    as_it_is(0xe0, 0xe2);
    refused(0xe2, 0x100);
    as_it_is(0x100, 0x12c);
    refused(0x12c, 0x140);
    as_it_is(0x140, 0x14c);
    as_it_is(0x150, 0x158);
    as_it_is(0x160, 0x1a4);
    refused(0x1a4, 0x1000);
    for (u32 size = 0; size < 9; size++)
        for (u32 at = 0; at < 5000; at++)
            if (at >= 4096 || (size != 1 && size != 2 && size != 4) || at % size) {
                assert_int_equal(read(at, size), -EINVAL);
                assert_int_equal(mediate_write(a, at, size, 0), -EINVAL);
            }
}

/* A capability of number 0 is empty. Its bytes are not those of the header, whose rules would show
 * BARs that no device has. */
static void test_empty_capability(void **state) {
    fake_pci_cap(card, 0xe8, 0);
    as_it_is(0xe8, 0xea);
    refused(0xea, 0x100);
}

static void test_emulated(void **state) {
    for (u32 i = 0; i < 6; i++) a->gpa[i] = a->pci->bar[i].addr;
    assert_int_equal(read(0x10, 4), 0xfe400000);
    assert_int_equal(read(0x12, 2), 0xfe40);
    assert_int_equal(read(0x18, 4), 0xc001);
    assert_int_equal(read(0x1c, 4), 0xfe440004);
    assert_int_equal(read(0x20, 4), 2);
    assert_int_equal(read(0x24, 4), 0);
    assert_int_equal(read(0x30, 4), 0);      /* no ROM */
    assert_int_equal(read(0x72, 2), 0x800f); /* 16 entries, and on */
    /* A virtual function leaves some registers out. The VM sees what they would be. */
    a->pci->pf = a->pci;
    a->pci->device = 0x10ca;
    fake_set(card, 0, 4, ~0u);
    memset(card->space + 0x10, 0, 24);
    assert_int_equal(read(0, 4), 0x10ca8086);
    assert_int_equal(read(2, 2), 0x10ca);
    assert_int_equal(read(0x1c, 4), 0xfe440004);
}

/* Of all registers, only two bits of COMMAND can be written. */
static void test_writes(void **state) {
    u8 before[4096];
    u64 n = a->refused;

    memcpy(before, card->space, sizeof(before));
    for (u32 at = 0; at < 4096; at++)
        for (u32 size = 1; size <= 4 && at % size == 0; size *= 2, n += 2) {
            u32 old = fake_get(card, at, size);

            assert_int_equal(mediate_write(a, at, size, at == PCI_COMMAND ? 0xf0f0 : ~old), -EPERM);
            assert_int_equal(mediate_write(a, at, size, 0x0f0f0f0f), -EPERM);
        }
    assert_memory_equal(card->space, before, sizeof(before));
    assert_int_equal(a->refused, n);
    assert_int_equal(mediate_write(a, PCI_COMMAND, 2, 0x407), 0);
    assert_int_equal(fake_get(card, PCI_COMMAND, 2), 0x407);
    assert_int_equal(mediate_write(a, PCI_COMMAND, 2, 7), -EPERM);
    assert_int_equal(mediate_write(a, PCI_COMMAND, 2, 0x405), -EPERM);
    a->irq = PCI_INTX;
    assert_int_equal(mediate_write(a, PCI_COMMAND, 2, 3), 0);
    assert_int_equal(fake_get(card, PCI_COMMAND, 2), 3);
}

/* Lists that lead in circles, or nowhere, end. */
static void test_lists_lie(void **state) {
    fake_set(card, 0xa1, 1, 0xa0);
    fake_set(card, 0x160, 4, PCI_EXT_SRIOV | 0x100u << 20);
    refused(0xf0, 0x100);
    refused(0x200, 0x210);
    fake_set(card, PCI_CAPABILITIES, 1, 0x10);
    refused(0xa0, 0xa4);
    card->space[PCI_STATUS] = 0;
    refused(0x40, 0x44);
    fake_set(card, 0x100, 4, ~0u);
    refused(0x100, 0x104);
    for (u32 round = 0; round < 100; round++) {
        for (u32 at = 4; at < 4096; at++) card->space[at] = (u8)rand();
        for (u32 at = 0; at < 4096; at += 4) read(at, 4);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_reads, setup),
        cmocka_unit_test_setup(test_empty_capability, setup),
        cmocka_unit_test_setup(test_emulated, setup),
        cmocka_unit_test_setup(test_writes, setup),
        cmocka_unit_test_setup(test_lists_lie, setup),
    };

    return cmocka_run_group_tests(tests, group_setup, NULL);
}
