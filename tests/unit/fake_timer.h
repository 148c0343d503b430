/* The timer service in virtual time. */
#ifndef TESTS_FAKE_TIMER_H
#define TESTS_FAKE_TIMER_H

#include "platform/timer.h"

extern u64 fake_now;       /* ns */
extern unsigned fake_sets; /* calls of timer_set */
void fake_timers_reset(void);
void fake_advance(u64 ns); /* moves the clock, calling what falls due at its time */

#endif
