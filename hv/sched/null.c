/* null: a pCPU for a vCPU. Each pCPU of the pool has at most one vCPU assigned to it and runs no other; who
 * finds no free pCPU waits, in the order of arrival, and does not run. No timer, no slice, no accounting; a
 * weight has no meaning. With `sleepless` a vCPU that halts keeps its pCPU, which waits in place: no switch
 * ever, at the price that its CPU time reads 100 % (the no-op scheduler of "Coexisting scheduling policies",
 * section 4).
 *
 * A vCPU is assigned or it waits, from the time that it joins the pool to the time that it leaves, whether it
 * is runnable or not.
 */
#include "sched/policy.h"

struct null_pool {
    bool sleepless;
    struct list waiting;
};

struct null_cpu {
    struct sched_vcpu *assigned;
};

struct null_vcpu {
    struct list waiting; /* empty: assigned, or not yet in the pool */
    struct sched_vcpu *vcpu;
};

static struct null_cpu *cpu_of(const struct sched_pool *p, u32 cpu) { return sched_cpu_priv(p, cpu); }

static bool assigned(const struct sched_pool *p, const struct sched_vcpu *v) {
    return cpu_of(p, v->cpu) && cpu_of(p, v->cpu)->assigned == v;
}

static void release(struct sched_pool *p, struct sched_vcpu *v, u64 now) {
    struct null_vcpu *nv = v->priv;

    if (assigned(p, v)) {
        cpu_of(p, v->cpu)->assigned = NULL;
        sched_kick(p, v->cpu, now); /* it takes on the next one that waits */
    }
    list_del(&nv->waiting);
}

/* Gives a pCPU that has nobody the first one that waits and may run there. */
static struct sched_vcpu *take_on(struct sched_pool *p, u32 cpu, u64 now) {
    struct null_pool *np = p->priv;

    list_for_each(nv, &np->waiting, struct null_vcpu, waiting) {
        struct sched_vcpu *v = nv->vcpu;

        if (!sched_may_run(p, v, cpu)) continue;
        list_del(&nv->waiting);
        cpu_of(p, cpu)->assigned = v;
        if (v->cpu != cpu) sched_move(p, v, cpu, now);
        return v;
    }
    return NULL;
}

static void pool_init(struct sched_pool *p) {
    struct null_pool *np = p->priv;

    list_init(&np->waiting);
}

/* Its present pCPU if that is free, else the first that is; else it waits, wherever that may be. */
static u32 place(struct sched_pool *p, struct sched_vcpu *v) {
    struct cpumask allowed = cpumask_and(&v->affinity, &p->cpus);
    struct null_pool *np = p->priv;
    struct null_vcpu *nv = v->priv;
    u32 cpu;

    if (!nv->vcpu) { /* new here */
        nv->vcpu = v;
        list_init(&nv->waiting);
    } else {
        release(p, v, p->clock);
    }
    if (cpumask_test(&allowed, v->cpu) && !cpu_of(p, v->cpu)->assigned)
        cpu = v->cpu;
    else
        for (cpu = cpumask_next(&allowed, 0); cpu < TAKT_MAX_CPUS; cpu = cpumask_next(&allowed, cpu + 1))
            if (!cpu_of(p, cpu)->assigned) break;
    if (cpu < TAKT_MAX_CPUS) {
        cpu_of(p, cpu)->assigned = v;
        return cpu;
    }
    list_add_tail(&np->waiting, &nv->waiting);
    return cpumask_test(&allowed, v->cpu) ? v->cpu : cpumask_next(&allowed, 0);
}

static void vcpu_add(struct sched_pool *p, struct sched_vcpu *v, u64 now) {}

static void vcpu_remove(struct sched_pool *p, struct sched_vcpu *v, u64 now) { release(p, v, now); }

static void kick_own(struct sched_pool *p, struct sched_vcpu *v, u64 now) {
    if (assigned(p, v)) sched_kick(p, v->cpu, now);
}

static void wake(struct sched_pool *p, struct sched_vcpu *v, enum sched_why why, u64 now) {
    kick_own(p, v, now);
}

/* A waiting vCPU may have been let on to a pCPU that is free. */
static void affinity(struct sched_pool *p, struct sched_vcpu *v, u64 now) {
    if (assigned(p, v)) return;
    cpumask_for_each(cpu, &p->cpus)
        if (!cpu_of(p, cpu)->assigned && sched_may_run(p, v, cpu)) sched_kick(p, cpu, now);
}

static struct sched_pick pick(struct sched_pool *p, u32 cpu, struct sched_vcpu *current, u64 now) {
    const struct null_pool *np = p->priv;
    struct sched_vcpu *v = cpu_of(p, cpu)->assigned;

    if (!v) v = take_on(p, cpu, now);
    if (v && !sched_runnable(v)) {
        bool only_blocked = v->blocked && !v->migrating && !v->parked && v->dom->paused == 0;

        if (!np->sleepless || v != current || !only_blocked) v = NULL;
    }
    return (struct sched_pick){ v, SCHED_NEVER };
}

static i64 get_sleepless(const void *pool) {
    return ((struct null_pool *)((const struct sched_pool *)pool)->priv)->sleepless;
}

static int set_sleepless(void *pool, i64 value, const char **why) {
    struct sched_pool *p = pool;

    ((struct null_pool *)p->priv)->sleepless = value;
    cpumask_for_each(cpu, &p->cpus) sched_kick(p, cpu, p->clock);
    return 0;
}

static const char *const off_on[] = { "off", "on", NULL };

static const struct param params[] = {
    { "sleepless", "", "a vCPU that halts keeps its pCPU", PARAM_POOL, 0, 1, off_on, get_sleepless,
      set_sleepless },
    { 0 },
};

const struct sched_policy null_policy = {
    .name = "null",
    .params = params,
    .pool_size = sizeof(struct null_pool),
    .cpu_size = sizeof(struct null_cpu),
    .vcpu_size = sizeof(struct null_vcpu),
    .pool_init = pool_init,
    .vcpu_add = vcpu_add,
    .vcpu_remove = vcpu_remove,
    .wake = wake,
    .sleep = kick_own,
    .pick = pick,
    .place = place,
    .affinity = affinity,
};
