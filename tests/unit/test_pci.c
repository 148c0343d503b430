/* How PCI devices are found: good ones, and ones whose configuration space lies. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "fake_log.h"
#include "fake_machine.h"
#include "fake_pci.h"

static int group_setup(void **state) {
    fake_machine("credit");
    return 0;
}

static int setup(void **state) {
    fake_pci_reset();
    return 0;
}

static struct fake_pci *port(u32 bdf, u8 bus) {
    struct fake_pci *f = fake_pci_add(bdf, 0x12345678, 0x06040000);

    f->space[PCI_HEADER] = 1;
    f->space[PCI_SECONDARY] = f->space[PCI_SUBORDINATE] = bus;
    return f;
}

static void test_bars(void **state) {
    struct fake_pci *f = fake_pci_add(PCI_BDF(0, 3, 0), 0x100e8086, 0x02000003);
    const struct pci_device *d;

    fake_pci_bar(f, 0, 0xfebc0000, 0x20000, 0);
    fake_pci_bar(f, 1, 0xc040, 0x40, 1);
    fake_pci_bar(f, 2, 0x380000000000, BIT(34), 0xc); /* 64 bits, prefetchable */
    fake_pci_bar(f, 4, 0xfe000000, 0x1000, 4);
    fake_set(f, PCI_COMMAND, 2, 7);
    pci_enumerate();
    assert_int_equal(pci_count(), 1);
    d = pci_find(PCI_BDF(0, 3, 0));
    assert_ptr_equal(d, pci_at(0));
    assert_int_equal(d->vendor, 0x8086);
    assert_int_equal(d->device, 0x100e);
    assert_int_equal(d->pin, 1);
    assert_int_equal(d->line, 11);
    assert_int_equal(d->bar[0].addr, 0xfebc0000);
    assert_int_equal(d->bar[0].size, 0x20000);
    assert_false(d->bar[0].io || d->bar[0].wide);
    assert_true(d->bar[1].io);
    assert_int_equal(d->bar[1].addr, 0xc040);
    assert_int_equal(d->bar[1].size, 0x40);
    assert_true(d->bar[2].wide);
    assert_int_equal(d->bar[2].addr, 0x380000000000);
    assert_int_equal(d->bar[2].size, BIT(34));
    assert_int_equal(d->bar[3].size, 0);
    assert_int_equal(d->bar[4].addr, 0xfe000000);
    assert_int_equal(d->bar[5].size, 0);
    /* The BAR is as it was before, and the device never decoded the address that sizing writes. */
    assert_int_equal(fake_get(f, PCI_BAR0, 4), 0xfebc0000);
    assert_int_equal(fake_get(f, PCI_BAR0 + 12, 4), 0x3800);
    assert_int_equal(fake_get(f, PCI_COMMAND, 2) & 7, 7);
    assert_false(f->moved);
    assert_true(fake_get(f, PCI_COMMAND, 2) & PCI_COMMAND_NO_INTX); /* until somebody has it */
    assert_non_null(d->quiet);
}

static void test_odd_bars(void **state) {
    struct fake_pci *f = fake_pci_add(PCI_BDF(0, 4, 0), 0x12345678, 0);
    const struct pci_device *d;

    fake_set(f, PCI_BAR0, 4, 0xffffffff); /* fixed at all ones */
    fake_pci_bar(f, 2, 0x2000000, 0x1000, 0);
    f->writable[PCI_BAR0 + 11] = 0x55;        /* its mask has holes: the lowest bit counts */
    fake_pci_bar(f, 3, 0, 0x1000, 0);         /* firmware gave it no address */
    fake_pci_bar(f, 5, 0x3000000, 0x1000, 4); /* 64 bits, and nothing behind it */
    pci_enumerate();
    d = pci_at(0);
    assert_int_equal(d->bar[0].size, 0);
    assert_int_equal(d->bar[2].size, 0x1000);
    assert_int_equal(d->bar[3].size, 0x1000);
    assert_int_equal(d->bar[3].addr, 0);
    assert_int_equal(d->bar[4].size, 0);
    assert_false(d->bar[5].wide);
}

/* A device that is not given to a VM keeps its BARs and goes on decoding, because a write there
 * stops some machines. */
static void test_parts_of_the_machine(void **state) {
    static const struct {
        u32 id, class_rev;
        bool touched;
    } kinds[] = { { 0x12345678, 0x06000000, false }, /* host bridge */
                  { 0x0e718086, 0x08800000, false }, /* beside the cores: "system peripheral" */
                  { 0x0e368086, 0x11010000, false }, /* and counters */
                  { 0x12345678, 0x08050000, true },  /* SD cards */
                  { 0x2fc08086, 0x01000000, false }, /* by name, whatever its class */
                  { 0xa26c8086, 0x01000000, false }, { 0xa26e8086, 0x01000000, true },
                  { 0x12345678, 0x02000000, true } };

    for (u32 i = 0; i < ARRAY_SIZE(kinds); i++) {
        struct fake_pci *f;
        const struct pci_device *d;

        setup(NULL);
        f = fake_pci_add(PCI_BDF(0, 3, 0), kinds[i].id, kinds[i].class_rev);
        fake_pci_bar(f, 0, 0x380000004000, 0x4000, 4);
        fake_pci_bar(f, 2, 0xc000, 0x40, 1);
        pci_enumerate();
        d = pci_at(0);
        assert_int_equal(f->touched > 0, kinds[i].touched);
        assert_int_equal(d->unsized, !kinds[i].touched);
        assert_int_equal(d->bar[0].size, kinds[i].touched ? 0x4000 : 0);
        assert_int_equal(d->bar[0].addr, 0x380000004000); /* what is there is known all the same */
        assert_true(d->bar[2].io && d->bar[2].addr == 0xc000);
        assert_int_equal(d->bar[1].addr, 0);
    }
    setup(NULL);
    fake_pci_bar(port(PCI_BDF(0, 1, 0), 1), 0, 0xfe800000, 0x1000, 0);
    fake_pci_bar(fake_pci_add(PCI_BDF(0, 2, 0), 0x12345678, 0x03000000), 0, 0xfd000000, BIT(24), 8);
    pci_enumerate();
    for (u32 i = 0; i < 2; i++) assert_int_equal(pci_at(i)->bar[0].size, 0);
    assert_int_equal(pci_at(0)->bar[0].addr, 0xfe800000);
    assert_int_equal(fake_device[0].touched, 0);
    assert_false(fake_device[1].moved || fake_device[1].touched > 1); /* INTx alone */
}

static void test_capabilities(void **state) {
    struct fake_pci *f = fake_pci_add(PCI_BDF(0, 5, 0), 0x12345678, 0);
    const struct pci_device *d;

    fake_pci_bar(f, 4, 0xfe000000, 0x4000, 4);
    fake_pci_cap(f, 0x40, PCI_CAP_MSI);
    fake_pci_cap(f, 0x60, PCI_CAP_MSIX);
    fake_pci_cap(f, 0x80, PCI_CAP_EXPRESS);
    fake_pci_cap(f, 0xb0, PCI_CAP_PM);
    fake_pci_cap(f, 0xc0, PCI_CAP_AF);
    fake_pci_cap(f, 0xd0, 0x09);
    fake_set(f, 0x64, 4, 0x2004); /* the table in BAR 4 at 0x2000 */
    memset(fake_registers, 0, sizeof(fake_registers));
    pci_enumerate();
    d = pci_at(0);
    assert_int_equal(d->msi, 0x40);
    assert_int_equal(d->msix, 0x60);
    assert_int_equal(d->express, 0x80);
    assert_int_equal(d->pm, 0xb0);
    assert_int_equal(d->af, 0xc0);
    assert_non_null(d->msix_table);
    assert_null(d->quiet);
}

/* Each of these ends, and nothing is read beyond the 256 bytes (the fake answers all
 * ones there). */
static void test_capabilities_lie(void **state) {
    static const struct {
        u8 first, at, next;
    } bad[] = { { 0x40, 0x40, 0x40 }, { 0x40, 0x40, 0x10 }, { 0x04, 0x04, 0x40 },
                { 0xfc, 0xfc, 0xfc }, { 0xff, 0xfc, 0x43 }, { 0xf0, 0xf0, 0x00 } };
    struct fake_pci *f;

    for (u32 i = 0; i < ARRAY_SIZE(bad); i++) {
        fake_pci_reset();
        f = fake_pci_add(PCI_BDF(0, 6, 0), 0x12345678, 0);
        f->space[PCI_STATUS] |= 0x10;
        f->space[PCI_CAPABILITIES] = bad[i].first;
        f->space[bad[i].at] = PCI_CAP_MSIX;
        f->space[bad[i].at + 1] = bad[i].next;
        pci_enumerate();
        assert_int_equal(pci_count(), 1);
        assert_true(pci_at(0)->msix == 0 || (pci_at(0)->msix >= 0x40 && pci_at(0)->msix <= 0xec));
    }
    /* The MSI-X table is behind the end of its BAR, in no BAR, or in one of ports. */
    for (u32 i = 0; i < 3; i++) {
        static const u32 table[] = { 0x1ff8, 7, 1 };

        fake_pci_reset();
        f = fake_pci_add(PCI_BDF(0, 6, 0), 0x12345678, 0);
        fake_pci_bar(f, 0, 0xfe000000, 0x2000, 0);
        fake_pci_bar(f, 1, 0xc000, 0x40, 1);
        fake_pci_cap(f, 0x40, PCI_CAP_MSIX);
        fake_set(f, 0x44, 4, table[i]);
        pci_enumerate();
        assert_null(pci_at(0)->msix_table);
    }
}

/* Extended ones: the same, in the space behind. */
static void test_extended(void **state) {
    static const struct {
        u16 at, next;
        u16 found;
    } lists[] = { { 0x100, 0, 0x100 },     { 0x100, 0x100, 0x100 }, { 0x150, 0x100, 0x150 },
                  { 0x150, 0x150, 0x150 }, { 0x150, 0x40, 0x150 },  { 0xfc0, 0xffc, 0xfc0 },
                  { 0xfe0, 0x0, 0 } /* not whole before the end */ };

    for (u32 i = 0; i < ARRAY_SIZE(lists); i++) {
        struct fake_pci *f;

        fake_pci_reset();
        f = fake_pci_add(PCI_BDF(0, 6, 0), 0x12345678, 0);
        fake_set(f, 0x100, 4, 1 | (u32)lists[i].at << 20);
        fake_set(f, lists[i].at, 4, PCI_EXT_SRIOV | (u32)lists[i].next << 20);
        pci_enumerate();
        assert_int_equal(pci_at(0)->sriov, 0); /* not PCI Express: what is there is anything */
        fake_pci_cap(f, 0x80, PCI_CAP_EXPRESS);
        pci_enumerate();
        assert_int_equal(pci_at(0)->sriov, lists[i].found);
    }
}

static void test_functions(void **state) {
    struct fake_pci *f = fake_pci_add(PCI_BDF(2, 0, 0), 0x12345678, 0);

    f->space[PCI_HEADER] = 0x80; /* several functions, not all of them there */
    fake_pci_add(PCI_BDF(2, 0, 3), 0x12345678, 0);
    fake_pci_add(PCI_BDF(2, 0, 7), 0x12345678, 0)->space[PCI_HEADER] = 0x80;
    /* The first function says that the device has only one, so the next function is not found. */
    fake_pci_add(PCI_BDF(2, 1, 0), 0x12345678, 0);
    fake_pci_add(PCI_BDF(2, 1, 1), 0x12345678, 0);
    fake_pci_add(PCI_BDF(255, 31, 0), 0x12345678, 0);
    fake_pci_add(PCI_BDF(3, 0, 0), 0x12340000, 0); /* no vendor */
    pci_enumerate();
    assert_int_equal(pci_count(), 5);
    assert_non_null(pci_find(PCI_BDF(2, 0, 3)));
    assert_non_null(pci_find(PCI_BDF(2, 0, 7)));
    assert_null(pci_find(PCI_BDF(2, 1, 1)));
    assert_non_null(pci_find(PCI_BDF(255, 31, 0)));
}

static void test_headers(void **state) {
    struct fake_pci *bridge = fake_pci_add(PCI_BDF(0, 1, 0), 0x12345678, 0x06040000);
    struct fake_pci *odd = fake_pci_add(PCI_BDF(0, 2, 0), 0x12345678, 0);
    u32 reads;

    bridge->space[PCI_HEADER] = 1;
    bridge->space[PCI_SECONDARY] = 4;
    fake_set(bridge, PCI_BAR0, 4, 0xfffffff4);
    odd->space[PCI_HEADER] = 0x7f;
    fake_pci_bar(odd, 0, 0xfe000000, 0x1000, 0);
    pci_enumerate();
    assert_int_equal(pci_count(), 2);
    reads = fake_reads;
    assert_ptr_equal(pci_bridge_of(4), pci_at(0));
    assert_int_equal(fake_reads, reads); /* groups are looked for by many of these */
    assert_null(pci_bridge_of(0));
    assert_int_equal(pci_at(1)->header, 0x7f);
    for (u32 i = 0; i < 6; i++) {
        assert_int_equal(pci_at(0)->bar[i].size, 0);
        assert_int_equal(pci_at(1)->bar[i].size, 0);
    }
}

/* A server with two sockets has 305 functions, and its network card is the last of them. Memory
 * is for those that there are. */
static void test_many(void **state) {
    u64 heap;

    for (u32 i = 0; i < 305; i++) fake_pci_add(PCI_BDF(0, 0, 0) + 8 * i, 0x12345678, 0);
    pci_enumerate();
    assert_int_equal(pci_count(), 305);
    assert_int_equal(pci_at(304)->bdf, 8 * 304);
    for (u32 i = 0; i < 305; i++) assert_ptr_equal(pci_find(8 * i), pci_at(i));
    assert_null(pci_find(1));
    assert_null(pci_find(8 * 305));
    heap = heap_in_use();
    assert_true(heap < 1 << 20);
    pci_enumerate();
    assert_int_equal(heap_in_use(), heap);
}

static void test_too_many(void **state) {
    for (u32 i = 0; i < PCI_MAX_DEVICES + 44; i++) fake_pci_add(8 * i, 0x12345678, 0);
    pci_enumerate();
    assert_int_equal(pci_count(), PCI_MAX_DEVICES);
    assert_string_equal(fake_log_last, "Takt knows 4096 PCI functions at most: 44 are left out");
}

/* The same bus and device in two segments are two devices, each behind the bridge of its own
 * segment. */
static void test_segments(void **state) {
    char name[PCI_NAME];

    port(PCI_BDF(0, 1, 0), 1);
    fake_pci_add(PCI_BDF(1, 0, 0), 0x12345678, 0);
    port(0x20000 + PCI_BDF(0, 2, 0), 1);
    fake_pci_add(0x20000 + PCI_BDF(1, 0, 0), 0x12345678, 0);
    pci_enumerate();
    assert_int_equal(pci_count(), 4);
    assert_string_equal(pci_at(1)->name, "01:00.0");
    assert_string_equal(pci_at(3)->name, "0002:01:00.0");
    assert_string_equal(pci_name(0xffffffff, name), "ffff:ff:1f.7");
    assert_ptr_equal(pci_bridge_of(1), pci_at(0));
    assert_ptr_equal(pci_bridge_of(0x201), pci_at(2));
    assert_null(pci_bridge_of(0x101));
    assert_int_equal(pci_at(1)->group, PCI_BDF(0, 1, 0));
    assert_int_equal(pci_at(3)->group, 0x20000 + PCI_BDF(0, 2, 0));
}

static void run_reset(struct pci_device *d, u32 phases, const u64 *ns) {
    for (u32 i = 0; i < phases; i++) assert_int_equal(pci_reset(d, i), ns[i]);
}

static void test_reset(void **state) {
    struct fake_pci *f = fake_pci_add(PCI_BDF(0, 7, 0), 0x12345678, 0);
    struct pci_device *d;

    fake_pci_bar(f, 0, 0xfe000000, 0x1000, 4);
    fake_pci_cap(f, 0x40, PCI_CAP_MSI);
    fake_set(f, PCI_COMMAND, 2, 7);
    pci_enumerate();
    d = pci_at(0);
    fake_set(f, 0x42, 2, 1);
    run_reset(d, 1, (const u64[]){ 0 }); /* it cannot be reset: quiet at least */
    assert_int_equal(fake_get(f, PCI_COMMAND, 2), 3 | PCI_COMMAND_NO_INTX);
    assert_int_equal(fake_get(f, 0x42, 2), 0);
    assert_int_equal(pci_reset(d, 1), 0);

    fake_pci_cap(f, 0x60, PCI_CAP_EXPRESS);
    fake_set(f, 0x64, 4, BIT(28));
    fake_set(f, 0x68, 2, 0x2810);
    pci_enumerate();
    d = pci_at(0);
    fake_set(f, PCI_COMMAND, 2, 7);
    run_reset(d, 2, (const u64[]){ 100 * NS_PER_MS, 0 });
    assert_int_equal(f->resets, 1);
    assert_int_equal(fake_get(f, PCI_BAR0, 4), 0xfe000004); /* the reset took it away */
    assert_int_equal(fake_get(f, 0x68, 2), 0x2810);
    assert_int_equal(fake_get(f, PCI_COMMAND, 2), 3 | PCI_COMMAND_NO_INTX);
    assert_int_equal(pci_reset(d, 2), 0); /* while others go on */
    assert_int_equal(f->resets, 1);

    fake_pci_reset();
    f = fake_pci_add(PCI_BDF(0, 7, 0), 0x12345678, 0);
    fake_pci_cap(f, 0x50, PCI_CAP_PM);
    pci_enumerate();
    run_reset(pci_at(0), 3, (const u64[]){ 100 * NS_PER_MS, 10 * NS_PER_MS, 0 });
    assert_int_equal(fake_get(f, 0x54, 2) & 3, 0);
    f->writable[0x54] = 0; /* stuck in D3: not waited for again and again */
    fake_set(f, 0x54, 2, 3);
    run_reset(pci_at(0), 3, (const u64[]){ 100 * NS_PER_MS, 10 * NS_PER_MS, 0 });
    fake_set(f, 0x54, 2, 8); /* D3 does not reset it */
    run_reset(pci_at(0), 1, (const u64[]){ 0 });
}

/* One device takes its time for a reset, and another one does not come back. */
static void test_reset_without_answer(void **state) {
    struct fake_pci *f = fake_pci_add(PCI_BDF(0, 7, 0), 0x12345678, 0);
    struct pci_device *d;
    u32 phase = 0;

    fake_pci_cap(f, 0x60, PCI_CAP_EXPRESS);
    fake_set(f, 0x64, 4, BIT(28));
    fake_set(f, PCI_COMMAND, 2, 7);
    f->silent_ns = 350 * NS_PER_MS;
    pci_enumerate();
    d = pci_at(0);
    for (u64 now = 1000, wait = 1; wait; phase++, now += wait) {
        fake_clock(now);
        wait = pci_reset(d, phase);
    }
    assert_int_equal(phase, 5);
    assert_false(d->lost);
    assert_int_equal(fake_get(f, PCI_COMMAND, 2), 3 | PCI_COMMAND_NO_INTX);

    fake_set(f, 0x6a, 2, BIT(5)); /* what it asked for is still to come, for ever */
    f->writable[0x6a] = 0;
    f->silent_ns = 0;
    phase = 0;
    for (u64 now = 1000, wait = 1; wait; phase++, now += wait) {
        fake_clock(now);
        wait = pci_reset(d, phase);
    }
    assert_int_equal(phase, PCI_RESET_TRIES + 1);
    assert_true(d->lost);
    assert_string_equal(
        fake_log_last,
        "PCI device 00:07.0 did not come back from its reset; nobody gets it any more");
    assert_int_equal(fake_get(f, PCI_COMMAND, 2) & PCI_COMMAND_MASTER, 0);
    assert_true(phase < PCI_RESET_PHASES);
    fake_clock(1000);
}

static void capable(struct fake_pci *f, u16 at, u16 bits) {
    fake_pci_cap(f, 0x54, PCI_CAP_EXPRESS);
    fake_pci_extended(f, at, PCI_EXT_ACS);
    fake_set(f, at + 4, 2, bits);
    f->writable[at + 6] = 0x7f;
}

static u32 group(u32 bdf) { return pci_find(bdf)->group; }

/* Tests which devices can reach which others without going through the root. */
static void test_groups(void **state) {
    capable(port(PCI_BDF(0, 8, 0), 1), 0x148, 0x7f);  /* isolates, once it is told to */
    capable(port(PCI_BDF(0, 9, 0), 2), 0x148, 0x0c);  /* cannot */
    port(PCI_BDF(0, 10, 0), 3);                       /* of old */
    port(PCI_BDF(3, 0, 0), 4);                        /* behind that */
    capable(port(PCI_BDF(0, 11, 0), 5), 0x148, 0x1d); /* behind a good one ... */
    port(PCI_BDF(5, 0, 0), 6);                        /* ... a bad one */
    fake_pci_add(PCI_BDF(0, 3, 0), 0x12345678, 0);
    fake_pci_add(PCI_BDF(0, 31, 0), 0x12345678, 0)->space[PCI_HEADER] = 0x80;
    fake_pci_add(PCI_BDF(0, 31, 2), 0x12345678, 0);
    fake_pci_add(PCI_BDF(1, 0, 0), 0x12345678, 0);
    fake_pci_add(PCI_BDF(2, 0, 0), 0x12345678, 0);
    fake_pci_add(PCI_BDF(4, 0, 0), 0x12345678, 0);
    fake_pci_add(PCI_BDF(4, 1, 0), 0x12345678, 0);
    fake_pci_add(PCI_BDF(6, 1, 0), 0x12345678, 0);
    capable(fake_pci_add(PCI_BDF(1, 1, 0), 0x12345678, 0), 0x148,
            0); /* functions that cannot reach each other */
    fake_device[fake_nr_devices - 1].space[PCI_HEADER] = 0x80;
    capable(fake_pci_add(PCI_BDF(1, 1, 1), 0x12345678, 0), 0x148, 4);
    pci_enumerate();
    assert_int_equal(group(PCI_BDF(0, 3, 0)), PCI_BDF(0, 3, 0));
    assert_int_equal(group(PCI_BDF(0, 31, 2)), PCI_BDF(0, 31, 0));
    assert_int_equal(group(PCI_BDF(0, 31, 0)), PCI_BDF(0, 31, 0));
    assert_int_equal(group(PCI_BDF(1, 0, 0)), PCI_BDF(1, 0, 0));
    assert_int_equal(group(PCI_BDF(2, 0, 0)), PCI_BDF(0, 9, 0));
    assert_int_equal(group(PCI_BDF(4, 0, 0)), PCI_BDF(0, 10, 0));
    assert_int_equal(group(PCI_BDF(4, 1, 0)), PCI_BDF(0, 10, 0));
    assert_int_equal(group(PCI_BDF(6, 1, 0)), PCI_BDF(5, 0, 0));
    assert_int_equal(group(PCI_BDF(1, 1, 1)), PCI_BDF(1, 1, 1));
    port(PCI_BDF(7, 0, 0), 7); /* a bridge to itself */
    fake_pci_add(PCI_BDF(7, 1, 0), 0x12345678, 0);
    pci_enumerate();
    assert_int_equal(group(PCI_BDF(7, 1, 0)), PCI_BDF(7, 0, 0));
}

/* The two functions of such a card are in one group, unless it is known that they cannot reach
 * each other. */
static void test_known_isolated(void **state) {
    static const struct {
        u32 id, type;
        bool isolated;
    } cards[] = { { 0x10c98086, 0, true },  { 0x10fb8086, 0, true },  { 0x15218086, 0, true },
                  { 0x15258086, 0, false }, { 0x10c91234, 0, false }, { 0x0e208086, 9, true },
                  { 0x0e201234, 9, false }, { 0x10de8086, 0, false } };

    for (u32 i = 0; i < ARRAY_SIZE(cards); i++) {
        setup(NULL);
        capable(port(PCI_BDF(0, 8, 0), 1), 0x148, 0x7f);
        for (u32 fn = 0; fn < 2; fn++) {
            struct fake_pci *f = fake_pci_add(PCI_BDF(1, 0, fn), cards[i].id, 0x02000000);

            fake_pci_cap(f, 0xa0, PCI_CAP_EXPRESS);
            fake_set(f, 0xa2, 2, cards[i].type << 4);
            f->space[PCI_HEADER] = 0x80;
        }
        pci_enumerate();
        assert_int_equal(group(PCI_BDF(1, 0, 1)), PCI_BDF(1, 0, cards[i].isolated));
        assert_int_equal(group(PCI_BDF(1, 0, 0)), PCI_BDF(1, 0, 0));
    }
}

/* Root ports of some chipsets have the control register of ACS two bytes further on. */
static void test_acs_of_dwords(void **state) {
    for (u32 right = 0; right < 2; right++) {
        struct fake_pci *f;

        setup(NULL);
        f = port(PCI_BDF(0, 8, 0), 1);
        fake_set(f, PCI_ID, 4, right ? 0xa1108086 : 0xa1208086);
        fake_pci_cap(f, 0x54, PCI_CAP_EXPRESS);
        fake_set(f, 0x56, 2, 4 << 4);
        fake_pci_extended(f, 0x148, PCI_EXT_ACS);
        fake_set(f, 0x14c, 2, 0x1f);
        f->writable[0x150] = 0x1f;
        fake_pci_add(PCI_BDF(1, 0, 0), 0x12345678, 0);
        pci_enumerate();
        assert_int_equal(fake_get(f, 0x150, 2), right ? 0x1d : 0);
        assert_int_equal(group(PCI_BDF(1, 0, 0)), right ? PCI_BDF(1, 0, 0) : PCI_BDF(0, 8, 0));
    }
}

static void test_quiet(void **state) {
    struct fake_pci *f = fake_pci_add(PCI_BDF(0, 3, 0), 0x100e8086, 0x02000003);

    fake_pci_bar(f, 0, 0xfebc0000, 0x20000, 0);
    memset(fake_registers, 0x55, sizeof(fake_registers));
    pci_enumerate();
    pci_reset(pci_at(0), 0);
    assert_int_equal(*(u32 *)(fake_registers + 0x0d8), ~0u);
    assert_int_equal(*(u32 *)(fake_registers + 0x100), 0);
    assert_int_equal(*(u32 *)(fake_registers + 0x400), 0);
}

/* Configuration spaces at random: bounded, and every BAR is sane or none. */
static void test_random(void **state) {
    srand(3);
    for (u32 round = 0; round < 300; round++) {
        fake_pci_reset();
        for (u32 i = 0; i < 8; i++) {
            struct fake_pci *f = fake_pci_add(PCI_BDF(rand() & 3, i, 0), 0x12345678, 0);

            for (u32 at = 4; at < 256; at++) f->space[at] = (u8)rand();
            for (u32 at = 4; at < 256; at++) f->writable[at] = rand() & 1 ? (u8)rand() : 0;
            if (round & 1) f->space[PCI_HEADER] &= 0x80;
        }
        pci_enumerate();
        for (u32 i = 0; i < pci_count(); i++) {
            const struct pci_device *d = pci_at(i);

            for (u32 b = 0; b < 6; b++) {
                assert_int_equal(d->bar[b].size & (d->bar[b].size - 1), 0);
                assert_true(!d->bar[b].size || !(d->bar[b].addr & (d->bar[b].size - 1)));
                if (d->bar[b].io) assert_true(d->bar[b].addr + d->bar[b].size <= 0x10000);
            }
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_bars, setup),
        cmocka_unit_test_setup(test_odd_bars, setup),
        cmocka_unit_test_setup(test_parts_of_the_machine, setup),
        cmocka_unit_test_setup(test_capabilities, setup),
        cmocka_unit_test_setup(test_capabilities_lie, setup),
        cmocka_unit_test_setup(test_extended, setup),
        cmocka_unit_test_setup(test_functions, setup),
        cmocka_unit_test_setup(test_headers, setup),
        cmocka_unit_test_setup(test_many, setup),
        cmocka_unit_test_setup(test_too_many, setup),
        cmocka_unit_test_setup(test_segments, setup),
        cmocka_unit_test_setup(test_reset, setup),
        cmocka_unit_test_setup(test_reset_without_answer, setup),
        cmocka_unit_test_setup(test_groups, setup),
        cmocka_unit_test_setup(test_known_isolated, setup),
        cmocka_unit_test_setup(test_acs_of_dwords, setup),
        cmocka_unit_test_setup(test_quiet, setup),
        cmocka_unit_test_setup(test_random, setup),
    };

    return cmocka_run_group_tests(tests, group_setup, NULL);
}
