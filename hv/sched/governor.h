/* Pools that get and lose pCPUs and VMs by themselves, by load and label (governor.c). */
#ifndef HV_SCHED_GOVERNOR_H
#define HV_SCHED_GOVERNOR_H

#include <takt/types.h>

/* Looks at the pools, and goes on with a change that is under way. Returns when it wants to be
 * called again (ns); a little later does no harm. It takes pools' locks, so the caller holds
 * none. It must not run on two pCPUs at once, nor while a VM leaves the scheduler: it keeps the
 * id of a VM that it moves. A work item of the housekeeping pCPU, which also makes and destroys
 * VMs, keeps both rules. */
u64 governor_step(u64 now);
/* Forgets what was measured. The simulation calls it when it begins with a new machine. */
void governor_reset(void);

#endif
