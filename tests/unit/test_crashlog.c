/* The crash log keeps the end of a session for the next one, in a region of memory that outlives
 * a reset. The test plays the reset by calling crashlog_open() again, and then damages the
 * region: a log that cannot be trusted must be refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_cache.h"
#include "fake_log.h"

/* What an NMI does while a line is copied: once. */
static void (*nmi)(void);

static void *copy(void *to, const void *from, size_t n) {
    void (*now)(void) = nmi;

    nmi = NULL;
    if (now) now();
    return memcpy(to, from, n);
}

#define memcpy copy
#include "hv/platform/crashlog.c"
#undef memcpy

static u8 *ram, *in_cache; /* what outlives a reset; what this session sees */

/* Writes the caches back. A reset loses what is only in the caches. */
static void write_back(const void *p, u64 len) { memcpy(ram + ((const u8 *)p - in_cache), p, len); }

static void reset(void) {
    memcpy(in_cache, ram, CRASHLOG_SIZE);
    mine = last = NULL;
    my_lines = my_records = last_lines = last_records = (struct ring){ 0 };
    keeping = false;
    crashlog_open(in_cache);
    crashlog_report();
}

static int setup(void **state) {
    fake_write_back = write_back;
    free(ram);
    free(in_cache);
    ram = malloc(CRASHLOG_SIZE);
    in_cache = malloc(CRASHLOG_SIZE);
    memset(ram, 0xa5, CRASHLOG_SIZE); /* whatever RAM holds after power-on */
    fake_log_forget();
    reset();
    return 0;
}

static void say(u32 from, u32 to) {
    char text[300];

    for (u32 i = from; i < to; i++) {
        snprintf(text, sizeof(text), "line %u\n", i);
        crashlog_line(text);
    }
}

/* Asserts that the last session's lines are those from..to - 1; returns how many there were. */
static u32 check_lines(u32 from, u32 to) {
    u32 at = 0, n = 0;
    const char *text;
    char want[32];

    while (crashlog_last_line(&at, &text)) {
        snprintf(want, sizeof(want), "line %u", from + n++);
        assert_string_equal(text, want);
    }
    assert_int_equal(from + n, to);
    return n;
}

static void test_nothing_at_power_on(void **state) {
    u32 at = 0;
    const char *text;
    struct trace_record r;

    assert_int_equal(crashlog_last(), CRASH_NONE);
    assert_false(crashlog_last_line(&at, &text));
    assert_false(crashlog_last_record(&at, &r));
    assert_false(fake_log_said("The last session"));
}

static void test_a_silent_session(void **state) {
    say(0, 5);
    reset();
    assert_int_equal(crashlog_last(), CRASH_SILENT);
    check_lines(0, 5);
    assert_true(fake_log_said("did it hang?"));
    assert_true(fake_log_said("| line 4"));
}

static void test_a_panic_and_an_orderly_end(void **state) {
    say(0, 3);
    crashlog_end(CRASH_STOPPED);
    reset();
    assert_int_equal(crashlog_last(), CRASH_STOPPED);
    assert_true(fake_log_said("could not go on"));
    fake_log_forget();
    say(7, 9);
    crashlog_end(CRASH_ORDERLY);
    reset();
    assert_int_equal(crashlog_last(), CRASH_ORDERLY);
    check_lines(7, 9); /* the shell shows them, the boot does not */
    assert_false(fake_log_said("last session"));
}

static void say_again(void) { say(3, 4); }

/* An NMI comes while the CPU is about to keep a line, and the NMI's handler logs a line, too. */
static void test_a_line_within_a_line(void **state) {
    u32 at = 0, n = 0;
    const char *text;

    say(0, 2);
    nmi = say_again;
    say(2, 3);
    say(4, 5);
    reset();
    for (; crashlog_last_line(&at, &text); n++) assert_true(strlen(text) == strlen("line 0"));
    assert_int_equal(n, 5);
}

/* There are many sessions, one after the other. Each one sees the session before it, and nothing
 * older. */
static void test_banks_take_turns(void **state) {
    for (u32 i = 0; i < 5; i++) {
        say(10 * i, 10 * i + 10 - i);
        reset();
        check_lines(10 * i, 10 * i + 10 - i);
    }
}

static void test_many_lines(void **state) {
    say(0, LINE_SLOTS);
    reset();
    assert_int_equal(check_lines(0, LINE_SLOTS), LINE_SLOTS);
    say(0, 1000);
    reset();
    assert_int_equal(check_lines(1000 - LINE_SLOTS, 1000), LINE_SLOTS);
}

static void test_long_lines(void **state) {
    char text[400];
    const char *kept = NULL;
    u32 at = 0;

    memset(text, 'x', sizeof(text));
    text[sizeof(text) - 1] = 0;
    crashlog_line(text);
    crashlog_line("one\ntwo\n");
    crashlog_line("");
    reset();
    assert_true(crashlog_last_line(&at, &kept));
    assert_int_equal(strlen(kept), CRASHLOG_LINE - 1);
    assert_true(crashlog_last_line(&at, &kept));
    assert_string_equal(kept, "one");
    assert_true(crashlog_last_line(&at, &kept));
    assert_string_equal(kept, "");
    assert_false(crashlog_last_line(&at, &kept));
}

static void test_records(void **state) {
    struct trace_record r = {
        .event = TRC_WAKE, .cpu = 1, .who = 2 << 16 | 3, .arg = { 4, 5, 6, 7 }
    };
    struct trace_record got;
    u32 at = 0, n = 0;

    for (u32 i = 0; i < RECORD_SLOTS + 20; i++) {
        r.ns = i;
        crashlog_records(&r, 1);
    }
    reset();
    for (; crashlog_last_record(&at, &got); n++) assert_int_equal(got.ns, 20 + n);
    assert_int_equal(n, RECORD_SLOTS);
    assert_int_equal(got.who, r.who);
    assert_int_equal(got.arg[3], 7);
}

/* All that a panic finds in the rings of all CPUs is kept. */
static void test_the_rings_are_drained(void **state) {
    static struct trace_record ring[2][64];
    struct trace_record got;
    u32 at = 0, n = 0;

    assert_int_equal(trace_init(0, ring[0], 64), 0);
    assert_int_equal(trace_init(5, ring[1], 64), 0);
    for (u32 i = 0; i < 30; i++) trace_write(i % 2 ? 5 : 0, i, TRC_WAKE, 0, i, 0, 0, 0);
    crashlog_drain_trace();
    reset();
    while (crashlog_last_record(&at, &got)) n++;
    assert_int_equal(n, 30);
    assert_int_equal(got.cpu, 5);
}

/* There is room for fewer records than the rings hold: the last ones of all CPUs stay, and not
 * those of the CPU whose ring is read last. */
static void test_the_last_records_of_all_rings(void **state) {
    static struct trace_record ring[3][1024];
    static const u32 cpus[] = { 0, 3, 5 };
    struct trace_record got;
    u32 at = 0, n = 0, all = 3 * 400;

    for (u32 i = 0; i < 3; i++) assert_int_equal(trace_init(cpus[i], ring[i], 1024), 0);
    for (u32 i = 0; i < all; i++) trace_write(cpus[i % 3], i, TRC_WAKE, 0, i, 0, 0, 0);
    crashlog_drain_trace();
    reset();
    for (; crashlog_last_record(&at, &got); n++) {
        assert_int_equal(got.ns, all - RECORD_SLOTS + n);
        assert_int_equal(got.cpu, cpus[got.ns % 3]);
    }
    assert_int_equal(n, RECORD_SLOTS);
}

/* Firmware has written over a part. Only the lines that were there are lost. */
static void test_damage(void **state) {
    const char *text;
    u32 at = 0, n = 0;

    say(0, 20);
    ram[(u8 *)mine->line[7] - in_cache + 9] ^= 1;  /* the text */
    ram[(u8 *)mine->line[11] - in_cache + 4] ^= 1; /* the number */
    memset(ram + ((u8 *)mine->line[15] - in_cache), 0, LINE_SLOT);
    reset();
    for (; crashlog_last_line(&at, &text); n++)
        assert_true(strcmp(text, "line 7") && strcmp(text, "line 11") && strcmp(text, "line 15"));
    assert_int_equal(n, 17);
}

static void test_damaged_heads(void **state) {
    static const u32 field[] = { offsetof(struct head, magic), offsetof(struct head, size),
                                 offsetof(struct head, session), offsetof(struct head, end),
                                 offsetof(struct head, sum) };

    for (u32 i = 0; i < ARRAY_SIZE(field); i++) {
        setup(NULL);
        say(0, 3);
        ram[(u8 *)mine - in_cache + field[i]] ^= 4;
        reset();
        assert_int_equal(crashlog_last(), CRASH_NONE);
    }
    setup(NULL);
    say(0, 3);
    memset(ram, 0, CRASHLOG_SIZE); /* cleared memory */
    reset();
    assert_int_equal(crashlog_last(), CRASH_NONE);
}

/* Lines of an older session in the same bank, should its clearing not have reached RAM, are not
 * this session's. */
static void test_lines_of_an_older_session(void **state) {
    u8 *copy = malloc(CRASHLOG_SIZE);

    say(0, 5);
    memcpy(copy, ram, CRASHLOG_SIZE);
    reset();
    reset();
    say(0, 2);
    memcpy(ram + ((u8 *)mine->line[2] - in_cache), copy + ((u8 *)mine->line[2] - in_cache),
           3 * LINE_SLOT);
    reset();
    check_lines(0, 2);
    free(copy);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_nothing_at_power_on, setup),
        cmocka_unit_test_setup(test_a_silent_session, setup),
        cmocka_unit_test_setup(test_a_panic_and_an_orderly_end, setup),
        cmocka_unit_test_setup(test_a_line_within_a_line, setup),
        cmocka_unit_test_setup(test_banks_take_turns, setup),
        cmocka_unit_test_setup(test_many_lines, setup),
        cmocka_unit_test_setup(test_long_lines, setup),
        cmocka_unit_test_setup(test_records, setup),
        cmocka_unit_test_setup(test_the_rings_are_drained, setup),
        cmocka_unit_test_setup(test_the_last_records_of_all_rings, setup),
        cmocka_unit_test_setup(test_damage, setup),
        cmocka_unit_test_setup(test_damaged_heads, setup),
        cmocka_unit_test_setup(test_lines_of_an_older_session, setup),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
