/* What a scheduling policy is: one const struct sched_policy, in one file that includes this header and
 * nothing of the machine. How to write one: docs/writing-a-policy.md. All hooks run under the pool's lock,
 * with the clock passed in as `now`. Those marked "may be NULL" a small policy does without.
 *
 * A policy keeps the runnable, not running vCPUs of its pool in queues of its own; the core keeps everything
 * else. `pick` returns what is to run.
 */
#ifndef HV_SCHED_POLICY_H
#define HV_SCHED_POLICY_H

#include "sched/params.h"
#include "trace/trace.h"

struct sched_pick {
    struct sched_vcpu *vcpu; /* NULL: nothing, the pCPU idles */
    u64 slice;               /* ns until sched_run is called again; SCHED_NEVER */
};

/* Why a vCPU became runnable: it decides what that earns. */
enum sched_why { SCHED_WAKE, SCHED_UNPAUSE, SCHED_UNPARK, SCHED_MIGRATE };

struct sched_policy {
    const char *name;
    const struct param *params;         /* ends with a NULL name; may be NULL */
    const struct sched_preset *presets; /* ends with a NULL name; may be NULL */

    /* Sizes of the private data, which the core allocates zeroed before it calls the add hooks, so that moves
     * are all or nothing. 0: none. */
    u32 pool_size, cpu_size, dom_size, vcpu_size;

    void (*pool_init)(struct sched_pool *p);                    /* may be NULL */
    void (*cpu_add)(struct sched_pool *p, u32 cpu, u64 now);    /* may be NULL */
    void (*cpu_remove)(struct sched_pool *p, u32 cpu, u64 now); /* its queue is empty by then; may be NULL */
    void (*dom_add)(struct sched_pool *p, struct sched_dom *d); /* may be NULL */
    void (*dom_remove)(struct sched_pool *p, struct sched_dom *d);            /* may be NULL */
    void (*vcpu_add)(struct sched_pool *p, struct sched_vcpu *v, u64 now);    /* not queued; after place() */
    void (*vcpu_remove)(struct sched_pool *p, struct sched_vcpu *v, u64 now); /* not queued, not running */

    /* Runnable now, on v->cpu: queue it, kick whoever should run it. */
    void (*wake)(struct sched_pool *p, struct sched_vcpu *v, enum sched_why why, u64 now);
    /* A queued vCPU is no longer runnable, or leaves v->cpu: off the queue. */
    void (*sleep)(struct sched_pool *p, struct sched_vcpu *v, u64 now);
    void (*yield)(struct sched_pool *p, struct sched_vcpu *v, u64 now); /* the current one; may be NULL */
    /* Charge `current` (idle: NULL) up to now, put it back if it is sched_runnable(), take and return the
     * next. Only a current vCPU that is no more than blocked may be kept although it cannot run. */
    struct sched_pick (*pick)(struct sched_pool *p, u32 cpu, struct sched_vcpu *current, u64 now);
    /* The pCPU for v, within p->cpus and its affinity (their meeting is not empty). v is not queued; the core
     * assigns it there. */
    u32 (*place)(struct sched_pool *p, struct sched_vcpu *v);
    /* The state of v is in memory: other pCPUs may take it, if it is queued. May be NULL. */
    void (*saved)(struct sched_pool *p, struct sched_vcpu *v, u64 now);
    /* v->affinity has changed, and v->cpu is still within it. May be NULL. */
    void (*affinity)(struct sched_pool *p, struct sched_vcpu *v, u64 now);
    /* A timer of the policy, set by sched_timer_set, fired. May be NULL. */
    void (*timer)(struct sched_pool *p, u32 cpu, u32 kind, u64 now);
};

struct sched_setting {
    const char *param;
    i64 value;
};

struct sched_preset {
    const char *name;
    const struct sched_setting *set; /* ends with a NULL param */
};

/* The table of policies: one line each in policies.c. */
extern const struct sched_policy *const sched_policies[]; /* NULL at the end */
extern const struct sched_policy credit_policy, null_policy;

/* ---- the core's services for policies ---- */
static inline bool sched_runnable(const struct sched_vcpu *v) {
    return !v->blocked && !v->parked && !v->migrating && v->dom->paused == 0;
}

/* A record of class TRACE_CLASS_SCHED; v may be NULL. sched_trace() costs nothing but a test while that
 * is off. */
void sched_trace_slow(const struct sched_vcpu *v, u64 now, u16 event, u32 a, u32 b, u32 c, u32 d);
#define sched_trace(...)                                                                                     \
    do {                                                                                                     \
        if (__builtin_expect(trace_mask & TRACE_CLASS_SCHED, 0)) sched_trace_slow(__VA_ARGS__);              \
    } while (0)

void *sched_cpu_priv(const struct sched_pool *p, u32 cpu);                    /* cpu_size bytes */
struct sched_vcpu *sched_current_locked(const struct sched_pool *p, u32 cpu); /* NULL: idle */
void sched_kick(struct sched_pool *p, u32 cpu, u64 now);                      /* that CPU decides anew */
/* Within affinity and pool, and its state is saved, or held by `cpu` itself. */
bool sched_may_run(const struct sched_pool *p, const struct sched_vcpu *v, u32 cpu);
/* Assigns a queued vCPU to the pCPU that is about to run it, e.g. because it steals it. The policy has taken
 * it off its queue. */
void sched_move(struct sched_pool *p, struct sched_vcpu *v, u32 cpu, u64 now);
/* A running vCPU had better be elsewhere: it is taken off, placed and woken again (SCHED_MIGRATE). */
void sched_migrate(struct sched_pool *p, struct sched_vcpu *v, u64 now);
/* Keep from running, whatever its state; calls sleep or wake. */
void sched_park(struct sched_pool *p, struct sched_vcpu *v, bool parked, u64 now);

/* Timers of the policy, named by (pCPU, kind); setting one that is set moves it. The core cancels them when
 * the pCPU leaves the pool. */
#define SCHED_TIMERS 4
void sched_timer_set(struct sched_pool *p, u32 cpu, u32 kind, u64 when);
void sched_timer_cancel(struct sched_pool *p, u32 cpu, u32 kind);

#endif
