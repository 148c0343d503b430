/* The credit engine's data, for the files that vary it and for tests. Rules: docs/scheduler.md.
 * Everything is under the pool's lock. Credit is in nanoseconds of one pCPU (Xen's credit is 100 us). */
#ifndef HV_SCHED_CREDIT_H
#define HV_SCHED_CREDIT_H

#include "sched/policy.h"

#define CREDIT_XEN_UNIT       100000 /* ns that Xen calls one credit */
#define CREDIT_DEFAULT_WEIGHT 256

/* The words of the knobs. 0 is what the oldest Xen does. */
enum { DEBIT_TICK, DEBIT_TIME };
enum { SCOPE_DOM, SCOPE_VCPU };
enum { RESET_ZERO, RESET_HALF };
enum { TICKLE_ALL, TICKLE_ONE, TICKLE_SMART };
enum { ACTIVATE_TICK, ACTIVATE_BURN };
enum { DEMOTE_ACCOUNT, DEMOTE_BURN };
enum { BOOST_OFF, BOOST_STOCK, BOOST_AGGRESSIVE, BOOST_ANTICIPATORY };
enum { BALANCE_EVENTS, BALANCE_FULL };
enum { OVERFLOW_INACTIVE, OVERFLOW_HAND_ON };
enum { REQUEUE_TAIL, REQUEUE_HEAD };
enum { ORDER_FIFO, ORDER_CREDIT, ORDER_ROUND };
enum { SLICER_OFF, SLICER_VSLICER, SLICER_EDF, SLICER_FREQUENCY };
enum { SHARE_OFF, SHARE_PRORATA, SHARE_SEQUENTIAL };
enum { IO_AUTO, IO_YES, IO_NO };
enum { FAULT_NONE, FAULT_IGNORE_WEIGHT };

struct credit_knobs {
    u32 tslice_us, tick_us, period_us; /* tick, period: 0 is derived from the slice */
    u32 ratelimit_us, ratelimit_exact, migration_delay_us;
    u32 debit, weight_scope, inactive_reset, tickle, activate, demote;
    u32 boost, boost_levels, boost_hold_us, boost_on_migrate, yield_hint, balance, overflow, requeue;
    u32 order, slicer, slicer_infer_us, share, aca, aca_shorten;
    u32 credit_unit_us;                            /* 0: to the ns */
    u32 turbo_max, turbo_low, turbo_high, auto_io; /* governor.c */
    u32 fault;
};

/* The classes of the engine, best first; a vCPU's class by credit is UNDER or OVER. */
enum credit_class { CLASS_BOOST, CLASS_UNDER, CLASS_OVER, CLASS_NR };

/* The queues of a pCPU in the order in which they are served: the classes, and those with micro-slices, who
 * run before the next vCPU that is UNDER or after one of them (vslicer.c). UNDER has several, for order =
 * credit: who has more of a period's credit left is in an earlier one. */
enum credit_queue { Q_BOOST, Q_MICRO, Q_UNDER, Q_LATER = Q_UNDER + 8, Q_OVER, Q_NR };
#define QUEUES_AHEAD ((u32)BIT(Q_OVER) - 1) /* bits: of those who are better than OVER */

static inline enum credit_class class_of_queue(enum credit_queue q) {
    return q == Q_BOOST ? CLASS_BOOST : q == Q_OVER ? CLASS_OVER : CLASS_UNDER;
}

struct credit_vcpu {
    struct sched_vcpu *vcpu;
    struct list link; /* in a queue */
    enum credit_class cls;
    enum credit_queue queue; /* where it is, or was */
    bool yielded;
    struct list active; /* in credit_dom.active; empty: inactive */
    i64 credit;
    u64 billed;    /* running: charged up to here */
    i64 unbilled;  /* ns that it ran and was not charged for, see `unit`; below 0: it was charged too much */
    u64 picked_at; /* running: since when */
    u64 left;      /* of its slice */
    u64 ran_until; /* last time it left a pCPU */
    u32 level;     /* of BOOST, boost.c */
    /* vslicer.c */
    u64 micro;   /* left of its time in this T_S */
    u32 round;   /* the T_S of its pCPU that this is for */
    u32 counted; /* 1 + the pCPU that counts it, 0 none; as what: */
    u32 counted_weight;
    bool counted_ls;
    u64 key; /* order among those with micro-slices: edf, frequency */
};

struct credit_dom {
    u32 weight, cap;          /* cap: % of one pCPU, 0 none */
    u32 micro_us, latency_us; /* the micro-slice it asks for, or the latency that is to give one; 0 none */
    u32 share_pct, queues;    /* shared.c: P_i; V_i, 0 its active vCPUs */
    u32 io_setting;           /* auto: the label */
    bool io, kept;            /* kept: is granted credit whether it runs or not (aca) */
    bool saturated;           /* its weight entitles all its active vCPUs to whole pCPUs */
    u64 given, need;          /* in the last pass, ns */
    i64 moved;                /* of it by sharing */
    /* vturbo.c, ns */
    u64 used, used_before; /* charged in all, and up to the last exchange */
    u64 turbo_ns;          /* of the turbo pool in the last period: a cap is of both */
    u64 share_ns;          /* FS^R, in place of the weight; 0: none */
    u32 nr_active;
    u64 counted;        /* what it counts in credit_pool.weight */
    struct list active; /* its active vCPUs */
    struct list link;   /* in credit_pool.active */
};

struct credit_cpu {
    struct list queue[Q_NR];
    u32 queues; /* bits: those that are not empty */
    u32 epoch;
    bool ticking;
    /* vslicer.c */
    u32 round;     /* counts T_S, one for each run of somebody without micro-slices */
    u32 ls, nl;    /* active vCPUs here with micro-slices, and without */
    u32 nl_weight; /* the largest of the latter, a vCPU's part of its VM's */
};

/* What a wake-up earns: a small policy of its own beside the engine (boost.c). Says the class of a vCPU to
 * which something has happened. */
enum boost_event {
    BOOST_WAKE,      /* woken, unpaused */
    BOOST_TICK,      /* found running by a tick, before it is charged */
    BOOST_CREDIT,    /* its credit was looked at */
    BOOST_SLICE_OVER /* it ran for a whole slice */
};
typedef enum credit_class boost_policy(const struct sched_pool *p, struct credit_vcpu *cv,
                                       enum boost_event event);
extern boost_policy *const boost_policies[]; /* by the knob */

struct credit_pool {
    struct credit_knobs knob;            /* first: it is what presets set */
    u64 tslice, tick, period, ratelimit; /* derived from the knobs, ns */
    u64 unit;                            /* credit is a multiple of so many ns; 0: of 1 */
    boost_policy *boost;
    u64 this_period; /* the one that runs: aca_shorten */
    i64 over_below;  /* whose credit is less is OVER, credit_set_over() */
    u64 heaviest;    /* order = round: the largest part of W that an active vCPU has */
    u32 nr_ls;       /* active vCPUs with micro-slices */

    struct list active;     /* doms with an active vCPU */
    u64 weight;             /* of them, as weight_scope counts */
    i64 balance;            /* sum of the credit of active vCPUs after the last pass */
    u32 epoch;              /* of accounting passes: queues are sorted at the first tick of a new one */
    u32 master;             /* the pCPU of the accounting timer */
    bool accounting;        /* that timer is set */
    u32 rotor;              /* where the search for an idle pCPU starts */
    struct cpumask waiting; /* pCPUs with somebody in their queue */
    struct cpumask ahead;   /* of these, those with somebody better than OVER */
    struct cpumask kicked;  /* idle pCPUs that were kicked and have not come yet */
};

_Static_assert(sizeof(struct credit_pool) <= SCHED_PRIV * 8, "room for private data");
_Static_assert(sizeof(struct credit_vcpu) <= SCHED_PRIV * 8, "room for private data");

static inline struct credit_pool *credit_pool(const struct sched_pool *p) { return (void *)p->priv; }
static inline struct credit_cpu *credit_cpu(u32 cpu) { return (void *)sched_cpus[cpu].priv; }
static inline struct credit_dom *credit_dom(const struct sched_dom *d) { return (void *)d->priv; }
static inline struct credit_vcpu *credit_vcpu(const struct sched_vcpu *v) { return (void *)v->priv; }

/* The class of a vCPU that is not boosted: every boost policy's, if it was not before. */
static inline enum credit_class credit_class_of(const struct credit_pool *cp, const struct credit_vcpu *cv) {
    return cv->credit < cp->over_below ? CLASS_OVER : CLASS_UNDER;
}

/* ns of credit in whole units: rounded up, as all that is granted is, or cut off. */
static inline u64 credit_round_up(const struct credit_pool *cp, u64 ns) {
    return cp->unit ? (ns + cp->unit - 1) / cp->unit * cp->unit : ns;
}
static inline u64 credit_cut_off(const struct credit_pool *cp, u64 ns) {
    return cp->unit ? ns - ns % cp->unit : ns;
}

/* What its cap leaves a VM of a period's credit. */
static inline u64 credit_cap(const struct credit_pool *cp, const struct credit_dom *cd) {
    u64 ns = credit_round_up(cp, (cd->cap * cp->period + 99) / 100);

    return cd->cap ? ns - MIN(ns, cd->turbo_ns) : ~0ull;
}

/* a * b / c rounded up, for a result that fits; b and c are below 2^32. */
static inline u64 credit_part(u64 a, u64 b, u64 c) { return a / c * b + (a % c * b + c - 1) / c; }
/* The same in whole units of credit. */
static inline u64 credit_grant(const struct credit_pool *cp, u64 a, u64 b, u64 c) {
    return credit_round_up(cp, credit_part(a, b, c));
}

/* How much more the active vCPUs of a VM can hold. */
u64 credit_room(const struct credit_pool *cp, const struct credit_dom *cd);
/* Moves credit between the grants of a pass (shared.c). */
void shared_credit(struct sched_pool *p);

/* A pool's regular and its turbo share are brought together, once an accounting period (vturbo.c). */
void vturbo_exchange(struct sched_pool *r);
/* The turbo part has the weight and the cap of its VM's regular part. Both pools are locked. */
void vturbo_copy(const struct sched_dom *regular, struct sched_dom *turbo);
/* Counts W anew. */
void credit_weights_changed(struct sched_pool *p);
/* Takes into use from which credit on a vCPU is OVER, after the pool's order, pCPUs or
 * micro-slices have changed. */
void credit_set_over(struct sched_pool *p);
/* Do all runnable vCPUs of the pool take turns, each for a slice by its weight, whatever credit
 * they have? So nobody waits for more than a slice of each other one. Only with one pCPU: with
 * more, turns on each of them would not be by weight among all. */
static inline bool credit_rounds(const struct sched_pool *p) {
    return credit_pool(p)->knob.order == ORDER_ROUND && cpumask_weight(&p->cpus) == 1;
}

/* vslicer.c, for the engine */
#define VSLICER_LEAST_US 50 /* no slice is shorter; as long as the shortest tslice_us */
/* Why the micro-slices that are asked for in the pool cannot be, a sentence; NULL: they can. */
const char *vslicer_refuses(const struct sched_pool *p);
void vslicer_count(struct sched_pool *p, struct credit_vcpu *cv, bool active);
void vslicer_recount(struct sched_pool *p);
u64 vslicer_slice(const struct credit_pool *cp, const struct credit_cpu *cc, const struct credit_vcpu *cv);
enum credit_queue vslicer_queue(struct sched_pool *p, struct credit_vcpu *cv);
u64 vslicer_micro(const struct credit_pool *cp, const struct credit_vcpu *cv); /* its T_m, 0 if it has none */

/* Puts a vCPU among those that are granted credit, or takes it out. */
void credit_set_active(struct sched_pool *p, struct credit_vcpu *cv, bool active);
/* One accounting pass (credit_account.c). */
void credit_account(struct sched_pool *p);

/* Why the pool's knobs do not go together, a sentence (docs/policies.md has the table); NULL: they do. */
const char *credit_conflict(const struct sched_pool *p);

extern const struct param credit_params[];
extern const struct sched_preset credit_presets[]; /* the first one is the default */

#endif
