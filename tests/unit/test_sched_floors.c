/* The accounting passes of docs/book/floor-sched.md: three VMs on one pCPU, and what each of them
 * is granted and has afterwards. */
#include "sched_rig.h"

/* Returns ns in hundredths of a millisecond, as the table of the chapter has them. */
static i64 hundredths(i64 ns) {
    if (ns < 0) return -hundredths(-ns);
    return (ns + 5000) / 10000;
}

static const struct {
    i64 given[3], credit[3], balance;
} pass[] = {
    { { 1500, 750, 750 }, { 500, -1050, 550 }, 0 },
    { { 1500, 750, 750 }, { 100, -1100, 1000 }, 0 },
    { { 1500, 750, 750 }, { -1100, -350, 1450 }, 0 },
    { { 1500, 750, 750 }, { -1900, 0, 1900 }, 0 },
    { { 1500, 750, 750 }, { -400, -1950, 2350 }, 0 },
    { { 1500, 750, 750 }, { 100, -2900, 2800 }, 0 },
    { { 1667, 833, 500 }, { -933, -2067, 3000 }, -3000 },
    { { 3800, 1900, 300 }, { 1767, -1767, 3000 }, 0 },
    { { 1800, 900, 300 }, { 1367, -1367, 3000 }, 0 },
};

static void test_nine_passes(void **state) {
    static const i64 weight[] = { 512, 256, 256 };
    const struct sim_work light = { .kind = WORK_WAKER, .period_ns = 10 * MS, .work_ns = MS };
    struct sched_pool *p = start_credit(1, 1, "hardened");
    const struct sim_work work[] = { HOG, HOG, light };
    static const char *const name[] = { "a", "b", "c" };
    struct sim_vm *vm[3];

    for (u32 i = 0; i < 3; i++) {
        vm[i] = sim_vm(p, name[i], 1, ALL, work[i]);
        sim_param(p, &vm[i]->d, "weight", weight[i]);
    }
    for (u32 n = 0; n < ARRAY_SIZE(pass); n++) {
        sim_run_until((n + 1) * 30 * MS);
        assert_int_equal(hundredths(credit_pool(p)->balance), pass[n].balance);
        for (u32 i = 0; i < 3; i++) {
            assert_int_equal(hundredths((i64)credit_vm(&vm[i]->d)->given), pass[n].given[i]);
            assert_int_equal(hundredths(credit_vcpu(&vm[i]->vcpu[0]->s)->credit),
                             pass[n].credit[i]);
        }
    }
    sim_stop();
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_nine_passes) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
