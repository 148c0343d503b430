/* A small Credit scheduler, as Xen's once was. Every period each VM that wants CPU time is granted
 * credit by its weight, and a vCPU that runs is charged:
 *
 *   grant = PERIOD * pCPUs * weight / W    W: the weights of all VMs that are granted credit
 *   -PERIOD <= credit <= PERIOD
 *
 * A vCPU with credit has the rank UNDER, and one that owes credit has OVER. A vCPU that wakes and
 * has credit has BOOST until a tick finds it running. BOOST goes before UNDER, UNDER before OVER,
 * and within a rank the vCPU that has waited longest is first. */
#include "sched/policy.h"

#define TICK           (10 * NS_PER_MS)
#define PERIOD         (30 * NS_PER_MS)
#define SLICE          (30 * NS_PER_MS)
#define TICKS_A_PERIOD (PERIOD / TICK)
#define DEFAULT_WEIGHT 256

enum { TIMER_TICK };
enum rank { BOOST, UNDER, OVER };

struct simple_pool {
    u64 ticks; /* of the pool's first pCPU */
};

struct simple_vm {
    u32 weight;
};

struct simple_vcpu {
    i64 credit;  /* ns */
    u64 since;   /* while it runs: the time up to which it was charged */
    u64 waits;   /* since when it waits */
    bool active; /* it was runnable in this period */
    bool boosted;
};

static struct simple_pool *pool_of(const struct sched_pool *p) { return (void *)p->priv; }
static struct simple_vm *vm_of(const struct sched_vm *d) { return (void *)d->priv; }
static struct simple_vcpu *vcpu_of(const struct sched_vcpu *v) { return (void *)v->priv; }

static enum rank rank_of(const struct sched_vcpu *v) {
    if (vcpu_of(v)->credit < 0) return OVER;
    if (vcpu_of(v)->boosted) return BOOST;
    return UNDER;
}

/* ---- charging ---- */

static void charge(struct sched_vcpu *v, u64 ns) {
    struct simple_vcpu *sv = vcpu_of(v);

    sv->credit = MAX(sv->credit - (i64)ns, -(i64)PERIOD);
}

/* Called when v begins to run. */
static void charge_begin(struct sched_pool *p, struct sched_vcpu *v) { vcpu_of(v)->since = p->now; }

/* Called when v, which runs, has to be charged up to now: it stops running, or credit is about to
 * be granted. */
static void charge_up_to_now(struct sched_pool *p, struct sched_vcpu *v) {
    charge(v, p->now - vcpu_of(v)->since);
    vcpu_of(v)->since = p->now;
}

/* Called at a tick that finds v running. */
static void charge_at_tick(struct sched_pool *p, struct sched_vcpu *v) { charge_up_to_now(p, v); }

/* ---- granting ---- */

/* Returns whether v is granted credit. One that was not runnable in this period is not, and one
 * that has as much as it may have does not need any. */
static bool is_granted(const struct sched_vcpu *v) {
    return vcpu_of(v)->active && vcpu_of(v)->credit < (i64)PERIOD;
}

/* Returns how many vCPUs of the VM are granted credit. */
static u32 granted_of(const struct sched_vm *d) {
    u32 n = 0;

    for_each_vcpu(v, d) {
        if (is_granted(v)) n++;
    }
    return n;
}

/* Grants credit to the VMs by weight, in equal parts to the vCPUs of each, but to none more than it
 * may have. Returns how much of `credit` was granted. */
static u64 grant(struct sched_pool *p, u64 credit) {
    u64 weights = 0, granted = 0;

    list_for_each(d, &p->vms, struct sched_vm, in_pool) {
        if (granted_of(d)) weights += vm_of(d)->weight;
    }
    list_for_each(d, &p->vms, struct sched_vm, in_pool) {
        u32 n = granted_of(d);

        if (!n) continue;
        u64 part = credit * vm_of(d)->weight / weights / n;

        for_each_vcpu(v, d) {
            if (!is_granted(v)) continue;
            u64 room = (u64)((i64)PERIOD - vcpu_of(v)->credit);

            vcpu_of(v)->credit += (i64)MIN(part, room);
            granted += MIN(part, room);
        }
    }
    return granted;
}

/* Grants the credit of a period. What a VM cannot hold goes to the others. */
static void account(struct sched_pool *p) {
    u64 left = PERIOD * cpumask_weight(&p->cpus), granted;

    do {
        granted = grant(p, left);
        left -= granted;
    } while (granted);
}

/* ---- what the core calls ---- */

static void vm_add(struct sched_pool *p, struct sched_vm *d) { vm_of(d)->weight = DEFAULT_WEIGHT; }

static void cpu_add(struct sched_pool *p, u32 cpu) {
    sched_timer_set(cpu, TIMER_TICK, (p->now / TICK + 1) * TICK);
}

/* Begins a new period: all are charged, then credit is granted, then all decide again. */
static void next_period(struct sched_pool *p) {
    cpumask_for_each(cpu, &p->cpus) {
        struct sched_vcpu *current = sched_current_locked(cpu);

        if (current) charge_up_to_now(p, current);
    }
    account(p);
    list_for_each(d, &p->vms, struct sched_vm, in_pool) {
        for_each_vcpu(v, d) vcpu_of(v)->active = sched_runnable(v);
    }
    cpumask_for_each(cpu, &p->cpus) sched_kick(p, cpu);
}

/* A tick of a pCPU. */
static void timer(struct sched_pool *p, u32 cpu, u32 kind) {
    struct sched_vcpu *current = sched_current_locked(cpu);

    sched_timer_set(cpu, TIMER_TICK, p->now + TICK);
    if (current) {
        charge_at_tick(p, current);
        vcpu_of(current)->boosted = false;
    }
    if (cpu != cpumask_next(&p->cpus, 0)) return;
    if (++pool_of(p)->ticks % TICKS_A_PERIOD == 0) next_period(p);
}

/* V waits from now on. A pCPU that it may use decides again if it idles, or if its vCPU is of a
 * lower rank. */
static void offer(struct sched_pool *p, struct sched_vcpu *v) {
    struct cpumask allowed = sched_allowed(p, v);

    cpumask_for_each(cpu, &allowed) {
        struct sched_vcpu *current = sched_current_locked(cpu);

        if (!current || rank_of(current) > rank_of(v)) sched_kick(p, cpu);
    }
}

static void wake(struct sched_pool *p, struct sched_vcpu *v, enum sched_why why) {
    vcpu_of(v)->active = true;
    vcpu_of(v)->waits = p->now;
    vcpu_of(v)->boosted = why == SCHED_WAKE;
    offer(p, v);
}

static bool before(const struct sched_vcpu *a, const struct sched_vcpu *b) {
    if (rank_of(a) != rank_of(b)) return rank_of(a) < rank_of(b);
    return vcpu_of(a)->waits < vcpu_of(b)->waits;
}

static struct sched_pick pick(struct sched_pool *p, u32 cpu, struct sched_vcpu *current) {
    struct sched_vcpu *next = NULL;

    if (current) {
        charge_up_to_now(p, current);
        vcpu_of(current)->waits = p->now;
    }
    list_for_each(d, &p->vms, struct sched_vm, in_pool) {
        for_each_vcpu(v, d) {
            if (!v->queued || !sched_may_run(p, v, cpu)) continue;
            if (!next || before(v, next)) next = v;
        }
    }
    if (!next) return (struct sched_pick){ NULL, SCHED_NEVER };
    sched_move(p, next, cpu);
    charge_begin(p, next);
    return (struct sched_pick){ next, SLICE };
}

static u32 place(struct sched_pool *p, struct sched_vcpu *v) {
    struct cpumask allowed = sched_allowed(p, v);

    return cpumask_cycle(&allowed, v->cpu);
}

static const struct param params[] = {
    { "weight", "", "share relative to other VMs", PARAM_DOM, offsetof(struct simple_vm, weight), 1,
      65535, NULL },
    SCHED_VM_PARAMS,
    SCHED_POOL_PARAMS,
    { 0 },
};

const struct sched_policy simple_policy = {
    .name = "simple",
    .params = params,
    .cpu_add = cpu_add,
    .vm_add = vm_add,
    .wake = wake,
    .pick = pick,
    .place = place,
    .timer = timer,
    .saved = offer,
    .affinity = offer,
};
