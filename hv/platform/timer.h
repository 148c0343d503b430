/* Per-CPU timer queues on the LAPIC timer (or, while a guest runs under VT-x, its preemption timer). */
#ifndef HV_PLATFORM_TIMER_H
#define HV_PLATFORM_TIMER_H

#include "lib/timerq.h"

/* Arms `t` on `cpu` for `when` (ns), moving it if it was armed. From any CPU, but for one timer not from
 * two at a time; kicks `cpu` if its next deadline came closer. */
void timer_set(unsigned cpu, struct timer *t, u64 when);
/* After it returns, fn is not going to be called for the earlier arming, but a call may be under way on the
 * pCPU where it was armed. From any CPU, with any lock held. */
void timer_cancel(struct timer *t);
/* As timer_cancel, and no call is under way any more when it returns: before `t` is freed. Not from fn, nor
 * with a lock that fn takes. */
void timer_cancel_wait(struct timer *t);

void timers_init_cpu(void); /* on each CPU */
u64 timers_next(void);      /* this CPU's next deadline in ns, ~0 if none */
void timers_run(void);      /* calls what is due on this CPU */
void lapic_timer_arm(
    u64 when); /* this CPU's hardware timer, if it is not armed for `when` already; ~0 stops it */

#endif
