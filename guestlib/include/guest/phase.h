/* When a workload begins. The VMs of a real machine start whenever somebody starts them. If all of
 * them began at the same instant, their periods would keep the same distance to each other and to
 * the scheduler's ticks for the whole run, and a result would hold for that one distance only. So
 * each vCPU of a workload waits before it begins, for a time that follows from the VM's seed
 * (<takt/seed.h>). With phase_us=N on the guest's command line, all its vCPUs wait for N us
 * instead; N may be 0. The simulation includes this header as well. */
#ifndef GUEST_PHASE_H
#define GUEST_PHASE_H

#include <takt/seed.h>

/* The span for a workload that has no period. It is Credit's slice, so that the turns of vCPUs
 * begin in a random order, too. */
#define PHASE_SPAN (30 * NS_PER_MS)

/* Returns the time in ns from the start of the VM to the first period of vCPU `vcpu`. It is below
 * `span`, which is the length of the period. */
static inline u64 phase_of(u64 vm_seed, u32 vcpu, u64 span) {
    return seed_below(seed_of(vm_seed, vcpu), span);
}

#endif
