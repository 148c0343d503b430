/* Virtual functions: how they are enabled, where their registers are, and machines on which they
 * cannot be enabled. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <string.h>

#include "config.h"
#include "fake_log.h"
#include "fake_machine.h"
#include "fake_pci.h"
#include "passthrough/assign.h"
#include "pci/sriov.h"

#define PORT   PCI_BDF(0, 8, 0)
#define CARD   PCI_BDF(1, 0, 0)
#define SRIOV  0x160
#define WINDOW 0xfe400000u

static struct fake_pci *port, *card;

static int group_setup(void **state) {
    fake_machine("credit");
    return 0;
}

/* A root port that hands on 2 MiB to bus 1, and there a card as QEMU's igb. */
static int setup(void **state) {
    fake_pci_reset();
    port = fake_pci_add(PORT, 0x000c1b36, 0x06040000);
    port->space[PCI_HEADER] = 1;
    port->space[PCI_SECONDARY] = port->space[PCI_SUBORDINATE] = 1;
    fake_set(port, PCI_WINDOW, 4, 0xfe50fe40);
    fake_pci_cap(port, 0x54, PCI_CAP_EXPRESS);
    card = fake_pci_add(CARD, 0x10c98086, 0x02000001);
    fake_pci_bar(card, 0, WINDOW, 0x20000, 0);
    fake_pci_bar(card, 1, WINDOW + 0x24000, 0x4000, 4);
    fake_pci_cap(card, 0xa0, PCI_CAP_EXPRESS);
    fake_set(card, 0xa4, 4, BIT(28));
    fake_pci_sriov(card, SRIOV, 8, 0x80, 2);
    pci_enumerate();
    return 0;
}

static void enabled(u32 most) {
    assert_true(sriov_enable(most));
    sriov_find();
}

static void test_places(void **state) {
    static const u64 first[] = { WINDOW + 0x28000, 0, 0, WINDOW + 0x44000 };

    assert_int_equal(pci_count(), 2);
    enabled(7);
    assert_int_equal(pci_count(), 9);
    assert_int_equal(fake_get(card, SRIOV + 0x08, 2), 9); /* enable, memory */
    assert_int_equal(fake_get(card, SRIOV + 0x10, 2), 7);
    assert_int_equal(fake_get(card, SRIOV + 0x20, 4), 1);
    assert_int_equal(fake_get(card, SRIOV + 0x24, 4), first[0] | 0xc);
    assert_int_equal(fake_get(card, SRIOV + 0x28, 4), 0);
    assert_int_equal(fake_get(card, SRIOV + 0x30, 4), first[3] | 0xc);
    for (u32 i = 0; i < 7; i++) {
        const struct pci_device *d = pci_at(2 + i);

        assert_int_equal(d->bdf, CARD + 0x80 + 2 * i);
        assert_ptr_equal(d->pf, pci_find(CARD));
        assert_int_equal(d->vf, i);
        assert_int_equal(d->vendor, 0x8086);
        assert_int_equal(d->device, 0x10ca);
        assert_int_equal(d->class_rev, 0x02000001);
        assert_int_equal(d->pin, 0);
        assert_int_equal(d->bar[0].addr, first[0] + i * 0x4000);
        assert_int_equal(d->bar[3].addr, first[3] + i * 0x4000);
        assert_int_equal(d->bar[0].size, 0x4000);
        assert_true(d->bar[0].wide && !d->bar[1].size);
        assert_int_equal(pci_read(d->bdf, PCI_COMMAND, 2) & 7, PCI_COMMAND_MEMORY);
    }
    assert_false(card->moved);
}

/* There are two cards behind one bridge. No range lies on another one, and all of them are in the
 * bridge's window. */
static void test_no_overlap(void **state) {
    struct fake_pci *other = fake_pci_add(PCI_BDF(1, 1, 0), 0x10c98086, 0x02000001);

    fake_pci_bar(other, 0, WINDOW + 0x60000, 0x20000, 0);
    fake_pci_cap(other, 0xa0, PCI_CAP_EXPRESS);
    fake_pci_sriov(other, 0x200, 8, 0x81, 2);
    pci_enumerate();
    enabled(8);
    assert_int_equal(pci_count(), 3 + 16);
    for (u32 i = 0; i < pci_count() * 6; i++) {
        const struct pci_bar *a = &pci_at(i / 6)->bar[i % 6];

        if (!a->size) continue;
        assert_in_range(a->addr, WINDOW, WINDOW + 0x200000 - a->size);
        for (u32 k = 0; k < i; k++) {
            const struct pci_bar *b = &pci_at(k / 6)->bar[k % 6];

            assert_true(!b->size || a->addr >= b->addr + b->size || b->addr >= a->addr + a->size);
        }
    }
}

/* A function whose BAR was not sized has it where virtual functions would come first. */
static void test_not_over_what_is_not_sized(void **state) {
    struct fake_pci *part = fake_pci_add(PCI_BDF(1, 1, 0), 0x12345678, 0x08800000);

    fake_pci_bar(part, 0, WINDOW + 0x40000, 0x20000, 0);
    pci_enumerate();
    enabled(7);
    assert_int_equal(pci_find(PCI_BDF(1, 1, 0))->bar[0].size, 0);
    for (u32 i = 0; i < pci_count(); i++)
        for (const struct pci_bar *b = pci_at(i)->bar; pci_at(i)->pf && b < pci_at(i)->bar + 6; b++)
            assert_true(!b->size || b->addr >= WINDOW + 0x60000 ||
                        b->addr + b->size <= WINDOW + 0x40000);
}

/* As many as there are, as asked for; numbers above 0 on a link are for ports that can forward
 * them. */
static void test_how_many(void **state) {
    fake_set(card, SRIOV + 0x0c, 2, 3);
    fake_pci_extended(card, 0x150, PCI_EXT_ARI);
    fake_set(port, 0x54 + 0x24, 4, BIT(5));
    port->writable[0x54 + 0x28] = 0xff;
    pci_enumerate();
    assert_false(sriov_enable(0));
    assert_int_equal(fake_get(card, SRIOV + 0x08, 2), 0);
    enabled(7);
    assert_int_equal(pci_count(), 5);
    assert_int_equal(fake_get(card, SRIOV + 0x08, 2), 0x19);
    assert_int_equal(fake_get(port, 0x54 + 0x28, 2) & BIT(5), BIT(5));
}

static void none(const char *why) {
    char text[160];

    pci_enumerate();
    assert_false(sriov_enable(7));
    hv_snprintf(text, sizeof(text), "PCI device 01:00.0 has no virtual functions: %s", why);
    assert_string_equal(fake_log_last, text);
    assert_int_equal(fake_get(card, SRIOV + 0x08, 2) & 1, 0);
    assert_int_equal(pci_find(CARD)->nr_vfs, 0);
}

static void test_none(void **state) {
    fake_set(card, SRIOV + 0x14, 4, 0x80);
    none("they would have no bdfs of their own");
    fake_set(card, SRIOV + 0x14, 4, 2 << 16);
    none("they would have no bdfs of their own");
    fake_set(card, SRIOV + 0x14, 4, 0xfc | 2 << 16);
    none("the bridge above would not forward to all of them");
    fake_set(card, SRIOV + 0x14, 4, 0x80 | 2 << 16);
    fake_pci_add(CARD + 0x80, 0x12345678, 0);
    none("one of them would have the bdf of another device");
    fake_nr_devices--;
    fake_set(card, SRIOV + 0x1c, 4, 0x552);
    none("it does not support pages of 4 KiB");
    fake_set(card, SRIOV + 0x1c, 4, 0x553);
    fake_set(card, SRIOV + 0x24, 4, 1);
    card->writable[SRIOV + 0x24] = 0xe0;
    none("one of their BARs is for I/O ports");
    fake_set(card, SRIOV + 0x24, 4, 0xc);
    card->writable[SRIOV + 0x24] = 0;
    fake_set(port, PCI_WINDOW, 4, 0xfe40fe40); /* 1 MiB, and a part of it is taken */
    card->writable[SRIOV + 0x25] = 0;
    card->writable[SRIOV + 0x26] = 0xfe; /* of 128 KiB each */
    none("the bridge above it has no room for their BARs");
    fake_set(port, PCI_WINDOW, 4, 0x0000fff0); /* none at all */
    none("the bridge above it has no room for their BARs");
    port->space[PCI_SECONDARY] = 2;
    none("there is no bridge above it, in whose window they could be");
    fake_set(card, SRIOV + 0x0c, 2, 0);
    none("its capability offers none");
}

/* A reset takes the virtual functions away, and they come back where they were. */
static void test_after_reset(void **state) {
    struct pci_device *pf;
    u8 before[0x40];

    enabled(7);
    pf = pci_find(CARD);
    memcpy(before, card->space + SRIOV, sizeof(before));
    assert_int_equal(pci_reset(pf, 0), 100 * NS_PER_MS);
    assert_int_equal(pci_read(CARD + 0x80, PCI_COMMAND, 2), 0xffff);
    assert_int_equal(pci_reset(pf, 1), SRIOV_SETTLE_NS);
    assert_int_equal(pci_reset(pf, 2), 0);
    assert_memory_equal(card->space + SRIOV, before, sizeof(before));
    for (u32 i = 0; i < 7; i++)
        assert_int_equal(pci_read(CARD + 0x80 + 2 * i, PCI_COMMAND, 2) & PCI_COMMAND_MEMORY,
                         PCI_COMMAND_MEMORY);
    /* Only one function is reset, and the others do not notice. */
    assert_int_equal(pci_reset(pci_at(2), 0), 100 * NS_PER_MS);
    assert_int_equal(pci_reset(pci_at(2), 1), 0);
    assert_int_equal(pci_read(CARD + 0x80, PCI_COMMAND, 2) & 7, PCI_COMMAND_MEMORY);
    assert_int_equal(card->resets, 1);
}

/* A card that does not enable them again: its reset ends all the same. */
static void test_not_again(void **state) {
    u32 phase = 0;

    enabled(7);
    card->writable[SRIOV + 8] = 0x18;
    card->space[SRIOV + 8] = 0;
    while (pci_reset(pci_find(CARD), phase)) assert_true(++phase < PCI_RESET_PHASES);
}

/* A function that does not answer is left out. */
static void test_silent(void **state) {
    for (u32 i = 0; i < fake_nr_devices; i++)
        if (fake_device[i].pf && fake_device[i].vf == 2)
            fake_set(&fake_device[i], PCI_CLASS_REV, 4, ~0u);
    enabled(7);
    assert_int_equal(pci_count(), 8);
    assert_string_equal(fake_log_last, "PCI device 01:00.0: 6 virtual functions");
}

static struct pci_device *asked(const char *text) {
    u64 request;

    assert_int_equal(config_vf(text, &request), 0);
    return assign_asked(request);
}

static void test_names(void **state) {
    static const char *const bad[] = { "",
                                       "igb0",
                                       "/any",
                                       "igb/any",
                                       "igb0/",
                                       "igb0/some",
                                       "igb0/256",
                                       "igb0/1x",
                                       "igb0 /any",
                                       "nic0/any",
                                       "1:0/any",
                                       "01:00.0/-1",
                                       "01:00.8/any",
                                       "igb65536/0",
                                       "igb0/any@",
                                       "igb0/1@999",
                                       "igb0/2@32000",
                                       "igb0@4000/1",
                                       "igb0/2@2@2000",
                                       "igb0/2@4k",
                                       "igb0/000000000000000000000000000001" };
    struct vm vm;
    u64 request;

    enabled(7);
    assign_init();
    assert_ptr_equal(asked("igb0/any"), pci_at(2));
    assert_ptr_equal(asked("01:00.0/any"), pci_at(2));
    assert_ptr_equal(asked("igb0/3"), pci_at(5));
    assert_ptr_equal(asked("01:00.0/6"), pci_at(8));
    assert_ptr_equal(asked("01:00.0/6@4000"), pci_at(8));
    assert_null(asked("igb0/7"));
    assert_null(asked("igb1/any"));
    assert_null(asked("00:08.0/any"));
    for (u32 i = 2; i < 9; i++) {
        assert_ptr_equal(asked("igb0/any"), pci_at(i));
        assignment_of(pci_at(i))->owner = &vm;
    }
    assert_null(asked("igb0/any"));
    assert_ptr_equal(asked("igb0/3"), pci_at(5)); /* who asks for one is told who has it */
    for (u32 i = 0; i < ARRAY_SIZE(bad); i++) assert_int_not_equal(config_vf(bad[i], &request), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_places, setup),
        cmocka_unit_test_setup(test_no_overlap, setup),
        cmocka_unit_test_setup(test_not_over_what_is_not_sized, setup),
        cmocka_unit_test_setup(test_how_many, setup),
        cmocka_unit_test_setup(test_none, setup),
        cmocka_unit_test_setup(test_after_reset, setup),
        cmocka_unit_test_setup(test_silent, setup),
        cmocka_unit_test_setup(test_not_again, setup),
        cmocka_unit_test_setup(test_names, setup),
    };

    return cmocka_run_group_tests(tests, group_setup, NULL);
}
