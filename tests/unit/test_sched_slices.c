/* When the credit policy takes a pCPU away from a vCPU, and which vCPU gets it next: the length of
 * slices, preemption, the rate limit, and the two orders of the queue. A policy
 * with wrong slices may still give fair shares, so the tests of test_sched_credit.c would not see
 * it; but guests would wait too long or be switched too often. */
#include "sched_rig.h"

/* Shorter slices give proportionally more switches and shorter waits, and the same shares. */
static void test_short_slices(void **state) {
    static const struct {
        const char *preset;
        i64 slice, tick;
        double switches, within; /* a second; a fraction of them */
        u64 wait;
    } expect[] = { { "faithful-4.2", 30000, 0, 33.3, 0.02, 180 * MS },
                   { "faithful-4.2", 3000, 1000, 333, 0.02, 18 * MS },
                   { "hardened", 30000, 0, 80, 0.1, 180 * MS },
                   { "hardened", 3000, 1000, 800, 0.1, 18 * MS } };

    for (u32 k = 0; k < ARRAY_SIZE(expect); k++) {
        struct sched_pool *p = start_credit(1, 1, expect[k].preset);
        struct sim_vm *d[4];
        double switches = 0;

        sim_param(p, p, "tslice_us", expect[k].slice);
        sim_param(p, p, "tick_us", expect[k].tick);
        for (u32 i = 0; i < 4; i++) d[i] = sim_vm(p, "hog", 1, sim_cpus(0, 0), HOG);
        sim_run_until(3 * NS_PER_S);
        for (u32 i = 0; i < 4; i++) sim_mark(d[i]);
        sim_run_until(13 * NS_PER_S);
        for (u32 i = 0; i < 4; i++) {
            near(share(d[i], 10 * NS_PER_S), 25, 0.5, "share");
            assert_true(sim_waits(d[i]->vcpu[0]) <= expect[k].wait);
            switches += (double)(d[i]->vcpu[0]->s.switches - d[i]->vcpu[0]->mark.switches) / 10;
        }
        near(switches, expect[k].switches, expect[k].switches * expect[k].within, expect[k].preset);
        sim_stop();
    }
}

/* Slices from 50 us to 1 s work, and VMs still get shares by their weights. */
static void test_slice_range(void **state) {
    static const i64 slices[] = { 50, 100, 1000, 10000, 100000, 1000000 };

    for (u32 k = 0; k < ARRAY_SIZE(slices); k++) {
        struct sched_pool *p = start_credit(1, 1, "hardened");
        struct sim_vm *a, *b;
        u64 run = MAX(2 * NS_PER_S, (u64)slices[k] * NS_PER_US * 100);

        sim_param(p, p, "ratelimit_us", 0);
        sim_param(p, p, "tslice_us", slices[k]);
        a = sim_vm(p, "a", 1, sim_cpus(0, 0), HOG);
        b = sim_vm(p, "b", 1, sim_cpus(0, 0), HOG);
        sim_param(p, &a->d, "weight", 768);
        sim_run_until(run / 10);
        sim_mark(a);
        sim_mark(b);
        sim_run_until(sim.now + run);
        near(share(a, run), 75, 1.5, "a");
        near(share(b, run), 25, 1.5, "b");
        sim_stop();
    }
}

/* With boost off, a vCPU that wakes has the same class as the one that runs. It must not
 * preempt that, so a hog is switched out only when its slice ends. */
static void test_equals_do_not_preempt(void **state) {
    struct sched_pool *p = start_credit(1, 1, "faithful-4.1");
    struct sim_work waker = { .kind = WORK_WAKER, .period_ns = 3 * MS, .work_ns = 1000 };
    struct sim_vm *hog, *w[3];

    sim_param(p, p, "boost", BOOST_OFF);
    hog = sim_vm(p, "hog", 1, sim_cpus(0, 0), HOG);
    for (u32 i = 0; i < 3; i++) w[i] = sim_vm(p, "waker", 1, sim_cpus(0, 0), waker);
    sim_param(p, &hog->d, "weight", 65535); /* so that it stays UNDER */
    for (u32 i = 0; i < 3; i++) sim_param(p, &w[i]->d, "weight", 1);
    sim_run_until(3 * NS_PER_S);
    sim_mark(hog);
    sim_run_until(13 * NS_PER_S);
    u64 switches = hog->vcpu[0]->s.switches - hog->vcpu[0]->mark.switches;

    assert_in_range(switches, 320, 345); /* one for each slice of 30 ms */
    sim_stop();
}

/* With ratelimit_exact the rate limit delays only preemptions: two vCPUs that yield every 100 us
 * are switched that often. Without it, as in Xen, a yield has to wait for the limit, too. */
static void test_ratelimit(void **state) {
    struct sim_work yields = { .kind = WORK_YIELD, .work_ns = 100000 };

    for (int exact = 0; exact < 2; exact++) {
        struct sched_pool *p = start_credit(1, 1, "hardened");
        struct sim_vm *a, *b;

        sim_param(p, p, "ratelimit_exact", exact);
        a = sim_vm(p, "a", 1, sim_cpus(0, 0), yields);
        b = sim_vm(p, "b", 1, sim_cpus(0, 0), yields);
        sim_run_until(NS_PER_S);
        u64 switches = a->vcpu[0]->s.switches + b->vcpu[0]->s.switches;

        if (exact)
            assert_true(switches > 9000);
        else
            assert_true(switches < 1100);
        sim_stop();
    }
}

/* With order = credit, the vCPU that is UNDER and has the most credit left runs first; credits are
 * compared in steps of an eighth of a period. With order = fifo, the one that woke first does. */
static void test_order(void **state) {
    static const int orders[] = { ORDER_FIFO, ORDER_CREDIT };

    for (u32 k = 0; k < ARRAY_SIZE(orders); k++) {
        bool by_credit = orders[k] == ORDER_CREDIT;
        struct sched_pool *p = start_credit(1, 1, "hardened");
        struct sim_vm *d[8];

        sim_param(p, p, "boost", BOOST_OFF);
        sim_param(p, p, "order", orders[k]);
        for (u32 i = 0; i < 8; i++)
            d[i] = sim_vm(p, "vm", 1, sim_cpus(0, 0), (struct sim_work){ .kind = WORK_IDLE });
        sim_run_until(MS);
        d[0]->vcpu[0]->work = HOG;
        d[0]->vcpu[0]->remaining = ~0ull;
        sched_wake(&d[0]->vcpu[0]->s); /* takes the pCPU */
        sim_run_until(2 * MS);
        for (u32 i = 1; i < 8; i++) {
            credit_vcpu(&d[i]->vcpu[0]->s)->credit = i * 30 * MS / 8 + 1;
            d[i]->vcpu[0]->remaining = ~0ull;
            sched_wake(&d[i]->vcpu[0]->s);
        }
        for (u32 i = 1; i < 8; i++) {
            struct sched_vcpu *before = sched_current(0);
            u32 next = i;

            if (by_credit) next = 8 - i;

            sched_block(before);
            sched_run(0);
            sched_saved(0, before);
            assert_ptr_equal(sched_current(0), &d[next]->vcpu[0]->s);
        }
        sim_stop();
    }
}

/* The longest wait of a VM that serves 20 requests a second beside four hogs. */
static u64 worst_wait(u32 order, u64 seed) {
    struct sim_work server = { .kind = WORK_SERVER, .rate = 20, .work_ns = 200000 };
    struct sched_pool *p = start_credit(1, seed, "hardened");
    struct sim_vm *d[5];
    u64 worst;

    sim_param(p, p, "boost", BOOST_OFF);
    sim_param(p, p, "order", order);
    d[0] = sim_vm(p, "vm", 1, sim_cpus(0, 0), server);
    for (u32 i = 1; i < 5; i++) d[i] = sim_vm(p, "vm", 1, sim_cpus(0, 0), HOG);
    sim_run_until(3 * NS_PER_S);
    for (u32 i = 0; i < 5; i++) sim_mark(d[i]);
    sim_run_until(33 * NS_PER_S);
    for (u32 i = 1; i < 5; i++) near(share(d[i], 30 * NS_PER_S), 24.9, 1, "hog");
    worst = sim_waits(d[0]->vcpu[0]);
    sim_stop();
    return worst;
}

/* Why order = credit exists (Ongaro et al.): a VM that runs little has more credit left than the
 * others. It therefore waits for one slice of 30 ms instead of one slice of each other VM, and the
 * shares stay the same. */
static void test_order_latency(void **state) {
    for (u64 seed = 1; seed <= 5; seed++) {
        assert_in_range(worst_wait(ORDER_CREDIT, seed), 0, 30 * MS + 10000);
        assert_true(worst_wait(ORDER_FIFO, seed) > 30 * MS + 10000);
    }
}

/* A pCPU that is just deciding does not count as idle. Three vCPUs that wake on it at the same time
 * cause one decision. If the pCPU still counted as idle, the policy would kick it again for the
 * vCPUs that are left in the queue. */
static void test_decides_once(void **state) {
    struct sched_pool *p = start_credit(1, 1, "hardened");
    struct sim_vm *d[3];
    u64 decisions;

    for (u32 i = 0; i < 3; i++) d[i] = sim_vm(p, "vm", 1, ALL, IDLE);
    sim_run_until(MS);
    decisions = sim.decisions;
    for (u32 i = 0; i < 3; i++) {
        d[i]->vcpu[0]->remaining = ~0ull;
        sched_wake(&d[i]->vcpu[0]->s);
    }
    sim_run_until(2 * MS);
    assert_int_equal(sim.decisions, decisions + 1);
    sim_stop();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decides_once),  cmocka_unit_test(test_short_slices),
        cmocka_unit_test(test_slice_range),   cmocka_unit_test(test_equals_do_not_preempt),
        cmocka_unit_test(test_ratelimit),     cmocka_unit_test(test_order),
        cmocka_unit_test(test_order_latency),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
