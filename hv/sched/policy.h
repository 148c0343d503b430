/* What a scheduling policy is: one const struct sched_policy, in one file that includes this header and
 * nothing of the machine. How to write one: docs/writing-a-policy.md. All hooks run under the pool's lock,
 * with the clock passed in as `now`.
 *
 * A policy keeps the runnable, not running vCPUs of its pool in queues of its own; the core keeps everything
 * else. `pick` returns what is to run.
 */
#ifndef HV_SCHED_POLICY_H
#define HV_SCHED_POLICY_H

#include "sched/params.h"

struct sched_pick {
    struct sched_vcpu *vcpu; /* NULL: nothing, the pCPU idles */
    u64 slice;               /* ns until sched_run is called again; SCHED_NEVER */
};

struct sched_policy {
    const char *name;
    const struct param *params; /* ends with a NULL name */
    u32 nr_params;
    const struct sched_preset *presets; /* ends with a NULL name; may be NULL */

    /* Sizes of the private data, which the core allocates zeroed before it calls the add hooks, so that moves
     * are all or nothing. 0: none. */
    u32 pool_size, cpu_size, dom_size, vcpu_size;

    void (*pool_init)(struct sched_pool *p);
    void (*pool_fini)(struct sched_pool *p);
    void (*cpu_add)(struct sched_pool *p, u32 cpu, u64 now);
    void (*cpu_remove)(struct sched_pool *p, u32 cpu, u64 now); /* its queue is empty by then */
    void (*dom_add)(struct sched_pool *p, struct sched_dom *d);
    void (*dom_remove)(struct sched_pool *p, struct sched_dom *d);
    void (*vcpu_add)(struct sched_pool *p, struct sched_vcpu *v,
                     u64 now); /* blocked; v->cpu is set by place() */
    void (*vcpu_remove)(struct sched_pool *p, struct sched_vcpu *v, u64 now); /* not queued, not running */

    void (*wake)(struct sched_pool *p, struct sched_vcpu *v,
                 u64 now); /* runnable now: queue it, kick whoever should run it */
    void (*sleep)(struct sched_pool *p, struct sched_vcpu *v,
                  u64 now); /* no longer runnable: off the queue if it was on it */
    void (*yield)(struct sched_pool *p, struct sched_vcpu *v, u64 now); /* may be NULL */
    /* Charge `current` (idle: NULL) up to now, put it back if it is still runnable, take and return the next.
     */
    struct sched_pick (*pick)(struct sched_pool *p, u32 cpu, struct sched_vcpu *current, u64 now);
    /* The pCPU for v, within the pool and its affinity (their meeting is not empty). */
    u32 (*place)(struct sched_pool *p, struct sched_vcpu *v);
};

struct sched_preset {
    const char *name;
    const struct {
        const char *param;
        i64 value;
    } * set; /* ends with a NULL param */
};

/* The table of policies: one line each in policies.c. */
extern const struct sched_policy *const sched_policies[]; /* NULL at the end */
extern const struct sched_policy credit_policy, null_policy;

/* ---- the core's services for policies ---- */
void *sched_cpu_priv(const struct sched_pool *p, u32 cpu);                    /* cpu_size bytes */
struct sched_vcpu *sched_current_locked(const struct sched_pool *p, u32 cpu); /* NULL: idle */
void sched_kick(struct sched_pool *p, u32 cpu, u64 now);                      /* that CPU decides anew */
bool sched_may_run(const struct sched_vcpu *v,
                   u32 cpu); /* affinity, pool, and its state is saved or held by `cpu` itself */
/* A timer of the policy: fires `fn` under the pool's lock, recorded as an input. Armed on `cpu`. */
struct sched_timer {
    struct timer t;
    struct sched_pool *pool;
    u32 cpu;
    u32 kind; /* the policy's own number for it, unique in (pool, cpu): names it in recordings */
    void (*fn)(struct sched_timer *t, u64 now);
};
void sched_timer_init(struct sched_timer *t, struct sched_pool *p, u32 cpu, u32 kind,
                      void (*fn)(struct sched_timer *, u64));
void sched_timer_set(struct sched_timer *t, u64 when);
void sched_timer_cancel(struct sched_timer *t);
void sched_move(struct sched_pool *p, struct sched_vcpu *v, u32 cpu,
                u64 now); /* assign a queued vCPU to another CPU, e.g. stolen by it */
void sched_park(struct sched_pool *p, struct sched_vcpu *v, bool parked,
                u64 now); /* keep from running, whatever its state */

#endif
