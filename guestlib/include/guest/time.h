/* Time and timers. Times are nanoseconds since the guest started, from the TSC. */
#ifndef GUEST_TIME_H
#define GUEST_TIME_H

#include <guest/x86.h>

/* The time now. */
u64 time_ns(void);
/* Convert a value of the TSC to a time, and a time to a value of the TSC. */
u64 time_of_tsc(u64 tsc);
u64 tsc_of_time(u64 ns);
u64 tsc_khz(void);
/* Computes for so many ns, without sleeping. */
void delay_ns(u64 ns);

/* A timer belongs to the vCPU that starts it, and only that vCPU may stop it. `fn` runs in an
 * interrupt handler and may start the timer again. */
struct timer {
    struct timer *next;
    u64 deadline, period; /* ns; a period of 0 means that the timer fires once */
    void (*fn)(struct timer *t);
    void *arg;
    bool active;
};

/* Start and stop timers of the calling vCPU. At deadline_ns, in time_ns(), t->fn is called in the
 * timer's interrupt of this vCPU, once or then again after each period_ns. *t is the caller's and
 * must live until it has fired or was stopped. A timer that runs is stopped before it is started
 * anew. These functions may be called in any context, also from t->fn. */
void timer_start(struct timer *t, u64 deadline_ns, void (*fn)(struct timer *t), void *arg);
void timer_start_periodic(struct timer *t, u64 first_ns, u64 period_ns, void (*fn)(struct timer *t),
                          void *arg);
void timer_stop(struct timer *t);

/* For the start of the guest. */
void time_init(void);
/* Sets up the hardware timer of the calling vCPU, at its start, and again after a guest has used
 * the LAPIC's timer itself. */
void time_init_cpu(void);
/* Arms the hardware timer for the earlier of the first timer and the time not_after (0: only the
 * first timer). */
void time_arm(u64 not_after);

#endif
