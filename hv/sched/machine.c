/* What the scheduler needs of the machine, such as the time and timers, in the image. The
 * simulation has the same functions in virtual time, so that the scheduler's sources need not know
 * where they run. */
#include "sched/machine.h"
#include "platform/smp.h"
#include "platform/timer.h"
#include "x86/percpu.h"
#include "x86/tsc.h"

/* Returns the time in ns. */
u64 machine_now(void) { return now_ns(); }

u32 machine_cpu(void) { return this_cpu()->id; }

/* Makes pCPU `cpu` call sched_run() soon. */
void machine_kick(u32 cpu) {
    percpu_of[cpu]->need_resched = true;
    if (cpu != this_cpu()->id) cpu_kick(cpu);
}

/* Has t->fn called on pCPU `cpu` at `when` (ns). */
void machine_timer_set(u32 cpu, struct timer *t, u64 when) { timer_set(cpu, t, when); }

void machine_timer_cancel(struct timer *t) { timer_cancel(t); }
