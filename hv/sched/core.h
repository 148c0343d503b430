/* What core.c, pool.c, params.c, monitor.c and the replay (tests/sim) share. Nobody else
 * includes it.
 *
 * Recording: while the trace class TRACE_CLASS_REPLAY is on, everything that the scheduler is
 * told and everything that it decides is written as a trace record. `build/sim replay` tells the
 * same to the same sources on the host, which must then make the same decisions. A recording has
 * to begin at boot, before the first pool is created: so its first records are those that set up
 * pools, VMs and parameters, and no snapshot of them is needed. It is of use as long as no
 * record is lost.
 *
 *   TRC_SCHED_INPUT     ns: the clock as the scheduler read it; cpu: the pCPU that executed it;
 *                       who: the vCPU, VM << 16, or TRACE_NOBODY;
 *                       arg0: kind | pool << 8 | small argument << 16;
 *                       arg1: sequence; arg2, arg3: argument (low half, high half)
 *   TRC_SCHED_DECISION  the same, with the sequence of the input that brought it about
 *
 * The sequence numbers the inputs of all pools, in an order in which they can be replayed. For
 * that it is taken under the pool's lock. */
#ifndef HV_SCHED_CORE_H
#define HV_SCHED_CORE_H

#include "sched/policy.h"

enum sched_input {
    IN_CPU_ONLINE = 1, /* arg: pCPU; pool: 0xff */
    IN_POOL_CREATE,    /* small: index in sched_policies[]; arg: the seed of random numbers */
    IN_POOL_DESTROY,
    IN_CPU_ADD,    /* arg: pCPU */
    IN_CPU_REMOVE, /* arg: pCPU */
    IN_DOM_INIT,
    IN_DOM_FINI,
    IN_DOM_MOVE,  /* pool: the new one */
    IN_VCPU_INIT, /* arg: the first word of the affinity */
    IN_VCPU_FINI,
    IN_PAUSE,
    IN_UNPAUSE,
    IN_AFFINITY, /* arg: the first word of the affinity */
    IN_PARAM,    /* small: index in the policy's table; arg: value */
    IN_PRESET,   /* small: index in the policy's table */
    IN_WAKE,
    IN_BLOCK,
    IN_YIELD,
    IN_RUN,   /* arg: pCPU */
    IN_SAVED, /* arg: pCPU */
    IN_TIMER, /* small: kind; arg: pCPU */
    IN_PAIR,  /* small: 1 if a pair begins, 0 if it ends; arg: the turbo pool */
    IN_TURBO, /* who: the VM that gets a part in the turbo pool */
    IN_LABEL, /* small: 1 if the VM is I/O-intensive */
    /* No input, but a part of the one before it, whose sequence number it has: another word of an
     * affinity. small: which one, from 1; arg: the word. There are as many as the pCPUs fill. */
    IN_WORD,
};

enum sched_decision {
    DEC_PICK = 1, /* arg: slice; who: TRACE_NOBODY if the pCPU idles */
    DEC_KICK,     /* arg: pCPU */
    DEC_MOVE,     /* arg: the pCPU that the vCPU is assigned to */
};

/* Writes one record. The pool's lock is held, except for an input that belongs to no pool. */
void sched_record(struct sched_pool *p, u16 event, u32 kind, u32 who, u32 small, u64 arg);
/* The same, for an input with a set of pCPUs. */
void sched_record_set(struct sched_pool *p, u32 kind, u32 who, const struct cpumask *m);
/* Macros, so that the arguments are not even computed while recording is off. */
#define RECORDING __builtin_expect(trace_mask &TRACE_CLASS_REPLAY, 0)
#define record_input(p, kind, who, small, arg)                                                     \
    do {                                                                                           \
        if (RECORDING) sched_record(p, TRC_SCHED_INPUT, kind, who, small, arg);                    \
    } while (0)
#define record_decision(p, kind, who, arg)                                                         \
    do {                                                                                           \
        if (RECORDING) sched_record(p, TRC_SCHED_DECISION, kind, who, 0, arg);                     \
    } while (0)

extern struct spinlock sched_lock;
extern struct sched_pool sched_pools[SCHED_MAX_POOLS];

/* Locks the pool that *where (the member `pool` of a VM or pCPU) points to, reads the clock into
 * p->now and returns the pool; NULL, with nothing locked, if *where is NULL. */
struct sched_pool *sched_enter(struct sched_pool *const *where);

/* The pool's lock is held when these are called. */

/* Brings the state of v, and whether it is queued, in line with its flags, one of which has
 * changed. */
void sched_update(struct sched_pool *p, struct sched_vcpu *v, enum sched_why why);
/* Takes v off the policy's queue, if it is in one. */
void sched_unqueue(struct sched_pool *p, struct sched_vcpu *v);
/* Assigns v to a pCPU that it may use, because it is new or may not stay on v->cpu. It is not
 * queued, and no pCPU holds its state. */
void sched_place(struct sched_pool *p, struct sched_vcpu *v);
/* Prepares the I/O monitor (monitor.c) for a new pool. */
void sched_monitor_init(struct sched_pool *p);
/* Has the I/O monitor's timer of the pool run on `cpu`, unless it is set. */
void sched_monitor_start(struct sched_pool *p, u32 cpu);

/* These take the pool's lock. The replay calls them, too. */

/* Labels a VM as I/O-intensive, or not. */
void sched_label(struct sched_vm *d, bool io);
/* A policy's timer (cpu, kind) is due. */
void sched_timer_fire(u32 cpu, u32 kind);

#endif
