/* The arithmetic of IOrchestra's co-scheduling (section 3.3): drivers/collab/divide.h, balance.h,
 * share.h. The worked examples are those of the paper's readings; the rest are properties over
 * seeds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <takt/seed.h>
#include "drivers/collab/balance.h"
#include "drivers/collab/share.h"

#define SEEDS 500

static u64 sum(const u64 *part, u32 n) {
    u64 s = 0;

    for (u32 i = 0; i < n; i++) s += part[i];
    return s;
}

/* Latencies 1 and 3 give 3/4 and 1/4; 1, 2 and 4 give 4/7, 2/7 and 1/7, whatever the unit. */
static void test_worked_weights(void **state) {
    static const u64 units[] = { 1, 1000, NS_PER_MS, 3 * NS_PER_S };

    for (u32 i = 0; i < ARRAY_SIZE(units); i++) {
        u64 two[] = { units[i], 3 * units[i] };
        u64 three[] = { units[i], 2 * units[i], 4 * units[i] };
        u64 w[3];

        balance_weights(two, 2, w);
        assert_int_equal(w[0], COLLAB_ONE * 3 / 4);
        assert_int_equal(w[1], COLLAB_ONE / 4);
        balance_weights(three, 3, w);
        assert_int_equal(w[0], COLLAB_ONE * 4 / 7 + 1); /* it is ...756.57: rounded up */
        assert_int_equal(w[1], COLLAB_ONE * 2 / 7);
        assert_int_equal(w[2], COLLAB_ONE / 7);
    }
}

/* A core without a sample cannot be compared with others. */
static void test_unknown_latency(void **state) {
    u64 l[] = { 100, 0, 5000 }, w[3];

    balance_weights(l, 3, w);
    assert_int_equal(sum(w, 3), COLLAB_ONE);
    for (u32 i = 0; i < 3; i++) assert_in_range(w[i], COLLAB_ONE / 3, COLLAB_ONE / 3 + 1);
}

/* The weights sum to 1, and are ordered inversely to the latencies. */
static void test_inverse_weights(void **state) {
    for (u64 seed = 0; seed < SEEDS; seed++) {
        u64 rng = seed, l[16], w[16];
        u32 n = 1 + (u32)(seed_next(&rng) % 16);

        for (u32 i = 0; i < n; i++)
            l[i] = 1 + seed_next(&rng) % (1ull << (1 + seed_next(&rng) % 36));
        balance_weights(l, n, w);
        assert_int_equal(sum(w, n), COLLAB_ONE);
        for (u32 i = 0; i < n; i++)
            for (u32 k = 0; k < n; k++)
                if (l[i] < l[k]) assert_true(w[i] + 1 >= w[k]); /* 1: what rounding leaves */
    }
}

/* Weights are published again when a ratio has grown by more than 50 %, either way, or after a
 * second. */
static void test_when_published(void **state) {
    const u64 told[] = { 400, 400, 200 };
    const u64 grown_by_50[] = { 600, 400, 200 }, by_more[] = { 601, 400, 200 };
    const u64 shrunk[] = { 266, 400, 200 }, all_doubled[] = { 800, 800, 400 };

    assert_false(balance_due(told, told, 3, 0));
    assert_false(balance_due(told, told, 3, NS_PER_S - 1));
    assert_true(balance_due(told, told, 3, NS_PER_S));
    assert_false(balance_due(told, grown_by_50, 3, 0));
    assert_true(balance_due(told, by_more, 3, 0));
    assert_true(balance_due(told, shrunk, 3, 0));
    assert_false(balance_due(told, all_doubled, 3, 0));
}

/* Weights 30 and 10 on two sockets and a share of 1/2 give 3/8 and 1/8. */
static void test_worked_share(void **state) {
    const u32 weight[] = { 10, 5, 20, 5 }, socket[] = { 0, 1, 0, 1 };
    u64 s[2];

    share_by_socket(COLLAB_ONE / 2, weight, socket, 4, 2, s);
    assert_int_equal(s[0], COLLAB_ONE * 3 / 8);
    assert_int_equal(s[1], COLLAB_ONE / 8);
}

/* Whatever the weights of vCPUs, nothing of the VM's share is lost, and no part is further than 1
 * from the exact one. */
static void test_shares_sum(void **state) {
    for (u64 seed = 0; seed < SEEDS; seed++) {
        u64 rng = seed, part[4], of = seed_next(&rng) % (COLLAB_ONE + 1), total = 0;
        u64 on[4] = { 0 };
        u32 weight[64], socket[64], n = 1 + (u32)(seed_next(&rng) % 64);

        for (u32 k = 0; k < n; k++) {
            weight[k] = (u32)(seed_next(&rng) % (seed % 7 ? 1000 : 1 << 24));
            socket[k] = (u32)(seed_next(&rng) % 4);
            on[socket[k]] += weight[k];
            total += weight[k];
        }
        share_by_socket(of, weight, socket, n, 4, part);
        assert_int_equal(sum(part, 4), of);
        for (u32 i = 0; total && i < 4; i++) {
            u64 exact = of * on[i] / total;

            assert_in_range(part[i], exact, exact + 1);
        }
    }
}

static void test_no_weights(void **state) {
    const u32 weight[] = { 0, 0 }, socket[] = { 0, 1 };
    u64 s[2];

    share_by_socket(COLLAB_ONE, weight, socket, 2, 2, s);
    assert_int_equal(s[0], COLLAB_ONE / 2);
    assert_int_equal(s[1], COLLAB_ONE / 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_worked_weights),  cmocka_unit_test(test_unknown_latency),
        cmocka_unit_test(test_inverse_weights), cmocka_unit_test(test_when_published),
        cmocka_unit_test(test_worked_share),    cmocka_unit_test(test_shares_sum),
        cmocka_unit_test(test_no_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
