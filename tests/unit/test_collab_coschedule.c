/* Co-scheduling of VMs and I/O cores: drivers/collab/coschedule.h and place.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include <takt/seed.h>
#include "drivers/collab/place.h"

static bool reads(struct coschedule_list *l, const char *text) {
    return coschedule_read(l, text, (u32)strlen(text));
}

static void test_lists(void **state) {
    static const char *const nonsense[] = { "",    " ",     "1  2",       "1 ",  " 1",
                                            "a b", "1,2",   "-1",         "1.5", "16777217",
                                            "1\n", "1 2 x", "99999999999" };
    struct coschedule_list l = { 0 };
    char many[200] = "";

    assert_true(reads(&l, "30 10"));
    assert_true(l.nr == 2 && l.value[0] == 30 && l.value[1] == 10);
    for (u32 i = 0; i < ARRAY_SIZE(nonsense); i++) {
        assert_false(reads(&l, nonsense[i]));
        assert_true(l.nr == 2 && l.value[0] == 30 && l.value[1] == 10);
    }
    assert_true(reads(&l, "16777216"));
    assert_int_equal(l.value[0], COSCHEDULE_WEIGHT);
    for (u32 i = 0; i < COSCHEDULE_VCPUS; i++) strcat(many, i ? " 7" : "7");
    assert_true(reads(&l, many));
    assert_int_equal(l.nr, COSCHEDULE_VCPUS);
    strcat(many, " 7");
    assert_false(reads(&l, many));
}

/* The worked example: weights 30 and 10 on two sockets, S_i = 0.5 -> 0.375 and 0.125. The same with
 * two vCPUs on each. */
static void test_parts(void **state) {
    struct coschedule_list two = { 2, { 30, 10 } }, four = { 4, { 10, 20, 4, 6 } }, none = { 0 };
    u64 part[2];

    coschedule_parts(COLLAB_ONE / 2, &two, 2, part);
    assert_int_equal(part[0], COLLAB_ONE * 3 / 8);
    assert_int_equal(part[1], COLLAB_ONE / 8);
    coschedule_parts(COLLAB_ONE / 2, &four, 2, part);
    assert_int_equal(part[0], COLLAB_ONE * 3 / 8);
    coschedule_parts(COLLAB_ONE / 2, &none, 2, part);
    assert_int_equal(part[0], COLLAB_ONE / 4);
    coschedule_parts(COLLAB_ONE / 2, &two, 1, part);
    assert_int_equal(part[0], COLLAB_ONE / 2);
}

/* Shares for the turns keep their ratio, and none is so small that it starves or that the quanta of
 * the others become huge. */
static void test_turns(void **state) {
    assert_int_equal(coschedule_turn(COLLAB_ONE, COLLAB_ONE), 65536);
    assert_int_equal(coschedule_turn(COLLAB_ONE / 4, COLLAB_ONE / 2), 32768);
    assert_int_equal(coschedule_turn(0, COLLAB_ONE), 1024);
    assert_int_equal(coschedule_turn(0, 0), 65536);
}

static void test_latency(void **state) {
    struct coschedule_latency l = { 0 };

    coschedule_look(&l, 0, 0, NS_PER_S);
    assert_int_equal(l.mean, 0);
    coschedule_look(&l, 10, 4000, NS_PER_S);
    assert_int_equal(l.mean, 400);
    coschedule_look(&l, 12, 4000 + 1600, NS_PER_S + 1000); /* 800 each */
    assert_int_equal(l.mean, 500);
    coschedule_look(&l, 12, 5600, 2 * NS_PER_S);
    assert_int_equal(l.mean, 500);
    coschedule_look(&l, 12, 5600, 2 * NS_PER_S + 1000); /* a second without requests */
    assert_int_equal(l.mean, 0);
    coschedule_look(&l, 13, 5600 + 70, 3 * NS_PER_S);
    assert_int_equal(l.mean, 70);
}

/* Equal threads on sockets that are to have 3/4 and 1/4; then equal parts. */
static void test_places(void **state) {
    struct coschedule_list uneven = { 2, { 750, 250 } }, even = { 2, { 500, 500 } };
    u32 weight[4] = { 10, 10, 10, 10 }, vcpu[4], on[2] = { 0 };

    place_threads(weight, 4, &uneven, 2, vcpu);
    for (u32 i = 0; i < 4; i++) on[vcpu[i]]++;
    assert_true(on[0] == 3 && on[1] == 1);
    place_threads(weight, 4, &even, 4, vcpu);
    for (u32 i = 0; i < 4; i++)
        for (u32 k = 0; k < i; k++) assert_int_not_equal(vcpu[i], vcpu[k]);
}

/* Over seeds: what is on a socket differs from its part by no more than the heaviest thread. */
static void test_places_are_near(void **state) {
    for (u64 seed = 0; seed < 500; seed++) {
        u64 rng = seed, all = 0, sum = 0, on[4] = { 0 };
        u32 n = 1 + (u32)(seed_next(&rng) % 16), vcpu[16], weight[16], most = 0;
        struct coschedule_list s = { .nr = 1 + (u32)(seed_next(&rng) % 4) };
        u32 vcpus = s.nr + (u32)(seed_next(&rng) % 5);

        for (u32 i = 0; i < n; i++) {
            weight[i] = 1 + (u32)(seed_next(&rng) % 50);
            most = MAX(most, weight[i]);
            all += weight[i];
        }
        for (u32 i = 0; i < s.nr; i++) sum += s.value[i] = 1 + (u32)(seed_next(&rng) % 1000);
        place_threads(weight, n, &s, vcpus, vcpu);
        for (u32 i = 0; i < n; i++) {
            assert_true(vcpu[i] < vcpus);
            on[coschedule_socket(vcpu[i], vcpus, s.nr)] += weight[i];
        }
        for (u32 i = 0; i < s.nr; i++)
            assert_true(on[i] * sum <= all * s.value[i] + (u64)most * sum);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lists),  cmocka_unit_test(test_parts),
        cmocka_unit_test(test_turns),  cmocka_unit_test(test_latency),
        cmocka_unit_test(test_places), cmocka_unit_test(test_places_are_near),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
