/* The credit engine's data, for the files that vary it and for tests. Rules: docs/scheduler.md.
 * Everything is under the pool's lock. Credit is in nanoseconds of one pCPU (Xen's credit is 100 us). */
#ifndef HV_SCHED_CREDIT_H
#define HV_SCHED_CREDIT_H

#include "sched/boost.h"
#include "sched/policy.h"

#define CREDIT_XEN_UNIT       100000 /* ns that Xen calls one credit */
#define CREDIT_DEFAULT_WEIGHT 256

enum { DEBIT_TICK, DEBIT_TIME };
enum { SCOPE_DOM, SCOPE_VCPU };
enum { RESET_ZERO, RESET_HALF };
enum { TICKLE_ALL, TICKLE_ONE, TICKLE_SMART };
enum { ACTIVATE_TICK, ACTIVATE_BURN };
enum { DEMOTE_ACCOUNT, DEMOTE_BURN };
enum { BALANCE_EVENTS, BALANCE_FULL };
enum { OVERFLOW_INACTIVE, OVERFLOW_HAND_ON };
enum { REQUEUE_TAIL, REQUEUE_HEAD };
enum { FAULT_NONE, FAULT_IGNORE_WEIGHT };

struct credit_knobs {
    i64 tslice_us, tick_us, period_us; /* tick, period: 0 is derived from the slice */
    i64 ratelimit_us, ratelimit_exact;
    i64 migration_delay_us;
    i64 debit, weight_scope, inactive_reset, tickle, activate, demote;
    i64 boost, boost_on_migrate, yield_hint, balance, overflow, requeue, fault;
};

struct credit_pool {
    struct credit_knobs knob;
    /* derived from the knobs, ns */
    u64 tslice, tick, period, ratelimit, migration_delay;
    const struct boost_policy *boost;

    struct list active;     /* doms with an active vCPU */
    u64 weight;             /* of them, as weight_scope counts */
    i64 balance;            /* sum of the credit of active vCPUs after the last pass */
    u32 epoch;              /* of accounting passes: queues are sorted at the first tick of a new one */
    u32 master;             /* the pCPU of the accounting timer */
    bool accounting;        /* that timer is set */
    u32 rotor;              /* where the search for an idle pCPU starts */
    struct cpumask waiting; /* pCPUs with somebody in their queue */
    struct cpumask kicked;  /* idle pCPUs that were kicked and have not come yet */
};

struct credit_cpu {
    struct list queue[CLASS_NR];
    u32 nr; /* in all three */
    u32 epoch;
    bool ticking;
};

struct credit_dom {
    u32 weight, cap; /* cap: % of one pCPU, 0 none */
    u32 nr_active;
    struct list active; /* its active vCPUs */
    struct list link;   /* in credit_pool.active */
};

struct credit_vcpu {
    struct sched_vcpu *vcpu;
    struct list link; /* in a queue */
    enum credit_class cls;
    bool yielded;
    struct list active; /* in credit_dom.active; empty: inactive */
    i64 credit;
    u64 billed;    /* running: charged up to here */
    u64 picked_at; /* running: since when */
    u64 left;      /* of its slice */
    u64 ran_until; /* last time it left a pCPU */
    u64 used;      /* charged in all */
};

static inline struct credit_dom *credit_dom_of(const struct sched_vcpu *v) { return v->dom->priv; }

/* What a VM counts in W, if it is active. */
static inline u64 credit_weight(const struct credit_pool *cp, const struct credit_dom *cd) {
    u64 w = cp->knob.fault == FAULT_IGNORE_WEIGHT ? CREDIT_DEFAULT_WEIGHT : cd->weight;

    return cp->knob.weight_scope == SCOPE_VCPU ? w * cd->nr_active : w;
}

/* a * b / c rounded up, for a result that fits; b and c are weights (below 2^32). */
static inline u64 credit_share(u64 a, u64 b, u64 c) { return a / c * b + (a % c * b + c - 1) / c; }

extern const struct param credit_params[];
extern const struct sched_preset credit_presets[];
extern const struct credit_knobs credit_defaults;

/* Takes new knobs into use, all derived values at once. -EINVAL and *why, nothing changed, if they do not go
 * together. */
int credit_apply(struct sched_pool *p, const struct credit_knobs *k, const char **why);
/* A weight of a dom in the pool has changed. */
void credit_weights_changed(struct credit_pool *cp);
/* One accounting pass (credit_account.c). */
void credit_account(struct sched_pool *p, u64 now);
void credit_deactivate(struct credit_pool *cp, struct credit_vcpu *cv);

#endif
