/* Recording: with the trace class TRACE_CLASS_REPLAY on, whatever the scheduler is told is written as a trace
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
#ifndef HV_SCHED_RECORD_H
#define HV_SCHED_RECORD_H

#include "sched/core.h"
#include "trace/trace.h"

enum sched_input {
    IN_CPU_ONLINE = 1, /* arg: pCPU */
    IN_POOL_CREATE,    /* small: index in sched_policies[] */
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
};

enum sched_decision {
    DEC_PICK = 1, /* arg: slice; who: TRACE_NOBODY is idle */
    DEC_KICK,     /* arg: pCPU */
    DEC_MOVE,     /* arg: pCPU that it is assigned to */
};

void record_input_slow(struct sched_pool *p, enum sched_input kind, u64 now, u32 who, u32 small, u64 arg);
void record_decision_slow(struct sched_pool *p, enum sched_decision kind, u64 now, u32 who, u64 arg);
void record_restart(void); /* the sequence starts from 0 again: tests */

/* Macros, so that arguments cost nothing while recording is off. */
#define record_input(...)                                                                                    \
    do {                                                                                                     \
        if (__builtin_expect(trace_mask & TRACE_CLASS_REPLAY, 0)) record_input_slow(__VA_ARGS__);            \
    } while (0)
#define record_decision(...)                                                                                 \
    do {                                                                                                     \
        if (__builtin_expect(trace_mask & TRACE_CLASS_REPLAY, 0)) record_decision_slow(__VA_ARGS__);         \
    } while (0)

#endif
