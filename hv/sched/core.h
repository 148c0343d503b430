/* Shared by core.c, pool.c, params.c and record.c; nobody else's. */
#ifndef HV_SCHED_CORE_H
#define HV_SCHED_CORE_H

#include "sched/policy.h"

struct policy_timer {
    struct timer t;
    u32 cpu, kind;
    bool armed;
};

struct sched_cpu {
    /* under sched_lock and the pool's lock */
    struct sched_pool *pool; /* NULL: free, and then idle */
    bool online, leaving;    /* leaving: no longer in pool->cpus, but not yet rid of its last vCPU */
    void *priv;
    /* under the pool's lock; `current` is changed by the CPU itself alone */
    struct sched_vcpu *current;
    struct sched_vcpu idle;
    struct timer slice; /* set and run by the CPU itself alone */
    struct policy_timer timer[SCHED_TIMERS];
};

extern struct spinlock sched_lock;
extern struct sched_cpu sched_cpus[TAKT_MAX_CPUS];
extern struct sched_pool sched_pools[SCHED_MAX_POOLS];

struct sched_pool *sched_lock_dom(struct sched_dom *d);
u64 sched_clock(struct sched_pool *p); /* reads the clock; pool locked */
/* Brings v's state and queueing in line with what its flags say. */
void sched_update(struct sched_pool *p, struct sched_vcpu *v, enum sched_why why, u64 now);
void sched_set_state(struct sched_vcpu *v, enum run_state state, u64 now);
/* Finds v a pCPU that it may run on, because it is new or may not stay on v->cpu. Not queued, state saved. */
void sched_place(struct sched_pool *p, struct sched_vcpu *v, u64 now);
/* v may not stay on v->cpu: moves it now or, if its state is on a pCPU, as soon as it is saved. */
void sched_send_away(struct sched_pool *p, struct sched_vcpu *v, u64 now);
const struct sched_policy *sched_policy_find(const char *name);
/* A policy's timer of (cpu, kind) fires; also called by the replay. */
void sched_timer_fire(u32 cpu, u32 kind);

static inline u32 sched_who(const struct sched_vcpu *v) {
    return v->dom ? v->dom->id << 16 | v->id : 0xffff0000u | v->id;
}

#endif
