/* The policy null, which gives each vCPU a pCPU of its own, and its option
 * `sleepless`, with which a vCPU that halts keeps its pCPU. */
#include "sched_rig.h"

static struct sched_pool *start(u32 cpus) {
    start_sim((struct sim_options){ .cpus = cpus, .kick_ns = 1500 });
    return sim_pool("Pool-0", "null", sim_cpus(0, cpus - 1));
}

static bool runs(struct sim_vm *d) { return d->vcpu[0]->s.state == RS_RUNNING; }

static void test_one_each(void **state) {
    struct sched_pool *p = start(2);
    struct sim_vm *d[4];

    for (u32 i = 0; i < 4; i++) d[i] = sim_vm(p, "vm", 1, ALL, HOG);
    sim_run_until(10 * NS_PER_S);
    /* Two VMs are too many. Those that came later wait. */
    for (u32 i = 0; i < 4; i++) {
        assert_int_equal(runs(d[i]), i < 2);
        assert_int_equal(d[i]->vcpu[0]->s.switches, i < 2);
    }
    assert_int_equal(sim.policy_timers, 0);
    sim_vm_destroy(d[0]); /* the first who waits takes its place */
    sim_run_until(sim.now + MS);
    assert_true(runs(d[2]) && !runs(d[3]));
    sim_vm_destroy(d[1]);
    sim_run_until(sim.now + MS);
    assert_true(runs(d[3]));
    sim_stop();
}

/* A vCPU that wakes finds its pCPU waiting, so it always runs right after the kick. */
static void test_wake_latency(void **state) {
    struct sched_pool *p = start(2);
    struct sim_work waker = { .kind = WORK_WAKER, .period_ns = 3 * MS, .work_ns = 10000 };
    struct sim_vm *w = sim_vm(p, "waker", 1, ALL, waker);
    struct sched_times t;

    sim_vm(p, "hog", 1, ALL, HOG);
    sim_run_until(NS_PER_S);
    sched_times(&w->vcpu[0]->s, &t);
    assert_true(t.wake_count > 300);
    assert_true(t.wake_max <= 1500);
    assert_int_equal(sim.policy_timers, 0);
    sim_stop();
}

/* Of the vCPUs that wait, the first one that may run there is taken, not simply the first one. */
static void test_affinity(void **state) {
    struct sched_pool *p = start(2);
    struct sim_vm *a = sim_vm(p, "a", 1, sim_cpus(0, 0), HOG),
                  *b = sim_vm(p, "b", 1, sim_cpus(1, 1), HOG);
    struct sim_vm *c = sim_vm(p, "c", 1, sim_cpus(0, 0), HOG),
                  *d = sim_vm(p, "d", 1, sim_cpus(1, 1), HOG);
    struct cpumask one = sim_cpus(1, 1);

    sim_run_until(MS);
    sim_vm_destroy(b);
    sim_run_until(sim.now + MS);
    assert_true(runs(a) && !runs(c) && runs(d));
    sim_vm_destroy(d);
    sim_run_until(sim.now + MS);
    assert_false(runs(c));
    assert_int_equal(sched_set_affinity(&c->vcpu[0]->s, &one), 0);
    sim_run_until(sim.now + MS);
    assert_true(runs(c) && runs(a));
    assert_int_equal(c->vcpu[0]->s.cpu, 1);
    sim_stop();
}

static void test_cpu_comes_and_goes(void **state) {
    struct sched_pool *p = start(2);
    struct sim_vm *a = sim_vm(p, "a", 1, ALL, HOG), *b = sim_vm(p, "b", 1, ALL, HOG);

    sim_run_until(MS);
    assert_int_equal(sim_remove_cpu(p, 1), 0);
    sim_run_until(sim.now + MS);
    assert_true(runs(a) != runs(b));
    assert_int_equal(sched_pool_add_cpu(p, 1), 0);
    sim_run_until(sim.now + MS);
    assert_true(runs(a) && runs(b));
    sim_stop();
}

/* A vCPU that halts keeps its pCPU. There is no switch, and its CPU time reads 100 %. A pause
 * takes it off the pCPU all the same. */
static void test_sleepless(void **state) {
    struct sched_pool *p = start(1);
    struct sim_work waker = { .kind = WORK_WAKER, .period_ns = 3 * MS, .work_ns = 10000 };
    struct sim_vm *w;

    sim_param(p, p, "sleepless", 1);
    w = sim_vm(p, "waker", 1, ALL, waker);
    sim_run_until(NS_PER_S);
    assert_int_equal(w->vcpu[0]->s.switches, 1);
    assert_true(sim_ran(w->vcpu[0]) >= NS_PER_S - 10000);
    assert_in_range(w->vcpu[0]->computed, 330 * 10000, 335 * 10000);
    sim_vm_stop(w);
    assert_true(sched_is_idle(sched_current(0)));
    sched_unpause(&w->d);
    sim_run_until(sim.now + 100 * MS);
    assert_true(runs(w));
    sim_param(p, p, "sleepless", 0);
    sim_run_until(sim.now + 100 * MS);
    assert_true(w->vcpu[0]->s.switches > 30);
    sim_stop();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_each),  cmocka_unit_test(test_wake_latency),
        cmocka_unit_test(test_affinity),  cmocka_unit_test(test_cpu_comes_and_goes),
        cmocka_unit_test(test_sleepless),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
