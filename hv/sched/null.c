/* null: each vCPU (a CPU of a VM) has a pCPU (one of the machine) of its own, so that nobody
 * shares. A pCPU of the pool has at most one vCPU assigned to it, its "owner", and runs no other. A
 * vCPU for which there is no free pCPU waits, in the order of arrival, and does not run. There is
 * no timer, no slice and no accounting, and weights mean nothing. With `sleepless` a vCPU that
 * halts keeps its pCPU, which halts with the vCPU's state loaded. So there is never a switch, but
 * the vCPU's CPU time reads 100 % (the no-op scheduler of "Coexisting scheduling policies", section
 * 4).
 *
 * From the time that a vCPU joins the pool until it leaves it is either assigned to a pCPU or waits
 * for one, whether it can run or not. */
#include "sched/policy.h"

struct null_pool {
    u32 sleepless;
    struct list waiting;
};

struct null_vcpu {
    struct list waiting; /* in null_pool.waiting; empty: it is assigned to a pCPU */
    struct sched_vcpu *vcpu;
};

static struct null_pool *pool_of(const struct sched_pool *p) { return (void *)p->priv; }

static struct null_vcpu *vcpu_of(const struct sched_vcpu *v) { return (void *)v->priv; }

/* Returns where a pCPU keeps the vCPU that is assigned to it. */
static struct sched_vcpu **null_owner(u32 cpu) { return (void *)sched_cpus[cpu]->priv; }

/* Takes v off its pCPU, or out of the list of those that wait for one. */
static void null_release(struct sched_pool *p, struct sched_vcpu *v) {
    if (*null_owner(v->cpu) == v) {
        *null_owner(v->cpu) = NULL;
        sched_kick(p, v->cpu); /* so that it takes on the next one that waits */
    }
    list_del(&vcpu_of(v)->waiting);
}

/* Assigns to a pCPU that has no vCPU the first one that waits and may run there. */
static void take_on(struct sched_pool *p, u32 cpu) {
    list_for_each(nv, &pool_of(p)->waiting, struct null_vcpu, waiting) {
        if (!sched_may_run(p, nv->vcpu, cpu)) continue;
        list_del(&nv->waiting);
        *null_owner(cpu) = nv->vcpu;
        sched_move(p, nv->vcpu, cpu);
        return;
    }
}

static void null_pool_init(struct sched_pool *p) { list_init(&pool_of(p)->waiting); }

/* A vCPU joins the pool. It gets a pCPU later, by null_place(). */
static void null_vcpu_add(struct sched_pool *p, struct sched_vcpu *v) {
    vcpu_of(v)->vcpu = v;
    list_init(&vcpu_of(v)->waiting);
}

/* Returns the pCPU where v is, if that pCPU is in `m`. Otherwise returns the first one of `m`. */
static u32 nearest_of(const struct cpumask *m, const struct sched_vcpu *v) {
    if (cpumask_test(m, v->cpu)) return v->cpu;
    return cpumask_next(m, 0);
}

/* Assigns v to a free pCPU that it may use. If there is none, v waits in the list. It still gets
 * the number of a pCPU, but does not run there. */
static u32 null_place(struct sched_pool *p, struct sched_vcpu *v) {
    struct cpumask allowed = sched_allowed(p, v), free = allowed;

    null_release(p, v);
    cpumask_for_each(cpu, &allowed)
        if (*null_owner(cpu)) cpumask_clear(&free, cpu);
    if (cpumask_empty(&free)) {
        list_add_tail(&pool_of(p)->waiting, &vcpu_of(v)->waiting);
        return nearest_of(&allowed, v);
    }
    *null_owner(nearest_of(&free, v)) = v;
    return nearest_of(&free, v);
}

/* If a pCPU is assigned to v, makes it decide anew. */
static void kick_own(struct sched_pool *p, struct sched_vcpu *v) {
    if (*null_owner(v->cpu) == v) sched_kick(p, v->cpu);
}

/* The vCPU can run. Its pCPU, if it has one, is kicked, so that it decides again and runs it. */
static void null_wake(struct sched_pool *p, struct sched_vcpu *v, enum sched_why why) {
    kick_own(p, v);
}

/* Makes pCPUs without a vCPU look again, because a vCPU that waits may run on them now. */
static void null_affinity(struct sched_pool *p, struct sched_vcpu *v) {
    if (*null_owner(v->cpu) == v) return;
    cpumask_for_each(cpu, &p->cpus)
        if (!*null_owner(cpu) && sched_may_run(p, v, cpu)) sched_kick(p, cpu);
}

/* Returns the vCPU that is assigned to the pCPU, or none if that vCPU cannot run. With `sleepless`
 * the pCPU keeps its vCPU even while that is blocked. */
static struct sched_pick null_pick(struct sched_pool *p, u32 cpu, struct sched_vcpu *current) {
    if (!*null_owner(cpu)) take_on(p, cpu);
    struct sched_vcpu *v = *null_owner(cpu);
    bool stays = v && v == current && pool_of(p)->sleepless && !v->migrating && v->vm->paused == 0;

    if (v && !stays && !sched_runnable(v)) v = NULL;
    return (struct sched_pick){ v, SCHED_NEVER };
}

/* Makes the pool's pCPUs decide anew after `sleepless` was set: a pCPU that halts with a vCPU may
 * have to let it go, or the other way round. */
static int null_changed(struct sched_pool *p, const struct param *e, const char **why) {
    cpumask_for_each(cpu, &p->cpus) sched_kick(p, cpu);
    return 0;
}

static const struct param null_params[] = {
    { "sleepless", "", "on: a vCPU that halts keeps its pCPU, so that waking it costs no switch.",
      PARAM_POOL, offsetof(struct null_pool, sleepless), 0, PARAM_WORDS("off", "on") },
    SCHED_VM_PARAMS,
    SCHED_POOL_PARAMS,
    { 0 },
};

const struct sched_policy null_policy = {
    .name = "null",
    .params = null_params,
    .pool_init = null_pool_init,
    .vcpu_add = null_vcpu_add,
    .vcpu_remove = null_release,
    .wake = null_wake,
    .sleep = kick_own,
    .pick = null_pick,
    .place = null_place,
    .affinity = null_affinity,
    .changed = null_changed,
    .not_work_conserving = true, /* a pCPU idles while its vCPU sleeps, although others wait */
};
