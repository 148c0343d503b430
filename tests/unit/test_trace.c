/* Trace rings: the order of records, how a loss is told, a reader beside a writer; and counters. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <takt/errno.h>
#include "trace/trace.h"

#define RING 16

static struct trace_record ring[RING], out[64];

DEFINE_COUNTER(test_apples);
DEFINE_COUNTER(test_pears);

static int setup(void **state) {
    trace_mask = TRACE_CLASS_SCHED;
    return trace_init(3, ring, RING);
}

static void put(u32 n) { trace(3, 1000 + n, TRC_WAKE, 7, n, n + 1, n + 2, n + 3); }

static void test_order_and_content(void **state) {
    for (u32 i = 0; i < 5; i++) put(i);
    assert_int_equal(trace_read(3, out, 3), 3);
    assert_int_equal(trace_read(3, out + 3, 60), 2);
    for (u32 i = 0; i < 5; i++) {
        assert_int_equal(out[i].ns, 1000 + i);
        assert_int_equal(out[i].event, TRC_WAKE);
        assert_int_equal(out[i].cpu, 3);
        assert_int_equal(out[i].who, 7);
        assert_int_equal(out[i].arg[3], i + 3);
    }
    assert_int_equal(trace_read(3, out, 64), 0);
    assert_int_equal(sizeof(struct trace_record), 32);
}

static void test_mask(void **state) {
    trace(3, 1, TRC_EXIT, 0, 0, 0, 0, 0); /* its class is off */
    assert_int_equal(trace_read(3, out, 64), 0);
    trace_mask = 0;
    put(0);
    assert_int_equal(trace_read(3, out, 64), 0);
}

static void test_full_ring_loses_the_new(void **state) {
    for (u32 i = 0; i < RING + 5; i++) put(i);
    assert_int_equal(trace_lost(3), 5);
    /* Room for one comes back, and the loss is told where it happened. */
    assert_int_equal(trace_read(3, out, 2), 2);
    put(100);
    assert_int_equal(trace_read(3, out, 64), RING);
    assert_int_equal(out[RING - 3].arg[0], RING - 1);
    assert_int_equal(out[RING - 2].event, TRC_LOST);
    assert_int_equal(out[RING - 2].arg[0], 5);
    assert_int_equal(out[RING - 1].arg[0], 100);
    assert_int_equal(trace_read(3, out, 64), 0);
}

static void test_loss_at_the_end_is_told(void **state) {
    for (u32 i = 0; i < RING + 2; i++) put(i);
    assert_int_equal(trace_read(3, out, 64), RING + 1);
    assert_int_equal(out[RING].event, TRC_LOST);
    assert_int_equal(out[RING].arg[0], 2);
    assert_int_equal(out[RING].ns, 1000 + RING - 1);
    assert_int_equal(trace_read(3, out, 64), 0);
}

static void test_bad_arguments(void **state) {
    assert_int_equal(trace_init(0, ring, 3), -EINVAL);
    assert_int_equal(trace_init(0, ring, 0), -EINVAL);
    trace_write(9, 0, TRC_WAKE, 0, 0, 0, 0, 0); /* no ring there */
    assert_int_equal(trace_read(9, out, 64), 0);
}

#define MANY 200000

static unsigned finished;

static void *writer(void *arg) {
    for (u32 i = 0; i < MANY; i++) trace(3, i, TRC_WAKE, (u32)(uintptr_t)arg, i, ~i, 0, 0);
    __atomic_add_fetch(&finished, 1, __ATOMIC_RELEASE);
    return NULL;
}

/* Two writers of one ring (a pCPU and the NMI in its middle, at worst) and a reader: nothing is
 * torn, each writer's records stay in order, and what is not read is counted. */
static void test_beside_writers(void **state) {
    pthread_t t[2];
    u32 next[2] = { 0, 0 };
    u64 got = 0, lost = 0;

    for (uintptr_t i = 0; i < 2; i++) pthread_create(&t[i], NULL, writer, (void *)i);
    for (;;) {
        bool last = __atomic_load_n(&finished, __ATOMIC_ACQUIRE) == 2;
        unsigned n = trace_read(3, out, 64);

        if (last && n == 0) break;
        for (unsigned i = 0; i < n; i++) {
            if (out[i].event == TRC_LOST) {
                lost += out[i].arg[0];
                continue;
            }
            assert_true(out[i].who < 2);
            assert_int_equal(out[i].arg[1], ~out[i].arg[0]);
            assert_true(out[i].arg[0] >= next[out[i].who]);
            next[out[i].who] = out[i].arg[0] + 1;
            got++;
        }
    }
    for (int i = 0; i < 2; i++) pthread_join(t[i], NULL);
    assert_int_equal(got + lost, 2 * MANY);
    assert_int_equal(trace_lost(3), lost);
    assert_true(got > 0);
}

static void test_counters(void **state) {
    unsigned found = 0;

    counter_inc(&test_apples, 0);
    counter_inc(&test_apples, 5);
    counter_inc(&test_pears, 1);
    assert_int_equal(test_apples.value[0] + test_apples.value[5], 2);
    assert_int_equal(test_pears.value[1], 1);
    assert_string_equal(test_apples.name, "test_apples");
    for (const struct counter *c = __start_counters; c < __stop_counters; c++)
        found += c == &test_apples || c == &test_pears;
    assert_int_equal(found, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_order_and_content, setup),
        cmocka_unit_test_setup(test_mask, setup),
        cmocka_unit_test_setup(test_full_ring_loses_the_new, setup),
        cmocka_unit_test_setup(test_loss_at_the_end_is_told, setup),
        cmocka_unit_test_setup(test_bad_arguments, setup),
        cmocka_unit_test_setup(test_beside_writers, setup),
        cmocka_unit_test(test_counters),
    };

    return cmocka_run_group_tests_name("trace", tests, NULL, NULL);
}
