/* The policy that docs/writing-a-policy.md builds step by step, labs/stride.c, in the
 * simulation. */
#include "sched_rig.h"

static struct sched_pool *start(u32 cpus) {
    start_sim((struct sim_options){
        .cpus = cpus, .seed = 1, .kick_ns = 2000, .switch_ns = 2000, .keep = true });
    return sim_pool("Pool-0", "stride", sim_cpus(0, cpus - 1));
}

static struct sim_vm *vm(struct sched_pool *p, const char *name, u32 weight, struct sim_work work) {
    struct sim_vm *d = sim_vm(p, name, 1, ALL, work);

    sim_param(p, &d->d, "weight", weight);
    return d;
}

/* Shares are by weight to a slice of the VM with the largest stride, at any time. */
static void test_weights(void **state) {
    static const u32 weight[] = { 512, 256, 128, 128 };
    struct sched_pool *p = start(1);
    struct sim_vm *d[4];

    for (u32 i = 0; i < 4; i++) d[i] = vm(p, "hog", weight[i], HOG);
    for (u64 second = 1; second <= 20; second++) {
        sim_run_until(second * NS_PER_S);
        for (u32 i = 0; i < 4; i++) {
            i64 fair = (i64)(second * NS_PER_S * weight[i] / 1024),
                off = (i64)sim_ran(d[i]->vcpu[0]) - fair;

            assert_in_range(off + 20 * (i64)MS, 0, 40 * MS);
        }
    }
    sim_stop();
}

/* A vCPU that slept does not catch up, and one that sleeps often gets what it asks for. */
static void test_sleepers(void **state) {
    struct sched_pool *p = start(1);
    struct sim_vm *late = vm(p, "late", 256, HOG), *hog, *light;

    sched_pause(&late->d);
    hog = vm(p, "hog", 256, HOG);
    light = vm(p, "light", 256,
               (struct sim_work){ .kind = WORK_DUTY, .percent = 10, .period_ns = 50 * MS });
    sim_run_until(5 * NS_PER_S);
    assert_in_range(sim_ran(light->vcpu[0]), 480 * MS, 510 * MS);
    sched_unpause(&late->d);
    sim_mark(late);
    sim_mark(hog);
    sim_run_until(7 * NS_PER_S);
    assert_in_range(sim_ran(late->vcpu[0]), 880 * MS, 920 * MS);
    assert_in_range(sim_ran(hog->vcpu[0]), 880 * MS, 920 * MS);
    sim_stop();
}

/* Three pCPUs that decide at the same instant, and four that want them: what one puts back the
 * others cannot take yet. */
static void test_in_phase(void **state) {
    struct sched_pool *p = start(3);
    struct sim_vm *d[4];

    for (u32 i = 0; i < 4; i++) d[i] = vm(p, "hog", 256, HOG);
    sim_run_until(4 * NS_PER_S);
    for (u32 i = 0; i < 4; i++) assert_in_range(sim_ran(d[i]->vcpu[0]), 2970 * MS, 3030 * MS);
    sim_stop();
}

/* Two vCPUs wait for the same pCPU beside one that is idle, until one of the two may use the idle
 * one as well. */
static void test_let_on(void **state) {
    struct sched_pool *p = start(2);
    struct cpumask first = sim_cpus(0, 0), both = sim_cpus(0, 1);
    struct sim_vm *d[2];

    for (u32 i = 0; i < 2; i++) {
        d[i] = vm(p, "hog", 256, HOG);
        sched_set_affinity(&d[i]->vcpu[0]->s, &first);
    }
    sim_run_until(NS_PER_S + 5 * MS); /* within a slice */
    for (u32 i = 0; i < 2; i++) {
        assert_in_range(sim_ran(d[i]->vcpu[0]), 480 * MS, 520 * MS);
        sched_set_affinity(&d[i]->vcpu[0]->s, &both);
    }
    sim_run_until(sim.now + MS);
    sched_check_work_conserving();
    sim_stop();
}

/* Several pCPUs, and random comings and goings: the core's rules hold after every event, no vCPU
 * waits beside an idle pCPU, and the recording replays to the same decisions. */
static void test_several_cpus(void **state) {
    for (u64 seed = 1; seed <= 30; seed++) {
        struct sched_pool *p = start(3);
        struct sim_vm *d[6] = { 0 };
        struct sim_difference diff;
        struct trace_record *r;
        u64 rng = seed * 77777;
        size_t n;

        for (u32 step = 0; step < 60; step++) {
            u32 i = (u32)sim_below(&rng, 6);
            struct cpumask m = { { 1 + sim_below(&rng, 7) } };

            if (!d[i])
                d[i] = sim_vm(p, "vm", 1 + (u32)sim_below(&rng, 3), ALL,
                              sim_below(&rng, 2) ? HOG
                                                 : (struct sim_work){ .kind = WORK_WAKER,
                                                                      .period_ns = 3 * MS,
                                                                      .work_ns = MS });
            else if (sim_below(&rng, 3))
                sched_set_affinity(&d[i]->vcpu[0]->s, &m);
            else {
                sim_vm_destroy(d[i]);
                d[i] = NULL;
            }
            sim_run_until(sim.now + 7 * MS);
        }
        for (u32 i = 0; i < 6; i++)
            if (d[i]) sim_vm_destroy(d[i]);
        for (u32 i = 0; i < 4; i++) d[i] = sim_vm(p, "hog", 1, ALL, HOG);
        sim_run_until(sim.now + 50 * MS);
        for (u32 i = 0; i < 4; i++) sim_mark(d[i]);
        sim_run_until(sim.now + 4 * NS_PER_S);
        for (u32 i = 0; i < 4; i++)
            assert_in_range(sim_ran(d[i]->vcpu[0]), 2970 * MS, 3030 * MS); /* 3 pCPUs for 4 */
        sched_check_work_conserving();
        n = sim.nr_kept;
        r = malloc(n * sizeof(*r));
        memcpy(r, sim.kept, n * sizeof(*r));
        sim_stop();
        if (sim_replay(r, n, &diff))
            fail_msg("seed %lu: record %zu: %s", (unsigned long)seed, diff.record, diff.what);
        free(r);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_weights),      cmocka_unit_test(test_sleepers),
        cmocka_unit_test(test_in_phase),     cmocka_unit_test(test_let_on),
        cmocka_unit_test(test_several_cpus),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
