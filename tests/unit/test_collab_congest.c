/* Algorithm 2 of IOrchestra (drivers/collab/congest.h): when a device is crowded, what a guest that
 * asks is told, and in what order and with what gaps those that wait are let go. The orders of
 * messages are in test_collab_orders.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <takt/seed.h>
#include "drivers/collab/congest.h"

/* These are Linux's numbers on a queue of 32: a device is congested above 28 requests, and not
 * below 26. */
static void test_crowded(void **state) {
    static const struct {
        u32 in_queue, used_pct;
        bool was, crowded;
    } table[] = {
        { 0, 0, false, false },  { 28, 0, false, false }, { 29, 0, false, true },
        { 28, 0, true, true },   { 26, 0, true, true },   { 25, 0, true, false },
        { 26, 0, false, false }, { 1, 94, false, false }, { 1, 95, false, true },
        { 1, 94, true, false },  { ~0u, 0, false, true },
    };
    const struct congest_limits l = { 32, 95 }, queue_only = { 32, 0 }, none = { 0, 0 };

    for (u32 i = 0; i < ARRAY_SIZE(table); i++)
        assert_int_equal(congest_crowded(&l, table[i].in_queue, table[i].used_pct, table[i].was),
                         table[i].crowded);
    assert_false(congest_crowded(&queue_only, 1, 100, false));
    assert_false(congest_crowded(&none, ~0u, 100, true));
}

/* The answer tells how the device is at the time when the guest asks. */
static void test_answers(void **state) {
    struct congest c = congest_begin(1);

    assert_int_equal(congest_ask(&c, 3, false), CONGEST_RELEASE);
    assert_int_equal(c.nr, 0);
    assert_int_equal(congest_ask(&c, 3, true), CONGEST_STANDS);
    assert_int_equal(congest_ask(&c, 3, true), CONGEST_STANDS); /* again: it is in there once */
    assert_int_equal(c.nr, 1);
    /* One that asks while another one waits does not overtake it. */
    assert_int_equal(congest_ask(&c, 5, false), CONGEST_STANDS);
    assert_int_equal(c.nr, 2);
    for (u64 now = 0; c.nr == 2; now += NS_PER_MS) {
        u32 who = congest_relieve(&c, false, now);

        assert_true(who == CONGEST_NOBODY || who == 3);
    }
    congest_forget(&c, 5);
    assert_int_equal(congest_relieve(&c, false, 0), CONGEST_NOBODY);
    assert_int_equal(congest_ask(&c, 5, false), CONGEST_RELEASE);
}

/* At 200 per cent a device is slow from twice the time on, and no longer below 13/16 of that. */
static void test_slow(void **state) {
    assert_false(congest_slow(3199, 1600, 200, false));
    assert_true(congest_slow(3200, 1600, 200, false));
    assert_true(congest_slow(2600, 1600, 200, true));
    assert_false(congest_slow(2599, 1600, 200, true));
    assert_false(congest_slow(~0ull, 1600, 0, true));
}

/* While the device is crowded, no VM is let go, however long that takes. If it becomes crowded
 * after one VM was let go, the others go on waiting. */
static void test_stops_when_crowded(void **state) {
    struct congest c = congest_begin(7);
    u64 now = 0;

    for (u32 i = 0; i < 3; i++) congest_ask(&c, i, true);
    assert_int_equal(congest_relieve(&c, true, NS_PER_S), CONGEST_NOBODY);
    for (now = NS_PER_S; congest_relieve(&c, false, now) == CONGEST_NOBODY; now = c.next)
        assert_true(c.next < now + CONGEST_GAP_MS * NS_PER_MS);
    assert_int_equal(congest_relieve(&c, true, now + NS_PER_S), CONGEST_NOBODY);
    assert_int_equal(c.nr, 2);
    assert_true(c.next == ~0ull);
}

/* Over seeds: those that have asked are let go once each, in their order, with gaps that are whole
 * milliseconds from 0 to 99; the same seed gives the same gaps, and over all of them each tenth of
 * that range is about as frequent as another. */
static void test_order_and_gaps(void **state) {
    u32 in[10] = { 0 }, total = 0;

    for (u64 seed = 0; seed < 300; seed++) {
        struct congest c = congest_begin(seed), again;
        u64 rng = ~seed, now = 5 * NS_PER_S, last = now;
        u32 n = 2 + (u32)(seed_next(&rng) % 20), order[CONGEST_DISKS];

        for (u32 i = 0; i < n; i++) {
            order[i] = (i * 7 + (u32)seed) % CONGEST_DISKS;
            congest_ask(&c, order[i], true);
        }
        again = c;
        for (u32 at = 0; at < n;) {
            u32 i = congest_relieve(&c, false, now);

            assert_int_equal(congest_relieve(&again, false, now), i);
            if (i == CONGEST_NOBODY) {
                assert_true(c.next > now && c.next != ~0ull);
                now = c.next;
                continue;
            }
            assert_int_equal(i, order[at++]);
            assert_true((now - last) % NS_PER_MS == 0 && now - last < CONGEST_GAP_MS * NS_PER_MS);
            in[(now - last) / (10 * NS_PER_MS)]++;
            total++;
            last = now;
        }
        assert_true(c.nr == 0 && c.next == ~0ull);
    }
    /* Each of the ten counts must be within five standard deviations of a tenth. */
    for (u32 i = 0; i < 10; i++) assert_in_range(in[i], total / 10 - 90, total / 10 + 90);
}

/* A VM that ends while it waits in the middle does not change the order of the others. */
static void test_forgotten(void **state) {
    struct congest c = congest_begin(3);
    u64 now = 0;

    for (u32 i = 0; i < 4; i++) congest_ask(&c, i, true);
    congest_forget(&c, 1);
    congest_forget(&c, 9);
    for (u32 i = 0; c.nr; i++) {
        static const u32 left[] = { 0, 2, 3 };
        u32 who;

        while ((who = congest_relieve(&c, false, now)) == CONGEST_NOBODY) now = c.next;
        assert_int_equal(who, left[i]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_crowded),        cmocka_unit_test(test_slow),
        cmocka_unit_test(test_answers),        cmocka_unit_test(test_stops_when_crowded),
        cmocka_unit_test(test_order_and_gaps), cmocka_unit_test(test_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
