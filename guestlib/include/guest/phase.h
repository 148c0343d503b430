/* When a workload begins. VMs of a real machine start whenever somebody starts them. If all began
 * at the same instant, their periods would keep one and the same phase to each other and to the
 * scheduler's ticks for the whole run, and a result would be of that phase alone. So each vCPU of a
 * workload waits before it begins, for a time that follows from the VM's seed (<takt/seed.h>);
 * phase_us=N on the guest's command line gives all its vCPUs N us instead, also 0. The simulation
 * includes this as well. */
#ifndef GUEST_PHASE_H
#define GUEST_PHASE_H

#include <takt/seed.h>

/* For what has no period of its own: Credit's slice, so that turns begin in a random order, too. */
#define PHASE_SPAN (30 * NS_PER_MS)

/* ns from the start of the VM to the first period of vCPU `vcpu`: below `span`, which is the
 * period. */
static inline u64 phase_of(u64 vm_seed, u32 vcpu, u64 span) {
    return seed_below(seed_of(vm_seed, vcpu), span);
}

#endif
