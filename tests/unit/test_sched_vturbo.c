/* vTurbo: Table 1 of the paper as exact arithmetic and in the simulation, waits on a turbo core,
 * fairness over both pools, and that a VM gets no more CPU by its turbo vCPU. */
#include "sched_rig.h"

static struct sched_pool *regular, *turbo;
static struct sim_vm *vm[8], *tvm[8];

static void start(u32 cpus, u64 seed) {
    start_sim((struct sim_options){ .cpus = cpus, .seed = seed });
    regular = sim_pool("Pool-0", "credit", sim_cpus(0, cpus - 2));
    turbo = sim_pool("turbo", "credit", sim_cpus(cpus - 1, cpus - 1));
    assert_int_equal(param_preset(turbo, "turbo"), 0);
    assert_int_equal(sched_pool_pair(turbo, regular), 0);
}

static void add(u32 i, struct sim_work work, struct sim_work turbo_work) {
    vm[i] = sim_vm(regular, "vm", 1, sim_cpus(0, 63), work);
    tvm[i] = sim_turbo(vm[i], turbo_work);
}

static void measure(u32 n, u64 warm, u64 ns) {
    sim_run_until(sim.now + warm);
    for (u32 i = 0; i < n; i++) {
        sim_mark(vm[i]);
        sim_mark(tvm[i]);
    }
    sim_run_until(sim.now + ns);
}

/* Table 1: two VMs of equal weight, one core of each kind; percent of a core. */
static const struct row {
    u32 rd[2], td[2], fs_r[2], fs_t[2];
} table[] = {
    { { 50, 50 }, { 0, 0 }, { 50, 50 }, { 0, 0 } },
    { { 50, 50 }, { 0, 100 }, { 100, 0 }, { 0, 100 } },
    { { 50, 50 }, { 50, 50 }, { 50, 50 }, { 50, 50 } },
    { { 50, 50 }, { 15, 55 }, { 70, 30 }, { 35, 35 } },
};

/* Makes one exchange from given uses, and compares FS^R exactly. FS^T follows from equal
 * weights. */
static void test_table(void **state) {
    for (u32 k = 0; k < ARRAY_SIZE(table); k++) {
        start(2, k);
        for (u32 i = 0; i < 2; i++) {
            add(i, HOG, table[k].td[i] ? HOG : IDLE);
        }
        sim_run_until(200 * MS); /* until they are active */
        for (u32 i = 0; i < 2; i++) {
            credit_vm(&vm[i]->d)->used =
                credit_vm(&vm[i]->d)->used_before + table[k].rd[i] * 300 * US;
            credit_vm(&tvm[i]->d)->used =
                credit_vm(&tvm[i]->d)->used_before + table[k].td[i] * 300 * US;
        }
        spin_lock(&regular->lock);
        spin_lock(&regular->turbo->lock);
        vturbo_exchange(regular);
        spin_unlock(&regular->turbo->lock);
        spin_unlock(&regular->lock);
        for (u32 i = 0; i < 2; i++) {
            assert_int_equal(credit_vm(&vm[i]->d)->share_ns, MAX(table[k].fs_r[i] * 300 * US, 1));
        }
        sim_stop();
    }
}

/* The introduction's example: one VM on a regular core, the other on both: 75 and 25 of it. */
static void test_introduction(void **state) {
    start(2, 1);
    add(0, HOG, IDLE);
    add(1, HOG, (struct sim_work){ .kind = WORK_DUTY, .period_ns = 4 * MS, .percent = 50 });
    measure(2, 3 * NS_PER_S, 20 * NS_PER_S);
    near(share(vm[0], 20 * NS_PER_S), 75, 1.5, "regular, VM 1");
    near(share(vm[1], 20 * NS_PER_S), 25, 1.5, "regular, VM 2");
    near(share(tvm[1], 20 * NS_PER_S), 50, 1, "turbo, VM 2");
    sim_stop();
}

/* The rows as what VMs do, which are fixed points. */
static void test_table_in_time(void **state) {
    for (u32 k = 0; k < ARRAY_SIZE(table); k++) {
        start(2, k);
        for (u32 i = 0; i < 2; i++) {
            u32 td = table[k].td[i];
            struct sim_work part = { .kind = WORK_DUTY, .period_ns = 2 * MS, .percent = td };

            if (td == 0) part = IDLE;
            if (td == 100 || (td == 50 && k == 2)) part = HOG;
            add(i, HOG, part);
        }
        measure(2, 3 * NS_PER_S, 20 * NS_PER_S);
        for (u32 i = 0; i < 2; i++) {
            near(share(vm[i], 20 * NS_PER_S), table[k].fs_r[i], 2, "regular");
            near(share(tvm[i], 20 * NS_PER_S), table[k].td[i], 2, "turbo");
        }
        sim_stop();
    }
}

/* Backlogged VMs of equal weight use the same amount in all, whatever part of it is turbo. No vCPU
 * crosses to the other pool, and W and the sum of FS^R are right. */
static void test_fair(void **state) {
    u64 rng = 3;

    for (u64 round = 0; round < 200; round++) {
        u32 cpus = 1 + (u32)sim_below(&rng, 3), n = 2 * cpus + (u32)sim_below(&rng, 3);
        double total[8], sum = 0;
        u64 fs = 0, used = 0;
        bool clamped = false;

        start(cpus + 1, round);
        for (u32 i = 0; i < n; i++) {
            u32 percent = (u32)sim_below(&rng, 90 / n);
            struct sim_work part = { .kind = WORK_DUTY, .period_ns = 2 * MS, .percent = percent };

            add(i, HOG, percent ? part : IDLE);
        }
        measure(n, 2 * NS_PER_S, 10 * NS_PER_S);
        for (u32 i = 0; i < n; i++) {
            total[i] = share(vm[i], 10 * NS_PER_S) + share(tvm[i], 10 * NS_PER_S);
            sum += total[i];
            assert_true(vm[i]->vcpu[0]->s.cpu < cpus && tvm[i]->vcpu[0]->s.cpu == cpus);
        }
        for (u32 i = 0; i < n; i++) near(total[i], sum / n, sum / n * 0.02, "total");
        for (u32 i = 0; i < n; i++) {
            credit_vm(&vm[i]->d)->used =
                credit_vm(&vm[i]->d)->used_before + sim_below(&rng, 30 * MS);
            credit_vm(&tvm[i]->d)->used =
                credit_vm(&tvm[i]->d)->used_before + sim_below(&rng, 10 * MS);
            used += credit_vm(&vm[i]->d)->used - credit_vm(&vm[i]->d)->used_before;
        }
        spin_lock(&regular->lock);
        spin_lock(&regular->turbo->lock);
        vturbo_exchange(regular);
        spin_unlock(&regular->turbo->lock);
        spin_unlock(&regular->lock);
        for (u32 i = 0; i < n; i++) {
            fs += credit_vm(&vm[i]->d)->share_ns;
            clamped |= credit_vm(&vm[i]->d)->share_ns <= 1;
        }
        if (!clamped) assert_true(fs <= used && fs + n >= used);
        sim_stop();
    }
}

/* A vCPU that waits for a turbo core waits for at most one slice of each of the others there. */
static void test_wait(void **state) {
    for (u32 n = 2; n <= 5; n++) {
        start(2, n);
        for (u32 i = 0; i < n; i++) add(i, HOG, HOG);
        measure(n, 3 * NS_PER_S, 10 * NS_PER_S);
        for (u32 i = 0; i < n; i++) {
            assert_in_range(sim_waits(tvm[i]->vcpu[0]), 0,
                            (n - 1) * 100 * US + n * sim.opt.switch_ns + 1000);
            near(share(tvm[i], 10 * NS_PER_S), 100.0 / n, 1, "turbo");
        }
        sim_stop();
        /* One VM does I/O, and the others compute on their turbo vCPUs. */
        start(2, n);
        add(0, HOG, (struct sim_work){ .kind = WORK_SERVER, .rate = 1000, .work_ns = 20 * US });
        for (u32 i = 1; i < n; i++) add(i, HOG, HOG);
        measure(n, 3 * NS_PER_S, 10 * NS_PER_S);
        assert_in_range(sim_waits(tvm[0]->vcpu[0]), 0, (n - 1) * 100 * US + 1000);
        sim_stop();
    }
}

/* All VMs do I/O, from little to more than the core can do. In Credit's classes, a vCPU that has
 * just used more than its part is OVER. It then waits until no other vCPU wants the core, or until
 * it was granted enough again, which is several times the bound. */
static void test_wait_of_many(void **state) {
    for (u64 seed = 1; seed <= 40; seed++) {
        u64 rng = seed * 0x9e3779b97f4a7c15ull + 1;
        u32 n = 2 + (u32)sim_below(&rng, 6);

        start(2, seed);
        for (u32 i = 0; i < n; i++)
            add(i, HOG,
                (struct sim_work){ .kind = WORK_SERVER,
                                   .rate = 300 + (u32)sim_below(&rng, 3000),
                                   .work_ns = (10 + sim_below(&rng, 150)) * US });
        measure(n, 2 * NS_PER_S, 3 * NS_PER_S);
        for (u32 i = 0; i < n; i++) {
            u64 waited = sim_waits(tvm[i]->vcpu[0]);

            if (waited > (n - 1) * 100 * US + 1000)
                fail_msg("seed %lu: one of %u waited %lu ns", (unsigned long)seed, n,
                         (unsigned long)waited);
        }
        sim_stop();
    }
}

/* A turbo core that all want is divided by weight: lighter ones have shorter slices. With two turbo
 * cores classes do that (test_two_cores), and slices are whole. */
static void test_rounds_by_weight(void **state) {
    static const u32 weight[] = { 512, 256, 128 };

    start(2, 1);
    for (u32 i = 0; i < 3; i++) {
        add(i, IDLE, HOG);
        sim_param(regular, &vm[i]->d, "weight", weight[i]);
    }
    assert_true(credit_rounds(turbo));
    measure(3, NS_PER_S, 5 * NS_PER_S);
    for (u32 i = 0; i < 3; i++) {
        near(share(tvm[i], 5 * NS_PER_S), 100.0 * weight[i] / 896, 0.5, "by weight");
        assert_in_range(sim_waits(tvm[i]->vcpu[0]), 0, 175 * US);
    }
    sim_stop();
}

/* A VM that computes or evades on its turbo vCPU gets no more of both pools together than its
 * share. */
static void test_liars(void **state) {
    static const struct sim_work works[] = {
        { .kind = WORK_HOG },
        { .kind = WORK_SELF, .work_ns = 90 * US, .rest_ns = 10 * US },
        { .kind = WORK_SELF, .work_ns = 300 * US, .rest_ns = 100 * US },
        { .kind = WORK_EVADER, .margin_ns = 20 * US, .rest_ns = 5 * US, .tick_ns = 100 * US },
    };

    for (u32 w = 0; w < ARRAY_SIZE(works); w++) {
        start(2, w);
        for (u32 i = 0; i < 4; i++)
            add(i, HOG,
                i ? (struct sim_work){ .kind = WORK_SERVER, .rate = 500, .work_ns = 50 * US }
                  : works[w]);
        measure(4, 3 * NS_PER_S, 10 * NS_PER_S);
        double turbo_used = 0, all = 0,
               mine = share(vm[0], 10 * NS_PER_S) + share(tvm[0], 10 * NS_PER_S);

        for (u32 i = 0; i < 4; i++) {
            turbo_used += share(tvm[i], 10 * NS_PER_S);
            all += share(vm[i], 10 * NS_PER_S) + share(tvm[i], 10 * NS_PER_S);
        }
        /* The VM may have all of the turbo core that the others do not want. If that is less than
         * its share of both pools, it gets its share. */
        assert_true(mine <= MAX(all / 4, share(tvm[0], 10 * NS_PER_S)) + 1);
        sim_stop();
    }
}

/* A cap is for both pools together. */
static void test_cap(void **state) {
    start(2, 1);
    add(0, HOG, (struct sim_work){ .kind = WORK_DUTY, .period_ns = 2 * MS, .percent = 10 });
    add(1, HOG, IDLE);
    sim_param(regular, &vm[0]->d, "cap", 30);
    measure(2, 3 * NS_PER_S, 20 * NS_PER_S);
    near(share(vm[0], 20 * NS_PER_S) + share(tvm[0], 20 * NS_PER_S), 30, 1, "cap");
    near(share(vm[1], 20 * NS_PER_S), 80, 1, "the other");
    sim_stop();
}

/* Makes two regular cores and two turbo cores. */
static void start_two(u64 seed) {
    start_sim((struct sim_options){ .cpus = 4, .seed = seed });
    regular = sim_pool("Pool-0", "credit", sim_cpus(0, 1));
    turbo = sim_pool("turbo", "credit", sim_cpus(2, 3));
    assert_int_equal(param_preset(turbo, "turbo"), 0);
    assert_int_equal(sched_pool_pair(turbo, regular), 0);
}

/* The turbo parts have their VMs' weights and caps: here all compute there and nowhere else. */
static void test_two_cores(void **state) {
    static const struct {
        i64 weight[3], cap[3];
        double want[3];
    } cases[] = {
        { { 512, 256, 256 }, { 0 }, { 100, 50, 50 } },
        { { 256, 256, 256 }, { 30, 0, 0 }, { 30, 85, 85 } },
        { { 512, 256, 256 }, { 0, 0, 20 }, { 100, 80, 20 } },
    };

    for (u32 k = 0; k < ARRAY_SIZE(cases); k++) {
        start_two(k);
        for (u32 i = 0; i < 3; i++) {
            add(i, IDLE, HOG);
            sim_param(regular, &vm[i]->d, "weight", cases[k].weight[i]);
            sim_param(regular, &vm[i]->d, "cap", cases[k].cap[i]);
        }
        measure(3, NS_PER_S, 4 * NS_PER_S);
        for (u32 i = 0; i < 3; i++)
            near(share(tvm[i], 4 * NS_PER_S), cases[k].want[i], 1.5, "turbo");
        sim_stop();
    }
}

/* With both parts computing each VM gets by its weight and cap of all four cores. The VM with a cap
 * spends it on its turbo vCPU. */
static void test_two_cores_and_regular(void **state) {
    static const double by_weight[] = { 200, 100, 100 }, by_cap[] = { 120, 120, 120, 40 };

    for (u32 cap = 0; cap < 2; cap++) {
        u32 n = 3 + cap;

        start_two(cap);
        for (u32 i = 0; i < n; i++) add(i, HOG, HOG);
        if (cap)
            sim_param(regular, &vm[3]->d, "cap", 40);
        else
            sim_param(regular, &vm[0]->d, "weight", 512);
        measure(n, 2 * NS_PER_S, 4 * NS_PER_S);
        for (u32 i = 0; i < n; i++) {
            double both = share(vm[i], 4 * NS_PER_S) + share(tvm[i], 4 * NS_PER_S);

            if (cap)
                near(both, by_cap[i], 4, "both parts, caps");
            else
                near(both, by_weight[i], 4, "both parts, weights");
        }
        sim_stop();
    }
}

/* The parameters that a VM had before it got a turbo part hold for that part, too. */
static void test_copied_when_made(void **state) {
    start(2, 1);
    vm[0] = sim_vm(regular, "vm", 1, ALL, IDLE);
    sim_param(regular, &vm[0]->d, "weight", 768);
    sim_param(regular, &vm[0]->d, "cap", 60);
    tvm[0] = sim_turbo(vm[0], HOG);
    add(1, IDLE, HOG);
    measure(2, NS_PER_S, 4 * NS_PER_S);
    near(share(tvm[0], 4 * NS_PER_S), 60, 1, "a cap");
    sim_param(regular, &vm[0]->d, "cap", 0);
    measure(2, NS_PER_S, 4 * NS_PER_S);
    near(share(tvm[0], 4 * NS_PER_S), 75, 1, "a weight");
    sim_stop();
}

/* Two vCPUs that compute on two turbo cores have one core each, and are not sent to and fro. */
static void test_placed_apart(void **state) {
    u64 migrations[2];

    start_two(1);
    add(0, HOG, HOG);
    add(1, HOG, HOG);
    sim_run_until(NS_PER_S);
    for (u32 i = 0; i < 2; i++) migrations[i] = tvm[i]->vcpu[0]->s.migrations;
    measure(2, 0, NS_PER_S);
    for (u32 i = 0; i < 2; i++) {
        near(share(tvm[i], NS_PER_S), 100, 0.1, "turbo");
        assert_int_equal(tvm[i]->vcpu[0]->s.migrations, migrations[i]);
    }
    sim_stop();
}

/* vTurbo with vSlicer in the regular pool keeps both bounds. The regular part of a VM that is
 * latency-sensitive waits T_N + T_m at most, and each turbo part waits for one turbo slice of each
 * of the others. No VM gets more than a quarter. */
static void test_with_slicer(void **state) {
    start(2, 1);
    sim_param(regular, regular, "boost", BOOST_OFF);
    sim_param(regular, regular, "slicer", SLICER_VSLICER);
    for (u32 i = 0; i < 4; i++) {
        add(i, HOG, (struct sim_work){ .kind = WORK_SERVER, .rate = 1000, .work_ns = 20 * US });
        sim_param(regular, &vm[i]->d, "micro_us", i < 2 ? 5000 : 0);
    }
    measure(4, 3 * NS_PER_S, 30 * NS_PER_S);
    for (u32 i = 0; i < 4; i++) {
        u64 wait = sim_waits(vm[i]->vcpu[0]);

        if (i < 2)
            assert_in_range(wait, 30 * MS,
                            38 * MS); /* three micro-slices of 5 ms, and what is left of one */
        else
            assert_in_range(wait, 60 * MS, 95 * MS);
        assert_in_range(sim_waits(tvm[i]->vcpu[0]), 0, 3 * 100 * US);
        near(share(vm[i], 30 * NS_PER_S) + share(tvm[i], 30 * NS_PER_S), 27, 0.5, "both parts");
    }
    sim_stop();
}

/* A pool that no longer has a turbo pool goes by weight again. */
static void test_unpaired(void **state) {
    start(2, 1);
    add(0, HOG, HOG);
    add(1, HOG, IDLE);
    sim_run_until(3 * NS_PER_S);
    for (u32 i = 0; i < 2; i++) sim_vm_destroy(tvm[i]);
    assert_int_equal(sched_pool_pair(turbo, NULL), 0);
    sim_mark(vm[0]);
    sim_run_until(sim.now + 20 * NS_PER_S);
    near(share(vm[0], 20 * NS_PER_S), 50, 1, "regular");
    sim_stop();
}

/* The largest machine and the longest period: shares are weights that fit. */
static void test_large(void **state) {
    start(33, 1);
    sim_param(regular, regular, "period_us", 1000000);
    for (u32 i = 0; i < 2; i++) {
        vm[i] = sim_vm(regular, "vm", 32, sim_cpus(0, 63), HOG);
        tvm[i] = sim_turbo(vm[i], IDLE);
    }
    sim_param(regular, &vm[0]->d, "weight", 768);
    sim_run_until(5 * NS_PER_S);
    assert_in_range(credit_pool(regular)->weight, 1, 0xffffffff);
    near((double)credit_vm(&vm[0]->d)->counted / (double)credit_vm(&vm[1]->d)->counted, 3, 0.1,
         "weights");
    sim_stop();
}

static void test_administration(void **state) {
    struct sched_pool *third, *null;
    struct sched_vm t;
    struct sched_vcpu *slot[1];

    start(3, 1);
    assert_int_equal(sched_pool_create("third", "credit", &third), 0);
    assert_int_equal(sched_pool_create("null", "null", &null), 0);
    assert_int_equal(sched_pool_pair(null, third), -EINVAL); /* a policy that cannot */
    /* It was created before the pool that it is to serve. */
    assert_int_equal(sched_pool_pair(regular, third), -EINVAL);
    assert_int_equal(sched_pool_pair(third, regular), -EBUSY); /* it has one */
    assert_int_equal(sched_pool_pair(third, turbo), -EBUSY);
    add(0, HOG, HOG);
    assert_int_equal(sched_pool_pair(turbo, NULL), -EBUSY); /* it has VMs */
    assert_int_equal(sched_pool_destroy(turbo), -EBUSY);
    assert_int_equal(sched_pool_move_vm(third, &vm[0]->d), -EBUSY);
    struct sim_vm *alone = sim_vm(turbo, "alone", 1, sim_cpus(0, 63), IDLE);

    /* Its pool has no turbo pool. */
    assert_int_equal(sched_vm_init_turbo(&t, &alone->d, slot), -EINVAL);
    sim_vm_destroy(alone);
    sim_vm_destroy(tvm[0]);
    sim_run_until(sim.now + 100 * MS);
    sim_vm_destroy(vm[0]);
    assert_int_equal(sched_pool_pair(turbo, NULL), 0);
    sim_stop();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_introduction),
        cmocka_unit_test(test_table_in_time),
        cmocka_unit_test(test_fair),
        cmocka_unit_test(test_wait_of_many),
        cmocka_unit_test(test_rounds_by_weight),
        cmocka_unit_test(test_wait),
        cmocka_unit_test(test_liars),
        cmocka_unit_test(test_cap),
        cmocka_unit_test(test_unpaired),
        cmocka_unit_test(test_large),
        cmocka_unit_test(test_two_cores),
        cmocka_unit_test(test_two_cores_and_regular),
        cmocka_unit_test(test_copied_when_made),
        cmocka_unit_test(test_placed_apart),
        cmocka_unit_test(test_with_slicer),
        cmocka_unit_test(test_administration),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
