/* The parameter credit_unit_us: credit in whole units of 100 us, as Xen counts it, or to the ns.
 * Presets with the name of a Xen version have its units. tests/models/ compares whole schedules;
 * this test checks each charge and each grant. */
#include "sched_rig.h"

#define UNIT CREDIT_XEN_UNIT

static const char *const xen[] = { "faithful-3.4", "faithful-4.0", "faithful-4.1", "faithful-4.2",
                                   "vslicer-paper-prototype" };

static void test_presets(void **state) {
    struct sched_pool *p = start_credit(1, 1, "hardened");

    assert_int_equal(credit_pool(p)->unit, 0);
    for (u32 i = 0; i < ARRAY_SIZE(xen); i++) {
        assert_int_equal(param_preset(p, xen[i]), 0);
        assert_int_equal(credit_pool(p)->unit, UNIT);
    }
    sim_stop();
}

/* A VM that runs 130 us at a time and sleeps over all ticks is never active, so it is granted
 * nothing: its credit is what it was charged. What is not yet charged is at most half a unit,
 * and does not grow: 130 us cost 1, 2, 1, 1 ... credits, and not 1 each. */
static void test_charges(void **state) {
    struct sim_work w = { .kind = WORK_SELF, .work_ns = 130 * US, .rest_ns = 870 * US };
    struct sched_pool *p = start_credit(1, 1, "faithful-4.1");
    struct sim_vm *d;
    struct credit_vcpu *cv;

    sim_run_until(100 * US); /* away from the ticks, which are on whole ms */
    d = sim_vm(p, "vm", 1, ALL, w);
    cv = credit_vcpu(&d->vcpu[0]->s);
    for (u32 i = 1; i <= 1000; i++) {
        i64 ran;

        sim_run_until(i * MS);
        ran = (i64)d->vcpu[0]->s.state_ns[RS_RUNNING];
        assert_true(list_empty(&cv->active));
        assert_int_equal(cv->credit % UNIT, 0);
        assert_in_range(ran + cv->credit + UNIT / 2, 0, UNIT);
        assert_int_equal(ran + cv->credit, cv->unbilled);
    }
    assert_int_equal(cv->credit, -1300 * UNIT);
    sim_stop();
}

/* To the ns, there is nothing left over. */
static void test_exact_charges(void **state) {
    struct sim_work w = { .kind = WORK_SELF, .work_ns = 130 * US, .rest_ns = 870 * US };
    struct sched_pool *p = start_credit(1, 1, "faithful-4.1");
    struct sim_vm *d;

    sim_param(p, p, "credit_unit_us", 0);
    sim_run_until(100 * US);
    d = sim_vm(p, "vm", 1, ALL, w);
    sim_run_until(100 * MS);
    assert_int_equal(credit_vcpu(&d->vcpu[0]->s)->credit, -(i64)d->vcpu[0]->s.state_ns[RS_RUNNING]);
    sim_stop();
}

/* After each pass every active vCPU has whole credits, whatever weights, caps and numbers of vCPUs
 * do. */
static void test_grants(void **state) {
    u64 rng = 7;

    for (u32 round = 0; round < 100; round++) {
        u32 cpus = 1 + (u32)sim_below(&rng, 3), n = 1 + (u32)sim_below(&rng, 6);
        struct sched_pool *p = start_credit(cpus, round, xen[sim_below(&rng, ARRAY_SIZE(xen))]);
        struct sim_vm *d[6];

        for (u32 i = 0; i < n; i++) {
            d[i] = sim_vm(
                p, "vm", 1 + (u32)sim_below(&rng, 3), ALL,
                sim_below(&rng, 2)
                    ? HOG
                    : (struct sim_work){ .kind = WORK_DUTY, .percent = 40, .period_ns = 7 * MS });
            sim_param(p, &d[i]->d, "weight", 1 + (i64)sim_below(&rng, 65535));
            if (sim_below(&rng, 3) == 0)
                sim_param(p, &d[i]->d, "cap", 1 + (i64)sim_below(&rng, 99));
        }
        for (u32 pass = 1; pass < 20; pass++) {
            sim_run_until(pass * 30 * MS);
            list_for_each(cd, &credit_pool(p)->active, struct credit_vm, link) {
                list_for_each(cv, &cd->active, struct credit_vcpu, active) {
                    assert_int_equal(cv->credit % UNIT, 0);
                }
            }
            assert_int_equal(credit_pool(p)->balance % UNIT, 0);
        }
        sim_stop();
    }
}

/* 512:256:256:128 on two pCPUs are 267, 134, 134 and 67 credits: each is rounded up. */
static void test_worked_grants(void **state) {
    static const u32 weight[] = { 512, 256, 256, 128 }, credits[] = { 267, 134, 134, 67 };
    struct sched_pool *p = start_credit(2, 1, "faithful-4.2");
    struct sim_vm *d[4];

    for (u32 i = 0; i < 4; i++) {
        d[i] = sim_vm(p, "vm", 1, ALL, HOG);
        sim_param(p, &d[i]->d, "weight", weight[i]);
    }
    sim_run_until(2 * NS_PER_S);
    for (u32 i = 0; i < 4; i++) {
        assert_int_equal(credit_vm(&d[i]->d)->nr_active, 1);
        credit_vcpu(&d[i]->vcpu[0]->s)->credit = 0;
    }
    credit_pool(p)->balance = 0;
    spin_lock(&p->lock);
    credit_account(p);
    spin_unlock(&p->lock);
    for (u32 i = 0; i < 4; i++)
        assert_int_equal(credit_vcpu(&d[i]->vcpu[0]->s)->credit, credits[i] * UNIT);
    sim_stop();
}

/* A period that is not a whole number of credits is refused, whichever of the two is set last. */
static void test_refused(void **state) {
    struct sched_pool *p = start_credit(1, 1, "faithful-4.2");
    const struct param *slice = param_find(p, "tslice_us"), *unit = param_find(p, "credit_unit_us");
    const char *why;

    assert_int_equal(param_set(slice, p, p, 29950, &why), -EINVAL);
    assert_string_equal(why, "the accounting period is not a multiple of credit_unit_us");
    assert_int_equal(credit_pool(p)->knob.tslice_us, 30000);
    assert_int_equal(param_set(unit, p, p, 0, &why), 0);
    assert_int_equal(param_set(slice, p, p, 29950, &why), 0);
    assert_int_equal(param_set(unit, p, p, 100, &why), -EINVAL);
    assert_int_equal(credit_pool(p)->unit, 0);
    sim_stop();
}

/* Shared credit moves whole credits, too, and none is lost. */
static void test_sharing(void **state) {
    struct sched_pool *p = start_credit(3, 1, "faithful-4.2");
    i64 moved = 0, most = 0;

    sim_param(p, p, "share", SHARE_PRORATA);
    for (u32 i = 0; i < 8; i++) {
        struct sim_vm *d = sim_vm(p, "vm", 1, ALL, HOG);

        sim_param(p, &d->d, "weight", 100 + 37 * i);
        sim_param(p, &d->d, "io", i == 0 ? IO_YES : IO_NO);
        sim_param(p, &d->d, "share_pct", 33);
    }
    sim_run_until(3 * NS_PER_S);
    list_for_each(cd, &credit_pool(p)->active, struct credit_vm, link) {
        assert_int_equal(cd->moved % UNIT, 0);
        moved += cd->moved;
        most = MAX(most, cd->moved);
    }
    assert_int_equal(moved, 0);
    assert_true(most > 10 * UNIT);
    sim_stop();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_presets),       cmocka_unit_test(test_charges),
        cmocka_unit_test(test_exact_charges), cmocka_unit_test(test_grants),
        cmocka_unit_test(test_worked_grants), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_sharing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
