/* Time and timers. Nanoseconds since the guest started, from the TSC. */
#ifndef GUEST_TIME_H
#define GUEST_TIME_H

#include <guest/x86.h>

u64 time_ns(void);
u64 time_of_tsc(u64 tsc); /* a TSC value as nanoseconds of time_ns() */
u64 tsc_of_time(u64 ns);
u64 tsc_khz(void);
void delay_ns(u64 ns); /* busy */

/* A timer belongs to the vCPU that starts it, and only that one may stop it. The function runs in the
 * interrupt handler and may start the timer again. */
struct timer {
    struct timer *next;
    u64 deadline, period;
    void (*fn)(struct timer *t);
    void *arg;
    bool active;
};

void timer_start(struct timer *t, u64 deadline_ns, void (*fn)(struct timer *t), void *arg);
void timer_start_periodic(struct timer *t, u64 first_ns, u64 period_ns, void (*fn)(struct timer *t),
                          void *arg);
void timer_stop(struct timer *t);

void time_init(void);         /* start-up only */
void time_init_cpu(void);     /* on each vCPU; again for who has used the LAPIC timer himself */
void time_arm(u64 not_after); /* the hardware timer for the first of timers and `not_after`, 0: none */

#endif
