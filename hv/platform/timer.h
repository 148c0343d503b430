/* Timers and work items.
 *
 * Each CPU has a queue of timers. Their hardware is the timer of the local APIC, or, while a guest
 * runs under VT-x, the preemption timer.
 *
 * A work item is for what takes longer than an exit handler may take. It consists of short steps,
 * which the housekeeping pCPU runs between guests. */
#ifndef HV_PLATFORM_TIMER_H
#define HV_PLATFORM_TIMER_H

#include "lib/list.h"
#include "lib/timerq.h"

/* Arms `t`: `cpu` will call t->fn at time `when` (ns). If `t` was armed already, the earlier arming
 * is cancelled. Kicks `cpu` if this becomes its next deadline. From any CPU, with any lock held.
 * Two CPUs may call it for the same timer at the same time only if both give the same `cpu`. */
void timer_set(unsigned cpu, struct timer *t, u64 when);
/* Cancels the timer. After it returns, no call of t->fn begins for the earlier arming, but a call
 * that had begun before may still be under way on the CPU where `t` was armed. From any CPU, with
 * any lock held. */
void timer_cancel(struct timer *t);
/* Cancels the timer and waits until no call of t->fn is under way on another CPU. To be used before
 * `t` is freed. The caller must not be t->fn, and must not hold a lock that t->fn takes: it would
 * wait for ever. */
void timer_cancel_wait(struct timer *t);

/* Makes the timer queue of this CPU. Called once on each CPU, before it uses timers. */
void timers_init_cpu(void);
/* Returns this CPU's next deadline in ns; ~0 if there is none. */
u64 timers_next(void);
/* Calls the functions of all timers of this CPU that are due. */
void timers_run(void);
/* Returns for how many ns the next deadline of `cpu` has been in the past; 0 if it is not. */
u64 timers_late(unsigned cpu, u64 now);
/* Sets this CPU's hardware timer to interrupt at `when` (ns); ~0 stops it. Does nothing if it is
 * set to this time already. */
void lapic_timer_arm(u64 when);

/* ---- work items ---- */

#define WORK_CPU 0u /* the housekeeping pCPU */

struct work {
    /* Does one step, of at most about 20,000 instructions. Returns true if it has to be called
     * again. */
    bool (*step)(struct work *w);
    u64 not_before;     /* when the next step may run, in ns; 0: now */
    struct timer timer; /* armed until the next step is due */
    struct list link;   /* then the item is in the list of items that take turns */
};

/* Adds an item: its step is called on WORK_CPU once w->not_before has come. The caller provides `w`
 * and must keep it until a step has returned false. From any pCPU. On WORK_CPU it may also be
 * called for an item that was added before and is not due yet; its new not_before then counts. */
void work_add(struct work *w);

/* Is a step due? For the loop of the housekeeping pCPU, which asks after its timers ran. */
bool work_due(void);
/* Runs one step of the item that has waited longest. Returns false if no step was due. On
 * WORK_CPU. */
bool work_run(void);

#endif
