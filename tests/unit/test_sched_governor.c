/* The governor, which changes pools by itself: the number of turbo cores follows the load, and
 * the VMs and pCPUs of the pool for I/O follow labels and load. */
#include "sched_rig.h"

static struct sim_work duty(u32 percent) {
    return (struct sim_work){ .kind = WORK_DUTY, .period_ns = 2 * MS, .percent = percent };
}

static void start(u32 cpus) {
    start_sim((struct sim_options){ .cpus = cpus, .seed = 1, .kick_ns = 1000, .governed = true });
}

/* Six VMs: at 30 % of a turbo core each they want more than one core; at 3 % one is enough. */
static void test_turbo_cores(void **state) {
    for (u32 percent = 3; percent <= 30; percent += 27) {
        start(6);
        struct sched_pool *p = sim_pool("Pool-0", "credit", sim_cpus(0, 3));
        struct sched_pool *t = sim_pool("turbo", "credit", sim_cpus(4, 5));

        param_preset(t, "turbo");
        sim_param(t, t, "turbo_max", 3);
        assert_int_equal(sched_pool_pair(t, p), 0);
        for (u32 i = 0; i < 6; i++)
            sim_turbo(sim_vm(p, "vm", 1, sim_cpus(0, 63), HOG), duty(percent));
        sim_run_until(10 * NS_PER_S);
        assert_int_equal(cpumask_weight(&t->cpus), percent == 3 ? 1 : 3);
        assert_int_equal(cpumask_weight(&p->cpus), percent == 3 ? 5 : 3);
        sim_run_until(20 * NS_PER_S); /* and stays so */
        assert_int_equal(cpumask_weight(&t->cpus), percent == 3 ? 1 : 3);
        sim_stop();
    }
}

/* A VM that is labelled moves with its weight, and back when it no longer is; pCPUs follow the
 * load. */
static void test_io_pool(void **state) {
    struct sim_vm *d[6];

    start(4);
    struct sched_pool *p = sim_pool("Pool-0", "credit", sim_cpus(0, 2)),
                      *io = sim_pool("io", "credit", sim_cpus(3, 3));

    param_preset(io, "pool-io");
    sim_param(io, io, "auto_io", 1);
    for (u32 i = 0; i < 6; i++) {
        d[i] = sim_vm(p, "vm", 1, sim_cpus(0, 63), i < 3 ? duty(60) : HOG);
        sim_param(p, &d[i]->d, "weight", 100 + i);
    }
    for (u32 i = 0; i < 3; i++) sim_param(p, &d[i]->d, "io", IO_YES);
    sim_run_until(12 * NS_PER_S);
    for (u32 i = 0; i < 6; i++) {
        assert_ptr_equal(d[i]->d.pool, i < 3 ? io : p);
        assert_int_equal(credit_vm(&d[i]->d)->weight, 100 + i);
        assert_int_equal(d[i]->d.paused, 0);
    }
    assert_int_equal(cpumask_weight(&io->cpus), 2); /* 1.8 of 4 pCPUs */
    for (u32 i = 0; i < 3; i++) sim_param(io, &d[i]->d, "io", IO_NO);
    sim_run_until(30 * NS_PER_S);
    for (u32 i = 0; i < 6; i++) assert_ptr_equal(d[i]->d.pool, p);
    assert_int_equal(cpumask_weight(&io->cpus), 1);
    sim_stop();
}

/* An administrator takes away a VM that is about to move. The VM goes on in the pool in which the
 * administrator has put it. */
static void test_taken_away(void **state) {
    start(3);
    struct sched_pool *p = sim_pool("Pool-0", "credit", sim_cpus(0, 0)),
                      *io = sim_pool("io", "credit", sim_cpus(1, 1)),
                      *third = sim_pool("third", "credit", sim_cpus(2, 2));
    struct sim_vm *d = sim_vm(p, "vm", 1, sim_cpus(0, 63), HOG);

    sim_param(io, io, "auto_io", 1);
    sim_param(p, &d->d, "io", IO_YES);
    while (d->d.paused == 0) sim_run_until(sim.now + 1000);
    while (sched_pool_move_vm(third, &d->d)) sim_run_until(sim.now + 1000);
    assert_ptr_equal(d->d.pool, third);
    sim_run_until(sim.now + 10 * MS);
    assert_int_equal(d->d.paused, 0);
    sim_stop();
}

/* No pool asks for anything, so nothing changes. */
static void test_static(void **state) {
    start(4);
    struct sched_pool *p = sim_pool("Pool-0", "credit", sim_cpus(0, 2)),
                      *t = sim_pool("turbo", "credit", sim_cpus(3, 3));

    param_preset(t, "turbo");
    sched_pool_pair(t, p);
    for (u32 i = 0; i < 4; i++) sim_turbo(sim_vm(p, "vm", 1, sim_cpus(0, 63), HOG), HOG);
    sim_run_until(5 * NS_PER_S);
    assert_int_equal(cpumask_weight(&t->cpus), 1);
    sim_stop();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_turbo_cores),
        cmocka_unit_test(test_io_pool),
        cmocka_unit_test(test_taken_away),
        cmocka_unit_test(test_static),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
