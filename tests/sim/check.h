/* Checks of the scheduler's books between two events, for every program that has hv/sched and
 * simulates the rest: tests/sim and tests/whole. */
#ifndef TESTS_SIM_CHECK_H
#define TESTS_SIM_CHECK_H

#include "lib/printf.h"

#define MUST(cond, fmt, ...)                                                                       \
    do {                                                                                           \
        if (!(cond)) panic("%s does not hold: " fmt, #cond, ##__VA_ARGS__);                        \
    } while (0)

/* Both panic with a sentence if something is wrong. */

/* What must hold between any two events on a machine with `cpus` pCPUs: a vCPU runs on one pCPU at
 * most, and where it may; the queues hold all that are runnable; and sums agree with what they are
 * sums of. */
void sched_check(u32 cpus);
/* No vCPU waits while a pCPU where it may run is idle. That only holds when no kick is under
 * way. */
void sched_check_work_conserving(void);

#endif
