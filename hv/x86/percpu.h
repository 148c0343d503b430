/* The data that each CPU has for itself, which it reaches by GS. Rooms above this one keep their
 * own data elsewhere, and have a pointer to it here. */
#ifndef HV_X86_PERCPU_H
#define HV_X86_PERCPU_H

#include <takt/types.h>
#include "lib/cpumask.h"

struct sched_vcpu;

struct percpu {
    struct percpu *self; /* at offset 0, so that this_cpu() is one GS-relative move */
    u32 id;              /* from 0 to nr_cpus - 1, without gaps */
    u32 apic_id;
    u32 node; /* the NUMA node of the CPU, whose memory is nearest (mm/frame.h) */
    bool online;
    /* Interrupt handlers and other CPUs set this; the CPU's own loop reads it. */
    volatile bool need_resched;
    /* TSC when the loop last looked around; a CPU that is silent for long is dumped by an NMI */
    volatile u64 heartbeat;
    void *virt;    /* of hv/virt: struct virt_cpu */
    void *timers;  /* of hv/platform/timer.c: struct cpu_timers */
    u8 *stack_top; /* the top of the CPU's stack */
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
