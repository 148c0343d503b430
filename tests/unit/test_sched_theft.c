/* Theft of service: a VM that sleeps at the right moments, or claims to be what it is not, gets
 * no more than its share and one point over 10 s. That holds under the default policy and under
 * that of each paper. The share is what the VM is entitled to of regular and turbo cores
 * together. */
#include "sched_rig.h"

#define SECS  10
#define WARM  (3 * NS_PER_S)
#define POINT (SECS * NS_PER_S / 100)

/* What a policy offers to liars, who take it. */
static const struct policy {
    const char *preset;
    struct {
        const char *name;
        i64 value;
    } pool, vm;
} policies[] = {
    { "hardened", { 0 }, { 0 } },
    { "hardened", { "order", ORDER_CREDIT }, { 0 } },
    { "uniform-1ms", { 0 }, { 0 } },
    { "pool-io", { 0 }, { 0 } },
    { "anticipatory", { 0 }, { 0 } },
    { "anticipatory", { "boost_hold_us", 0 }, { 0 } },
    { "vslicer", { 0 }, { 0 } },
    { "vslicer", { 0 }, { "micro_us", 1000 } },
    { "vslicer", { 0 }, { "micro_us", 10000 } },
    { "vslicer", { 0 }, { "latency_us", 1 } },
    { "vslicer", { "slicer", SLICER_EDF }, { "micro_us", 2000 } },
    { "vslicer", { "slicer", SLICER_FREQUENCY }, { "micro_us", 2000 } },
    { "sc", { 0 }, { "io", IO_YES } },
    { "aca", { 0 }, { "io", IO_YES } },
    { "aca", { "aca_shorten", 1 }, { "io", IO_YES } },
    { "sc+aca", { 0 }, { "io", IO_YES } },
    { "sc+aca", { 0 }, { "queues", 64 } },
};

static const struct sim_work evaders[] = {
    { .kind = WORK_EVADER, .margin_ns = 500 * US, .rest_ns = 100 * US, .tick_ns = 10 * MS },
    { .kind = WORK_EVADER, .margin_ns = 100 * US, .rest_ns = 50 * US, .tick_ns = MS },
    { .kind = WORK_EVADER, .margin_ns = MS, .rest_ns = MS, .tick_ns = 30 * MS },
    { .kind = WORK_SELF, .work_ns = 9 * MS, .rest_ns = MS },
    { .kind = WORK_SELF, .work_ns = 950 * US, .rest_ns = 50 * US },
    { .kind = WORK_SELF, .work_ns = 29 * MS, .rest_ns = 100 * US },
    { .kind = WORK_YIELD, .work_ns = 900 * US },
    { .kind = WORK_HOG },
};

static void set(struct sched_pool *p, void *object, const char *name, i64 value) {
    if (name) sim_param(p, object, name, value);
}

static void start(u32 cpus) {
    sim_start(&(struct sim_options){ .cpus = cpus, .seed = 1, .kick_ns = 1000, .switch_ns = 1000 });
}

static const char *or_dash(const char *name) {
    if (name) return name;
    return "-";
}

/* One pCPU with k hogs and an evader. The first evader hardly ever sleeps, so it must also get
 * no less than its share. */
static void one_core(const struct policy *o, u32 e, u32 k) {
    struct sched_pool *p;
    struct sim_vm *d;
    u64 ran;

    start(1);
    p = sim_pool("Pool-0", "credit", sim_cpus(0, 0));
    assert_int_equal(param_preset(p, o->preset), 0);
    set(p, p, o->pool.name, o->pool.value);
    for (u32 i = 0; i < k; i++) sim_vm(p, "hog", 1, ALL, HOG);
    d = sim_vm(p, "evader", 1, ALL, evaders[e]);
    if (o->vm.name) sim_param(p, &d->d, "io", IO_YES);
    set(p, &d->d, o->vm.name, o->vm.value);
    sim_run_until(WARM);
    sim_mark(d);
    sim_run_until(WARM + SECS * NS_PER_S);
    ran = sim_ran(d->vcpu[0]);
    if (ran > SECS * NS_PER_S / (k + 1) + POINT)
        fail_msg("%s, %s %s: evader %u has %lu ms of %lu beside %u hogs", o->preset,
                 or_dash(o->pool.name), or_dash(o->vm.name), e, (unsigned long)(ran / MS),
                 SECS * 1000ul, k);
    if (e == 0 && ran < SECS * NS_PER_S / (k + 1) - POINT)
        fail_msg("%s: evader 0 has only %lu ms of %lu beside %u hogs", o->preset,
                 (unsigned long)(ran / MS), SECS * 1000ul, k);
    sim_stop();
}

static void test_one_core(void **state) {
    for (u32 i = 0; i < ARRAY_SIZE(policies); i++)
        for (u32 e = 0; e < ARRAY_SIZE(evaders); e++)
            for (u32 k = 1; k <= 3; k += 2) one_core(&policies[i], e, k);
}

/* A regular core and a turbo core, and n VMs that compute. One of them evades on both cores. If
 * the others leave the turbo core alone, it may take all of that; if not, it gets its share.
 * With and without vSlicer. */
static void turbo_core(bool slicer, u32 e, u32 n, bool others) {
    static const char *const presets[] = { "hardened", "vslicer" };
    struct sim_work quick = evaders[e];
    struct sched_pool *p, *t;
    struct sim_vm *d[4], *td[4];
    u64 ran, turbo, most;

    quick.margin_ns /= 100; /* of the turbo core's slices and ticks */
    quick.rest_ns /= 100;
    quick.work_ns /= 100;
    quick.tick_ns = MAX(quick.tick_ns / 100, 100 * US);
    start(2);
    p = sim_pool("Pool-0", "credit", sim_cpus(0, 0));
    t = sim_pool("turbo", "credit", sim_cpus(1, 1));
    assert_int_equal(param_preset(p, presets[slicer]), 0);
    assert_int_equal(param_preset(t, "turbo"), 0);
    assert_int_equal(sched_pool_pair(t, p), 0);
    for (u32 i = 0; i < n; i++) {
        struct sim_work work = HOG, turbo_work = IDLE;

        if (others) turbo_work = HOG;
        if (i == 0) {
            work = evaders[e];
            turbo_work = quick;
        }
        d[i] = sim_vm(p, "vm", 1, ALL, work);
        td[i] = sim_turbo(d[i], turbo_work);
        if (slicer && i == 0) sim_param(p, &d[i]->d, "micro_us", 5000);
    }
    sim_run_until(WARM);
    sim_mark(d[0]);
    sim_mark(td[0]);
    sim_run_until(WARM + SECS * NS_PER_S);
    turbo = sim_ran(td[0]->vcpu[0]);
    ran = sim_ran(d[0]->vcpu[0]) + turbo;
    most = 2 * SECS * NS_PER_S / n;
    if (!others) most = MAX(most, turbo);
    if (ran > most + POINT)
        fail_msg("slicer %u: evader %u of %u has %lu ms of %lu, %lu of them turbo", slicer, e, n,
                 (unsigned long)(ran / MS), 2 * SECS * 1000ul, (unsigned long)(turbo / MS));
    sim_stop();
}

static void test_turbo(void **state) {
    for (u32 e = 0; e < ARRAY_SIZE(evaders); e++)
        for (u32 n = 2; n <= 4; n += 2)
            for (u32 k = 0; k < 4; k++) turbo_core(k & 1, e, n, k & 2);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_one_core),
                                        cmocka_unit_test(test_turbo) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
