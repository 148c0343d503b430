/* What the scheduler needs of the machine: five functions. The image has them in machine.c, on
 * top of hv/platform; the simulation and the unit tests have their own. hv/sched sees nothing
 * else of the machine. */
#ifndef HV_SCHED_MACHINE_H
#define HV_SCHED_MACHINE_H

#include "lib/timerq.h"

/* Returns the time in ns. It may lag a little behind what another pCPU reads; the core makes
 * sure that the time of a pool never goes back. */
u64 machine_now(void);
/* Returns the number of the pCPU that executes the call. */
u32 machine_cpu(void);
/* Makes that pCPU call sched_run() soon. A pCPU may kick itself, also from within sched_run()
 * and sched_saved(); it then calls sched_run() before it next runs a guest or halts. Several
 * kicks before that call count as one. */
void machine_kick(u32 cpu);
/* Has t->fn called on that pCPU at `when` (ns), or at once if that is over. Moves a timer that
 * is set. */
void machine_timer_set(u32 cpu, struct timer *t, u64 when);
/* Does nothing if the timer is not set. */
void machine_timer_cancel(struct timer *t);

#endif
