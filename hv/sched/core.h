/* Shared by core.c, pool.c, params.c and the replay; nobody else's.
 *
 * Recording: with the trace class TRACE_CLASS_REPLAY on, whatever the scheduler is told is written as a trace
 * record, and whatever it decides, so that the run can be replayed from the same sources on the host
 * (build/sim replay) and must make the same decisions. A recording begins at boot, before the first pool is
 * created: the inputs that set up pools, VMs and parameters are then its first records, and there is no
 * snapshot to take. It is good as long as no record is lost.
 *
 *   TRC_SCHED_INPUT     ns: the clock as the scheduler read it; cpu: the CPU that executed it; who: the vCPU,
 *                       VM << 16, or TRACE_NOBODY; arg0: kind | pool << 8 | small argument << 16;
 *                       arg1: sequence; arg2, arg3: argument (low, high)
 *   TRC_SCHED_DECISION  the same, with the sequence of the input that brought it about
 *
 * The sequence counts all inputs of all pools, in an order in which they can be replayed: it is taken under
 * the pool's lock.
 */
#ifndef HV_SCHED_CORE_H
#define HV_SCHED_CORE_H

#include "sched/policy.h"

enum sched_input {
    IN_CPU_ONLINE = 1, /* arg: pCPU; pool: 0xff */
    IN_POOL_CREATE,    /* small: index in sched_policies[]; arg: seed of random numbers */
    IN_POOL_DESTROY,
    IN_CPU_ADD,    /* arg: pCPU */
    IN_CPU_REMOVE, /* arg: pCPU */
    IN_DOM_INIT,
    IN_DOM_FINI,
    IN_DOM_MOVE,  /* pool: the new one */
    IN_VCPU_INIT, /* arg: affinity */
    IN_VCPU_FINI,
    IN_PAUSE,
    IN_UNPAUSE,
    IN_AFFINITY, /* arg: affinity */
    IN_PARAM,    /* small: index in the policy's table; arg: value */
    IN_PRESET,   /* small: index in the policy's table */
    IN_WAKE,
    IN_BLOCK,
    IN_YIELD,
    IN_RUN,   /* arg: pCPU */
    IN_SAVED, /* arg: pCPU */
    IN_TIMER, /* small: kind; arg: pCPU */
    IN_PAIR,  /* small: from now on, or no more; arg: the turbo pool */
    IN_TURBO, /* who: the VM that gets a turbo part */
    IN_LABEL, /* small: I/O-intensive or not */
};

enum sched_decision {
    DEC_PICK = 1, /* arg: slice; who: TRACE_NOBODY is idle */
    DEC_KICK,     /* arg: pCPU */
    DEC_MOVE,     /* arg: pCPU that it is assigned to */
};

void sched_record(struct sched_pool *p, u16 event, u32 kind, u32 who, u32 small, u64 arg);
/* Macros, so that arguments cost nothing while recording is off. */
#define RECORDING __builtin_expect(trace_mask &TRACE_CLASS_REPLAY, 0)
#define record_input(p, kind, who, small, arg)                                                               \
    (RECORDING ? sched_record(p, TRC_SCHED_INPUT, kind, who, small, arg) : (void)0)
#define record_decision(p, kind, who, arg)                                                                   \
    (RECORDING ? sched_record(p, TRC_SCHED_DECISION, kind, who, 0, arg) : (void)0)

extern struct spinlock sched_lock;
extern struct sched_pool sched_pools[SCHED_MAX_POOLS];

/* Locks the pool that *where, a VM's or a pCPU's, points to, and reads the clock. NULL: there is none. */
struct sched_pool *sched_enter(struct sched_pool *const *where);
/* Brings v's state and queueing in line with what its flags say. */
void sched_update(struct sched_pool *p, struct sched_vcpu *v, enum sched_why why);
/* No longer in the policy's queue, if it was. */
void sched_unqueue(struct sched_pool *p, struct sched_vcpu *v);
/* Finds v a pCPU that it may run on, because it is new or may not stay on v->cpu. Not queued, state saved. */
void sched_place(struct sched_pool *p, struct sched_vcpu *v);
/* monitor.c: p is new; it has a CPU. */
void sched_monitor_init(struct sched_pool *p);
void sched_monitor_start(struct sched_pool *p, u32 cpu);
/* What the monitor does with a VM; also called by the replay. */
void sched_label(struct sched_dom *d, bool io);
/* A policy's timer of (cpu, kind) fires; also called by the replay. */
void sched_timer_fire(u32 cpu, u32 kind);

#endif
