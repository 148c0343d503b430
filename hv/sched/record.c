#include "sched/record.h"
#include "sched/machine.h"

static u32 sequence;

void record_input_slow(struct sched_pool *p, enum sched_input kind, u64 now, u32 who, u32 small, u64 arg) {
    u32 seq = __atomic_add_fetch(&sequence, 1, __ATOMIC_RELAXED), pool = p ? p->id : 0xff;

    if (p) p->sequence = seq;
    trace_write(machine_cpu(), now, TRC_SCHED_INPUT, who, (u32)kind | pool << 8 | small << 16, seq, (u32)arg,
                (u32)(arg >> 32));
}

void record_decision_slow(struct sched_pool *p, enum sched_decision kind, u64 now, u32 who, u64 arg) {
    trace_write(machine_cpu(), now, TRC_SCHED_DECISION, who, (u32)kind | p->id << 8, p->sequence, (u32)arg,
                (u32)(arg >> 32));
}

void record_restart(void) { sequence = 0; }
