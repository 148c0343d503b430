/* The credit engine's data, for the files that vary it and for tests. docs/scheduler.md has the
 * rules. All of it is under the pool's lock, and every function here is called with that lock
 * held. Credit is in nanoseconds of one pCPU; what Xen calls one credit is 100 us. */
#ifndef HV_SCHED_CREDIT_H
#define HV_SCHED_CREDIT_H

#include "sched/policy.h"

#define CREDIT_XEN_UNIT       100000 /* ns: one credit of Xen */
#define CREDIT_DEFAULT_WEIGHT 256

/* The values of those knobs that are words, in the order of their words. 0 is what the oldest
 * Xen does. */
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
    u32 tslice_us, tick_us, period_us; /* tick, period: 0 means derived from the slice */
    u32 ratelimit_us, ratelimit_exact, migration_delay_us;
    u32 debit, weight_scope, inactive_reset, tickle, activate, demote;
    u32 boost, boost_levels, boost_hold_us, boost_on_migrate, yield_hint, balance, overflow,
        requeue;
    u32 order, slicer, slicer_infer_us, share, aca, aca_shorten;
    u32 credit_unit_us;                            /* 0: credit is counted to the ns */
    u32 turbo_max, turbo_low, turbo_high, auto_io; /* governor.c */
    u32 fault;
};

/* The classes of the engine, best first; a vCPU's class by credit is UNDER or OVER. */
enum credit_class { CLASS_BOOST, CLASS_UNDER, CLASS_OVER, CLASS_NR };

/* The queues of a pCPU, in the order in which they are served: those of the classes, and two for
 * vCPUs with micro-slices, which run before the next vCPU of Q_UNDER (Q_MICRO) or after one of
 * these (Q_LATER, see vslicer.c). UNDER has eight queues, for order = credit: a vCPU that has
 * more of a period's credit left is in an earlier one. */
enum credit_queue { Q_BOOST, Q_MICRO, Q_UNDER, Q_LATER = Q_UNDER + 8, Q_OVER, Q_NR };
/* A bit for each queue that is better than Q_OVER. */
#define QUEUES_AHEAD ((u32)BIT(Q_OVER) - 1)

/* Returns the class of the vCPUs in a queue. All queues between the first and the last hold
 * UNDER. */
static inline enum credit_class class_of_queue(enum credit_queue q) {
    if (q == Q_BOOST) return CLASS_BOOST;
    if (q == Q_OVER) return CLASS_OVER;
    return CLASS_UNDER;
}

struct credit_vcpu {
    struct sched_vcpu *vcpu;
    struct list link; /* in a queue */
    enum credit_class cls;
    enum credit_queue queue; /* the queue that it is in, or was in last */
    bool yielded;
    struct list active; /* in credit_vm.active; empty: it is inactive */
    i64 credit;         /* ns */
    u64 billed;         /* while it runs: the time up to which it has been charged */
    /* ns that it ran and was not charged for, because credit comes in whole units (see `unit`).
     * Below 0 if it was charged for more than it ran. */
    i64 unbilled;
    u64 picked_at; /* while it runs: since when */
    u64 left;      /* ns left of its slice */
    u64 ran_until; /* when it last left a pCPU */
    u32 level;     /* of its boost (boost.c) */
    /* vslicer.c */
    u64 micro;   /* ns left of its time in this T_S */
    u32 round;   /* the T_S of its pCPU that `micro` is for */
    u32 counted; /* 1 + the pCPU in whose counts it is; 0: in none. As what it was counted: */
    u32 counted_weight;
    bool counted_ls;
    u64 key; /* with slicer = edf or frequency: the vCPU with the least goes first */
};

struct credit_vm {
    u32 weight;
    u32 cap;        /* % of one pCPU; 0: none */
    u32 micro_us;   /* the micro-slice that it asks for; 0: none */
    u32 latency_us; /* the latency that its micro-slice shall give it; 0: none */
    u32 share_pct;  /* shared.c: P_i */
    u32 queues;     /* shared.c: V_i; 0: as many as it has active vCPUs */
    u32 io_setting; /* IO_AUTO: the label counts */
    bool io;        /* it counts as I/O-intensive */
    bool kept;      /* aca: it is granted credit whether it runs or not */
    bool saturated; /* by its weight all its active vCPUs could have whole pCPUs */
    u64 given;      /* ns: what it was granted in the last pass */
    u64 need;       /* ns: what it lacked in the last pass (shared.c) */
    i64 moved;      /* ns: how much of `given` came, or (below 0) went, by sharing */
    /* vturbo.c */
    u64 used;        /* ns: all that it was charged */
    u64 used_before; /* ns: `used` at the last exchange */
    /* what it used of the turbo pool in the last period; its cap is for both pools */
    u64 turbo_ns;
    u64 share_ns; /* FS^R, which takes the place of its weight; 0: there is none */
    u32 nr_active;
    u64 counted;        /* what it counts in credit_pool.weight */
    struct list active; /* its active vCPUs */
    struct list link;   /* in credit_pool.active */
};

struct credit_cpu {
    struct list queue[Q_NR];
    u32 queues; /* a bit for each queue that is not empty */
    u32 epoch;  /* credit_pool.epoch when the queue was last sorted */
    bool ticking;
    struct cpumask offers;     /* pCPUs where a vCPU may wait that may use this one */
    struct cpumask offered_to; /* the reverse: pCPUs that, if they are in the pool, know of this */
    /* vslicer.c */
    u32 round;     /* counts T_S: one begins whenever a vCPU without micro-slices runs */
    u32 ls, nl;    /* active vCPUs here with micro-slices, and without */
    u32 nl_weight; /* the largest weight among the latter, each a part of its VM's */
};

/* What a wake earns is decided by a small policy of its own beside the engine (boost.c). Such a
 * function returns the class of a vCPU to which `event` has happened. */
enum boost_event {
    BOOST_WAKE,      /* it was woken or unpaused */
    BOOST_TICK,      /* a tick found it running; it has not been charged yet */
    BOOST_CREDIT,    /* its credit has changed */
    BOOST_SLICE_OVER /* it has run for a whole slice */
};
typedef enum credit_class boost_policy(const struct sched_pool *p, struct credit_vcpu *cv,
                                       enum boost_event event);
extern boost_policy *const boost_policies[]; /* by the value of the knob `boost` */

struct credit_pool {
    struct credit_knobs knob;            /* first, because a preset is copied over it */
    u64 tslice, tick, period, ratelimit; /* ns, derived from the knobs */
    u64 unit;                            /* credit is a multiple of so many ns; 0: of 1 */
    boost_policy *boost;
    u64 this_period; /* ns: the period that runs now; aca_shorten makes it shorter than `period` */
    i64 over_below;  /* a vCPU with less credit is OVER; credit_set_over() */
    u64 heaviest;    /* order = round: the largest part of W that an active vCPU has */
    u32 nr_ls;       /* active vCPUs with micro-slices */

    struct list active; /* VMs with an active vCPU */
    u64 weight;         /* W: their weights, as weight_scope counts */
    i64 balance;        /* the sum of the credit of active vCPUs after the last pass */
    /* counts accounting passes; queues are sorted at the first tick after one */
    u32 epoch;
    u32 master;             /* the pCPU that has the accounting timer */
    bool accounting;        /* that timer is set */
    u32 rotor;              /* where the search for an idle pCPU begins */
    struct cpumask waiting; /* pCPUs with a vCPU in their queue */
    struct cpumask ahead;   /* those of them where the first one may be better than OVER */
    struct cpumask news;    /* pCPUs for which pass_on() may have something to do */
    struct cpumask kicked;  /* idle pCPUs that were kicked and have not decided yet */
};

_Static_assert(offsetof(struct credit_pool, knob) == 0, "presets are copied to the start of priv");
_Static_assert(sizeof(struct credit_pool) <= SCHED_PRIV * 8, "room for private data");
_Static_assert(sizeof(struct credit_cpu) <= SCHED_PRIV * 8, "room for private data");
_Static_assert(sizeof(struct credit_vcpu) <= SCHED_PRIV * 8, "room for private data");

/* These find Credit's own data of a pool, a pCPU, a VM or a vCPU, for which the core keeps room. */
static inline struct credit_pool *credit_pool(const struct sched_pool *p) {
    return (void *)p->priv;
}
static inline struct credit_cpu *credit_cpu(u32 cpu) { return (void *)sched_cpus[cpu]->priv; }
static inline struct credit_vm *credit_vm(const struct sched_vm *d) { return (void *)d->priv; }
static inline struct credit_vcpu *credit_vcpu(const struct sched_vcpu *v) {
    return (void *)v->priv;
}

/* The class of a vCPU that is not boosted, whatever the boost policy. */
static inline enum credit_class credit_class_of(const struct credit_pool *cp,
                                                const struct credit_vcpu *cv) {
    if (cv->credit < cp->over_below) return CLASS_OVER;
    return CLASS_UNDER;
}

/* Returns by how much the ticks of a pCPU are shifted, so that the pCPUs do not all want the pool's
 * lock at once. There are 64 steps in a period; pCPUs of the same step are a part of it apart. */
#define CREDIT_STEPS 64u
static inline u64 credit_shift(u64 period, u32 cpu) {
    return period / CREDIT_STEPS * (cpu % CREDIT_STEPS) +
           period / TAKT_MAX_CPUS * (cpu / CREDIT_STEPS);
}

/* Turn ns into whole units of credit. What is granted is rounded up. */
static inline u64 credit_round_up(const struct credit_pool *cp, u64 ns) {
    if (!cp->unit) return ns;
    return (ns + cp->unit - 1) / cp->unit * cp->unit;
}
static inline u64 credit_cut_off(const struct credit_pool *cp, u64 ns) {
    if (!cp->unit) return ns;
    return ns - ns % cp->unit;
}

/* Returns how much of a period's credit a VM may get at most, because of its cap and of what it
 * used of the turbo pool. ~0 if it has no cap. */
static inline u64 credit_cap(const struct credit_pool *cp, const struct credit_vm *cd) {
    u64 ns = credit_round_up(cp, (cd->cap * cp->period + 99) / 100);

    if (!cd->cap) return ~0ull;
    return ns - MIN(ns, cd->turbo_ns);
}

/* Returns a * b / c rounded up. The result has to fit, and b and c are below 2^32, so that no
 * product overflows. */
static inline u64 credit_part(u64 a, u64 b, u64 c) { return a / c * b + (a % c * b + c - 1) / c; }
/* Returns a * b / c, rounded up to whole units of credit. */
static inline u64 credit_grant(const struct credit_pool *cp, u64 a, u64 b, u64 c) {
    return credit_round_up(cp, credit_part(a, b, c));
}

/* Returns how much more credit the active vCPUs of a VM can hold. */
u64 credit_room(const struct credit_pool *cp, const struct credit_vm *cd);
/* Moves credit between the grants of an accounting pass (shared.c). */
void shared_credit(struct sched_pool *p);

/* Divides CPU time between a regular pool and its turbo pool, once an accounting period
 * (vturbo.c). Both are locked and charged up to now. */
void vturbo_exchange(struct sched_pool *r);
/* Gives the part of a VM in the turbo pool the weight and cap of the part in the regular pool.
 * Both pools are locked. */
void vturbo_copy(const struct sched_vm *regular, struct sched_vm *turbo);
/* Computes W anew. */
void credit_weights_changed(struct sched_pool *p);
/* Decides below which credit a vCPU is OVER. To be called after the pool's order, its pCPUs or
 * the number of vCPUs with micro-slices have changed. */
void credit_set_over(struct sched_pool *p);
/* Do all vCPUs of the pool that can run take turns, each for a slice by its weight and whatever
 * credit it has? Then none waits for more than a slice of each other one. Only with one pCPU:
 * with several, turns on each of them would not be by weight among all. */
static inline bool credit_rounds(const struct sched_pool *p) {
    return credit_pool(p)->knob.order == ORDER_ROUND && p->nr_cpus == 1;
}

/* vslicer.c, for the engine */
#define VSLICER_LEAST_US 50 /* no slice is shorter; the shortest tslice_us is as long */
/* Returns why the micro-slices that VMs of the pool ask for cannot be, a sentence; NULL if they
 * can. */
const char *vslicer_refuses(const struct sched_pool *p);
/* Takes cv out of the counts of the pCPU where it was counted, and, if it is active, into those
 * of the pCPU where it is now. To be called whenever one of these has changed, or what its VM
 * asks for. */
void vslicer_count(struct sched_pool *p, struct credit_vcpu *cv, bool active);
/* Counts all anew: once an accounting period, and when something that is counted has changed for
 * many. */
void vslicer_recount(struct sched_pool *p);
/* Returns how long cv runs if it is picked now (ns). */
u64 vslicer_slice(const struct credit_pool *cp, const struct credit_cpu *cc,
                  const struct credit_vcpu *cv);
/* Returns the queue for cv, which can run and is UNDER. */
enum credit_queue vslicer_queue(struct sched_pool *p, struct credit_vcpu *cv);
/* Returns the length of cv's micro-slice T_m in ns, 0 if it has none. */
u64 vslicer_micro(const struct credit_pool *cp, const struct credit_vcpu *cv);

/* Puts a vCPU among those that are granted credit, or takes it out. The sums that follow from who
 * is among them are kept up to date: the weight of all, and vSlicer's counts. */
void credit_set_active(struct sched_pool *p, struct credit_vcpu *cv, bool active);
/* Is the vCPU among those that are granted credit? */
static inline bool credit_is_active(const struct credit_vcpu *cv) {
    return !list_empty(&cv->active);
}
/* Set the timers of the pool's next accounting pass, and of the next tick of a pCPU. */
void credit_set_accounting(struct sched_pool *p);
void credit_start_tick(struct sched_pool *p, u32 cpu);
/* One accounting pass (credit_account.c). */
void credit_account(struct sched_pool *p);

/* Returns why the pool's knobs do not go together, a sentence (docs/policies.md has the table),
 * or NULL if they do. */
const char *credit_conflict(const struct sched_pool *p);

/* credit_members.c: those hooks of the policy that no decision needs; see struct sched_policy. */
void credit_pool_init(struct sched_pool *p);
void credit_cpu_add(struct sched_pool *p, u32 cpu);
void credit_cpu_remove(struct sched_pool *p, u32 cpu);
void credit_vm_add(struct sched_pool *p, struct sched_vm *d);
void credit_vcpu_add(struct sched_pool *p, struct sched_vcpu *v);
void credit_vcpu_remove(struct sched_pool *p, struct sched_vcpu *v);
int credit_changed(struct sched_pool *p, const struct param *e, const char **why);
void credit_label(struct sched_pool *p, struct sched_vm *d);
bool credit_is_io(const struct sched_vm *d);
void credit_wishes(const struct sched_pool *p, struct sched_wishes *out);
void credit_view(struct sched_pool *p, struct sched_vcpu *v, struct sched_times *out);

extern const struct param credit_params[];
extern const struct sched_preset credit_presets[]; /* the first one is the default */

#endif
