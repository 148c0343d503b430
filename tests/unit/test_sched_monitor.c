/* The I/O monitor, which counts the events of VMs in windows of time, and gives a VM with many of
 * them a label: it is I/O-intensive. Threshold, window, smoothing and hysteresis are checked to the
 * single event. Then come what policies do by that label: a VM that loses it is granted no more
 * credit while it sleeps (ACA), a VM that lies to get it gains nothing, and vSlicer gives VMs with
 * it micro-slices. At last recordings with labels are replayed. */
#include "sched_rig.h"

/* Returns whether the first vCPU of the VM takes part in accounting, so that it is granted credit.
 */
static bool active(struct sim_vm *d) { return !list_empty(&credit_vcpu(&d->vcpu[0]->s)->active); }

/* Raises n events at once, half-way to the end of the present window of `ms`. Returns the label
 * afterwards. */
static bool window(struct sim_vm *d, u64 ms, u32 n) {
    u64 end = (sim.now / (ms * MS) + 1) * ms * MS;

    sim_run_until(end - ms * MS / 2);
    sched_io_events(&d->d, n);
    sim_run_until(end - 1);
    sim_run_until(end);
    return d->d.io;
}

static void test_threshold(void **state) {
    struct sched_pool *p = start_credit(1, 1, "hardened");
    struct sim_vm *d = sim_vm(p, "vm", 1, ALL, IDLE), *other = sim_vm(p, "other", 1, ALL, HOG);

    assert_false(window(d, 1000, 500)); /* strictly above */
    assert_true(window(d, 1000, 501));
    assert_true(window(d, 1000, 501));
    assert_false(other->d.io);
    assert_false(window(d, 1000, 500));
    assert_true(window(d, 1000, 5000));
    assert_false(window(d, 1000, 0));
    sim_param(p, p, "io_threshold", 1);
    assert_false(window(d, 1000, 1));
    assert_true(window(d, 1000, 2));
    sim_param(p, p, "io_threshold", 500);
    sim_param(p, p, "io_window_ms", 100); /* from the next window on */
    assert_false(window(d, 1000, 500));
    assert_false(window(d, 100, 50));
    assert_true(window(d, 100, 51));
    assert_true(credit_vm(&d->d)->io);
    assert_false(credit_vm(&other->d)->io);
    sim_stop();
}

/* Requests from outside count as events; a vCPU that wakes itself by a timer does not become
 * I/O-intensive by that. */
static void test_workloads(void **state) {
    struct sched_pool *p = start_credit(4, 1, "hardened");
    struct sim_vm *busy, *calm, *own;

    busy = sim_vm(p, "busy", 1, ALL,
                  (struct sim_work){ .kind = WORK_SERVER, .rate = 800, .work_ns = MS / 10 });
    calm = sim_vm(p, "calm", 1, ALL,
                  (struct sim_work){ .kind = WORK_SERVER, .rate = 300, .work_ns = MS / 10 });
    own = sim_vm(p, "own", 1, ALL,
                 (struct sim_work){ .kind = WORK_SELF, .rest_ns = MS / 10, .work_ns = MS / 10 });
    sim_run_until(5 * NS_PER_S);
    assert_true(busy->d.io);
    assert_false(calm->d.io);
    assert_in_range(calm->d.io_rate, 200000, 400000);
    assert_int_equal(own->d.io_rate, 0);
    sim_stop();
}

static void test_smoothing(void **state) {
    struct sched_pool *p = start_credit(1, 1, "hardened");
    struct sim_vm *d = sim_vm(p, "vm", 1, ALL, IDLE);

    sim_param(p, p, "io_smoothing", 80);
    for (u32 k = 1; k <= 8; k++) assert_false(window(d, 1000, 600)); /* 600 (1 - 0.8^8) = 499.3 */
    assert_true(window(d, 1000, 600));                               /* 519.5 */
    assert_true(window(d, 1000, 425));                               /* 500.6 */
    assert_false(window(d, 1000, 425));                              /* 485.5 */
    sim_stop();
}

static void test_hysteresis(void **state) {
    struct sched_pool *p = start_credit(1, 1, "hardened");
    struct sim_vm *d = sim_vm(p, "vm", 1, ALL, IDLE);

    sim_param(p, p, "io_hysteresis", 40);
    assert_false(window(d, 1000, 500));
    assert_true(window(d, 1000, 501));
    assert_true(window(d, 1000, 301));
    assert_false(window(d, 1000, 300));
    assert_false(window(d, 1000, 499));
    sim_param(p, p, "io_hysteresis", 100);
    assert_true(window(d, 1000, 501));
    assert_true(window(d, 1000, 1));
    assert_false(window(d, 1000, 0));
    sim_stop();
}

/* ACA grants credit to a VM with the label even while it sleeps. As soon as the VM has lost its
 * label, which takes a window of the monitor, it must be granted nothing after one more accounting
 * period. */
static void test_label_lost(void **state) {
    static const char *const presets[] = { "hardened", "faithful-4.2", "faithful-3.4" };
    u64 rng = 7;

    for (u32 round = 0; round < 200; round++) {
        struct sched_pool *p =
            start_credit(1 + (u32)sim_below(&rng, 3), 1, presets[round % ARRAY_SIZE(presets)]);
        u32 ms = round % 2 ? 1000 : 100 * (1 + (u32)sim_below(&rng, 9)),
            windows = 2 + (u32)sim_below(&rng, 4);
        struct sim_vm *d = sim_vm(p, "io", 1 + (u32)sim_below(&rng, 2), ALL, IDLE);

        for (u32 k = 0; k < 5; k++) sim_vm(p, "hog", 1, ALL, HOG);
        sim_param(p, p, "aca", 1);
        sim_param(p, p, "io_window_ms", ms);
        sim_run_until(NS_PER_S + sim_below(&rng, 999) * MS);
        assert_false(active(d));
        for (u64 end = sim.now + (windows + 1) * ms * MS; sim.now < end;) {
            sched_io_events(&d->d, 1);
            sim_run_until(sim.now + MS);
            if (sim.now > end - windows * ms * MS / 2)
                assert_true(d->d.io && active(d)); /* although the VM sleeps */
        }
        /* Lets the last window with events end, and then one with a count of 0. */
        sim_run_until(sim.now + 2 * ms * MS + 2 * credit_pool(p)->period);
        assert_false(d->d.io);
        assert_false(active(d));
        sim_stop();
    }
}

/* A VM that computes all the time reports more interrupts than there can be. It gets the label, but
 * gains nothing, because no other VM has offered to lend credit. When it stops lying it soon loses
 * the label, however much of the old rate the smoothing keeps. */
static void test_liar(void **state) {
    struct sched_pool *p = start_credit(1, 1, "sc+aca");
    struct sim_vm *d[4];

    for (u32 i = 0; i < 4; i++) d[i] = sim_vm(p, "hog", 1, ALL, HOG);
    sim_param(p, p, "io_smoothing", 90);
    sim_mark(d[0]);
    for (u64 ms = 1; ms <= 12000; ms++) {
        sim_run_until(ms * MS);
        for (u32 i = 0; i < 10; i++) sched_io_report(&d[0]->d, 0xffffffff);
    }
    assert_true(d[0]->d.io);
    assert_in_range(d[0]->d.io_rate / 1000, 700000, 1000000);
    assert_true(share(d[0], 12 * NS_PER_S) <= 26);
    assert_int_equal(sim.lines, 1);
    assert_non_null(strstr(sim.said, "hog: says that"));
    sim_run_until(sim.now + 75 * NS_PER_S);
    assert_false(d[0]->d.io);
    sim_stop();
}

/* A VM whose driver says that it is I/O-intensive needs only half as many events for the label,
 * because one interrupt may be for frames in both directions. A claim without events is worth
 * nothing, and the log says so once. */
static void test_driver_says(void **state) {
    struct sched_pool *p = start_credit(1, 1, "sc+aca");
    struct sim_vm *d = sim_vm(p, "vm", 1, ALL, HOG), *donor = sim_vm(p, "donor", 1, ALL, HOG);

    sim_param(p, &donor->d, "share_pct", 100);
    assert_false(window(d, 1000, 300));
    sched_io_says(&d->d, true);
    assert_true(window(d, 1000, 300));
    assert_true(window(d, 1000, 251));
    assert_false(window(d, 1000, 250));
    /* The driver's claim has just become doubtful. After two more such windows the log says so. */
    for (u32 k = 0; k < 2; k++) assert_false(window(d, 1000, k ? 0 : 250));
    assert_int_equal(sim.lines, 1);
    assert_string_equal(sim.said, "vm: says that it is I/O-intensive, but gets 0 events a second");
    sim_mark(d);
    for (u32 k = 0; k < 20; k++) assert_false(window(d, 1000, 5));
    assert_true(share(d, 20 * NS_PER_S) <= 50.5);
    assert_int_equal(sim.lines, 1);
    assert_true(window(d, 1000, 300));
    for (u32 k = 0; k < 2; k++) assert_false(window(d, 1000, 0));
    assert_int_equal(sim.lines, 1);
    sched_io_says(&d->d, false);
    assert_false(window(d, 1000, 300));
    sim_stop();
}

/* The parameter `io` of a VM, which an administrator sets, counts more than what the monitor finds,
 * and stays. */
static void test_said(void **state) {
    struct sched_pool *p = start_credit(1, 1, "hardened");
    struct sim_vm *d = sim_vm(p, "vm", 1, ALL, IDLE);

    sim_param(p, &d->d, "io", IO_NO);
    assert_true(window(d, 1000, 600));
    assert_false(credit_vm(&d->d)->io);
    sim_param(p, &d->d, "io", IO_AUTO);
    assert_true(credit_vm(&d->d)->io);
    sim_param(p, &d->d, "io", IO_YES);
    assert_false(window(d, 1000, 0));
    assert_true(credit_vm(&d->d)->io);
    sim_stop();
}

/* The monitor's windows go on when pCPUs leave a pool, and begin anew in a pool that is made anew.
 * A VM that moves to another pool takes its label with it. */
static void test_pools(void **state) {
    struct sched_pool *p = start_credit(3, 1, "hardened"), *q;
    struct sim_vm *d;

    assert_int_equal(sim_remove_cpu(p, 1), 0);
    assert_int_equal(sim_remove_cpu(p, 2), 0);
    for (u32 round = 0; round < 3; round++) {
        q = sim_pool("q", round % 2 ? "null" : "credit", sim_cpus(1, 2));
        d = sim_vm(p, "vm", 1, ALL, IDLE);
        assert_true(window(d, 1000, 600));
        assert_int_equal(sim_move_vm(q, d), 0);
        assert_true(d->d.io);
        if (round % 2 == 0) assert_true(credit_vm(&d->d)->io);
        assert_int_equal(sim_remove_cpu(q, 1), 0);
        sim_run_until(sim.now + 1500 * MS);
        assert_false(d->d.io);
        sched_io_events(&d->d, 10000);
        sim_run_until(sim.now + NS_PER_S);
        assert_true(d->d.io);
        sim_vm_destroy(d);
        assert_int_equal(sim_remove_cpu(q, 2), 0);
        assert_int_equal(sched_pool_destroy(q), 0);
        if (round == 1) sim_run_until(sim.now + 5 * NS_PER_S);
        sim_run_until((sim.now / NS_PER_S + 1) * NS_PER_S);
    }
    sim_stop();
}

/* Four VMs compute under vSlicer. One that gets the label gets micro-slices: it then waits for one
 * slice of 30 ms at most, where it waited longer before, and its share stays the same. Both the
 * label and the parameter are switched on and off while the VMs run. */
static void test_inference(void **state) {
    struct sched_pool *p = start_credit(1, 1, "vslicer");
    struct sim_vm *d[4];
    bool io;

    for (u32 i = 0; i < 4; i++) d[i] = sim_vm(p, "vm", 1, ALL, HOG);
    sim_param(p, p, "slicer_infer_us", 10000);
    for (u32 round = 0; round < 4; round++) {
        io = round % 2;
        sim_param(p, p, "slicer_infer_us", round == 3 ? 0 : 10000);
        for (u32 k = 0; k < 3; k++) assert_int_equal(window(d[0], 1000, io ? 600 : 0), io);
        for (u32 i = 0; i < 4; i++) sim_mark(d[i]);
        for (u32 k = 0; k < 30; k++) window(d[0], 1000, io ? 600 : 0);
        assert_int_equal(credit_pool(p)->nr_ls, io && round < 3);
        assert_true(sim_waits(d[0]->vcpu[0]) <= (io && round < 3 ? 30 : 120) * MS);
        if (round != 1) assert_true(sim_waits(d[0]->vcpu[0]) > 30 * MS);
        for (u32 i = 0; i < 4; i++)
            assert_true(share(d[i], 30 * NS_PER_S) > 24.5 && share(d[i], 30 * NS_PER_S) < 25.5);
    }
    sim_param(p, p, "slicer_infer_us", 10000);
    sim_param(p, &d[0]->d, "latency_us", 20000); /* what it asks for itself goes before */
    assert_int_equal(credit_pool(p)->nr_ls, 1);
    sim_stop();
}

/* Counting events, and a parameter of a mechanism that is not used, must not change any decision.
 */
static void test_same_as_credit(void **state) {
    u64 hash[2];

    for (u32 on = 0; on < 2; on++) {
        struct sched_pool *p = start_credit(2, 1, "vslicer");
        struct sim_vm *d = sim_vm(
            p, "vm", 2, ALL, (struct sim_work){ .kind = WORK_SERVER, .rate = 100, .work_ns = MS });

        sim_vm(p, "hog", 2, ALL, HOG);
        sim.hash = 0;
        if (on) credit_pool(p)->knob.slicer_infer_us = 5000;
        for (u32 k = 0; k < 5; k++) window(d, 1000, on ? 200 : 0);
        hash[on] = sim.hash;
        sim_stop();
    }
    assert_true(hash[0] == hash[1]);
}

/* VMs raise events at random, so that labels come and go under shared credit, ACA and vSlicer. The
 * replay has no events, only the labels that were recorded, and must make the same decisions. */
static void test_replay(void **state) {
    for (u64 seed = 1; seed <= 60; seed++) {
        struct sim_options o = {
            .cpus = 2, .seed = seed, .keep = true, .mask = TRACE_CLASS_REPLAY
        };
        struct sim_difference diff;
        struct sim_vm *d[5];
        u64 rng = seed, labels = 0;
        size_t n;

        sim_start(&o);
        struct sched_pool *p = sim_pool("Pool-0", "credit", sim_cpus(0, 1));

        assert_int_equal(param_preset(p, seed % 2 ? "sc+aca" : "vslicer"), 0);
        sim_param(p, p, "slicer_infer_us", 5000);
        sim_param(p, p, "io_window_ms", 20);
        for (u32 i = 0; i < 5; i++) {
            d[i] = sim_vm(
                p, "vm", 1, ALL,
                i < 2 ? HOG : (struct sim_work){ .kind = WORK_SERVER, .rate = 400, .work_ns = MS });
            sim_param(p, &d[i]->d, "share_pct", 50);
        }
        for (u32 ms = 1; ms <= 1500; ms++) {
            sim_run_until(ms * MS);
            for (u32 i = 0; i < 5; i++) sched_io_events(&d[i]->d, (u32)sim_below(&rng, 2));
        }
        n = sim.nr_kept;
        struct trace_record *r = malloc(n * sizeof(*r));

        memcpy(r, sim.kept, n * sizeof(*r));
        sim_stop();
        for (size_t i = 0; i < n; i++)
            labels += r[i].event == TRC_SCHED_INPUT && (r[i].arg[0] & 0xff) == IN_LABEL;
        assert_true(labels > 20);
        if (sim_replay(r, n, &diff))
            fail_msg("seed %lu: record %zu: %s", (unsigned long)seed, diff.record, diff.what);
        sim_stop();
        free(r);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_workloads),  cmocka_unit_test(test_threshold),
        cmocka_unit_test(test_smoothing),  cmocka_unit_test(test_hysteresis),
        cmocka_unit_test(test_label_lost), cmocka_unit_test(test_liar),
        cmocka_unit_test(test_said),       cmocka_unit_test(test_pools),
        cmocka_unit_test(test_inference),  cmocka_unit_test(test_same_as_credit),
        cmocka_unit_test(test_replay),     cmocka_unit_test(test_driver_says),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
