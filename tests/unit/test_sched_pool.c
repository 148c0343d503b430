/* The administration of pools, pCPUs, VMs and parameters: what is refused, and that a call that
 * fails changes nothing. */
#include "sched_rig.h"

static struct sched_pool *start(u32 cpus, u32 in_pool) {
    start_sim((struct sim_options){ .cpus = cpus, .kick_ns = 1000, .switch_ns = 1000 });
    return sim_pool("Pool-0", "credit", sim_cpus(0, in_pool - 1));
}

static void test_names(void **state) {
    struct sched_pool *p = start(2, 1), *q = NULL;
    char long_name[40];

    memset(long_name, 'x', sizeof(long_name));
    long_name[39] = 0;
    assert_int_equal(sched_pool_create("Pool-0", "credit", &q), -EEXIST);
    assert_int_equal(sched_pool_create("", "credit", &q), -EINVAL);
    assert_int_equal(sched_pool_create("a b", "credit", &q), -EINVAL);
    assert_int_equal(sched_pool_create(long_name, "credit", &q), -EINVAL);
    assert_int_equal(sched_pool_create("q", "fair", &q), -EINVAL);
    assert_null(q);
    assert_int_equal(sched_pool_create("q", "null", &q), 0);
    assert_int_equal(sched_pool_rename(q, "Pool-0"), -EEXIST);
    assert_int_equal(sched_pool_rename(q, "r"), 0);
    assert_ptr_equal(sched_pool_find("r"), q);
    assert_null(sched_pool_find("q"));
    assert_ptr_equal(sched_pool_next(p), q);
    assert_null(sched_pool_next(q));
    assert_int_equal(sched_pool_destroy(q), 0);
    assert_null(sched_pool_find("r"));
    assert_int_equal(sched_pool_destroy(p), -EBUSY);
    for (u32 i = 1; i < SCHED_MAX_POOLS; i++) {
        char name[3] = { (char)('a' + i / 10), (char)('0' + i % 10), 0 };

        assert_int_equal(sched_pool_create(name, "null", &q), 0);
    }
    assert_int_equal(sched_pool_create("one-more", "null", &q), -ENOSPC);
    sim_stop();
}

static void test_cpus(void **state) {
    struct sched_pool *p = start(3, 2), *q = sim_pool("q", "credit", (struct cpumask){ 0 });

    assert_int_equal(sched_pool_add_cpu(q, 1), -EBUSY);
    assert_int_equal(sched_pool_add_cpu(q, 3), -ENODEV);
    assert_int_equal(sched_pool_add_cpu(q, 1000), -ENODEV);
    assert_int_equal(sched_pool_remove_cpu(p, 0), -EBUSY);
    assert_int_equal(sched_pool_remove_cpu(p, 2), -EINVAL);
    assert_int_equal(sched_pool_remove_cpu(p, 1000), -EINVAL);
    assert_int_equal(sched_pool_add_cpu(q, 2), 0);
    assert_int_equal(sched_pool_destroy(q), -EBUSY);
    sim_vm(q, "vm", 1, ALL, HOG);
    assert_int_equal(sched_pool_remove_cpu(q, 2), -EBUSY); /* the last one, with a VM */
    assert_ptr_equal(sched_pool_of_cpu(2), q);
    assert_int_equal(sim_remove_cpu(p, 1), 0);
    assert_null(sched_pool_of_cpu(1));
    assert_int_equal(sched_pool_add_cpu(q, 1), 0);
    sim_stop();
}

/* A pCPU that is taken from a pool hands on its vCPUs, including the one that runs. A vCPU that
 * could run only there may run anywhere from then on. */
static void test_evacuation(void **state) {
    struct sched_pool *p = start(2, 2);
    struct sim_vm *pinned = sim_vm(p, "pinned", 1, sim_cpus(1, 1), HOG);
    struct sim_vm *d = sim_vm(p, "vm", 3, ALL, HOG);

    sim_run_until(100 * MS);
    assert_int_equal(sched_pool_remove_cpu(p, 1), -EAGAIN); /* one is running there */
    assert_int_equal(sim_remove_cpu(p, 1), 0);
    for (u32 i = 0; i < 3; i++) assert_int_equal(d->vcpu[i]->s.cpu, 0);
    assert_int_equal(pinned->vcpu[0]->s.cpu, 0);
    u64 ran = sim_ran(pinned->vcpu[0]);

    sim_run_until(NS_PER_S);
    assert_true(sim_ran(pinned->vcpu[0]) > ran + 300 * MS);
    assert_true(sched_is_idle(sched_current(1)));
    sim_stop();
}

static void test_affinity(void **state) {
    struct sched_pool *p = start(3, 2);
    struct sim_vm *d = sim_vm(p, "vm", 1, sim_cpus(0, 0), HOG);
    struct sched_vcpu extra;
    struct cpumask none = { 0 }, outside = sim_cpus(2, 2), one = sim_cpus(1, 2);

    assert_int_equal(sched_set_affinity(&d->vcpu[0]->s, &none), -EINVAL);
    assert_int_equal(sched_set_affinity(&d->vcpu[0]->s, &outside), -EINVAL);
    assert_int_equal(sched_vcpu_init(&extra, &d->d, 1, &outside), -EINVAL);
    assert_int_equal(d->d.nr_vcpus, 1);
    sim_run_until(5 * MS);
    assert_int_equal(sched_set_affinity(&d->vcpu[0]->s, &one), 0);
    sim_run_until(6 * MS);
    assert_int_equal(d->vcpu[0]->s.cpu, 1);
    assert_int_equal(d->vcpu[0]->s.state, RS_RUNNING);
    assert_int_equal(d->vcpu[0]->s.migrations, 1);
    sim_stop();
}

static void test_pause_counts(void **state) {
    struct sched_pool *p = start(1, 1);
    struct sim_vm *d = sim_vm(p, "vm", 2, ALL, HOG);

    sim_run_until(MS);
    assert_int_equal(sched_unpause(&d->d), -EINVAL);
    sched_pause(&d->d);
    sched_pause(&d->d);
    assert_false(sched_vm_stopped(&d->d));
    sim_run_until(2 * MS);
    assert_true(sched_vm_stopped(&d->d));
    assert_int_equal(d->vcpu[0]->s.state, RS_OFFLINE);
    assert_int_equal(sched_unpause(&d->d), 0);
    sim_run_until(3 * MS);
    assert_true(sched_vm_stopped(&d->d));
    assert_int_equal(sched_unpause(&d->d), 0);
    sim_run_until(4 * MS);
    assert_false(sched_vm_stopped(&d->d));
    sim_stop();
}

/* A wake that comes between sched_block and sched_run is not lost. Redundant wakes do nothing. */
static void test_wake_races(void **state) {
    struct sched_pool *p = start(1, 1);
    struct sim_vm *d = sim_vm(p, "vm", 1, ALL, HOG);
    struct sched_vcpu *v = &d->vcpu[0]->s;

    sim_run_until(MS);
    sched_block(v);
    sched_wake(v);
    sched_wake(v);
    assert_ptr_equal(sched_run(0), v);
    assert_int_equal(v->wakes, 1);
    sched_block(v);
    sched_pause(&d->d);
    assert_true(sched_is_idle(sched_run(0)));
    sched_saved(0, v);
    sched_wake(v); /* while paused: remembered */
    assert_int_equal(v->state, RS_OFFLINE);
    sched_unpause(&d->d);
    assert_int_equal(v->state, RS_RUNNABLE);
    assert_ptr_equal(sched_run(0), v);
    sim_stop();
}

/* ---- moving a VM ---- */

static void test_move(void **state) {
    struct sched_pool *p = start(3, 1), *q = sim_pool("q", "credit", sim_cpus(1, 2));
    struct sched_pool *empty = sim_pool("empty", "credit", (struct cpumask){ 0 });
    struct sim_vm *d = sim_vm(p, "vm", 3, sim_cpus(0, 0), HOG);
    struct credit_pool *cp = credit_pool(p), *cq = credit_pool(q);

    sim_param(p, &d->d, "weight", 1000);
    sim_run_until(100 * MS);
    assert_int_equal(cp->weight, 1000);
    assert_int_equal(sched_pool_move_vm(empty, &d->d), -EINVAL);
    assert_int_equal(sched_pool_move_vm(q, &d->d), -EAGAIN);
    assert_ptr_equal(d->d.pool, p);
    assert_int_equal(cp->weight, 1000);
    assert_int_equal(sim_move_vm(q, d), 0);
    assert_ptr_equal(d->d.pool, q);
    assert_int_equal(cp->weight, 0);
    assert_int_equal(p->nr_vms, 0);
    sim_run_until(300 * MS);
    assert_int_equal(cq->weight, CREDIT_DEFAULT_WEIGHT); /* parameters do not come along */
    for (u32 i = 0; i < 3; i++) assert_true(cpumask_test(&q->cpus, d->vcpu[i]->s.cpu));
    assert_true(sched_is_idle(sched_current(0)));
    assert_int_equal(sched_pool_move_vm(q, &d->d), 0); /* where it is */
    sim_stop();
}

/* A vCPU parked for its cap is not parked for ever when its VM moves. */
static void test_move_parked(void **state) {
    struct sched_pool *p = start(2, 1), *q = sim_pool("q", "credit", sim_cpus(1, 1));
    struct sim_vm *d = sim_vm(p, "vm", 1, ALL, HOG);

    sim_param(p, &d->d, "cap", 10);
    while (!d->vcpu[0]->s.parked) sim_run_until(sim.now + MS);
    assert_int_equal(sim_move_vm(q, d), 0);
    sim_mark(d);
    sim_run_until(sim.now + 100 * MS);
    assert_true(sim_ran(d->vcpu[0]) > 99 * MS);
    sim_stop();
}

/* ---- parameters ---- */

static void refuse(struct sched_pool *p, void *object, const char *name, i64 value) {
    const struct param *e = param_find(p, name);
    const char *why = NULL;
    i64 before = param_get(e, p, object);

    assert_int_equal(param_set(e, p, object, value, &why), -EINVAL);
    assert_non_null(why);
    assert_true(param_get(e, p, object) == before);
}

static void test_parameters(void **state) {
    struct sched_pool *p = start(1, 1);
    struct sim_vm *d = sim_vm(p, "vm", 1, ALL, HOG);
    static const i64 weights[] = { 0, -1, 65536, 1000000000 },
                     caps[] = { -1, 1000000000, INT64_MAX };

    for (u32 i = 0; i < ARRAY_SIZE(weights); i++) refuse(p, &d->d, "weight", weights[i]);
    for (u32 i = 0; i < ARRAY_SIZE(caps); i++) refuse(p, &d->d, "cap", caps[i]);
    refuse(p, p, "tslice_us", 0);
    refuse(p, p, "tslice_us", 49);
    refuse(p, p, "tslice_us", 1000001);
    refuse(p, p, "tslice_us", 500); /* below the rate limit */
    refuse(p, p, "ratelimit_us", 30001);
    refuse(p, p, "ratelimit_us", 99);
    refuse(p, p, "period_us", 5000); /* below the tick */
    refuse(p, p, "debit", 2);
    sim_stop();
}

static void test_parameter_text(void **state) {
    struct sched_pool *p = start(2, 1), *q = sim_pool("q", "null", sim_cpus(1, 1));
    struct sim_vm *d = sim_vm(p, "vm", 1, ALL, HOG), *n = sim_vm(q, "n", 1, ALL, HOG);
    const struct param *weight = param_find(p, "weight"), *debit = param_find(p, "debit");
    const char *unused;
    char why[PARAM_WHY];
    static const char *const bad[] = {
        "", "-", "12x", "0x10", " 3", "99999999999999999999", "-99999999999999999999"
    };

    assert_null(param_find(q, "weight"));
    assert_int_equal(param_kind("weight"), 'v');
    assert_int_equal(param_kind("tslice_us"), 'p');
    assert_int_equal(param_kind("sleepless"), 'p');
    assert_int_equal(param_kind("colour"), 0);
    for (u32 i = 0; i < ARRAY_SIZE(bad); i++)
        assert_int_equal(param_set_text(weight, p, &d->d, bad[i], why), -EINVAL);
    assert_int_equal(param_set_text(weight, p, &d->d, "512", why), 0);
    assert_int_equal(param_get(weight, p, &d->d), 512);
    assert_int_equal(param_set_text(debit, p, p, "time ", why), -EINVAL);
    assert_int_equal(param_set_text(debit, p, p, "tick", why), 0);
    assert_int_equal(param_get(debit, p, p), DEBIT_TICK);
    assert_int_equal(param_set(weight, p, &n->d, 5, &unused), -EINVAL); /* a VM of another pool */
    assert_int_equal(param_preset(p, "faithful-9"), -ENOENT);
    assert_int_equal(param_preset(q, "hardened"), -ENOENT);
    for (unsigned i = 0; param_at(p, i); i++) /* what is shown can be set again */
        if (param_at(p, i)->scope == PARAM_POOL)
            assert_int_equal(
                param_set(param_at(p, i), p, p, param_get(param_at(p, i), p, p), &unused), 0);
    sim_stop();
}

/* A person who sets a wrong value is told what would have been right, in the same words
 * everywhere. */
static void test_parameter_words(void **state) {
    struct sched_pool *p = start(2, 1), *q = sim_pool("q", "null", sim_cpus(1, 1));
    struct sim_vm *d = sim_vm(p, "vm", 1, ALL, HOG);
    static const struct {
        const char *name, *text, *why;
    } wrong[] = {
        { "weight", "x", "weight must be a whole number from 1 to 65535, not \"x\"" },
        { "weight", "0", "weight must be a whole number from 1 to 65535, not \"0\"" },
        { "cap", "25601", "cap must be a whole number from 0 to 25600 (%), not \"25601\"" },
        { "io", "maybe", "io must be auto, io or cpu, not \"maybe\"" },
        { "tslice_us", "1ms",
          "tslice_us must be a whole number from 50 to 1000000 (us), not \"1ms\"" },
        { "aca", "yes", "aca must be on, off, 1 or 0, not \"yes\"" },
        { "tslice_us", "500", "tslice_us = 500: ratelimit_us is longer than tslice_us" },
    };
    char why[PARAM_WHY];

    for (u32 i = 0; i < ARRAY_SIZE(wrong); i++) {
        const struct param *e = param_find(p, wrong[i].name);
        void *object = e->scope == PARAM_POOL ? (void *)p : &d->d;

        assert_int_equal(param_set_text(e, p, object, wrong[i].text, why), -EINVAL);
        assert_string_equal(why, wrong[i].why);
    }
    assert_int_equal(param_preset_why(q, "turbo", why), -ENOENT);
    assert_string_equal(why, "null has no preset \"turbo\": it has no presets");
    assert_int_equal(param_preset_why(p, "x", why), -ENOENT);
    assert_memory_equal(why, "credit has no preset \"x\": expected hardened, faithful-3.4, ", 58);
    assert_string_equal(why + strlen(why) - 16, "pool-io or turbo");
    assert_null(sched_policy_find("x", why));
    assert_memory_equal(why, "sched must be credit, null or ", 20);
    sim_stop();
}

/* A new pool has the preset hardened. */
static void test_default_is_hardened(void **state) {
    struct sched_pool *p = start(1, 1);
    struct credit_knobs before = credit_pool(p)->knob;

    assert_int_equal(param_preset(p, "faithful-3.4"), 0);
    assert_int_equal(param_preset(p, "hardened"), 0);
    assert_memory_equal(&before, &credit_pool(p)->knob, sizeof(before));
    sim_stop();
}

/* Derived values follow at once: the period, the tick, the grants and the totals. */
static void test_slice_online(void **state) {
    struct sched_pool *p = start(2, 2);
    struct credit_pool *cp = credit_pool(p);
    struct sim_vm *d[4];

    for (u32 i = 0; i < 4; i++) d[i] = sim_vm(p, "vm", 1, ALL, HOG);
    sim_run_until(NS_PER_S);
    sim_param(p, p, "ratelimit_us", 100);
    sim_param(p, p, "tslice_us", 3000);
    assert_int_equal(cp->tick, MS);
    assert_int_equal(cp->period, 3 * MS);
    for (u32 i = 0; i < 4; i++) sim_mark(d[i]);
    sim_run_until(2 * NS_PER_S);
    for (u32 i = 0; i < 4; i++) assert_in_range(sim_ran(d[i]->vcpu[0]), 480 * MS, 520 * MS);
    sim_stop();
}

/* "Coexisting scheduling policies": of 8 pCPUs one for dom0 without scheduling, two for I/O with
 * slices of 3 ms, ticked and accounted ten times as often, five for those that compute: eight of
 * them have 5/8 each. */
static void test_three_pools(void **state) {
    struct sim_options o = { .cpus = 8, .kick_ns = 1000 };
    struct sched_pool *zero, *io, *cpu;
    struct sim_vm *d[8], *dom0;

    sim_start(&o);
    sim.check = sim_check;
    zero = sim_pool("Pool-0", "null", sim_cpus(0, 0));
    io = sim_pool("io", "credit", sim_cpus(1, 2));
    cpu = sim_pool("cpu", "credit", sim_cpus(3, 7));
    assert_int_equal(param_preset(io, "pool-io"), 0);
    assert_int_equal(credit_pool(io)->tslice, 3000000);
    assert_int_equal(credit_pool(io)->tick, 1000000);
    assert_int_equal(credit_pool(io)->period, 3000000);
    dom0 = sim_vm(zero, "dom0", 1, sim_cpus(0, 63), (struct sim_work){ .kind = WORK_HOG });
    for (u32 i = 0; i < 4; i++)
        sim_vm(io, "io", 1, sim_cpus(0, 63),
               (struct sim_work){ .kind = WORK_SERVER, .rate = 1000, .work_ns = 300000 });
    for (u32 i = 0; i < 8; i++)
        d[i] = sim_vm(cpu, "cpu", 1, sim_cpus(0, 63), (struct sim_work){ .kind = WORK_HOG });
    sim_run_until(3 * NS_PER_S);
    for (u32 i = 0; i < 8; i++) sim_mark(d[i]);
    sim_mark(dom0);
    sim_run_until(33 * NS_PER_S);
    assert_int_equal(sim_ran(dom0->vcpu[0]), 30 * NS_PER_S);
    for (u32 i = 0; i < 8; i++)
        assert_in_range(sim_ran(d[i]->vcpu[0]), 30 * NS_PER_S * 622 / 1000,
                        30 * NS_PER_S * 628 / 1000);
    sim_stop();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_cpus),
        cmocka_unit_test(test_evacuation),
        cmocka_unit_test(test_affinity),
        cmocka_unit_test(test_pause_counts),
        cmocka_unit_test(test_wake_races),
        cmocka_unit_test(test_move),
        cmocka_unit_test(test_move_parked),
        cmocka_unit_test(test_parameters),
        cmocka_unit_test(test_parameter_text),
        cmocka_unit_test(test_parameter_words),
        cmocka_unit_test(test_default_is_hardened),
        cmocka_unit_test(test_three_pools),
        cmocka_unit_test(test_slice_online),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
