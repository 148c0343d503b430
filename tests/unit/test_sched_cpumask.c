/* Sets of pCPUs: each operation does the same as on an array with a bool for each pCPU, also in the
 * words behind the first. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "lib/cpumask.h"
#include "sched/credit.h"
#include "sim.h"

struct model {
    bool has[TAKT_MAX_CPUS];
};

/* Makes a random set, of which about one in `part` is a member. */
static struct cpumask random_set(u64 *rng, u64 part, struct model *model) {
    struct cpumask m = { 0 };

    for (u32 cpu = 0; cpu < TAKT_MAX_CPUS; cpu++) {
        model->has[cpu] = sim_below(rng, part) == 0;
        if (model->has[cpu]) cpumask_set(&m, cpu);
    }
    return m;
}

static void check_same(const struct cpumask *m, const struct model *model) {
    u32 n = 0;

    for (u32 cpu = 0; cpu < TAKT_MAX_CPUS; cpu++) {
        assert_int_equal(cpumask_test(m, cpu), model->has[cpu]);
        n += model->has[cpu];
    }
    assert_int_equal(cpumask_weight(m), n);
    assert_int_equal(cpumask_empty(m), n == 0);
}

/* Returns the first member from `cpu` on, in the model. */
static u32 next_in(const struct model *model, u32 cpu) {
    while (cpu < TAKT_MAX_CPUS && !model->has[cpu]) cpu++;
    return cpu;
}

static void check_order(const struct cpumask *m, const struct model *model) {
    u32 expected = next_in(model, 0);

    for (u32 cpu = 0; cpu <= TAKT_MAX_CPUS; cpu++) {
        u32 next = next_in(model, cpu), cycle = next;

        if (cycle == TAKT_MAX_CPUS) cycle = next_in(model, 0);
        assert_int_equal(cpumask_next(m, cpu), next);
        assert_int_equal(cpumask_cycle(m, cpu), cycle);
    }
    cpumask_for_each(cpu, m) {
        assert_int_equal(cpu, expected);
        expected = next_in(model, cpu + 1);
    }
    assert_int_equal(expected, TAKT_MAX_CPUS);
}

static void test_operations(void **state) {
    static const u64 parts[] = { 1, 2, 50, 1000 };
    u64 rng = 1;

    assert_true(TAKT_MAX_CPUS > 64); /* else this test shows nothing about further words */
    for (u32 round = 0; round < 40; round++) {
        struct model a, b, both, all, rest;
        struct cpumask x = random_set(&rng, parts[round % 4], &a),
                       y = random_set(&rng, parts[round / 4 % 4], &b);
        struct cpumask common = cpumask_and(&x, &y), sum = cpumask_or(&x, &y),
                       without = cpumask_minus(&x, &y);
        u32 cpu = (u32)sim_below(&rng, TAKT_MAX_CPUS);

        for (u32 i = 0; i < TAKT_MAX_CPUS; i++) {
            both.has[i] = a.has[i] && b.has[i];
            all.has[i] = a.has[i] || b.has[i];
            rest.has[i] = a.has[i] && !b.has[i];
        }
        check_same(&common, &both);
        check_same(&sum, &all);
        check_same(&without, &rest);
        assert_int_equal(cpumask_within(&x, &y), cpumask_empty(&without));
        assert_true(cpumask_within(&common, &x));
        check_order(&x, &a);
        cpumask_clear(&x, cpu);
        a.has[cpu] = false;
        check_same(&x, &a);
    }
}

static void test_whole_sets(void **state) {
    struct cpumask m = cpumask_of(TAKT_MAX_CPUS - 1);

    assert_int_equal(cpumask_weight(&m), 1);
    assert_true(cpumask_test(&m, TAKT_MAX_CPUS - 1));
    assert_false(cpumask_test(&m, TAKT_MAX_CPUS));
    cpumask_fill(&m);
    assert_int_equal(cpumask_weight(&m), TAKT_MAX_CPUS);
    cpumask_zero(&m);
    assert_true(cpumask_empty(&m));
}

/* No two pCPUs have their ticks at the same time, and each has them within the period. */
static void test_ticks_are_apart(void **state) {
    static const u64 periods[] = { NS_PER_MS, 10 * NS_PER_MS, 30 * NS_PER_MS };

    for (u32 i = 0; i < ARRAY_SIZE(periods); i++)
        for (u32 cpu = 0; cpu < TAKT_MAX_CPUS; cpu++) {
            assert_true(credit_shift(periods[i], cpu) < periods[i]);
            for (u32 other = 0; other < cpu; other++)
                assert_int_not_equal(credit_shift(periods[i], cpu),
                                     credit_shift(periods[i], other));
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_operations),
        cmocka_unit_test(test_whole_sets),
        cmocka_unit_test(test_ticks_are_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
