/* The policy labs/lottery.c, and with it the random numbers that policies get: they depend on
 * the seed of the simulation alone, and a replay draws the same ones. */
#include "sched_rig.h"

static struct sched_pool *start(u32 cpus, u64 seed) {
    start_sim((struct sim_options){
        .cpus = cpus, .seed = seed, .kick_ns = 2000, .switch_ns = 2000, .keep = true });
    return sim_pool("Pool-0", "lottery", sim_cpus(0, cpus - 1));
}

/* Of 10,000 slices a VM gets its part, within four standard deviations. */
static void test_weights(void **state) {
    static const u32 weight[] = { 512, 256, 128, 128 };
    struct sched_pool *p = start(1, 1);
    struct sim_vm *d[4];

    for (u32 i = 0; i < 4; i++) {
        d[i] = sim_vm(p, "hog", 1, ALL, HOG);
        sim_param(p, &d[i]->d, "weight", weight[i]);
    }
    sim_run_until(100 * NS_PER_S);
    for (u32 i = 0; i < 4; i++) near(share(d[i], sim.now), 100.0 * weight[i] / 1024, 2, "share");
    sim_stop();
}

static u64 trace_of(u64 seed, u32 vms) {
    struct sched_pool *p = start(2, seed);
    u64 hash;

    for (u32 i = 0; i < vms; i++) sim_vm(p, "hog", 1, ALL, HOG);
    sim_run_until(NS_PER_S);
    hash = sim.hash;
    sim_stop();
    return hash;
}

/* These VMs do the same under every seed: what differs is what the policy draws. */
static void test_seeds(void **state) {
    u64 hash[5];

    for (u32 i = 0; i < 5; i++) {
        hash[i] = trace_of(i, 5);
        assert_int_equal(hash[i], trace_of(i, 5));
        for (u32 k = 0; k < i; k++) assert_int_not_equal(hash[i], hash[k]);
    }
}

/* A random number of a pool, asked for as a policy asks: with the pool's lock held. */
static u64 random_locked(struct sched_pool *p) {
    u64 number;

    spin_lock(&p->lock);
    number = sched_random(p);
    spin_unlock(&p->lock);
    return number;
}

/* Each pool draws its own numbers: what one pool draws does not change what another pool gets. */
static void test_pools_apart(void **state) {
    u64 alone[8], beside[8];

    for (u32 both = 0; both < 2; both++) {
        struct sched_pool *p = start(2, 7), *other;

        other = sim_pool("other", "lottery", (struct cpumask){ 0 }); /* without a pCPU */
        for (u32 i = 0; i < 8; i++) {
            if (both) random_locked(p);
            *(both ? &beside[i] : &alone[i]) = random_locked(other);
        }
        sim_stop();
    }
    assert_memory_equal(alone, beside, sizeof(alone));
    struct sched_pool *p = start(2, 7);

    assert_int_not_equal(random_locked(p), alone[0]); /* and each has numbers of its own */
    sim_stop();
}

static void test_replay(void **state) {
    for (u64 seed = 0; seed < 20; seed++) {
        struct sched_pool *p = start(3, seed);
        struct sim_difference diff;
        struct trace_record *r;
        u64 rng = seed * 77777 + 1;
        size_t n;

        for (u32 i = 0; i < 6; i++) {
            struct sim_work naps = { .kind = WORK_WAKER, .period_ns = 3 * MS, .work_ns = MS };

            sim_vm(p, "vm", 1 + (u32)sim_below(&rng, 3), ALL, sim_below(&rng, 2) ? HOG : naps);
            sim_run_until(sim.now + 70 * MS);
        }
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
        cmocka_unit_test(test_weights),
        cmocka_unit_test(test_seeds),
        cmocka_unit_test(test_pools_apart),
        cmocka_unit_test(test_replay),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
