/* The credit policy: who gets how much of a pCPU. The first tests compare grants of credit with
 * values that were worked out by hand. The others run VMs in the simulation and check the
 * properties of the shares, waits and boosts that come of those grants. Each property is
 * checked for the hardened preset and for those that behave as Xen does, because experiments
 * compare the papers' mechanisms with Xen's scheduler: a baseline that is wrong makes their results
 * wrong. Slices and preemption are in test_sched_slices.c. */
#include "sched_rig.h"

static const char *const presets[] = { "hardened", "faithful-3.4", "faithful-4.0", "faithful-4.1",
                                       "faithful-4.2" };

/* ---- arithmetic ---- */

struct grant_case {
    const char *what;
    u32 cpus, n;
    u32 weight[4], cap[4], vcpus[4], credits[4];
    const char *preset;
};

/* Makes the VMs of a case, all of them active, without any credit, and runs one accounting pass.
 * Each vCPU must then have the credits of the table (one is 100 us). The pass visits the VMs in the
 * table's order, which matters in Xen because what is left over goes to the later ones. */
static void check_grants(const struct grant_case *g) {
    struct sched_pool *p = start_credit(g->cpus, 1, g->preset);
    struct credit_pool *cp = credit_pool(p);
    struct sim_vm *d[4];

    sim_param(p, p, "fault", FAULT_NONE);
    for (u32 i = 0; i < g->n; i++) {
        d[i] = sim_vm(p, "vm", g->vcpus[i], sim_cpus(0, 63), HOG);
        sim_param(p, &d[i]->d, "weight", g->weight[i]);
        sim_param(p, &d[i]->d, "cap", g->cap[i]);
    }
    sim_run_until(2 * NS_PER_S); /* that is long enough for a tick to find each VM running */
    for (u32 i = 0; i < g->n; i++) {
        struct credit_vm *cd = credit_vm(&d[i]->d);

        assert_int_equal(cd->nr_active, g->vcpus[i]);
        list_del(&cd->link);
        list_add_tail(&cp->active, &cd->link);
        for (u32 k = 0; k < g->vcpus[i]; k++) credit_vcpu(&d[i]->vcpu[k]->s)->credit = 0;
    }
    cp->balance = 0;
    spin_lock(&p->lock);
    credit_account(p);
    spin_unlock(&p->lock);
    for (u32 i = 0; i < g->n; i++)
        for (u32 k = 0; k < g->vcpus[i]; k++) {
            u64 ns = (u64)credit_vcpu(&d[i]->vcpu[k]->s)->credit;
            u64 credits = (ns + CREDIT_XEN_UNIT - 1) / CREDIT_XEN_UNIT;

            if (credits != g->credits[i])
                fail_msg("%s: VM %u got %lu credits, not %u", g->what, i, (unsigned long)credits,
                         g->credits[i]);
        }
    sim_stop();
}

static void test_worked_grants(void **state) {
    static const struct grant_case cases[] = {
        { "one pCPU, 2:1", 1, 2, { 512, 256 }, { 0 }, { 1, 1 }, { 200, 100 }, "faithful-4.1" },
        { "one pCPU, 2:1", 1, 2, { 512, 256 }, { 0 }, { 1, 1 }, { 200, 100 }, "hardened" },
        { "two pCPUs",
          2,
          4,
          { 512, 256, 256, 128 },
          { 0 },
          { 1, 1, 1, 1 },
          { 267, 134, 134, 67 },
          "faithful-4.1" },
        { "two pCPUs",
          2,
          4,
          { 512, 256, 256, 128 },
          { 0 },
          { 1, 1, 1, 1 },
          { 267, 134, 134, 67 },
          "faithful-3.4" },
        { "cap first",
          2,
          3,
          { 256, 256, 256 },
          { 50, 0, 0 },
          { 1, 1, 1 },
          { 150, 225, 225 },
          "faithful-4.1" },
        { "cap last",
          2,
          3,
          { 256, 256, 256 },
          { 0, 0, 50 },
          { 1, 1, 1 },
          { 200, 200, 150 },
          "faithful-4.1" },
        { "4 vCPUs and 1", 2, 2, { 256, 256 }, { 0 }, { 4, 1 }, { 120, 120 }, "faithful-4.1" },
        { "4 vCPUs and 1", 2, 2, { 256, 256 }, { 0 }, { 4, 1 }, { 75, 300 }, "faithful-3.4" },
        { "above one pCPU", 2, 2, { 768, 256 }, { 0 }, { 1, 1 }, { 300, 300 }, "hardened" },
    };

    for (u32 i = 0; i < ARRAY_SIZE(cases); i++) check_grants(&cases[i]);
}

/* A capped VM that is visited last cannot hand its surplus on in this pass. It moves to the
 * head of the list, so that the surplus reaches the others in the next pass. */
static void test_reorder(void **state) {
    struct sched_pool *p = start_credit(2, 1, "faithful-4.1");
    struct credit_pool *cp = credit_pool(p);
    struct sim_vm *d[3];

    for (u32 i = 0; i < 3; i++) d[i] = sim_vm(p, "vm", 1, sim_cpus(0, 1), HOG);
    sim_run_until(2 * NS_PER_S);
    sim_param(p, &d[2]->d, "cap", 50);
    for (u32 i = 0; i < 3; i++) {
        struct credit_vm *cd = credit_vm(&d[i]->d);

        list_del(&cd->link);
        list_add_tail(&cp->active, &cd->link);
    }
    cp->balance = 0;
    spin_lock(&p->lock);
    credit_account(p);
    spin_unlock(&p->lock);
    assert_ptr_equal(list_first(&cp->active, struct credit_vm, link), d[2]->d.priv);
    sim_stop();
}

/* Credit that does not fit into one vCPU of a VM goes to the other one: then both are full, and
 * nothing is lost. */
static void test_full_vcpu(void **state) {
    struct sched_pool *p = start_credit(2, 1, "hardened");
    struct sim_vm *d = sim_vm(p, "vm", 2, sim_cpus(0, 1), HOG);
    struct credit_vcpu *rich = credit_vcpu(&d->vcpu[0]->s), *poor = credit_vcpu(&d->vcpu[1]->s);

    sim_run_until(2 * NS_PER_S);
    rich->credit = credit_pool(p)->balance = 25 * MS;
    poor->credit = 0;
    spin_lock(&p->lock);
    credit_account(p);
    spin_unlock(&p->lock);
    assert_int_equal(rich->credit, 30 * MS);
    assert_int_equal(poor->credit, 30 * MS);
    assert_int_equal(credit_vm(&d->d)->nr_active, 2);
    sim_stop();
}

/* For many random pools: the grants of a pass add up to C, the credit of all pCPUs for a
 * period, give or take one unit for each VM and each vCPU. No vCPU gets more than one pCPU could
 * give it, and afterwards every active vCPU has a credit from -T to T, where T is the period. */
static void test_grant_sums(void **state) {
    u64 rng = 99;

    for (int round = 0; round < 300; round++) {
        const char *preset = presets[sim_below(&rng, ARRAY_SIZE(presets))];
        u32 cpus = 1 + (u32)sim_below(&rng, 4), n = 1 + (u32)sim_below(&rng, 6), active = 0;
        struct sched_pool *p = start_credit(cpus, (u64)round, preset);
        struct credit_pool *cp = credit_pool(p);
        struct sim_vm *d[6];
        i64 before[6][4], granted = 0, wanted = 0;

        for (u32 i = 0; i < n; i++) {
            d[i] = sim_vm(p, "vm", 1 + (u32)sim_below(&rng, 4), sim_cpus(0, 63), HOG);
            sim_param(p, &d[i]->d, "weight", 1 + (i64)sim_below(&rng, 65535));
        }
        sim_run_until(300 * MS);
        for (u32 i = 0; i < n; i++)
            for (u32 k = 0; k < d[i]->nr_vcpus; k++) {
                struct credit_vcpu *cv = credit_vcpu(&d[i]->vcpu[k]->s);

                cv->credit = -(i64)sim_below(&rng, 20 * MS);
                before[i][k] = cv->credit;
                active += !list_empty(&cv->active);
                if (!list_empty(&cv->active)) wanted += (i64)cp->period;
            }
        cp->balance = 0;
        spin_lock(&p->lock);
        credit_account(p);
        spin_unlock(&p->lock);
        for (u32 i = 0; i < n; i++)
            for (u32 k = 0; k < d[i]->nr_vcpus; k++) {
                struct credit_vcpu *cv = credit_vcpu(&d[i]->vcpu[k]->s);
                i64 got = cv->credit - before[i][k];

                if (list_empty(&cv->active)) continue;
                assert_in_range(cv->credit + (i64)cp->period, 0, 2 * cp->period);
                assert_true(got >= 0);
                if (cp->knob.overflow == OVERFLOW_INACTIVE) assert_true(got <= (i64)cp->period + 1);
                granted += got;
            }
        i64 all = (i64)(cp->period * cpus);

        /* The surplus of the VM that is visited last is lost in this pass. So less than C may be
         * given, but never more. */
        assert_true(granted <= all + (i64)((n + active) * MAX(cp->unit, 1)));
        if (wanted <= all && cp->knob.overflow == OVERFLOW_INACTIVE) assert_true(granted >= wanted);
        sim_stop();
    }
}

/* ---- shares ---- */

/* One to eight equal hogs on one pCPU get equal shares. */
static void test_equal_hogs(void **state) {
    for (u32 k = 0; k < ARRAY_SIZE(presets); k++)
        for (u32 n = 1; n <= 8; n++) {
            struct sched_pool *p = start_credit(1, n, presets[k]);
            struct sim_vm *d[8];
            double within;

            for (u32 i = 0; i < n; i++) d[i] = sim_vm(p, "hog", 1, sim_cpus(0, 0), HOG);
            sim_run_until(3 * NS_PER_S);
            for (u32 i = 0; i < n; i++) sim_mark(d[i]);
            sim_run_until(33 * NS_PER_S);
            within = 2;
            /* Xen rounds: it grants each of eight VMs 38 credits instead of 37.5, until none are
             * left for some of them. */
            if (credit_pool(p)->unit && n == 8) within = 4;
            for (u32 i = 0; i < n; i++)
                near(share(d[i], 30 * NS_PER_S), 100.0 / n, within / n, presets[k]);
            sim_stop();
        }
}

static void run_weights(const char *preset, u32 cpus, u32 n, const u32 *weight, double *out) {
    struct sched_pool *p = start_credit(cpus, 1, preset);
    struct sim_vm *d[8];

    for (u32 i = 0; i < n; i++) {
        d[i] = sim_vm(p, "hog", 1, sim_cpus(0, cpus - 1), HOG);
        sim_param(p, &d[i]->d, "weight", weight[i]);
    }
    sim_run_until(3 * NS_PER_S);
    for (u32 i = 0; i < n; i++) sim_mark(d[i]);
    sim_run_until(63 * NS_PER_S);
    for (u32 i = 0; i < n; i++) out[i] = share(d[i], 60 * NS_PER_S);
    sim_stop();
}

/* Shares on one pCPU follow the weights, moderate and extreme ones. */
static void test_weights(void **state) {
    static const u32 three[] = { 512, 256, 128 }, four[] = { 1024, 256 }, extreme[] = { 2048, 64 };
    double s[3];

    for (u32 k = 0; k < ARRAY_SIZE(presets); k++) {
        run_weights(presets[k], 1, 3, three, s);
        near(s[0], 57.14, 0.6, presets[k]);
        near(s[1], 28.57, 0.3, presets[k]);
        near(s[2], 14.29, 0.15, presets[k]);
        run_weights(presets[k], 1, 2, four, s);
        near(s[1], 20, 0.2, presets[k]);
        run_weights(presets[k], 1, 2, extreme, s);
        near(s[1], 100.0 / 33, 0.15 * 100 / 33, presets[k]);
    }
}

/* With the parameter `fault` a course checks that its tests notice a fault: weights have no
 * effect. */
static void test_fault(void **state) {
    struct sched_pool *p = start_credit(1, 1, "hardened");
    struct sim_vm *a = sim_vm(p, "a", 1, sim_cpus(0, 0), HOG),
                  *b = sim_vm(p, "b", 1, sim_cpus(0, 0), HOG);

    sim_param(p, &a->d, "weight", 1024);
    sim_param(p, p, "fault", FAULT_IGNORE_WEIGHT);
    sim_run_until(10 * NS_PER_S);
    near(share(a, 10 * NS_PER_S), 50, 1, "a");
    near(share(b, 10 * NS_PER_S), 50, 1, "b");
    sim_stop();
}

/* Hogs on several pCPUs get equal shares although their number is no multiple of the pCPUs'. */
static void test_several_cpus(void **state) {
    static const u32 shape[][2] = { { 5, 2 }, { 7, 3 }, { 3, 2 }, { 9, 4 } };
    static const u32 weight[] = { 512, 256, 256, 128 };
    double s[4];

    for (u32 k = 0; k < ARRAY_SIZE(presets); k++) {
        for (u32 i = 0; i < ARRAY_SIZE(shape); i++) {
            u32 n = shape[i][0], cpus = shape[i][1];
            struct sched_pool *p = start_credit(cpus, i, presets[k]);
            struct sim_vm *d[9];

            for (u32 v = 0; v < n; v++) {
                d[v] = sim_vm(p, "hog", 1, sim_cpus(0, cpus - 1), HOG);
                sim_run_until(sim.now +
                              100 * NS_PER_US); /* Xen does not balance those that wake together */
            }
            sim_run_until(3 * NS_PER_S);
            for (u32 v = 0; v < n; v++) sim_mark(d[v]);
            sim_run_until(63 * NS_PER_S);
            for (u32 v = 0; v < n; v++)
                near(share(d[v], 60 * NS_PER_S), 100.0 * cpus / n, 1.0 * cpus / n, presets[k]);
            sim_stop();
        }
        if (k != 0) continue;
        run_weights(presets[k], 2, 4, weight, s);
        near(s[0], 88.9, 0.15 * 88.9, "weight 512");
        near(s[1], 44.4, 0.15 * 44.4, "weight 256");
        near(s[3], 22.2, 0.15 * 22.2, "weight 128");
        assert_true(s[0] > s[1] && s[2] > s[3] && s[0] <= 100);
    }
}

/* A VM gets its cap and no more, alone on its pCPU and beside a hog. */
static void test_caps(void **state) {
    static const u32 caps[] = { 10, 25, 33, 40, 50, 75, 90 };

    for (u32 k = 0; k < ARRAY_SIZE(presets); k++) {
        for (u32 i = 0; i < ARRAY_SIZE(caps); i++) {
            struct sched_pool *p = start_credit(1, i, presets[k]);
            struct sim_vm *d = sim_vm(p, "capped", 1, sim_cpus(0, 0), HOG);

            sim_param(p, &d->d, "cap", caps[i]);
            sim_run_until(3 * NS_PER_S);
            for (u32 window = 0; window < 3; window++) {
                sim_mark(d);
                sim_run_until(sim.now + 10 * NS_PER_S);
                assert_true(share(d, 10 * NS_PER_S) <= caps[i] + 1.0);
                near(share(d, 10 * NS_PER_S), caps[i], 1, presets[k]);
            }
            sim_stop();
        }
        struct sched_pool *p = start_credit(1, 1, presets[k]);
        struct sim_vm *d = sim_vm(p, "capped", 1, sim_cpus(0, 0), HOG);
        struct sim_vm *hog = sim_vm(p, "hog", 1, sim_cpus(0, 0), HOG);

        sim_param(p, &d->d, "cap", 20);
        sim_run_until(3 * NS_PER_S);
        sim_mark(d);
        sim_mark(hog);
        sim_run_until(33 * NS_PER_S);
        near(share(d, 30 * NS_PER_S), 20, 1, presets[k]);
        near(share(hog, 30 * NS_PER_S), 80, 1, presets[k]);
        sim_stop();
    }
}

/* How long a hog waits between two turns is bounded. */
static void test_waits(void **state) {
    for (u32 k = 0; k < ARRAY_SIZE(presets); k++) {
        for (u32 n = 2; n <= 8; n++) {
            struct sched_pool *p = start_credit(1, n, presets[k]);
            struct sim_vm *d[8];
            u64 bound = MAX(90 * MS, 2 * (n - 1) * 30 * MS);

            if (k == 0 && n > 2) /* hardened: as in round robin */
                bound = (n - 1) * 30 * MS;

            for (u32 i = 0; i < n; i++) d[i] = sim_vm(p, "hog", 1, sim_cpus(0, 0), HOG);
            sim_run_until(3 * NS_PER_S);
            for (u32 i = 0; i < n; i++) sim_mark(d[i]);
            sim_run_until(33 * NS_PER_S);
            for (u32 i = 0; i < n; i++)
                if (sim_waits(d[i]->vcpu[0]) > bound)
                    fail_msg("%s, %u hogs: one waited %lu us", presets[k], n,
                             (unsigned long)(sim_waits(d[i]->vcpu[0]) / 1000));
            sim_stop();
        }
        /* With weights of 32 to 1 the small one waits long, but not for ever. */
        struct sched_pool *p = start_credit(1, 1, presets[k]);
        struct sim_vm *big = sim_vm(p, "big", 1, sim_cpus(0, 0), HOG);
        struct sim_vm *small = sim_vm(p, "small", 1, sim_cpus(0, 0), HOG);

        sim_param(p, &big->d, "weight", 2048);
        sim_param(p, &small->d, "weight", 64);
        sim_run_until(3 * NS_PER_S);
        sim_mark(small);
        sim_run_until(63 * NS_PER_S);
        assert_in_range(sim_waits(small->vcpu[0]), 1, 2 * 30 * MS * 33);
        sim_stop();
    }
}

/* Called after each event: no vCPU is still boosted one tick after it was picked. */
static void no_boost_after_tick(void) {
    const struct sched_pool *p = sched_pool_next(NULL);
    const struct credit_pool *cp = credit_pool(p);

    for (u32 cpu = 0; cpu < sim.opt.cpus; cpu++) {
        struct sched_vcpu *v = sched_current_locked(cpu);

        if (v && credit_vcpu(v)->cls == CLASS_BOOST)
            assert_true(sim.now - credit_vcpu(v)->picked_at <= cp->tick);
    }
    sim_check();
}

/* A vCPU that wakes while it is UNDER is boosted, and runs within the latency of a kick and the
 * rate limit. One that is OVER is not boosted. No boost outlives a tick. */
static void test_boost(void **state) {
    for (u32 k = 0; k < ARRAY_SIZE(presets); k++) {
        struct sched_pool *p = start_credit(1, k, presets[k]);
        struct sim_work waker = { .kind = WORK_WAKER, .period_ns = 7 * MS, .work_ns = 50000 };
        struct sim_vm *w = sim_vm(p, "waker", 1, sim_cpus(0, 0), waker);
        struct credit_pool *cp = credit_pool(p);

        sim_vm(p, "hog", 1, sim_cpus(0, 0), HOG);
        sim_vm(p, "hog", 1, sim_cpus(0, 0), HOG);
        sim.check = no_boost_after_tick;
        sim_run_until(2 * NS_PER_S);
        sim_mark(w);
        sim_run_until(22 * NS_PER_S);
        struct sched_times t;

        sched_times(&w->vcpu[0]->s, &t);
        assert_true(t.wake_count > 2000);
        assert_true(t.wake_max <= sim.opt.kick_ns + 2 * cp->ratelimit);

        struct credit_vcpu *cv = credit_vcpu(&w->vcpu[0]->s);

        /* It is asleep now. Its credit is taken away, so it must not be boosted. */
        assert_int_equal(w->vcpu[0]->s.state, RS_BLOCKED);
        cv->cls = CLASS_OVER;
        sched_wake(&w->vcpu[0]->s);
        assert_int_equal(cv->cls, CLASS_OVER);
        sim_stop();
    }
}

/* With boost off, a vCPU that wakes waits for its turn. With aggressive boost it goes first even if
 * it has used more than its credit. */
static void test_boost_policies(void **state) {
    static const struct {
        int boost;
        u64 at_least, at_most;
    } expect[] = { { BOOST_OFF, 5 * MS, 200 * MS },
                   { BOOST_STOCK, 0, 3 * MS },
                   { BOOST_AGGRESSIVE, 0, 3 * MS } };

    for (u32 k = 0; k < ARRAY_SIZE(expect); k++) {
        struct sched_pool *p = start_credit(1, k, "hardened");
        struct sim_work waker = { .kind = WORK_WAKER, .period_ns = 7 * MS, .work_ns = 50000 };
        struct sim_vm *w = sim_vm(p, "waker", 1, sim_cpus(0, 0), waker), *hog;

        sim_param(p, p, "boost", expect[k].boost);
        hog = sim_vm(p, "hog", 1, sim_cpus(0, 0), HOG);
        sim_run_until(2 * NS_PER_S);
        sim_mark(w);
        sim_mark(hog);
        sim_run_until(12 * NS_PER_S);
        u64 waited = sim_waits(w->vcpu[0]);

        if (waited < expect[k].at_least || waited > expect[k].at_most)
            fail_msg("boost %s: waited %lu us", param_find(p, "boost")->names[expect[k].boost],
                     (unsigned long)(waited / 1000));
        sim_stop();
    }
    struct sched_pool *p = start_credit(1, 1, "hardened");
    struct sim_work greedy = { .kind = WORK_SELF, .work_ns = 25 * MS, .rest_ns = 100000 };

    /* With this boost the greedy VM starves a VM that only computes (vSlicer, figure 3). */
    sim_param(p, p, "boost", BOOST_AGGRESSIVE);
    struct sim_vm *g = sim_vm(p, "greedy", 1, sim_cpus(0, 0), greedy);

    sim_vm(p, "hog", 1, sim_cpus(0, 0), HOG);
    sim_run_until(10 * NS_PER_S);
    assert_true(share(g, 10 * NS_PER_S) > 90);
    sim_stop();
}

/* ---- theft of service ---- */

/* Returns the share in percent that a VM with this work gets beside so many hogs. */
static double steals(const char *preset, u32 hogs, struct sim_work work) {
    struct sched_pool *p = start_credit(1, 3, preset);
    struct sim_vm *e = sim_vm(p, "evader", 1, sim_cpus(0, 0), work);

    for (u32 i = 0; i < hogs; i++) sim_vm(p, "hog", 1, sim_cpus(0, 0), HOG);
    sim_run_until(2 * NS_PER_S);
    sim_mark(e);
    sim_run_until(12 * NS_PER_S);
    double s = share(e, 10 * NS_PER_S);

    sim_stop();
    return s;
}

/* A VM that avoids the ticks, at which Xen charges whatever runs, gets nearly all of the pCPU
 * under the presets that behave as Xen does, and no more than its share under hardened. */
static void test_theft(void **state) {
    struct sim_work evader = {
        .kind = WORK_EVADER, .margin_ns = 200000, .rest_ns = 50000, .tick_ns = 10 * MS
    };
    struct sim_work self = { .kind = WORK_SELF, .work_ns = 9500000, .rest_ns = 100000 };
    struct sim_work boosted = { .kind = WORK_SELF, .work_ns = 900000, .rest_ns = 10000 };
    struct sim_work yields = { .kind = WORK_YIELD, .work_ns = 9500000 };

    assert_true(steals("faithful-3.4", 3, evader) > 90);
    assert_true(steals("faithful-4.1", 3, evader) > 90);
    assert_true(steals("faithful-4.2", 3, evader) > 80);
    for (u32 hogs = 1; hogs <= 4; hogs++) {
        double fair = 100.0 / (hogs + 1);

        assert_true(steals("hardened", hogs, evader) <= fair + 1);
        assert_true(steals("hardened", hogs, self) <= fair + 1);
        assert_true(steals("hardened", hogs, boosted) <= fair + 1);
        assert_true(steals("hardened", hogs, yields) <= fair + 1);
    }
}

/* Two VMs that sleep and wake 20,000 times a second take nothing of a hog's share. */
static void test_wake_storm(void **state) {
    struct sched_pool *p = start_credit(1, 9, "hardened");
    struct sim_work storm = { .kind = WORK_SELF, .work_ns = 20000, .rest_ns = 30000 };
    struct sim_vm *a = sim_vm(p, "a", 1, sim_cpus(0, 0), storm),
                  *b = sim_vm(p, "b", 1, sim_cpus(0, 0), storm);
    struct sim_vm *hog = sim_vm(p, "hog", 1, sim_cpus(0, 0), HOG);

    sim_run_until(2 * NS_PER_S);
    sim_mark(a), sim_mark(b), sim_mark(hog);
    sim_run_until(12 * NS_PER_S);
    assert_true(share(hog, 10 * NS_PER_S) >= 100.0 / 3 - 1);
    assert_true(share(a, 10 * NS_PER_S) <= 100.0 / 3 + 1);
    assert_true(share(b, 10 * NS_PER_S) <= 100.0 / 3 + 1);
    sim_stop();
}

/* Of a thousand VMs on one pCPU each gets its turn, and none much more than another. If all VMs of
 * a pCPU are capped, it idles for the rest of the time and then goes on. */
static void test_crowd(void **state) {
    struct sim_options o = { .cpus = 1, .kick_ns = 1000, .mask = TRACE_CLASS_EVENT };
    static struct sim_vm *d[1000];
    struct sched_pool *p;
    u64 least = ~0ull, most = 0;

    sim_start(&o);
    p = sim_pool("Pool-0", "credit", sim_cpus(0, 0));
    for (u32 i = 0; i < 1000; i++) d[i] = sim_vm(p, "vm", 1, sim_cpus(0, 0), HOG);
    sim_run_until(150 * NS_PER_S);
    for (u32 i = 0; i < 1000; i++) {
        least = MIN(least, sim_ran(d[i]->vcpu[0]));
        most = MAX(most, sim_ran(d[i]->vcpu[0]));
    }
    assert_true(least >= 100 * MS && most <= 210 * MS); /* 150 on average, in slices of 30 */
    sim_stop();

    p = start_credit(1, 1, "hardened");
    for (u32 i = 0; i < 4; i++) {
        d[i] = sim_vm(p, "vm", 1, sim_cpus(0, 0), HOG);
        sim_param(p, &d[i]->d, "cap", 5);
    }
    sim_run_until(2 * NS_PER_S);
    for (u32 i = 0; i < 4; i++) sim_mark(d[i]);
    sim_run_until(32 * NS_PER_S);
    for (u32 i = 0; i < 4; i++) near(share(d[i], 30 * NS_PER_S), 5, 0.3, "capped");
    sim_stop();
}

/* What light VMs leave goes to the others by weight, however often the light ones sleep and wake.
 * These are the two pools of the demonstration (boot/demo.cfg). */
static void test_light_and_heavy(void **state) {
    for (u64 seed = 1; seed <= 10; seed++) {
        u64 rng = seed * 77;
        struct sched_pool *p = start_credit(1, seed, "hardened");
        u64 phase = sim_below(&rng, 10 * MS);
        struct sim_vm *a = sim_vm(p, "hog-a", 1, sim_cpus(0, 0), HOG), *part, *w;
        struct sim_vm *b = sim_vm(p, "hog-b", 1, sim_cpus(0, 0), HOG);

        sim_run_until(phase);
        part = sim_vm(
            p, "part", 1, sim_cpus(0, 0),
            (struct sim_work){ .kind = WORK_DUTY, .percent = 40, .period_ns = (8 + seed) * MS });
        w = sim_vm(p, "waker", 1, sim_cpus(0, 0),
                   (struct sim_work){ .kind = WORK_WAKER, .work_ns = 50000, .period_ns = 10 * MS });
        sim_param(p, &a->d, "weight", 128);
        sim_param(p, &b->d, "weight", 128);
        sim_run_until(2 * NS_PER_S);
        sim_mark(a), sim_mark(b), sim_mark(part), sim_mark(w);
        sim_run_until(12 * NS_PER_S);
        near(share(part, 10 * NS_PER_S), 40, 0.5, "part");
        near(share(a, 10 * NS_PER_S), 29.75, 0.5, "hog a");
        near(share(b, 10 * NS_PER_S), 29.75, 0.5, "hog b");
        near(share(w, 10 * NS_PER_S), 0.5, 0.1, "waker");
        sim_stop();

        p = start_credit(1, seed, "hardened");
        a = sim_vm(p, "heavy", 1, sim_cpus(0, 0), HOG);
        b = sim_vm(p, "light", 1, sim_cpus(0, 0), HOG);
        sim_param(p, &a->d, "weight", 768);
        sim_param(p, &a->d, "cap", 60);
        sim_run_until(2 * NS_PER_S + phase);
        sim_mark(a), sim_mark(b);
        sim_run_until(sim.now + 10 * NS_PER_S);
        near(share(a, 10 * NS_PER_S), 60, 0.5, "heavy");
        near(share(b, 10 * NS_PER_S), 40, 0.5, "light");
        sim_stop();
    }
}

/* The same VMs in one pool of two pCPUs, each pinned to the pCPU that it had. Credit then belongs
 * to the whole pool, and the shares must be right all the same. */
static void test_pinned(void **state) {
    static const u32 weight[] = { 128, 128, 256, 256, 768, 256 };
    static const double entitled[] = { 29.75, 29.75, 40, 0.5, 60, 40 };

    for (u64 seed = 1; seed <= 20; seed++) {
        u64 rng = seed * 77;
        struct sched_pool *p = start_credit(2, seed, "hardened");
        struct sim_work part = { .kind = WORK_DUTY, .percent = 40, .period_ns = (4 + seed) * MS };
        struct sim_work waker = { .kind = WORK_WAKER, .work_ns = 50000, .period_ns = 10 * MS };
        const struct sim_work work[] = { HOG, HOG, part, waker, HOG, HOG };
        static const u32 cpu[] = { 1, 1, 1, 1, 0, 0 };
        struct sim_vm *d[6];

        for (u32 i = 0; i < 6; i++) {
            d[i] = sim_vm(p, "vm", 1, sim_cpus(cpu[i], cpu[i]), work[i]);
            sim_param(p, &d[i]->d, "weight", weight[i]);
            sim_run_until(sim.now + sim_below(&rng, 10 * MS));
        }
        sim_param(p, &d[4]->d, "cap", 60);
        sim_run_until(2 * NS_PER_S);
        for (u32 i = 0; i < 6; i++) sim_mark(d[i]);
        sim_run_until(12 * NS_PER_S);
        for (u32 i = 0; i < 6; i++) near(share(d[i], 10 * NS_PER_S), entitled[i], 1, "pinned");
        sim_stop();
    }
}

/* Two VMs use less than they may for a while and gather credit. When they then compete, their
 * shares follow the weights at once, although both have all the credit that a VM can have. */
static void test_plenty(void **state) {
    struct sched_pool *p = start_credit(1, 1, "hardened");
    struct sim_work half = { .kind = WORK_DUTY, .percent = 30, .period_ns = 10 * MS };
    struct sim_vm *a = sim_vm(p, "a", 1, sim_cpus(0, 0), half),
                  *b = sim_vm(p, "b", 1, sim_cpus(0, 0), half);

    sim_param(p, &a->d, "weight", 512);
    sim_run_until(5 * NS_PER_S);
    a->vcpu[0]->work.percent = b->vcpu[0]->work.percent = 100;
    sim_run_until(6 * NS_PER_S);
    sim_mark(a), sim_mark(b);
    sim_run_until(16 * NS_PER_S);
    near(share(a, 10 * NS_PER_S), 66.67, 1, "a");
    near(share(b, 10 * NS_PER_S), 33.33, 1, "b");
    sim_stop();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_worked_grants), cmocka_unit_test(test_reorder),
        cmocka_unit_test(test_full_vcpu),     cmocka_unit_test(test_grant_sums),
        cmocka_unit_test(test_equal_hogs),    cmocka_unit_test(test_weights),
        cmocka_unit_test(test_fault),         cmocka_unit_test(test_several_cpus),
        cmocka_unit_test(test_caps),          cmocka_unit_test(test_waits),
        cmocka_unit_test(test_boost),         cmocka_unit_test(test_boost_policies),
        cmocka_unit_test(test_theft),         cmocka_unit_test(test_wake_storm),
        cmocka_unit_test(test_crowd),         cmocka_unit_test(test_light_and_heavy),
        cmocka_unit_test(test_pinned),        cmocka_unit_test(test_plenty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
