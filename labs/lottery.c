/* Lottery scheduling. At each decision the winner is drawn at random among the vCPUs that wait.
 * Each of them has as many tickets as its VM has weight (C. Waldspurger and W. Weihl, "Lottery
 * Scheduling: Flexible Proportional-Share Resource Management", OSDI 1994, section 2):
 *
 *   chance of v = tickets of v / tickets of all that wait
 *
 * So shares follow the weights on average only. Of n draws, a VM with chance q wins n q, with a
 * standard deviation of sqrt(n q (1 - q)). This policy shows where a policy gets random numbers:
 * from sched_random_below(). A run then depends on the seed of the VM file, and a replay draws the
 * same winners again. */
#include "sched/policy.h"

#define SLICE (10 * NS_PER_MS)

static u32 *weight_of(const struct sched_vm *d) { return (void *)d->priv; }

/* A VM has the usual weight until it is set. */
static void vm_add(struct sched_pool *p, struct sched_vm *d) { *weight_of(d) = 256; }

/* V waits from now on: an idle pCPU may take it. A vCPU that runs is left alone until its slice is
 * over. */
static void offer(struct sched_pool *p, struct sched_vcpu *v) {
    struct cpumask allowed = sched_allowed(p, v);

    cpumask_for_each(cpu, &allowed) {
        if (!sched_current_locked(cpu)) sched_kick(p, cpu);
    }
}

/* A vCPU that wakes waits like any other; its chance does not depend on how long it slept. */
static void wake(struct sched_pool *p, struct sched_vcpu *v, enum sched_why why) { offer(p, v); }

/* Goes through the vCPUs that wait and may run here, and subtracts the tickets of each from
 * `ticket`. Returns the vCPU at which nothing is left, or NULL. *tickets is how many tickets all of
 * them have. */
static struct sched_vcpu *holder(struct sched_pool *p, u32 cpu, u64 ticket, u64 *tickets) {
    *tickets = 0;
    list_for_each(d, &p->vms, struct sched_vm, in_pool)
        for_each_vcpu(v, d) {
            if (!v->queued || !sched_may_run(p, v, cpu)) continue;
            *tickets += *weight_of(d);
            if (*tickets > ticket) return v;
        }
    return NULL;
}

/* Draws the winner: counts all tickets first, then draws one of them, and looks whose it is. */
static struct sched_pick pick(struct sched_pool *p, u32 cpu, struct sched_vcpu *current) {
    struct sched_vcpu *next;
    u64 tickets;

    holder(p, cpu, ~0ull, &tickets);
    if (!tickets) return (struct sched_pick){ NULL, SCHED_NEVER };
    next = holder(p, cpu, sched_random_below(p, tickets), &tickets);
    sched_move(p, next, cpu);
    return (struct sched_pick){ next, SLICE };
}

/* Every pCPU looks at all vCPUs, so any pCPU that the vCPU may use is right. */
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

const struct sched_policy lottery_policy = {
    .name = "lottery",
    .params = params,
    .vm_add = vm_add,
    .wake = wake,
    .pick = pick,
    .place = place,
    .saved = offer,
    .affinity = offer,
};
