/* Deficit round robin by bytes (IOrchestra, Algorithm 3): the worked example of its readings
 * exactly, then property D1 over seeds: among buffers that are never empty the bytes served differ
 * from the ratio of the quanta by less than a quantum and a request, credit stays within a quantum
 * and a request, and an empty buffer has none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include <takt/seed.h>
#include "drivers/collab/drr.h"

#define KB    1000ull
#define VMS   5
#define SEEDS 400

/* The next request of each VM's buffer, from its own sequence: a size from `least` to `most`. */
struct buffer {
    struct drr d;
    u64 rng, least, most, head, served;
    u32 left; /* requests; the buffer of a backlogged VM never ends */
};

static void next_request(struct buffer *b) {
    b->head = b->least + seed_next(&b->rng) % (b->most - b->least + 1);
}

/* Does one visit, as drr.h says. Returns how many bytes were served. */
static u64 visit(struct buffer *b) {
    u64 served = 0;

    if (!b->left) return 0;
    drr_visit(&b->d);
    while (b->left && drr_serve(&b->d, b->head)) {
        served += b->head;
        b->left--;
        next_request(b);
    }
    if (!b->left) drr_empty(&b->d);
    b->served += served;
    return served;
}

static struct buffer backlogged(u64 quantum, u64 least, u64 most, u64 seed) {
    struct buffer b = {
        .d = { quantum, 0 }, .rng = seed, .least = least, .most = most, .left = ~0u
    };

    next_request(&b);
    return b;
}

/* Quanta of 300, 150 and 50 KB and requests of 64 KB. */
static void test_worked_rounds(void **state) {
    static const u64 quantum[] = { 300 * KB, 150 * KB, 50 * KB };
    static const u64 round_1[] = { 256 * KB, 128 * KB, 0 },
                     carried[] = { 44 * KB, 22 * KB, 50 * KB };
    static const u64 two_rounds[] = { 576 * KB, 256 * KB, 64 * KB };
    struct buffer b[3];

    for (u32 i = 0; i < 3; i++) b[i] = backlogged(quantum[i], 64 * KB, 64 * KB, i);
    for (u32 i = 0; i < 3; i++) {
        assert_int_equal(visit(&b[i]), round_1[i]);
        assert_int_equal(b[i].d.credit, carried[i]);
    }
    for (u32 i = 0; i < 3; i++) {
        visit(&b[i]);
        assert_int_equal(b[i].served, two_rounds[i]);
    }
}

/* In the long run the VMs get 0.6, 0.3 and 0.1: exactly with equal requests, and within 0.02 % with
 * sizes of 64, 4 and 256 KB. */
static void long_run(const u64 *size, u32 per_million) {
    static const u64 quantum[] = { 300 * KB, 150 * KB, 50 * KB };
    u64 total = 0;
    struct buffer b[3];

    for (u32 i = 0; i < 3; i++) b[i] = backlogged(quantum[i], size[i], size[i], i);
    for (u32 round = 0; round < 64000; round++)
        for (u32 i = 0; i < 3; i++) total += visit(&b[i]);
    for (u32 i = 0; i < 3; i++) {
        i64 got = (i64)(b[i].served * 1000000 / total), want = (i64)(quantum[i] * 2 / KB) * 1000;

        assert_in_range(got + 1000, want + 1000 - per_million, want + 1000 + per_million);
    }
}

static void test_long_run(void **state) {
    long_run((const u64[]){ 64 * KB, 64 * KB, 64 * KB }, 1);
    long_run((const u64[]){ 64 * KB, 4 * KB, 256 * KB }, 200);
}

/* D1, over every window of rounds that begins at some round. */
static void test_backlogged(void **state) {
    for (u64 seed = 1; seed <= SEEDS; seed++) {
        u64 rng = seed, most = 512 + seed_next(&rng) % (1 << 20), since[VMS] = { 0 };
        u32 window = 0;
        struct buffer b[VMS];

        for (u32 i = 0; i < VMS; i++)
            b[i] = backlogged(512 + seed_next(&rng) % (4 << 20), 512, most, seed_next(&rng));
        for (u32 round = 0; round < 200; round++) {
            window++;
            for (u32 i = 0; i < VMS; i++) {
                visit(&b[i]);
                assert_true(b[i].d.credit < b[i].d.quantum + most);
            }
            for (u32 i = 0; i < VMS; i++) {
                i64 off = (i64)(b[i].served - since[i]) - (i64)(window * b[i].d.quantum);

                assert_true(off <= (i64)(b[i].d.quantum + most) &&
                            -off <= (i64)(b[i].d.quantum + most));
            }
            if (seed_next(&rng) % 20 == 0) { /* another window begins */
                window = 0;
                for (u32 i = 0; i < VMS; i++) since[i] = b[i].served;
            }
        }
    }
}

/* Buffers fill and drain. An empty buffer has no credit, and what it did not use is not saved for
 * later. */
static void test_empty_has_no_credit(void **state) {
    for (u64 seed = 1; seed <= SEEDS; seed++) {
        u64 rng = seed;
        struct buffer b = backlogged(1 + seed_next(&rng) % 100000, 512, 65536, seed);

        b.left = 0;
        for (u32 round = 0; round < 200; round++) {
            if (seed_next(&rng) % 3 == 0) b.left += (u32)(seed_next(&rng) % 4);
            visit(&b);
            if (!b.left) assert_int_equal(b.d.credit, 0);
        }
    }
}

/* BW_max * S_SKT is in bytes a second, so a visit that comes once a millisecond has a thousandth of
 * it. No VM starves. */
static void test_quantum(void **state) {
    u64 half = COLLAB_ONE / 2;

    assert_int_equal(drr_quantum(600 * KB * KB, half, DRR_INTERVAL_NS, 512), 300 * KB);
    assert_int_equal(drr_quantum(600 * KB * KB, half, 10 * DRR_INTERVAL_NS, 512), 3000 * KB);
    assert_int_equal(drr_quantum(600 * KB * KB, COLLAB_ONE, DRR_INTERVAL_NS, 512), 600 * KB);
    assert_int_equal(drr_quantum(600 * KB * KB, 0, DRR_INTERVAL_NS, 64 * KB), 64 * KB);
    assert_int_equal(drr_quantum(BIT(34), COLLAB_ONE, NS_PER_S, 0), BIT(34));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_worked_rounds), cmocka_unit_test(test_long_run),
        cmocka_unit_test(test_backlogged),    cmocka_unit_test(test_empty_has_no_credit),
        cmocka_unit_test(test_quantum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
