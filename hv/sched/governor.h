/* Pools that change by themselves (governor.c). */
#ifndef HV_SCHED_GOVERNOR_H
#define HV_SCHED_GOVERNOR_H

#include <takt/types.h>

/* To be called again at the time that it returns, or a little later; never by two at a time, nor while a VM
 * leaves the scheduler: by a work item of the housekeeping pCPU, which makes and destroys VMs as well. */
u64 governor_step(u64 now);
void governor_reset(void); /* forgets what was: a new machine, for the simulation */

#endif
