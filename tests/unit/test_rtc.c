/* Tests what the registers of a PC's clock mean, and how they are read. Whole days are compared
 * with the C library's calendar. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>
#include <cmocka.h>
#include <takt/io.h>
#include "fake_machine.h"

static u8 model_inb(u16 port);
static void model_outb(u16 port, u8 v);
#define inb  model_inb
#define outb model_outb
#include "hv/platform/rtc.c"

#define BINARY   0x04
#define HOURS_24 0x02
#define PM       0x80

static void test_every_day_of_a_century(void **state) {
    for (time_t t = 0; t < 3155760000; t += 86400) { /* 1970 to 2069 */
        struct tm *c = gmtime(&t);
        struct rtc_regs r = { .second = 59,
                              .minute = 59,
                              .hour = 23,
                              .day = (u8)c->tm_mday,
                              .month = (u8)(c->tm_mon + 1),
                              .year = (u8)(c->tm_year % 100),
                              .status_b = BINARY | HOURS_24 };

        assert_int_equal(rtc_seconds(&r), t + 86399);
    }
}

/* 2026-11-23, as BCD and in both ways to count hours. */
static u64 at(u8 hour, u8 status_b) {
    struct rtc_regs r = { 0x56, 0x34, hour, 0x23, 0x11, 0x26, status_b };

    return rtc_seconds(&r);
}

static void test_bcd_and_twelve_hours(void **state) {
    u64 midnight = 1795392000 + 34 * 60 + 56;

    assert_int_equal(at(0x00, HOURS_24), midnight);
    assert_int_equal(at(0x19, HOURS_24), midnight + 19 * 3600);
    assert_int_equal(at(0x12, 0), midnight);
    assert_int_equal(at(0x12 | PM, 0), midnight + 12 * 3600);
    assert_int_equal(at(0x11, 0), midnight + 11 * 3600);
    assert_int_equal(at(0x11 | PM, 0), midnight + 23 * 3600);
}

static void test_no_date(void **state) {
    static const struct rtc_regs bad[] = {
        { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff }, /* no clock */
        { 0 },                                        /* day 0 of month 0 */
        { 0, 0, 0, 29, 2, 25, BINARY | HOURS_24 },    /* no leap year */
        { 0, 0, 0, 1, 13, 25, BINARY | HOURS_24 },
        { 0, 0, 24, 1, 1, 25, BINARY | HOURS_24 },
        { 0, 60, 0, 1, 1, 25, BINARY | HOURS_24 },
        { 60, 0, 0, 1, 1, 25, BINARY | HOURS_24 },
    };

    for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(rtc_seconds(&bad[i]), 0);
}

/* ---- how the clock is read ---- */

/* 2025-12-31 23:59:59 and the second after it, in binary, by the number of the register. */
static const u8 old_year[] = { 59, 0, 59, 0, 23, 0, 0, 31, 12, 25, 0, BINARY | HOURS_24 };
static const u8 new_year[] = { 0, 0, 0, 0, 0, 0, 0, 1, 1, 26, 0, BINARY | HOURS_24 };
#define NEW_YEAR 1767225600ull /* `date -u -d 2026-01-01 +%s` */

static u8 index_port;
static bool absent; /* there is no clock, so nothing answers at its ports */
static unsigned reads, updates_at, updating_until; /* all are numbers of reads of the data port */

static void model_outb(u16 port, u8 v) {
    assert_int_equal(port, 0x70);
    index_port = v;
}

static u8 model_inb(u16 port) {
    assert_int_equal(port, 0x71);
    assert_true(index_port < sizeof(old_year));
    reads++;
    fake_clock(now_ns() + 1000); /* a read of a port takes about a microsecond */
    if (absent) return 0xff;
    if (index_port == 0x0a) return reads <= updating_until ? 0x80 : 0;
    return reads <= updates_at ? old_year[index_port] : new_year[index_port];
}

static u64 read_with_update_at(unsigned at) {
    reads = 0;
    updates_at = at;
    boot_ns = 0;
    fake_clock(NS_PER_S);
    rtc_init();
    return rtc_at(now_ns()) / NS_PER_S;
}

static void test_update_between_two_reads(void **state) {
    for (unsigned at = 0; at < 24; at++) {
        u64 t = read_with_update_at(at);

        assert_true(t == NEW_YEAR || t == NEW_YEAR - 1);
    }
    assert_int_equal(read_with_update_at(0), NEW_YEAR);
    assert_int_equal(read_with_update_at(1000), NEW_YEAR - 1);
    assert_int_equal(rtc_at(now_ns() + 2 * NS_PER_S) / NS_PER_S, NEW_YEAR + 1);
}

/* While the clock changes its registers, nobody may read them. */
static void test_waits_for_the_end_of_an_update(void **state) {
    updating_until = 50;
    assert_int_equal(read_with_update_at(50), NEW_YEAR);
    assert_true(reads > 50);
    updating_until = 0;
}

/* On a machine without the clock the boot does not wait for it for long, and time is counted from
 * the start of the machine. */
static void test_no_clock(void **state) {
    absent = true;
    assert_int_equal(read_with_update_at(0), 1);
    assert_true(reads < 20000); /* 20 ms */
    absent = false;
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_every_day_of_a_century),
                                        cmocka_unit_test(test_bcd_and_twelve_hours),
                                        cmocka_unit_test(test_no_date),
                                        cmocka_unit_test(test_update_between_two_reads),
                                        cmocka_unit_test(test_waits_for_the_end_of_an_update),
                                        cmocka_unit_test(test_no_clock) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
