/* Anticipatory boost: its levels, and which vCPU goes first by them. The other policies of boost
 * are in test_sched_credit.c. */
#include "sched_rig.h"

#define OFTEN ((struct sim_work){ .kind = WORK_WAKER, .period_ns = 2 * MS, .work_ns = 200 * US })
#define HARD  ((struct sim_work){ .kind = WORK_WAKER, .period_ns = 43 * MS, .work_ns = 500 * US })

static struct sim_vm *often, *seldom;

/* From 1032 ms on both wake at multiples of their periods. What they did before, as VMs without
 * credit, has moved that. */
static void into_phase(void) {
    sim_run_until(900 * MS);
    seldom->vcpu[0]->next = (1032 - 43) * MS;
    often->vcpu[0]->next = 910 * MS;
}

/* Both vCPUs wake at the same time every 86 ms, `seldom` first. Returns how often it runs first. */
static u32 goes_first(int boost) {
    struct sched_pool *p = start_credit(1, 1, "anticipatory");
    u32 first = 0;

    sim_param(p, p, "boost", boost);
    sim_param(p, p, "ratelimit_us", 0); /* a wake need not wait for the hog */
    seldom = sim_vm(p, "seldom", 1, sim_cpus(0, 0), HARD);
    often = sim_vm(p, "often", 1, sim_cpus(0, 0), OFTEN);
    sim_vm(p, "hog", 1, sim_cpus(0, 0), HOG);
    into_phase();
    for (u64 k = 12; k < 15; k++) { /* at none of these times there is a tick */
        sim_run_until(k * 86 * MS + 10 * US);
        assert_int_equal(often->vcpu[0]->s.blocked + seldom->vcpu[0]->s.blocked, 0);
        first += sched_current(0) == &seldom->vcpu[0]->s;
    }
    sim_stop();
    return first;
}

/* Under stock, the vCPU that was woken first goes first. Under anticipatory, the one that was woken
 * often of late goes first. */
static void test_levels_order(void **state) {
    assert_int_equal(goes_first(BOOST_STOCK), 3);
    assert_int_equal(goes_first(BOOST_ANTICIPATORY), 0);
}

/* A wake raises by one up to boost_levels; each boost_hold_us of sleep costs one. */
static void test_levels(void **state) {
    static const struct {
        i64 levels, hold_us;
        u32 often, seldom;
    } cases[] = {
        { 3, 10000, 3, 1 },
        { 5, 10000, 5, 1 },
        { 3, 1000, 1, 1 },
        { 1, 0, 1, 1 },
    };

    for (u32 i = 0; i < ARRAY_SIZE(cases); i++) {
        struct sched_pool *p = start_credit(2, i, "anticipatory"); /* nobody has to wait */

        sim_param(p, p, "boost_levels", cases[i].levels);
        sim_param(p, p, "boost_hold_us", cases[i].hold_us);
        often = sim_vm(p, "often", 1, sim_cpus(0, 0), OFTEN);
        seldom = sim_vm(p, "seldom", 1, sim_cpus(1, 1), HARD);
        into_phase();
        sim_run_until(86 * 12 * MS + 10 * US); /* both have just been woken */
        assert_int_equal(credit_vcpu(&often->vcpu[0]->s)->level, cases[i].often);
        assert_int_equal(credit_vcpu(&seldom->vcpu[0]->s)->level, cases[i].seldom);
        sim_stop();
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_levels_order),
        cmocka_unit_test(test_levels),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
