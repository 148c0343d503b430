/* Properties that each policy must have, in random scenarios with random parameters: no time is
 * lost, no pCPU idles while a vCPU waits, the books of the scheduler agree, pools do not influence
 * each other, and the same seed gives the same trace. A recording of each scenario must replay the
 * same. "Meddling" is what an administrator may do at any moment: set parameters, move VMs and
 * pCPUs. */
#include "sched/core.h"
#include "sched_rig.h"

#define SCENARIOS 600

/* Any of them; some do not go with a pair of pools, and are then refused. */
static void random_preset(u64 *rng, struct sched_pool *p) {
    u32 n = 0;

    while (credit_presets[n].name) n++;
    param_preset(p, credit_presets[sim_below(rng, n)].name);
}

/* A parameter of the pool or VM, at random; refused if it does not go with the others. Slices
 * are not so short, and accounting not so frequent, that a scenario takes long. */
static void random_param(u64 *rng, struct sched_pool *p, void *object, enum param_scope scope) {
    const struct param *e;
    const char *why;
    u32 n = 0;

    while (param_at(p, n)) n++;
    e = param_at(p, (u32)sim_below(rng, n));
    if (e->scope != scope || strcmp(e->name, "fault") == 0) return;
    u64 lowest = e->names || e->max <= 1000 ? e->min : 500,
        range = MIN(e->max, 100000u) - lowest + 1;

    param_set(e, p, object, (i64)(lowest + sim_below(rng, range)), &why);
}

static struct sim_work random_work(u64 *rng) {
    static const enum work_kind kinds[] = { WORK_IDLE,  WORK_HOG,    WORK_HOG,  WORK_DUTY,
                                            WORK_WAKER, WORK_SERVER, WORK_SELF, WORK_YIELD };
    struct sim_work w = { .kind = kinds[sim_below(rng, ARRAY_SIZE(kinds))] };

    w.period_ns = (1 + sim_below(rng, 20)) * MS;
    w.work_ns = (1 + sim_below(rng, 1000)) * 5000;
    w.rest_ns = (1 + sim_below(rng, 1000)) * 5000;
    w.percent = 1 + (u32)sim_below(rng, 99);
    w.rate = 1 + (u32)sim_below(rng, 1000);
    return w;
}

static struct cpumask random_affinity(u64 *rng, const struct sched_pool *p) {
    struct cpumask m = ALL, one;
    u32 cpu = cpumask_cycle(&p->cpus, (u32)sim_below(rng, 64));

    switch (sim_below(rng, 4)) {
    case 0: /* a single one */ return sim_cpus(cpu, cpu);
    case 1: /* two */
        one = sim_cpus(cpu, cpu);
        cpumask_set(&one, cpumask_cycle(&p->cpus, cpu + 1));
        return one;
    default: return m;
    }
}

struct world {
    u64 rng;
    u32 cpus;
    struct sched_pool *pool[3];
    struct sim_vm *vm[12], *turbo[12]; /* turbo: its other part; NULL */
    u32 nr_vms;
    u64 gone; /* ns that destroyed VMs ran */
};

static void add_vm(struct world *w) {
    struct sched_pool *p = w->pool[sim_below(&w->rng, 3)];

    if (w->nr_vms == ARRAY_SIZE(w->vm) || !p || cpumask_empty(&p->cpus)) return;
    w->vm[w->nr_vms] = sim_vm(p, "vm", 1 + (u32)sim_below(&w->rng, 4), random_affinity(&w->rng, p),
                              random_work(&w->rng));
    w->turbo[w->nr_vms] = p->turbo && !cpumask_empty(&p->turbo->cpus) && sim_below(&w->rng, 2)
                              ? sim_turbo(w->vm[w->nr_vms], random_work(&w->rng))
                              : NULL;
    w->nr_vms++;
}

static void build(struct world *w, u64 seed, bool keep) {
    struct sim_options o = { .seed = seed, .keep = keep };

    *w = (struct world){ .rng = seed * 0x9e3779b97f4a7c15ull + 1 };
    w->cpus = o.cpus = 1 + (u32)sim_below(&w->rng, 6);
    o.kick_ns = sim_below(&w->rng, 3) * 1500;
    o.switch_ns = sim_below(&w->rng, 3) * 2000;
    sim_start(&o);
    sim.check = sim_check;
    w->pool[0] = sim_pool("Pool-0", "credit", sim_cpus(0, w->cpus > 3 ? w->cpus - 2 : w->cpus - 1));
    random_preset(&w->rng, w->pool[0]);
    if (w->cpus > 3) {
        bool pair = sim_below(&w->rng, 2);

        w->pool[1] = sim_pool("other", pair || sim_below(&w->rng, 2) ? "credit" : "null",
                              sim_cpus(w->cpus - 1, w->cpus - 1));
        if (pair) {
            param_preset(w->pool[0], "hardened"); /* the one it has may not go with a pair */
            param_preset(w->pool[1], "turbo");
            assert_int_equal(sched_pool_pair(w->pool[1], w->pool[0]), 0);
            random_preset(&w->rng, w->pool[0]);
        } else if (w->pool[1]->policy == &credit_policy) {
            random_preset(&w->rng, w->pool[1]);
        }
        w->pool[2] = sim_pool("empty", "credit", (struct cpumask){ 0 });
    }
    for (u32 i = 1 + (u32)sim_below(&w->rng, 6); i; i--) add_vm(w);
}

static void set_something(struct world *w, struct sim_vm *d) {
    struct sched_pool *p = d->d.pool;
    const char *why;

    if (p->policy != &credit_policy) return;
    switch (sim_below(&w->rng, 8)) {
    case 0: sim_param(p, &d->d, "weight", 1 + (i64)sim_below(&w->rng, 65535)); break;
    case 1:
        sim_param(p, &d->d, "cap", (i64)sim_below(&w->rng, 2) * (i64)sim_below(&w->rng, 300));
        break;
    case 2: /* may be refused, for the rate limit */
        param_set(param_find(p, "tslice_us"), p, p, 50 + (i64)sim_below(&w->rng, 100000), &why);
        break;
    case 3: sched_label(&d->d, sim_below(&w->rng, 2)); break;
    case 4:
    case 5: random_param(&w->rng, p, &d->d, PARAM_DOM); break;
    case 6: random_param(&w->rng, p, p, PARAM_POOL); break;
    default: random_preset(&w->rng, p);
    }
}

static void destroy(struct world *w, struct sim_vm *d) {
    sim_vm_stop(d);
    for (u32 k = 0; k < d->nr_vcpus; k++) w->gone += d->vcpu[k]->s.state_ns[RS_RUNNING];
    sim_vm_destroy(d);
}

/* Does one random act of administration. */
static void meddle(struct world *w) {
    u32 i = w->nr_vms ? (u32)sim_below(&w->rng, w->nr_vms) : 0;
    struct sim_vm *d = w->nr_vms ? w->vm[i] : NULL;
    struct sched_pool *p = w->pool[sim_below(&w->rng, 3)];
    u32 cpu = (u32)sim_below(&w->rng, w->cpus);

    switch (sim_below(&w->rng, 8)) {
    case 0: add_vm(w); break;
    case 1:
        if (!d) break;
        if (w->turbo[i]) destroy(w, w->turbo[i]);
        destroy(w, d);
        w->vm[i] = w->vm[--w->nr_vms];
        w->turbo[i] = w->turbo[w->nr_vms];
        break;
    case 2:
        if (d && p) sim_move_vm(p, d);
        break;
    case 3:
        if (d) {
            struct cpumask m = random_affinity(&w->rng, d->d.pool);

            sched_set_affinity(&d->vcpu[sim_below(&w->rng, d->nr_vcpus)]->s, &m);
        }
        break;
    case 4:
        if (d) {
            sched_pause(&d->d);
            sim_run_until(sim.now + sim_below(&w->rng, 20 * MS));
            sched_unpause(&d->d);
        }
        break;
    case 5:
        if (p && sched_pool_of_cpu(cpu)) sim_remove_cpu(sched_pool_of_cpu(cpu), cpu);
        if (p && !sched_pool_of_cpu(cpu)) assert_int_equal(sched_pool_add_cpu(p, cpu), 0);
        break;
    default:
        if (d) set_something(w, d);
    }
}

/* What the vCPUs of a VM ran; with `charged`, that it was charged for it exactly. */
static u64 ran_of(const struct sim_vm *d, bool charged) {
    u64 total = 0, billed = 0;

    if (!d) return 0;
    for (u32 k = 0; k < d->nr_vcpus; k++) {
        struct sched_vcpu *v = &d->vcpu[k]->s;
        struct sched_times t;
        u64 sum = 0;

        sched_times(v, &t);
        total += t.state_ns[RS_RUNNING];
        for (u32 s = 0; s < RS_NR; s++) sum += t.state_ns[s];
        assert_true(sum <= sim.now);                                            /* its whole life */
        if (v->state == RS_RUNNING) billed += sim.now - credit_vcpu(v)->billed; /* not yet */
    }
    if (!charged || d->d.pool->policy != &credit_policy) return total;
    billed += credit_vm(&d->d)->used;
    if (billed != total)
        fail_msg("seed %lu: ran %lu ns, charged %lu", (unsigned long)sim.opt.seed,
                 (unsigned long)total, (unsigned long)billed);
    return total;
}

/* Each ns of each pCPU is counted for one vCPU or for the idle one, and with debit = time a
 * vCPU is charged for exactly what it ran. */
static void check_conservation(struct world *w, bool charged) {
    u64 total = w->gone;

    for (u32 cpu = 0; cpu < w->cpus; cpu++) {
        const struct sched_vcpu *idle = &sched_cpus[cpu]->idle;

        total +=
            idle->state_ns[RS_RUNNING] + (idle->state == RS_RUNNING ? sim.now - idle->since : 0);
    }
    for (u32 i = 0; i < w->nr_vms; i++)
        total += ran_of(w->vm[i], charged) + ran_of(w->turbo[i], charged);
    if (total != sim.now * w->cpus)
        fail_msg("seed %lu: %lu ns accounted for of %lu", (unsigned long)sim.opt.seed,
                 (unsigned long)total, (unsigned long)(sim.now * w->cpus));
}

/* Time is conserved and the invariants hold while nobody meddles. */
static void test_conservation(void **state) {
    for (u64 seed = 1; seed <= SCENARIOS; seed++) {
        struct world w;
        bool time;

        build(&w, seed, false);
        time = credit_pool(w.pool[0])->knob.debit == DEBIT_TIME;
        if (w.pool[1] && w.pool[1]->policy == &credit_policy)
            time &= credit_pool(w.pool[1])->knob.debit == DEBIT_TIME;
        sim_run_until(500 * MS);
        check_conservation(&w, time);
        sim_stop();
    }
}

/* With balance = full no pCPU is idle for longer than a kick takes while a vCPU waits that may
 * run there. The test looks when all is at rest: no kick is under way, and no pCPU is between two
 * vCPUs. */
static void test_work_conserving(void **state) {
    for (u64 seed = 1; seed <= SCENARIOS; seed++) {
        struct sim_options o = { .seed = seed };
        u64 rng = seed * 77777;
        struct sched_pool *p;
        u32 n = 1 + (u32)sim_below(&rng, 12);

        o.cpus = 1 + (u32)sim_below(&rng, 6);
        o.kick_ns = 1 + sim_below(&rng, 3) * 1000;
        sim_start(&o);
        p = sim_pool("Pool-0", "credit", sim_cpus(0, o.cpus - 1));
        do random_preset(&rng, p);
        while (credit_pool(p)->knob.balance != BALANCE_FULL);
        sim_param(p, p, "order", (i64)sim_below(&rng, 2));
        for (u32 i = 0; i < n; i++) { /* all at one instant */
            struct sim_vm *d = sim_vm(p, "vm", 1, random_affinity(&rng, p), random_work(&rng));

            if (sim_below(&rng, 2))
                sim_param(p, &d->d, "micro_us", 1000 * (1 + (i64)sim_below(&rng, 20)));
            if (sim_below(&rng, 2)) sim_param(p, &d->d, "io", IO_YES);
        }
        for (u32 i = 0; i < 200; i++) {
            u64 events;

            sim_run_until(sim.now + sim_below(&rng, 3 * MS));
            for (u32 tries = 0; tries < 50; tries++) { /* a quiet stretch of four kicks */
                events = sim.events;
                sim_run_until(sim.now + 4 * o.kick_ns);
                if (sim.events == events) break;
            }
            if (sim.events == events) sched_check_work_conserving();
        }
        sim_stop();
    }
}

/* The faithful engine has the hole: of hogs that wake at one instant on one of two pCPUs none
 * goes to the other, until a tick looks where the running one should be. */
static void test_simultaneous_wakes(void **state) {
    for (int faithful = 0; faithful < 2; faithful++) {
        struct sim_options o = { .cpus = 2, .kick_ns = 1000 };
        struct sim_vm *d[4];
        u64 ran = 0;

        sim_start(&o);
        struct sched_pool *p = sim_pool("Pool-0", "credit", sim_cpus(0, 1));

        param_preset(p, faithful ? "faithful-4.1" : "hardened");
        for (u32 i = 0; i < 4; i++) {
            d[i] = sim_vm(p, "hog", 1, ALL, (struct sim_work){ .kind = WORK_IDLE });
            d[i]->vcpu[0]->work.kind = WORK_HOG;
            d[i]->vcpu[0]->remaining = ~0ull;
            d[i]->vcpu[0]->s.cpu = 0;
        }
        sim_run_until(MS);
        for (u32 i = 0; i < 4; i++) sched_wake(&d[i]->vcpu[0]->s);
        sim_run_until(9 * MS);
        for (u32 i = 0; i < 4; i++) ran += sim_ran(d[i]->vcpu[0]);
        if (faithful)
            assert_true(ran <= 8 * MS);
        else
            assert_true(ran > 15900 * NS_PER_US);
        sim_stop();
    }
}

/* The same seed gives the same trace; and the rules hold whatever the administrator does. */
static u64 meddled(u64 seed) {
    struct world w;

    build(&w, seed, false);
    for (u32 i = 0; i < 30; i++) {
        sim_run_until(sim.now + sim_below(&w.rng, 20 * MS));
        meddle(&w);
        sim_check();
    }
    check_conservation(&w, false);
    u64 hash = sim.hash;

    sim_stop();
    return hash;
}

/* With migration_delay_us a vCPU may wait although a pCPU idles that may take it later. So
 * pass_on() must not forget where it waits. sim.check sees that after each event. */
static void test_delayed_migration(void **state) {
    for (u64 seed = 1; seed <= 150; seed++) {
        struct world w;

        build(&w, seed, false);
        param_preset(w.pool[0], "hardened");
        sim_param(w.pool[0], w.pool[0], "migration_delay_us", 100 + (i64)sim_below(&w.rng, 5000));
        for (u32 i = 0; i < 15; i++) {
            sim_run_until(sim.now + sim_below(&w.rng, 20 * MS));
            meddle(&w);
        }
        sim_stop();
    }
}

static void test_meddling(void **state) {
    u64 first = 0;

    for (u64 seed = 1; seed <= SCENARIOS; seed++) {
        u64 hash = meddled(seed);

        if (seed <= 50) assert_true(meddled(seed) == hash);
        assert_true(hash != first);
        first = hash;
    }
}

/* What happens in one pool is the same, ns for ns, whatever runs in the other. */
static u64 switches_of_pool_a(u64 seed, u32 others) {
    struct sim_options o = {
        .cpus = 4, .seed = seed, .kick_ns = 1000, .switch_ns = 1000, .keep = true
    };
    u64 rng = seed, hash = 0xcbf29ce484222325ull;

    o.mask = TRACE_CLASS_SCHED;
    sim_start(&o);
    struct sched_pool *a = sim_pool("Pool-0", "credit", sim_cpus(0, 1));
    struct sched_pool *b = sim_pool("other", "credit", sim_cpus(2, 3));

    random_preset(&rng, a);
    for (u32 i = 0; i < 4; i++) {
        struct sim_vm *d = sim_vm(a, "a", 2, ALL, random_work(&rng));

        random_param(&rng, a, &d->d, PARAM_DOM);
    }
    random_preset(&rng, b);
    for (u32 i = 0; i < others; i++) sim_vm(b, "b", 3, ALL, random_work(&rng));
    sim_run_until(NS_PER_S);
    for (size_t i = 0; i < sim.nr_kept; i++) {
        const struct trace_record *r = &sim.kept[i];

        if (r->event == TRC_SWITCH && r->cpu < 2)
            hash = (hash ^ r->ns ^ (u64)r->who << 32) * 0x100000001b3ull;
    }
    sim_stop();
    return hash;
}

static void test_pools_are_apart(void **state) {
    for (u64 seed = 1; seed <= 40; seed++) {
        u64 alone = switches_of_pool_a(seed, 0);

        assert_true(switches_of_pool_a(seed, 1) == alone);
        assert_true(switches_of_pool_a(seed, 5) == alone);
    }
}

/* ---- record and replay ---- */

static struct trace_record *record(u64 seed, size_t *n) {
    struct world w;
    struct trace_record *r;

    build(&w, seed, true);
    for (u32 i = 0; i < 15; i++) {
        sim_run_until(sim.now + sim_below(&w.rng, 20 * MS));
        meddle(&w);
    }
    *n = sim.nr_kept;
    r = malloc(*n * sizeof(*r));
    memcpy(r, sim.kept, *n * sizeof(*r));
    sim_stop();
    return r;
}

static void test_replay(void **state) {
    bool seen[IN_LABEL + 1] = { [IN_POOL_DESTROY] = true };

    for (u64 seed = 1; seed <= 150; seed++) {
        struct sim_difference d;
        size_t n;
        struct trace_record *r = record(seed, &n), *copy = malloc(n * sizeof(*r));
        u64 rng = seed;
        int caught = 0, tries = 0;

        assert_true(n >= 10);
        for (size_t i = 0; i < n; i++)
            if (r[i].event == TRC_SCHED_INPUT) seen[r[i].arg[0] & 0xff] = true;
        memcpy(copy, r, n * sizeof(*r));
        if (sim_replay(copy, n, &d))
            fail_msg("seed %lu: record %zu: %s", (unsigned long)seed, d.record, d.what);
        sim_stop();
        while (tries < 5) { /* one decision is another: it must be found */
            size_t i = sim_below(&rng, n);

            if (r[i].event != TRC_SCHED_DECISION) continue;
            memcpy(copy, r, n * sizeof(*r));
            if (tries % 2)
                copy[i].who ^= 1;
            else
                copy[i].arg[2] ^= 1;
            caught += sim_replay(copy, n, &d) == 1;
            sim_stop();
            tries++;
        }
        assert_int_equal(caught, tries);
        for (size_t i = n / 2; i < n; i++) /* an input is missing */
            if (r[i].event == TRC_SCHED_INPUT) {
                memcpy(copy, r, n * sizeof(*r));
                copy[i].event = TRC_WAKE;
                assert_int_not_equal(sim_replay(copy, n, &d), 0);
                sim_stop();
                break;
            }
        copy[0].event = TRC_LOST;
        assert_int_equal(sim_replay(copy, n, &d), -1);
        sim_stop();
        free(copy);
        free(r);
    }
    for (u32 kind = 1; kind <= IN_LABEL; kind++)
        if (!seen[kind]) fail_msg("no recording has an input of kind %u", kind);
}

/* Rubbish in a recording is refused, or differs; it does not crash the replay. */
static void test_replay_rubbish(void **state) {
    size_t n;
    struct trace_record *r = record(5, &n), *copy = malloc(n * sizeof(*r));
    struct sim_difference d;
    u64 rng = 12345;

    for (u32 round = 0; round < 300; round++) {
        memcpy(copy, r, n * sizeof(*r));
        for (u32 k = 0; k < 3; k++)
            ((u8 *)copy)[sim_below(&rng, n * sizeof(*r))] ^= (u8)(1 + sim_below(&rng, 255));
        sim_replay(copy, n, &d);
        sim_stop();
    }
    free(copy);
    free(r);
}

/* On a machine of 130 pCPUs an affinity fills three words of a recording. Each of them counts when
 * it is replayed: without the last one, the pinned vCPU could not run where it did. */
static void test_replay_of_many_cpus(void **state) {
    u32 words = 0, vm_words = 0, who;
    struct sim_difference diff;
    struct trace_record *r, *copy;
    struct cpumask m = sim_cpus(64, 128);
    struct sched_pool *p;
    struct sim_vm *d;
    size_t n;

    start_sim((struct sim_options){ .cpus = 130, .seed = 1, .kick_ns = 1000, .keep = true });
    p = sim_pool("Pool-0", "credit", sim_cpus(0, 129));
    d = sim_vm(p, "pinned", 1, sim_cpus(129, 129), HOG);
    for (u32 i = 0; i < 4; i++) sim_vm(p, "roams", 50, ALL, HOG);
    sim_run_until(50 * MS);
    assert_int_equal(d->vcpu[0]->s.cpu, 129);
    assert_true(sim_ran(d->vcpu[0]) > 10 * MS);
    who = sched_who(&d->vcpu[0]->s);
    assert_int_equal(sched_set_affinity(&d->vcpu[0]->s, &m), 0);
    sim_run_until(100 * MS);
    n = sim.nr_kept;
    r = malloc(n * sizeof(*r));
    memcpy(r, sim.kept, n * sizeof(*r));
    copy = malloc(n * sizeof(*r));
    memcpy(copy, r, n * sizeof(*r));
    sim_stop();
    for (size_t i = 0; i < n; i++)
        if (r[i].event == TRC_SCHED_INPUT && (r[i].arg[0] & 0xff) == IN_WORD) {
            words++;
            vm_words += r[i].who == who;
        }
    assert_int_equal(vm_words, 2 * 2); /* of the pinned vCPU: when it is made, and later */
    assert_int_equal(words, vm_words + 2 * 200);
    if (sim_replay(copy, n, &diff)) fail_msg("record %zu: %s", diff.record, diff.what);
    sim_stop();
    for (size_t i = 0; i < n; i++)
        if (r[i].event == TRC_SCHED_INPUT && (r[i].arg[0] & 0xff) == IN_WORD &&
            r[i].arg[0] >> 16 == 2) {
            r[i].arg[2] = 1;
            break;
        }
    assert_int_equal(sim_replay(r, n, &diff), 1);
    sim_stop();
    free(copy);
    free(r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_conservation),       cmocka_unit_test(test_work_conserving),
        cmocka_unit_test(test_simultaneous_wakes), cmocka_unit_test(test_meddling),
        cmocka_unit_test(test_pools_are_apart),    cmocka_unit_test(test_replay),
        cmocka_unit_test(test_replay_rubbish),     cmocka_unit_test(test_replay_of_many_cpus),
        cmocka_unit_test(test_delayed_migration),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
