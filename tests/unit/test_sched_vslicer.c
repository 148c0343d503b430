/* vSlicer: its schedules and bounds as the model has them, what remains plain credit,
 * and that a VM gets no more CPU by asking for micro-slices. */
#include "sched_rig.h"

static struct sched_pool *start(u64 seed, i64 slicer, bool keep) {
    start_sim(
        (struct sim_options){ .cpus = 1, .seed = seed, .keep = keep, .mask = TRACE_CLASS_SCHED });
    struct sched_pool *p = sim_pool("Pool-0", "credit", sim_cpus(0, 0));

    sim_param(p, p, "boost", BOOST_OFF);
    sim_param(p, p, "slicer", slicer);
    return p;
}

static struct sim_vm *vm(struct sched_pool *p, const char *name, i64 micro_us,
                         struct sim_work work) {
    struct sim_vm *d = sim_vm(p, name, 1, sim_cpus(0, 0), work);

    sim_param(p, &d->d, "micro_us", micro_us);
    return d;
}

/* Writes which VM ran for how long, as "L1:5 N1:30 ..." in ms, from the first time after `from`
 * that NL 1 starts. L are the m latency-sensitive VMs, N the others. */
static void sequence(u64 from, u32 m, u32 steps, char *out, size_t size) {
    u32 done = 0, first = m + 1;
    size_t at = 0;

    out[0] = 0;
    for (size_t i = 0; i + 1 < sim.nr_kept && done < steps; i++) {
        const struct trace_record *r = &sim.kept[i];
        u32 vm = r->who >> 16;
        u64 end = ~0ull;

        if (r->event != TRC_SWITCH || r->ns < from || (done == 0 && vm != first)) continue;
        for (size_t k = i + 1; k < sim.nr_kept; k++)
            if (sim.kept[k].event == TRC_SWITCH) {
                end = sim.kept[k].ns;
                break;
            }
        if (done > 0) at += (size_t)snprintf(out + at, size - at, " ");
        if (vm <= m)
            at += (size_t)snprintf(out + at, size - at, "L%u", vm);
        else
            at += (size_t)snprintf(out + at, size - at, "N%u", vm - m);
        at += (size_t)snprintf(out + at, size - at, ":%lu", (unsigned long)((end - r->ns) / MS));
        done++;
    }
}

/* One round of the table as it was drawn, from NL 1 on; the waits and the shares. */
static void test_model(void **state) {
    static const struct {
        u32 m, n, micro_us, wait_ms, steps;
        const char *round;
    } cases[] = {
        { 1, 3, 10000, 30, 6, "N1:30 L1:10 N2:30 L1:10 N3:30 L1:10" },
        { 2, 2, 5000, 35, 14,
          "N1:30 L1:5 L2:5 L1:5 L2:5 L1:5 L2:5 N2:30 L1:5 L2:5 L1:5 L2:5 L1:5 L2:5" },
        { 1, 2, 15000, 30, 4, "N1:30 L1:15 N2:30 L1:15" },
        { 2, 3, 5000, 35, 15,
          "N1:30 L1:5 L2:5 L1:5 L2:5 N2:30 L1:5 L2:5 L1:5 L2:5 N3:30 L1:5 L2:5 L1:5 L2:5" },
    };

    for (u32 i = 0; i < ARRAY_SIZE(cases); i++) {
        u32 m = cases[i].m, n = cases[i].n;
        struct sched_pool *p = start(i, SLICER_VSLICER, true);
        struct sim_vm *d[5];
        char name[8], seen[300];

        for (u32 k = 0; k < m + n; k++) {
            snprintf(name, sizeof(name), "%u", k);
            d[k] = vm(p, name, k < m ? cases[i].micro_us : 0, HOG);
        }
        sim_run_until(3 * NS_PER_S);
        for (u32 k = 0; k < m + n; k++) sim_mark(d[k]);
        sim_run_until(33 * NS_PER_S);
        for (u32 k = 0; k < m + n; k++) {
            near(share(d[k], 30 * NS_PER_S), 100.0 / (m + n), 0.5, "share");
            if (k < m) assert_true(sim_waits(d[k]->vcpu[0]) <= cases[i].wait_ms * MS);
        }
        sequence(3 * NS_PER_S, m, cases[i].steps, seen, sizeof(seen));
        if (strstr(seen, "L2:5 L1") &&
            strncmp(seen, "N1:30 L2", 8) == 0) { /* the LS may have come the other way round */
            for (char *c = seen; *c; c++)
                if (*c == 'L') c[1] = c[1] == '1' ? '2' : '1';
        }
        assert_string_equal(seen, cases[i].round);
        sim_stop();
    }
}

/* The mean wait of a request that comes at random, for one of n that go round robin: T (n - 1)^2
 * / 2 n; for vSlicer's 1 + 3. Found from the times at which L1 is off the pCPU: sum of w^2 / 2
 * over the time watched. */
static void test_mean_wait(void **state) {
    static const struct {
        u32 slicer, n;
        double ms;
    } cases[] = { { SLICER_OFF, 2, 7.5 },
                  { SLICER_OFF, 3, 20 },
                  { SLICER_OFF, 4, 33.75 },
                  { SLICER_OFF, 5, 48 },
                  { SLICER_VSLICER, 4, 11.25 } };

    for (u32 c = 0; c < ARRAY_SIZE(cases); c++) {
        struct sched_pool *p = start(1, cases[c].slicer, true);
        double sum = 0;
        u64 off = 0;

        sim_param(p, p, "demote", DEMOTE_ACCOUNT); /* round robin, */
        sim_param(p, p, "order", ORDER_FIFO);      /* whoever has more credit left */
        vm(p, "l", 10000, HOG);
        for (u32 k = 1; k < cases[c].n; k++) vm(p, "n", 0, HOG);
        sim_run_until(33 * NS_PER_S);
        for (size_t i = 0; i < sim.nr_kept; i++) {
            const struct trace_record *r = &sim.kept[i];

            if (r->event != TRC_SWITCH || r->ns < 3 * NS_PER_S) continue;
            if (r->arg[0] >> 16 == 1) off = r->ns;
            if (r->who >> 16 == 1 && off)
                sum += (double)(r->ns - off) / 1e6 * (double)(r->ns - off) / 1e6 / 2;
        }
        near(sum / 30000, cases[c].ms, cases[c].ms / 10, "mean wait, ms");
        sim_stop();
    }
}

/* Over random sets with m + n <= 5: waits, shares, and with boost off an NL's slice is never
 * cut. */
static void test_bounds(void **state) {
    u64 rng = 7;

    for (u64 round = 0; round < 300; round++) {
        u32 m = 1 + (u32)sim_below(&rng, 3), n = 1 + (u32)sim_below(&rng, 5 - m);
        i64 micro_us = 1000 * (i64)(1 + sim_below(&rng, 15));
        struct sched_pool *p = start(round, SLICER_VSLICER, true);
        struct sim_vm *d[5];
        u64 r = (30 * MS / n + (u64)micro_us * 1000 - 1) / ((u64)micro_us * 1000),
            tm = 30 * MS / n / r;

        for (u32 k = 0; k < m + n; k++) {
            if (k < m)
                d[k] = vm(p, "l", micro_us, HOG);
            else
                d[k] = vm(p, "n", 0, HOG);
            sim_run_until(sim.now + sim_below(&rng, 50 * MS));
        }
        sim_run_until(3 * NS_PER_S);
        for (u32 k = 0; k < m + n; k++) sim_mark(d[k]);
        size_t mark = sim.nr_kept;

        sim_run_until(18 * NS_PER_S);
        for (u32 k = 0; k < m + n; k++) {
            near(share(d[k], 15 * NS_PER_S), 100.0 / (m + n), 0.5 + 15 / 150.0, "share");
            if (k < m && sim_waits(d[k]->vcpu[0]) > 30 * MS + (m - 1) * tm + MS)
                fail_msg("round %lu: %u + %u, %ld us: waits %lu us", (unsigned long)round, m, n,
                         (long)micro_us, (unsigned long)sim_waits(d[k]->vcpu[0]) / 1000);
        }
        /* arg[1] of a switch is how long the vCPU that leaves has run. */
        for (size_t i = mark; i < sim.nr_kept; i++) {
            const struct trace_record *x = &sim.kept[i];

            if (x->event == TRC_SWITCH && x->arg[0] >> 16 > m && i > mark + 100)
                assert_true(x->arg[1] >= 30 * MS);
        }
        sim_stop();
    }
}

/* A micro-slice is as long as it was asked for, even if the rate limit is longer. Two LS and two
 * NL: with 0.5 ms the LS take turns 60 times between two slices of the others, which is 500 runs a
 * second for each. A micro-slice that is too short to be kept is refused. */
static void test_short_micro_slices(void **state) {
    struct sched_pool *p = start(1, SLICER_VSLICER, false);
    const struct param *e = param_find(p, "micro_us"), *inferred = param_find(p, "slicer_infer_us");
    struct sched_times before, after;
    struct sim_vm *d[4];
    const char *why = "";

    assert_int_equal(param_get(param_find(p, "ratelimit_us"), p, p), 1000);
    for (u32 i = 0; i < 4; i++) d[i] = vm(p, "vm", i < 2 ? 500 : 0, HOG);
    sim_run_until(3 * NS_PER_S);
    sched_times(&d[0]->vcpu[0]->s, &before);
    assert_int_equal(before.micro_ns, 500 * NS_PER_US);
    sim_mark(d[0]);
    sim_run_until(13 * NS_PER_S);
    sched_times(&d[0]->vcpu[0]->s, &after);
    near((double)(after.switches - before.switches) / 10, 500, 5, "runs a second");
    near(share(d[0], 10 * NS_PER_S), 25, 0.5, "share");
    for (i64 us = 0; us < 60; us++) {
        bool possible = us == 0 || us >= 50;
        int want = 0;

        if (!possible) want = -EINVAL;
        assert_int_equal(param_set(e, p, &d[2]->d, us, &why), want);
        if (!possible) assert_string_equal(why, "micro_us must be 0 or at least 50");
        assert_int_equal(param_set(inferred, p, p, us, &why), want);
        if (!possible) assert_string_equal(why, "slicer_infer_us must be 0 or at least 50");
    }
    sim_stop();
}

/* If no VM asks for micro-slices, the trace is that of plain credit, with boost and
 * sleepers. */
static void test_nobody_asks(void **state) {
    static const struct sim_work waker = { .kind = WORK_WAKER,
                                           .period_ns = 10 * MS,
                                           .work_ns = MS / 2 };
    static const struct sim_work server = { .kind = WORK_SERVER, .rate = 200, .work_ns = MS };

    for (u64 seed = 0; seed < 100; seed++) {
        u64 hash[2];

        for (int on = 0; on < 2; on++) {
            struct sched_pool *p = start(seed, SLICER_OFF, false);

            sim_param(p, p, "boost", BOOST_STOCK);
            for (int k = 0; k < 2; k++) vm(p, "n", 0, HOG);
            vm(p, "w", 0, waker);
            vm(p, "s", 0, server);
            sim.hash = 0;
            if (on) credit_pool(p)->knob.slicer = SLICER_VSLICER; /* no record of the setting */
            sim_run_until(3 * NS_PER_S);
            hash[on] = sim.hash;
            sim_stop();
        }
        assert_true(hash[0] == hash[1]);
    }
}

/* Weights and caps hold for both kinds of VMs. */
static void test_weights_and_caps(void **state) {
    static const u32 weight[] = { 512, 256, 512, 256 }, cap[] = { 10, 0, 20, 0 };
    static const double by_weight[] = { 33.33, 16.67, 33.33, 16.67 }, by_cap[] = { 10, 35, 20, 35 };
    static const i64 micro[] = { 5000, 5000, 0, 0 };

    for (int caps = 0; caps < 2; caps++) {
        struct sched_pool *p = start(1, SLICER_VSLICER, false);
        struct sim_vm *d[4];

        for (u32 k = 0; k < 4; k++) {
            d[k] = vm(p, "vm", micro[k], HOG);
            if (caps)
                sim_param(p, &d[k]->d, "cap", cap[k]);
            else
                sim_param(p, &d[k]->d, "weight", weight[k]);
        }
        sim_run_until(3 * NS_PER_S);
        for (u32 k = 0; k < 4; k++) sim_mark(d[k]);
        sim_run_until(33 * NS_PER_S);
        for (u32 k = 0; k < 4; k++) {
            if (caps)
                near(share(d[k], 30 * NS_PER_S), by_cap[k], 0.5, "cap");
            else
                near(share(d[k], 30 * NS_PER_S), by_weight[k], 0.5, "weight");
        }
        sim_stop();
    }
}

/* Micro-slices of different sizes: edf serves the small one between two of the large one; under
 * frequency the number of runs is inverse to their size. Equal shares under both. */
static void test_sizes(void **state) {
    for (int slicer = SLICER_VSLICER; slicer <= SLICER_FREQUENCY; slicer++) {
        struct sched_pool *p = start(1, slicer, false);
        struct sim_vm *large = vm(p, "large", 5000, HOG), *small = vm(p, "small", 1000, HOG);

        vm(p, "n", 0, HOG);
        vm(p, "n", 0, HOG);
        sim_run_until(3 * NS_PER_S);
        sim_mark(large);
        sim_mark(small);
        sim_run_until(33 * NS_PER_S);
        near(share(large, 30 * NS_PER_S), 25, 0.5, "large");
        near(share(small, 30 * NS_PER_S), 25, 0.5, "small");
        if (slicer == SLICER_EDF) assert_in_range(sim_waits(large->vcpu[0]), 0, 32 * MS);
        if (slicer != SLICER_VSLICER) assert_in_range(sim_waits(small->vcpu[0]), 0, 36 * MS);
        sim_stop();
    }
}

/* Under frequency the LS goes next that has used least of its time in this T_S. So the small one
 * catches up with each run of the large one. If they took turns, it would catch up only when the
 * large one has nothing left. */
static void test_frequency(void **state) {
    struct sched_pool *p = start(1, SLICER_FREQUENCY, true);
    char seen[300];

    vm(p, "large", 5000, HOG);
    vm(p, "small", 1000, HOG);
    vm(p, "n", 0, HOG);
    vm(p, "n", 0, HOG);
    sim_run_until(5 * NS_PER_S);
    sequence(3 * NS_PER_S, 2, 7, seen, sizeof(seen));
    assert_string_equal(seen, "N1:30 L1:5 L2:5 L1:5 L2:5 L1:5 L2:5");
    sim_stop();
}

/* The counts m and n of a pCPU are right as soon as a vCPU has moved, and not only from the next
 * accounting pass on: until then all slices on both pCPUs would be of a wrong length. */
static void test_counts_follow(void **state) {
    start_sim((struct sim_options){ .cpus = 2, .seed = 1 });
    struct sched_pool *p = sim_pool("Pool-0", "credit", sim_cpus(0, 1));
    struct cpumask other = sim_cpus(1, 1);
    struct sim_vm *ls;

    sim_param(p, p, "slicer", SLICER_VSLICER);
    ls = vm(p, "ls", 5000, HOG);
    for (u32 i = 0; i < 2; i++) sim_vm(p, "n", 1, sim_cpus(i, i), HOG);
    sim_run_until(30 * 100 * MS + MS); /* a pass has just been */
    assert_int_equal(credit_cpu(0)->ls, 1);
    assert_int_equal(credit_cpu(1)->ls, 0);
    assert_int_equal(sched_set_affinity(&ls->vcpu[0]->s, &other), 0);
    sim_run_until(30 * 100 * MS + 20 * MS);
    assert_int_equal(ls->vcpu[0]->s.cpu, 1);
    assert_int_equal(credit_cpu(0)->ls, 0);
    assert_int_equal(credit_cpu(1)->ls, 1);
    sim_stop();
}

/* A disk's completion wakes the VM that waits for it. This VM computes for 0.3 ms, reads, and waits
 * 0.2 ms for the disk, among three VMs that compute. It sleeps before its micro-slice is over, so
 * each completion comes amid a slice that is not cut. It waits for the rest of that slice and no
 * longer, and gets one read done in each slice. In plain credit more reads are done while it has
 * credit; after that it waits for several slices. */
static void test_disk_completions(void **state) {
    static const struct sim_work reads = { .kind = WORK_SELF,
                                           .work_ns = 300 * US,
                                           .rest_ns = 200 * US };
    u64 done[2], wait[2];

    for (u32 on = 0; on < 2; on++) {
        struct sched_pool *p = start(1, on ? SLICER_VSLICER : SLICER_OFF, false);
        sim_param(p, p, "demote", DEMOTE_ACCOUNT); /* round robin, */
        sim_param(p, p, "order", ORDER_FIFO);      /* whoever has more credit left */
        struct sim_vm *d = vm(p, "disk", 5000, reads);

        for (u32 k = 0; k < 3; k++) vm(p, "n", 0, HOG);
        sim_run_until(3 * NS_PER_S);
        sim_mark(d);
        sim_run_until(33 * NS_PER_S);
        done[on] = sim_ran(d->vcpu[0]) / reads.work_ns;
        wait[on] = sim_waits(d->vcpu[0]);
        sim_stop();
    }
    assert_in_range(wait[0], 55 * MS, 90 * MS);
    assert_in_range(wait[1], 0, 30 * MS);
    near((double)done[1], 30000 / 30.3, 10, "reads in 30 s");
}

/* The micro-slice follows from a latency target: T_m = T_l / (m - 1). */
static void test_latency_target(void **state) {
    struct sched_pool *p = start(1, SLICER_VSLICER, false);
    struct sim_vm *d[5];

    for (u32 k = 0; k < 5; k++) d[k] = vm(p, "vm", 0, HOG);
    for (u32 k = 0; k < 3; k++) sim_param(p, &d[k]->d, "latency_us", 4000);
    sim_run_until(3 * NS_PER_S);
    for (u32 k = 0; k < 5; k++) sim_mark(d[k]);
    sim_run_until(33 * NS_PER_S);
    for (u32 k = 0; k < 3; k++)
        assert_in_range(sim_waits(d[k]->vcpu[0]), 33 * MS, 34 * MS + MS / 10);
    sim_stop();
}

/* A VM that lies about being latency-sensitive, or that evades the tick, gets no more than its
 * share. */
static void test_liars(void **state) {
    static const struct sim_work works[] = {
        { .kind = WORK_HOG },
        { .kind = WORK_SELF, .work_ns = 4900 * NS_PER_US, .rest_ns = 100 * NS_PER_US },
        { .kind = WORK_EVADER,
          .margin_ns = 500 * NS_PER_US,
          .rest_ns = 100 * NS_PER_US,
          .tick_ns = 10 * MS },
        { .kind = WORK_YIELD, .work_ns = 700 * NS_PER_US },
    };

    for (u32 boost = 0; boost < 2; boost++)
        for (u32 w = 0; w < ARRAY_SIZE(works); w++)
            for (i64 micro_us = 1000; micro_us <= 20000; micro_us += 4000) {
                struct sched_pool *p = start(w, SLICER_VSLICER, false);
                struct sim_vm *liar;

                sim_param(p, p, "boost", boost ? BOOST_STOCK : BOOST_OFF);
                liar = vm(p, "liar", micro_us, works[w]);
                for (u32 k = 0; k < 3; k++) vm(p, "n", 0, HOG);
                sim_run_until(3 * NS_PER_S);
                sim_mark(liar);
                sim_run_until(13 * NS_PER_S);
                assert_true(share(liar, 10 * NS_PER_S) <= 26);
                sim_stop();
            }
}

/* An LS that works for w and then sleeps comes back amid a slice that is not cut: it has w in w
 * + T_N. */
static void test_sleeper(void **state) {
    for (u32 percent = 20; percent <= 80; percent += 20) {
        struct sched_pool *p = start(percent, SLICER_VSLICER, false);
        struct sim_work part = { .kind = WORK_DUTY, .period_ns = 10 * MS, .percent = percent };
        struct sim_vm *ls = vm(p, "ls", 5000, part);
        double w = percent / 10.0;

        for (u32 k = 0; k < 3; k++) vm(p, "n", 0, HOG);
        sim_run_until(3 * NS_PER_S);
        sim_mark(ls);
        sim_run_until(13 * NS_PER_S);
        near(share(ls, 10 * NS_PER_S), 100 * w / (w + 30), 0.2, "share of one that sleeps");
        sim_stop();
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_model),
        cmocka_unit_test(test_mean_wait),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_sleeper),
        cmocka_unit_test(test_short_micro_slices),
        cmocka_unit_test(test_nobody_asks),
        cmocka_unit_test(test_weights_and_caps),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_latency_target),
        cmocka_unit_test(test_liars),
        cmocka_unit_test(test_frequency),
        cmocka_unit_test(test_counts_follow),
        cmocka_unit_test(test_disk_completions),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
