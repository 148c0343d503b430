/* What the core and the credit policy count of each vCPU: preemptions, boosts, grants of credit.
 * Papers print such numbers, so they have to be what their names say. */
#include "sched_rig.h"

static struct sched_times of(struct sim_vm *d) {
    struct sched_times t;

    sched_times(&d->vcpu[0]->s, &t);
    return t;
}

/* Two VMs that compute: each is granted half of every period's credit, 333 times in ten seconds.
 * That they take turns at the end of each slice is no preemption. */
static void test_hogs(void **state) {
    struct sched_pool *p = start_credit(1, 1, "faithful-4.2");
    struct sim_vm *d[2];
    struct sched_times before[2];

    for (u32 i = 0; i < 2; i++) d[i] = sim_vm(p, "hog", 1, ALL, HOG);
    sim_run_until(3 * NS_PER_S + 1);
    for (u32 i = 0; i < 2; i++) before[i] = of(d[i]);
    sim_run_until(13 * NS_PER_S + 1);
    for (u32 i = 0; i < 2; i++) {
        struct sched_times t = of(d[i]);

        assert_int_equal(t.preemptions, before[i].preemptions);
        assert_int_equal(t.boosts, before[i].boosts);
        assert_true(t.switches - before[i].switches > 100);
        assert_in_range(t.grants - before[i].grants, 333, 334);
        assert_int_equal(t.granted_ns - before[i].granted_ns,
                         (t.grants - before[i].grants) * 15 * MS);
    }
    sim_stop();
}

/* A VM that wakes 100 times a second beside one that computes. If wakes are boosted, each is
 * counted there, and as a preemption of the other one. */
static void test_boosts(void **state) {
    struct sim_work w = { .kind = WORK_WAKER, .period_ns = 10 * MS + 1000, .work_ns = 50 * US };
    static const int boost[] = { BOOST_OFF, BOOST_STOCK };

    for (u32 on = 0; on < 2; on++) {
        struct sched_pool *p = start_credit(1, 1, "hardened");
        struct sim_vm *hog = sim_vm(p, "hog", 1, ALL, HOG), *d = sim_vm(p, "waker", 1, ALL, w);
        struct sched_times hog_before, before, hog_after, after;

        sim_param(p, p, "boost", boost[on]);
        sim_run_until(3 * NS_PER_S);
        hog_before = of(hog), before = of(d);
        sim_run_until(13 * NS_PER_S);
        hog_after = of(hog), after = of(d);
        assert_true(after.wakes - before.wakes > 300);
        if (!on) assert_int_equal(after.boosts, before.boosts);
        if (on) assert_in_range(after.boosts - before.boosts, 990, 1000);
        if (on) assert_in_range(hog_after.preemptions - hog_before.preemptions, 900, 1000);
        sim_stop();
    }
}

/* A vCPU that yields was not preempted. Neither was one that falls asleep. */
static void test_yields(void **state) {
    struct sched_pool *p = start_credit(1, 1, "hardened");
    struct sim_work yields = { .kind = WORK_YIELD, .work_ns = 100 * US };
    struct sim_work sleeps = { .kind = WORK_SELF, .work_ns = 100 * US, .rest_ns = 100 * US };
    struct sim_vm *a = sim_vm(p, "a", 1, ALL, yields), *b = sim_vm(p, "b", 1, ALL, yields);
    struct sim_vm *c;

    sim_run_until(NS_PER_S);
    assert_true(of(a).switches > 1000);
    assert_int_equal(of(a).preemptions, 0);
    assert_int_equal(of(b).preemptions, 0);
    sim_stop();
    p = start_credit(1, 1, "hardened");
    c = sim_vm(p, "c", 1, ALL, sleeps);
    sim_run_until(NS_PER_S);
    assert_true(of(c).switches > 1000);
    assert_int_equal(of(c).preemptions, 0);
    sim_stop();
}

/* The paper on shared credit counts how often an I/O VM was granted credit ("Workload-aware
 * credit scheduler", table 1: 3,944 times in three minutes, and 5,914 with ACA, of 6,000
 * periods). A VM that uses little is inactive most of the time in Xen; with ACA it takes part in
 * each pass. */
static void test_grants(void **state) {
    struct sim_work part = { .kind = WORK_DUTY, .period_ns = 7100 * US, .percent = 10 };
    u64 grants[2];

    for (u32 aca = 0; aca < 2; aca++) {
        struct sched_pool *p = start_credit(1, 1, "faithful-4.2");
        struct sim_vm *d;

        sim_param(p, p, "aca", aca);
        for (u32 i = 0; i < 2; i++) sim_vm(p, "hog", 1, ALL, HOG);
        d = sim_vm(p, "io", 1, ALL, part);
        sim_param(p, &d->d, "io", IO_YES);
        sim_run_until(NS_PER_S);
        grants[aca] = of(d).grants;
        sim_run_until(61 * NS_PER_S);
        grants[aca] = of(d).grants - grants[aca];
        sim_stop();
    }
    print_message("granted %lu and %lu times\n", (unsigned long)grants[0],
                  (unsigned long)grants[1]);
    assert_in_range(grants[0], 100, 1900);
    assert_in_range(grants[1], 1999, 2001);
}

/* A VM that sleeps takes part in the grants with ACA. Under the rules of `hardened` it is granted
 * nothing any more once it stands at the limit. */
static void test_full(void **state) {
    struct sched_pool *p = start_credit(1, 1, "aca");
    struct sim_vm *d = sim_vm(p, "io", 1, ALL, IDLE);
    u64 grants;

    sim_vm(p, "hog", 1, ALL, HOG);
    sim_param(p, &d->d, "io", IO_YES);
    sim_run_until(NS_PER_S);
    grants = of(d).grants;
    assert_in_range(grants, 1, 10);
    assert_int_equal(of(d).granted_ns, 30 * MS);
    sim_run_until(2 * NS_PER_S);
    assert_int_equal(of(d).grants, grants);
    sim_stop();
}

/* The numbers are of the vCPU's whole life: another pool does not forget them. */
static void test_another_pool(void **state) {
    struct sched_pool *p, *q;
    struct sim_vm *d;
    u64 granted;

    start_sim((struct sim_options){ .cpus = 2, .seed = 1, .kick_ns = 1000 });
    p = sim_pool("Pool-0", "credit", sim_cpus(0, 0));
    q = sim_pool("other", "credit", sim_cpus(1, 1));
    d = sim_vm(p, "hog", 1, ALL, HOG);
    sim_run_until(NS_PER_S);
    granted = of(d).granted_ns;
    assert_true(granted > 900 * MS);
    assert_int_equal(sim_move_vm(q, d), 0);
    sim_run_until(2 * NS_PER_S);
    assert_true(of(d).granted_ns > granted + 900 * MS);
    sim_stop();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hogs),   cmocka_unit_test(test_boosts),
        cmocka_unit_test(test_yields), cmocka_unit_test(test_grants),
        cmocka_unit_test(test_full),   cmocka_unit_test(test_another_pool),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
