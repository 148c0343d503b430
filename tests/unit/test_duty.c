/* <guest/duty.h>: how much a VM that computes for a part of the time has left to do, and until
 * when. The guests and the simulation both use it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <guest/duty.h>

#define MS NS_PER_MS

static struct duty begin(u64 percent, u64 jitter_pct, bool open) {
    struct duty d = {
        .period = 10 * MS, .percent = percent, .jitter_pct = jitter_pct, .open = open
    };

    duty_begin(&d, 0, 0, 1);
    return d;
}

/* A VM that is not disturbed works for its percentage, and each period begins when the one before
 * it ends. */
static void test_alone(void **state) {
    for (u32 open = 0; open < 2; open++)
        for (u64 jitter = 0; jitter <= 50; jitter += 10) {
            struct duty d = begin(40, jitter, open);
            u64 worked = 0, longest = 0, shortest = ~0ull;

            for (u32 i = 0; i < 10000; i++) {
                u64 now = d.next;

                duty_look(&d, now, worked);
                longest = MAX(longest, d.next - now);
                shortest = MIN(shortest, d.next - now);
                worked += duty_left(&d, worked);
                assert_int_equal(duty_left(&d, worked), 0);
                duty_look(&d, d.next - 1, worked); /* nothing new before that */
                assert_int_equal(duty_left(&d, worked), 0);
            }
            assert_in_range(worked * 1000 / d.next, 399, 400); /* work is rounded down to a ns */
            assert_in_range(longest, (10 * MS) * (99 + jitter) / 100,
                            (10 * MS) * (100 + jitter) / 100);
            assert_in_range(shortest, (10 * MS) * (100 - jitter) / 100,
                            (10 * MS) * (101 - jitter) / 100);
            assert_in_range(d.next, 99 * NS_PER_S,
                            101 * NS_PER_S); /* neither longer nor shorter on average */
        }
}

/* The VM was without its pCPU for five and a half periods of 10 ms. In the closed loop the work of
 * six is left. In the open loop the work of one is left, which begins at once. */
static void test_missed(void **state) {
    struct duty closed = begin(40, 0, false), open = begin(40, 0, true);

    duty_look(&closed, 55 * MS, 0);
    assert_int_equal(duty_left(&closed, 0), 24 * MS);
    assert_int_equal(closed.next, 60 * MS);
    duty_look(&open, 55 * MS, 0);
    assert_int_equal(duty_left(&open, 0), 4 * MS);
    assert_int_equal(open.next, 65 * MS);
}

/* If it is late by less than a period, the open loop goes on with the period that has begun. */
static void test_open_in_between(void **state) {
    struct duty d = begin(40, 0, true);

    duty_look(&d, 7 * MS, 0);
    assert_int_equal(duty_left(&d, 0), 4 * MS);
    assert_int_equal(d.next, 10 * MS);
    duty_look(&d, 12 * MS, 3 * MS); /* the last ms of the first period is forgotten */
    assert_int_equal(duty_left(&d, 3 * MS), 4 * MS);
    assert_int_equal(d.next, 20 * MS);
}

/* However long it was kept from its pCPU it makes up for a second, and has its percent from then
 * on. */
static void test_memory(void **state) {
    static const u64 stalls[] = { NS_PER_S, 5 * NS_PER_S / 2, 60 * NS_PER_S, 86400 * NS_PER_S };

    for (u32 i = 0; i < ARRAY_SIZE(stalls); i++) {
        struct duty d = begin(40, 10, false);
        u64 now = stalls[i], worked = 0;

        duty_look(&d, now, worked);
        assert_int_equal(duty_left(&d, worked), 400 * MS);
        assert_in_range(d.next, now + 1, now + 11 * MS);
        while (duty_left(&d, worked)) { /* it computes without a pause till it has caught up */
            now += 100 * NS_PER_US;
            worked += 100 * NS_PER_US;
            duty_look(&d, now, worked);
        }
        assert_in_range(now - stalls[i], 660 * MS, 675 * MS); /* 0.4 s / (1 - 0.4) */
    }
}

/* The work of a long period is done completely, even if the period is longer than what is
 * remembered. */
static void test_long_periods(void **state) {
    struct duty d = { .period = 5 * NS_PER_S, .percent = 40 };

    duty_begin(&d, 0, 0, 1);
    duty_look(&d, 0, 0);
    assert_int_equal(duty_left(&d, 0), 2 * NS_PER_S);
}

static void test_nothing_to_do(void **state) {
    struct duty d = begin(0, 10, false);

    duty_look(&d, NS_PER_S, 123);
    assert_int_equal(duty_left(&d, 123), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alone),           cmocka_unit_test(test_missed),
        cmocka_unit_test(test_open_in_between), cmocka_unit_test(test_memory),
        cmocka_unit_test(test_long_periods),    cmocka_unit_test(test_nothing_to_do),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
