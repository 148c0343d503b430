/* Trace records, in a ring for each pCPU, and named counters. When a ring is full the new record
 * is lost, and counted; nothing waits. */
#ifndef HV_TRACE_TRACE_H
#define HV_TRACE_TRACE_H

#include <takt/types.h>
#include "lib/cpumask.h"

/* 32 bytes, little-endian. The same bytes go over the wire (docs/trace.md). */
struct trace_record {
    u64 ns;
    u16 event; /* enum trace_event */
    u16 cpu;
    u32 who; /* VM << 16 | vCPU, or TRACE_NOBODY */
    u32 arg[4];
};

#define TRACE_NOBODY 0xffffffffu

/* class << 8 | number. A class is one bit of trace_mask. The comments name the arguments, from
 * arg[0] on. */
enum trace_event {
    TRC_LOST = 0x0001,     /* arg0: how many records were lost before this one */
    TRC_RUNSTATE = 0x0101, /* from, to, ns in `from` (low, high) */
    TRC_SWITCH = 0x0102,   /* previous vCPU, ns it ran, slice in ns (low, high) */
    TRC_WAKE = 0x0103,     /* pCPU chosen */
    TRC_BLOCK = 0x0104,
    TRC_YIELD = 0x0105,
    TRC_BOOST = 0x0106,   /* 1 raised, 0 ended */
    TRC_KICK = 0x0107,    /* pCPU kicked */
    TRC_MIGRATE = 0x0108, /* from, to pCPU */
    TRC_PARK = 0x0109,    /* 1 parked, 0 unparked */
    TRC_ACCOUNT = 0x010a, /* pool, credit to divide (all of it may be handed on), balance */
    TRC_MICRO = 0x010b,   /* vSlicer: LS and NL on its pCPU, a new T_n in ns (low, high) */
    /* shared credit: ns moved to the VM, signed (low, high), in the last two */
    TRC_SHARE = 0x010c,
    TRC_TURBO = 0x010d, /* vTurbo: VM, us on turbo cores, FS^R in ns (low, high) */
    TRC_LABEL = 0x010e, /* VM, 1 I/O-intensive now, 0 no longer, events a second (low, high) */
    TRC_EXIT = 0x0201,  /* reason, rip (low, high), detail */
    TRC_ENTRY = 0x0202,
    TRC_INJECT = 0x0203,      /* vector, type */
    TRC_HYPERCALL = 0x0204,   /* number, first argument, result */
    TRC_EVTCHN_SEND = 0x0301, /* port */
    TRC_EVTCHN_TAKE = 0x0302, /* port, ns since it was sent */
    TRC_SCHED_INPUT = 0x0401, /* see hv/sched/core.h: everything that a replay needs */
    TRC_SCHED_DECISION = 0x0402,
};

#define TRACE_CLASS_SCHED  BIT(1)
#define TRACE_CLASS_EXIT   BIT(2)
#define TRACE_CLASS_EVENT  BIT(3)
#define TRACE_CLASS_REPLAY BIT(4)

/* Returns the name of an event, such as "switch", or "?" if there is no such event. The tools
 * that read traces use the same names (tools/tracestream.py). The text is constant. */
const char *trace_event_name(u16 event);

extern u32 trace_mask; /* 0: tracing is off */

/* Writes a record whatever the mask says. May be called from an NMI, and for another pCPU. */
void trace_write(unsigned cpu, u64 ns, u16 event, u32 who, u32 a, u32 b, u32 c, u32 d);

/* Writes a record if its class is on. */
static inline void trace(unsigned cpu, u64 ns, u16 event, u32 who, u32 a, u32 b, u32 c, u32 d) {
    if (__builtin_expect(trace_mask & (1u << (event >> 8)), 0))
        trace_write(cpu, ns, event, who, a, b, c, d);
}

/* ---- set-up and reading (hv/shell, main.c) ---- */
/* Gives `cpu` a ring with room for `records`, which has to be a power of two. The memory stays
 * the caller's. Until then all records of that pCPU are lost. Returns 0 or -EINVAL. */
int trace_init(unsigned cpu, struct trace_record *ring, u32 records);
/* Copies up to `max` records of `cpu` to `out`, oldest first, and returns how many. Where
 * records were lost there is a TRC_LOST record. There may be only one reader at a time. */
unsigned trace_read(unsigned cpu, struct trace_record *out, unsigned max);
/* Returns how many records were ever lost there. */
u64 trace_lost(unsigned cpu);

/* ---- counters: one file has DEFINE_COUNTER(name); any file may call counter_inc(&name, cpu)
 * ---- */
struct counter {
    const char *name;
    u64 *value; /* one for each pCPU */
};

#define DEFINE_COUNTER(id)                                                                         \
    static u64 id##_values[TAKT_MAX_CPUS];                                                         \
    __attribute__((section("counters"), used)) const struct counter id = { #id, id##_values }

static inline void counter_inc(const struct counter *c, unsigned cpu) { c->value[cpu]++; }

/* The table of all counters, which the linker puts together. It is empty if there are none. */
extern const struct counter __start_counters[] __attribute__((weak)),
    __stop_counters[] __attribute__((weak));

#endif
