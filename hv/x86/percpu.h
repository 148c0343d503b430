/* The per-CPU area, reached through GS. Rooms above hang what they need on it by pointer. */
#ifndef HV_X86_PERCPU_H
#define HV_X86_PERCPU_H

#include <takt/types.h>
#include "lib/cpumask.h"

struct sched_vcpu;

struct percpu {
    struct percpu *self; /* first: read with one GS-relative move */
    u32 id;              /* 0 .. nr_cpus - 1, dense */
    u32 apic_id;
    u32 node; /* whose memory is near (mm/frame.h) */
    bool online;
    /* written by interrupt handlers and by other CPUs; read by the CPU's own loop */
    volatile bool need_resched;
    volatile u64 heartbeat; /* TSC of the last pass of the loop; a silent CPU is dumped by NMI */
    void *vm;               /* hv/vcpu's: struct cpu_vm */
    void *virt;             /* the vendor's: VMXON region, host save area */
    void *timers;           /* hv/platform/timer.c's */
    u8 *stack_top;          /* of the one stack */
    u64 guest_tsc, hv_tsc,
        idle_tsc; /* where this CPU's time went: their sum is the time since it came online */
};

extern u32 nr_cpus; /* that answered */
extern struct percpu *percpu_of[TAKT_MAX_CPUS];

static inline struct percpu *this_cpu(void) {
    struct percpu *p;
    __asm__("movq %%gs:0, %0" : "=r"(p));
    return p;
}

#endif
