/* Stride scheduling. The vCPU with the lowest pass runs next, and its pass grows by the time that
 * it ran, divided by the weight of its VM (C. Waldspurger and W. Weihl, "Stride scheduling",
 * MIT/LCS/TM-528, 1995, section 2):
 *
 *   pass += ran / weight
 *   after a sleep: pass = max(pass, the pass of the vCPU that was picked last)
 *
 * So CPU time is in proportion to weight, with an error of a slice, even if vCPUs come and go. This
 * is the worked example of docs/writing-a-policy.md. It needs no queue, because the core knows
 * which vCPUs wait; each decision looks at all of them. */
#include "sched/policy.h"

#define SLICE (10 * NS_PER_MS)
#define SCALE 256 /* passes are ns at this weight */

struct stride_vcpu {
    u64 pass, since; /* since: when it runs, the time up to which it was charged */
};

/* Returns the pass of the vCPU that was picked last. */
static u64 *last_of(const struct sched_pool *p) { return (void *)p->priv; }
static u32 *weight_of(const struct sched_vm *d) { return (void *)d->priv; }
static struct stride_vcpu *vcpu_of(const struct sched_vcpu *v) { return (void *)v->priv; }

static void vm_add(struct sched_pool *p, struct sched_vm *d) { *weight_of(d) = 256; }

static u64 passes(const struct sched_vcpu *v, u64 ran) { return ran * SCALE / *weight_of(v->vm); }

/* V waits from now on. A pCPU where it may run decides again if it is idle, or if its vCPU is two
 * slices ahead. */
static void offer(struct sched_pool *p, struct sched_vcpu *v) {
    struct cpumask allowed = sched_allowed(p, v);

    cpumask_for_each(cpu, &allowed) {
        struct sched_vcpu *current = sched_current_locked(cpu);

        if (current) {
            u64 ahead = vcpu_of(v)->pass + passes(current, 2 * SLICE);

            if (vcpu_of(current)->pass < ahead) continue;
        }
        sched_kick(p, cpu);
    }
}

static void wake(struct sched_pool *p, struct sched_vcpu *v, enum sched_why why) {
    /* A vCPU that slept must not make up for the time that it slept, so it goes on from where the
     * others are now. */
    vcpu_of(v)->pass = MAX(vcpu_of(v)->pass, *last_of(p));
    offer(p, v);
}

static struct sched_pick pick(struct sched_pool *p, u32 cpu, struct sched_vcpu *current) {
    struct sched_vcpu *next = NULL;

    if (current) vcpu_of(current)->pass += passes(current, p->now - vcpu_of(current)->since);
    list_for_each(d, &p->vms, struct sched_vm, in_pool)
        for_each_vcpu(v, d)
            if (v->queued && sched_may_run(p, v, cpu))
                if (!next || vcpu_of(v)->pass < vcpu_of(next)->pass) next = v;
    if (!next) return (struct sched_pick){ NULL, SCHED_NEVER };
    sched_move(p, next, cpu);
    vcpu_of(next)->since = p->now;
    *last_of(p) = MAX(*last_of(p), vcpu_of(next)->pass);
    return (struct sched_pick){ next, SLICE };
}

static u32 place(struct sched_pool *p, struct sched_vcpu *v) {
    struct cpumask allowed = sched_allowed(p, v);

    return cpumask_cycle(&allowed, v->cpu);
}

static const struct param params[] = {
    { "weight", "", "share relative to other VMs", PARAM_DOM, 0, 1, 65535, NULL },
    SCHED_VM_PARAMS,
    SCHED_POOL_PARAMS,
    { 0 },
};

const struct sched_policy stride_policy = {
    .name = "stride",
    .params = params,
    .vm_add = vm_add,
    .wake = wake,
    .pick = pick,
    .place = place,
    .saved = offer,
    .affinity = offer,
};
