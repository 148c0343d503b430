/* The per-CPU area, reached through GS. Rooms above hang what they need on it by pointer. */
#ifndef HV_X86_PERCPU_H
#define HV_X86_PERCPU_H

#include <takt/types.h>
#include "lib/cpumask.h"

struct sched_vcpu;

struct percpu {
    struct percpu *self; /* at offset 0, so that this_cpu() is one GS-relative move */
    u32 id;              /* from 0 to nr_cpus - 1, without gaps */
    u32 apic_id;
    u32 node; /* the node whose memory is near (mm/frame.h) */
    bool online;
    /* Interrupt handlers and other CPUs write this; the CPU's own loop reads it. */
    volatile bool need_resched;
    /* TSC of the loop's last pass; a CPU that is silent for long is dumped by NMI */
    volatile u64 heartbeat;
    void *vm;      /* hv/vcpu's: struct cpu_vm */
    void *virt;    /* the vendor's: VMXON region, host save area */
    void *timers;  /* hv/platform/timer.c's */
    u8 *stack_top; /* of the one stack */
    u64 guest_tsc, hv_tsc,
        idle_tsc; /* where this CPU's time went: their sum is the time since it came online */
};

_Static_assert(offsetof(struct percpu, self) == 0, "this_cpu() reads GS:0");

extern u32 nr_cpus; /* how many CPUs answered at boot */
extern struct percpu *percpu_of[TAKT_MAX_CPUS];

static inline struct percpu *this_cpu(void) {
    struct percpu *p;
    __asm__("movq %%gs:0, %0" : "=r"(p));
    return p;
}

#endif
