/* Work items: what takes longer than an exit handler may is a series of short steps, run on the housekeeping
 * pCPU between guests. */
#ifndef HV_PLATFORM_WORK_H
#define HV_PLATFORM_WORK_H

#include "lib/list.h"
#include "lib/timerq.h"

#define WORK_CPU 0u /* the housekeeping pCPU */

struct work {
    /* One step, at most some 20,000 instructions. True: call me again. */
    bool (*step)(struct work *w);
    u64 not_before;     /* ns; 0: now */
    struct timer timer; /* until it is due; then it is in the list of those that take turns */
    struct list link;
};

void work_add(struct work *w); /* from any pCPU; the caller owns `w` until step returned false */

/* For the loop of the housekeeping pCPU, after its timers ran: is a step due? */
bool work_due(void);
/* Runs one step of the item that waited longest. False if none was due. */
bool work_run(void);

#endif
