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
    u32 sleepless;
    struct list waiting;
};

struct null_vcpu {
    struct list waiting; /* empty: assigned */
    struct sched_vcpu *vcpu;
};

static struct null_pool *pool_of(const struct sched_pool *p) { return (void *)p->priv; }

static struct null_vcpu *vcpu_of(const struct sched_vcpu *v) { return (void *)v->priv; }

/* The vCPU that is assigned to a pCPU. */
static struct sched_vcpu **owner(u32 cpu) { return (void *)sched_cpus[cpu].priv; }

static void release(struct sched_pool *p, struct sched_vcpu *v) {
    if (*owner(v->cpu) == v) {
        *owner(v->cpu) = NULL;
        sched_kick(p, v->cpu); /* it takes on the next one that waits */
    }
    list_del(&vcpu_of(v)->waiting);
}

/* Gives a pCPU that has nobody the first one that waits and may run there. */
static void take_on(struct sched_pool *p, u32 cpu) {
    list_for_each(nv, &pool_of(p)->waiting, struct null_vcpu, waiting) {
        if (!sched_may_run(p, nv->vcpu, cpu)) continue;
        list_del(&nv->waiting);
        *owner(cpu) = nv->vcpu;
        sched_move(p, nv->vcpu, cpu);
        return;
    }
}

static void pool_init(struct sched_pool *p) { list_init(&pool_of(p)->waiting); }

static void vcpu_add(struct sched_pool *p, struct sched_vcpu *v) {
    vcpu_of(v)->vcpu = v;
    list_init(&vcpu_of(v)->waiting);
}

/* Where it is, if it may, or the first. */
static u32 near(const struct cpumask *m, const struct sched_vcpu *v) {
    return cpumask_test(m, v->cpu) ? v->cpu : cpumask_next(m, 0);
}

static u32 place(struct sched_pool *p, struct sched_vcpu *v) {
    struct cpumask allowed = sched_allowed(p, v), free = allowed;

    release(p, v);
    cpumask_for_each(cpu, &allowed)
        if (*owner(cpu)) cpumask_clear(&free, cpu);
    if (cpumask_empty(&free)) {
        list_add_tail(&pool_of(p)->waiting, &vcpu_of(v)->waiting);
        return near(&allowed, v);
    }
    *owner(near(&free, v)) = v;
    return near(&free, v);
}

static void kick_own(struct sched_pool *p, struct sched_vcpu *v) {
    if (*owner(v->cpu) == v) sched_kick(p, v->cpu);
}

static void wake(struct sched_pool *p, struct sched_vcpu *v, enum sched_why why) { kick_own(p, v); }

/* A waiting vCPU may have been let on to a pCPU that is free. */
static void affinity(struct sched_pool *p, struct sched_vcpu *v) {
    if (*owner(v->cpu) == v) return;
    cpumask_for_each(cpu, &p->cpus)
        if (!*owner(cpu) && sched_may_run(p, v, cpu)) sched_kick(p, cpu);
}

static struct sched_pick pick(struct sched_pool *p, u32 cpu, struct sched_vcpu *current) {
    if (!*owner(cpu)) take_on(p, cpu);
    struct sched_vcpu *v = *owner(cpu);
    bool stays = v && v == current && pool_of(p)->sleepless && !v->migrating && v->dom->paused == 0;

    if (v && !stays && !sched_runnable(v)) v = NULL;
    return (struct sched_pick){ v, SCHED_NEVER };
}

static int changed(struct sched_pool *p, const struct param *e, const char **why) {
    cpumask_for_each(cpu, &p->cpus) sched_kick(p, cpu);
    return 0;
}

static const struct param params[] = {
    { "sleepless", "", "on: a vCPU that halts keeps its pCPU, so that waking it costs no switch.", PARAM_POOL,
      offsetof(struct null_pool, sleepless), 0, PARAM_WORDS("off", "on") },
    SCHED_VM_PARAMS,
    SCHED_POOL_PARAMS,
    { 0 },
};

const struct sched_policy null_policy = {
    .name = "null",
    .params = params,
    .pool_init = pool_init,
    .vcpu_add = vcpu_add,
    .vcpu_remove = release,
    .wake = wake,
    .sleep = kick_own,
    .pick = pick,
    .place = place,
    .affinity = affinity,
    .changed = changed,
    .not_work_conserving = true, /* a pCPU is its vCPU's, also while that sleeps */
};
