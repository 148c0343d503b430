/* The watchdog: the table WDAT of firmware, good ones and ones that lie, and the TCO timer of a
 * modelled ICH9. The test plays the registers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "fake_log.h"
#include "watchdog_rig.h"

enum { PM = 0x600, TCO_AT = PM + 0x60, RCBA = 0xfed1c000 };

static u8 io[0x1000];    /* registers by port */
static u8 memory[0x100]; /* and in memory, from `mapped` on */
static u64 mapped;
static u32 gcs; /* a register of the chipset: bit 5 keeps the timer from resetting */

static u32 pci_address, lpc[64], reloads;
static bool alive, tmr_dead;

u32 model_in(u16 port, u32 bytes) {
    u32 v = 0;

    if (port == 0xcfc)
        return (pci_address >> 8 & 0xffff) == 31 << 3 ? lpc[pci_address >> 2 & 63] : ~0u;
    if (port + bytes <= sizeof(io)) memcpy(&v, io + port, bytes);
    return v;
}

void model_out(u16 port, u32 v, u32 bytes) {
    if (port == 0xcf8) pci_address = v;
    reloads += port == TCO_AT;
    if (port == TCO_AT + 0x12 && tmr_dead) return;
    if (port + bytes <= sizeof(io)) memcpy(io + port, &v, bytes);
}

volatile void *mmio_map(hpa_t pa, u64 len) {
    if (pa == RCBA + 0x3410) return &gcs;
    if (pa >> 32) return NULL;
    mapped = pa;
    return memory;
}

bool smp_all_alive(void) { return alive; }

static struct acpi_info acpi;
static u8 table[1024];

static void u32_at(u32 at, u32 v) { memcpy(table + at, &v, 4); }

static int setup(void **state) {
    memset(io, 0, sizeof(io));
    memset(lpc, 0, sizeof(lpc));
    memset(table, 0, sizeof(table));
    memset(&dog, 0, sizeof(dog));
    lpc[0] = 0x29188086; /* ICH9's */
    lpc[2] = 0x06010002;
    lpc[LPC_PMBASE / 4] = PM | 1;
    lpc[LPC_ACPI_CNTL / 4] = 0x80;
    lpc[LPC_RCBA / 4] = RCBA | 1;
    gcs = 0x20;
    io[TCO_AT + 9] = 8; /* halted */
    io[TCO_AT + 0x12] = 4;
    acpi = (struct acpi_info){ 0 };
    added = NULL;
    alive = true;
    tmr_dead = false;
    reloads = 0;
    now = 1000;
    fake_log_forget();
    return 0;
}

static u16 tco16(u32 at) { return (u16)(io[TCO_AT + at] | io[TCO_AT + at + 1] << 8); }

static void test_off_by_default(void **state) {
    watchdog_init(&acpi, 0);
    assert_null(added);
    assert_int_equal(gcs, 0x20);
    assert_false(fake_log_said("watchdog"));
}

/* 10 s are 9 counts of two ticks of 0.6 s, rounded up. */
static void test_tco(void **state) {
    watchdog_init(&acpi, 10);
    assert_true(fake_log_said("the chipset's TCO timer, 10800 ms"));
    assert_int_equal(tco16(0x12), 9);
    assert_int_equal(tco16(8) & 0x800, 0); /* runs */
    assert_int_equal(gcs, 0);
    assert_int_equal(io[TCO_AT + 4], 8); /* what ran down before is forgotten */
    assert_int_equal(reloads, 1);
    assert_true(added->step(added));
    assert_int_equal(reloads, 2);
    assert_int_equal(added->not_before, 1000 + 10800 * NS_PER_MS / 4);
    alive = false;
    assert_true(added->step(added));
    assert_int_equal(reloads, 2);
    watchdog_stop();
    assert_int_equal(tco16(8) & 0x800, 0x800);
    assert_false(added->step(added));
    assert_int_equal(reloads, 2);
}

static void test_tco_bounds(void **state) {
    watchdog_init(&acpi, 1);
    assert_int_equal(tco16(0x12), 4);
    setup(NULL);
    watchdog_init(&acpi, 100000);
    assert_int_equal(tco16(0x12), 0x3ff);
}

static void test_machines_without_tco(void **state) {
    static const struct {
        u32 reg, value;
    } other[] = {
        { 0, 0x29181022 },             /* not Intel's */
        { PCI_CLASS / 4, 0x02000000 }, /* not a bridge */
        { LPC_PMBASE / 4, 0 },         /* later chipsets have it elsewhere */
        { LPC_RCBA / 4, 0 },           /* they have none */
        { LPC_RCBA / 4, RCBA },        /* not switched on */
        { LPC_ACPI_CNTL / 4, 0 },      /* its ports are off */
    };

    for (u32 i = 0; i < ARRAY_SIZE(other); i++) {
        setup(NULL);
        lpc[other[i].reg] = other[i].value;
        watchdog_init(&acpi, 10);
        assert_null(added);
        assert_true(fake_log_said("Takt knows no watchdog of this machine"));
        assert_int_equal(gcs, 0x20);
    }
    setup(NULL);
    tmr_dead = true;
    watchdog_init(&acpi, 10);
    assert_null(added);
    assert_true(fake_log_said("it does not keep its time"));
}

/* ---- WDAT ---- */

static u32 entries;

static void entry(u8 action, u8 operation, u8 space, u8 access, u8 shift, u64 addr, u32 value,
                  u32 mask) {
    u8 *p = table + 68 + 24 * entries++;

    p[0] = action;
    p[1] = operation;
    p[4] = space;
    p[5] = 16;
    p[6] = shift;
    p[7] = access;
    memcpy(p + 8, &addr, 8);
    memcpy(p + 16, &value, 4);
    memcpy(p + 20, &mask, 4);
    u32_at(64, entries);
    acpi.wdat = table;
    acpi.wdat_len = 68 + 24 * entries;
}

/* Registers at 0x100: byte 0 is reloaded by 0x5a, bits 4 to 13 of word 2 are the count, bit 7 of
 * the byte in memory starts it, bit 6 lets it reset. */
static void wdat(void) {
    setup(NULL);
    entries = 0;
    u32_at(48, 500);
    u32_at(52, 100);
    u32_at(56, 2);
    table[60] = 1;
    entry(1, 2, 1, 1, 0, 0x100, 0x5a, 0xff);
    entry(6, 0x83, 1, 2, 4, 0x102, 0, 0x3ff);
    entry(9, 0x82, 0, 1, 7, 0xfed00007, 1, 1);
    entry(0xb, 0x82, 0, 1, 7, 0xfed00007, 0, 1);
    entry(0x11, 0x82, 0, 1, 6, 0xfed00007, 1, 1);
    entry(0x10, 0, 0, 1, 6, 0xfed00007, 1, 1);
    memset(memory, 0, sizeof(memory));
    memory[0] = 0x11;
    io[0x102] = 0xf;
    io[0x103] = 0xc0;
}

static void test_wdat(void **state) {
    wdat();
    watchdog_init(&acpi, 10);
    assert_true(fake_log_said("the firmware's table WDAT, 10000 ms"));
    assert_int_equal(mapped, 0xfed00007);
    assert_int_equal(memory[0], 0xd1);
    assert_int_equal(io[0x102] | io[0x103] << 8, 0xc00f | 20 << 4);
    assert_int_equal(io[0x100], 0x5a);
    io[0x100] = 0;
    added->step(added);
    assert_int_equal(io[0x100], 0x5a);
    assert_int_equal(gcs, 0x20); /* the chipset is left alone */
    watchdog_stop();
    assert_int_equal(memory[0], 0x51);
    wdat();
    watchdog_init(&acpi, 600);
    assert_int_equal(io[0x102] | io[0x103] << 8, 0xc00f | 100 << 4); /* the most that it can */
}

/* Firmware may have wired it so that nothing comes of it, and says so. */
static void test_wdat_that_does_not_reset(void **state) {
    wdat();
    table[68 + 24 * 4 + 16] = 0; /* "switch resets on" writes a 0 */
    watchdog_init(&acpi, 10);
    assert_null(added);
    assert_true(fake_log_said("it is wired not to reset the machine"));
    assert_int_equal(memory[0] & 0x80, 0);
}

/* Firmware also describes what Takt never does, as to ask whether the watchdog runs. Such an
 * entry may have a register that Takt cannot reach, and there may be many: the others are as
 * good as without it. */
static void test_wdat_with_entries_that_are_not_used(void **state) {
    enum { QUERY_RUNNING = 0x08, GET_STATUS = 0x20 };

    wdat();
    entry(QUERY_RUNNING, 0, 2, 1, 0, 0x100, 1, 1);      /* in PCI's configuration space */
    entry(QUERY_RUNNING, 0, 0, 1, 0, 1ull << 32, 1, 1); /* cannot be mapped */
    entry(QUERY_RUNNING, 0, 1, 4, 0, 0xffff, 1, 1);     /* beyond the last port, and of no size */
    entry(GET_STATUS, 9, 1, 1, 40, 0x100, 1, 1);        /* an operation and a shift that are none */
    while (68 + 24 * (entries + 1) <= sizeof(table)) entry(GET_STATUS, 0, 1, 1, 0, 0x100, 1, 1);
    assert_true(entries > MAX_ENTRIES);
    watchdog_init(&acpi, 10);
    assert_true(fake_log_said("the firmware's table WDAT, 10000 ms"));
    assert_int_equal(memory[0], 0xd1);
    assert_int_equal(io[0x100], 0x5a);
}

/* None of these tables is used. The TCO timer is used instead, because the machine has it. */
static void test_wdat_that_lies(void **state) {
    for (u32 i = 0; i < 13; i++) {
        wdat();
        switch (i) {
        case 0: acpi.wdat_len -= 1; break;      /* cut within an entry */
        case 1: u32_at(64, entries + 1); break; /* more entries than there are */
        case 2: u32_at(64, ~0u); break;
        case 3: table[60] = 0; break; /* not switched on */
        case 4: u32_at(48, 0); break; /* counts of no time */
        case 5:
            u32_at(52, 1);
            break; /* the most is less than the least */
        /* The register is in PCI's configuration space, which is not supported. */
        case 6: table[68 + 4] = 2; break;
        case 7: table[68 + 7] = table[68 + 5] = 0; break; /* of no size */
        case 8: table[68] = 2; break;                     /* no way to give a sign of life */
        case 9: u32_at(68 + 24 * 2 + 12, 1); break;       /* a register that cannot be mapped */
        case 10: u32_at(68 + 8, 0x10000); break;          /* no port */
        case 11: table[68 + 24 * 2 + 1] = 4; break;       /* an operation that is not defined */
        case 12:                                          /* it would wait for 18 million years */
            u32_at(48, 1u << 29);
            u32_at(52, ~0u);
            u32_at(56, 1u << 30);
            break;
        }
        watchdog_init(&acpi, 10);
        if (!fake_log_said("TCO")) fail_msg("case %u", i);
        assert_int_equal(memory[0], 0x11);
        assert_int_equal(io[0x100], 0);
    }
    wdat();
    for (u32 i = 0; i < 40 && 68 + 24 * (entries + 1) <= sizeof(table); i++)
        entry(1, 2, 1, 1, 0, 0x100, 1, 1);
    watchdog_init(&acpi, 10);
    assert_true(fake_log_said("TCO"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_off_by_default, setup),
        cmocka_unit_test_setup(test_tco, setup),
        cmocka_unit_test_setup(test_tco_bounds, setup),
        cmocka_unit_test_setup(test_machines_without_tco, setup),
        cmocka_unit_test_setup(test_wdat, setup),
        cmocka_unit_test_setup(test_wdat_that_does_not_reset, setup),
        cmocka_unit_test_setup(test_wdat_with_entries_that_are_not_used, setup),
        cmocka_unit_test_setup(test_wdat_that_lies, setup),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
