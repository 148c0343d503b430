/* Per-CPU timer queues on the LAPIC timer (or, while a guest runs under VT-x, its preemption
 * timer); and work items: what takes longer than an exit handler may is a series of short steps,
 * run on the housekeeping pCPU between guests. */
#ifndef HV_PLATFORM_TIMER_H
#define HV_PLATFORM_TIMER_H

#include "lib/list.h"
#include "lib/timerq.h"

/* Arms `t` on `cpu` for `when` (ns), moving it if it was armed. From any CPU; from two at a time
 * only if both mean the same `cpu`. Kicks `cpu` if its next deadline came closer. */
void timer_set(unsigned cpu, struct timer *t, u64 when);
/* After it returns, fn is not going to be called for the earlier arming, but a call may be under
 * way on the pCPU where it was armed. From any CPU, with any lock held. */
void timer_cancel(struct timer *t);
/* As timer_cancel, and no call is under way any more when it returns: before `t` is freed. Not
 * from fn, nor with a lock that fn takes. */
void timer_cancel_wait(struct timer *t);

void timers_init_cpu(void); /* on each CPU */
u64 timers_next(void);      /* this CPU's next deadline in ns, ~0 if none */
void timers_run(void);      /* calls what is due on this CPU */
/* How long the next deadline of `cpu` is over, in ns; 0: it is not. */
u64 timers_late(unsigned cpu, u64 now);
/* This CPU's hardware timer, if it is not armed for `when` already; ~0 stops it. */
void lapic_timer_arm(u64 when);

/* ---- work items ---- */

#define WORK_CPU 0u /* the housekeeping pCPU */

struct work {
    /* One step, at most some 20,000 instructions. True: call me again. */
    bool (*step)(struct work *w);
    u64 not_before;     /* ns; 0: now */
    struct timer timer; /* until it is due; then it is in the list of those that take turns */
    struct list link;
};

/* From any pCPU; the caller owns `w` until step returned false. On WORK_CPU also for an item
 * whose time has not come: it is due at not_before as it is now. */
void work_add(struct work *w);

/* For the loop of the housekeeping pCPU, after its timers ran: is a step due? */
bool work_due(void);
/* Runs one step of the item that waited longest. False if none was due. */
bool work_run(void);

#endif
