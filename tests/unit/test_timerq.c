#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdlib.h>
#include <cmocka.h>
#include "lib/timerq.h"

static void test_order_and_ties(void **state) {
    struct timerq q = { 0 };
    struct timer t[5];
    static const u64 when[5] = { 30, 10, 20, 10, 10 };
    static const int order[5] = { 1, 3, 4, 2, 0 };

    for (int i = 0; i < 5; i++) {
        timer_init(&t[i], NULL);
        timerq_insert(&q, &t[i], when[i]);
    }
    assert_int_equal(timerq_next(&q), 10);
    assert_null(timerq_pop(&q, 9));
    for (int i = 0; i < 5; i++) {
        assert_ptr_equal(timerq_pop(&q, 30), &t[order[i]]);
        assert_false(t[order[i]].queued);
    }
    assert_int_equal(timerq_next(&q), ~0ull);
    timerq_remove(&q, &t[0]); /* harmless */
}

/* Compares the queue with a plain array: random inserts, removals and pops, with many equal
 * deadlines. */
static void test_against_array(void **state) {
    enum { N = 200 };
    static struct timer t[N];
    static u64 came[N], clock;
    struct timerq q = { 0 };

    srandom(7);
    for (int i = 0; i < N; i++) timer_init(&t[i], NULL);
    for (int step = 0; step < 200000; step++) {
        int i = (int)(random() % N);

        if (!t[i].queued) {
            timerq_insert(&q, &t[i], (u64)random() % 50);
            came[i] = clock++;
        } else if (random() % 3) {
            timerq_remove(&q, &t[i]);
        } else {
            int best = -1;

            for (int k = 0; k < N; k++)
                if (t[k].queued && (best < 0 || t[k].when < t[best].when ||
                                    (t[k].when == t[best].when && came[k] < came[best])))
                    best = k;
            assert_int_equal(timerq_next(&q), t[best].when);
            assert_ptr_equal(timerq_pop(&q, 50), &t[best]);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order_and_ties),
        cmocka_unit_test(test_against_array),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
