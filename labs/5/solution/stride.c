/* Stride scheduling of VMs. Each VM has a pass. The VM with the lowest pass runs next, and its pass
 * grows by the time for which its vCPUs ran, divided by its weight (C. Waldspurger and W. Weihl,
 * "Stride scheduling", MIT/LCS/TM-528, 1995, section 2):
 *
 *   pass += ran / weight
 *   after a sleep: pass = max(pass, the pass of the VM that was picked last)
 *
 * So CPU time is in proportion to weight, and a VM gets no more by having more vCPUs. */
#include "sched/policy.h"

#define SLICE          (10 * NS_PER_MS)
#define DEFAULT_WEIGHT 256

struct stride_pool {
    u64 last; /* the pass of the VM that was picked last */
};

struct stride_vm {
    u32 weight;
    u64 pass; /* in ns at DEFAULT_WEIGHT */
};

struct stride_vcpu {
    u64 since; /* the time up to which its VM was charged for it */
};

static struct stride_pool *pool_of(const struct sched_pool *p) { return (void *)p->priv; }
static struct stride_vm *vm_of(const struct sched_vm *d) { return (void *)d->priv; }
static struct stride_vcpu *vcpu_of(const struct sched_vcpu *v) { return (void *)v->priv; }

static void vm_add(struct sched_pool *p, struct sched_vm *d) { vm_of(d)->weight = DEFAULT_WEIGHT; }

/* Charges the VM of v, which runs, for the time up to now. */
static void charge(struct sched_pool *p, struct sched_vcpu *v) {
    struct stride_vm *d = vm_of(v->vm);

    d->pass += (p->now - vcpu_of(v)->since) * DEFAULT_WEIGHT / d->weight;
    vcpu_of(v)->since = p->now;
}

/* V waits from now on. Each pCPU that v may use decides again if it idles, or if the pass of the VM
 * that it runs is higher than that of v's VM by more than a slice. */
static void offer(struct sched_pool *p, struct sched_vcpu *v) {
    struct cpumask allowed = sched_allowed(p, v);

    cpumask_for_each(cpu, &allowed) {
        struct sched_vcpu *current = sched_current_locked(cpu);

        if (!current || vm_of(current->vm)->pass > vm_of(v->vm)->pass + SLICE) sched_kick(p, cpu);
    }
}

/* V is runnable from now on. If its VM slept until now, the VM must not make up for that time. (If
 * another of its vCPUs was runnable, the VM's pass is not behind, and nothing changes.) */
static void wake(struct sched_pool *p, struct sched_vcpu *v, enum sched_why why) {
    struct stride_vm *d = vm_of(v->vm);

    d->pass = MAX(d->pass, pool_of(p)->last);
    offer(p, v);
}

/* Returns whether a runs before b: of two VMs the one with the lower pass, of two vCPUs of a VM the
 * one that ran longest ago. */
static bool before(const struct sched_vcpu *a, const struct sched_vcpu *b) {
    if (a->vm == b->vm) return vcpu_of(a)->since < vcpu_of(b)->since;
    return vm_of(a->vm)->pass < vm_of(b->vm)->pass;
}

/* Decides what the pCPU runs: of the vCPUs that wait and may run here, the one that is before all
 * others. */
static struct sched_pick pick(struct sched_pool *p, u32 cpu, struct sched_vcpu *current) {
    struct sched_vcpu *next = NULL;

    if (current) charge(p, current);
    list_for_each(d, &p->vms, struct sched_vm, in_pool) {
        for_each_vcpu(v, d) {
            if (!v->queued || !sched_may_run(p, v, cpu)) continue;
            if (!next || before(v, next)) next = v;
        }
    }
    if (!next) return (struct sched_pick){ NULL, SCHED_NEVER };
    sched_move(p, next, cpu);
    vcpu_of(next)->since = p->now;
    pool_of(p)->last = MAX(pool_of(p)->last, vm_of(next->vm)->pass);
    return (struct sched_pick){ next, SLICE };
}

/* Returns a pCPU that v may use. Any of them will do, because each one looks at all vCPUs. */
static u32 place(struct sched_pool *p, struct sched_vcpu *v) {
    struct cpumask allowed = sched_allowed(p, v);

    return cpumask_cycle(&allowed, v->cpu);
}

static const struct param params[] = {
    { "weight", "", "share relative to other VMs", PARAM_DOM, offsetof(struct stride_vm, weight), 1,
      65535, NULL },
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
