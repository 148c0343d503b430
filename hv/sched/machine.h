/* What the scheduler needs of the machine: five functions, defined for the image in machine.c (on
 * hv/platform) and for the host in tests/sim. Nothing else of the machine is visible to
 * hv/sched. */
#ifndef HV_SCHED_MACHINE_H
#define HV_SCHED_MACHINE_H

#include "lib/timerq.h"

u64 machine_now(void); /* ns; may lag a little behind another CPU's, the core evens that out */
u32 machine_cpu(void); /* the CPU that executes this */
/* That pCPU calls sched_run() soon. A pCPU that kicks itself, also from within sched_run() and
 * sched_saved(), calls sched_run() before it next runs a guest or halts. Several kicks before that
 * call count as one. */
void machine_kick(u32 cpu);
void machine_timer_set(u32 cpu, struct timer *t, u64 when);
void machine_timer_cancel(struct timer *t);

#endif
