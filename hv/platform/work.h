/* Work items: what takes longer than an exit handler may is a series of short steps, run on the housekeeping
 * pCPU between guests. */
#ifndef HV_PLATFORM_WORK_H
#define HV_PLATFORM_WORK_H

#include "lib/list.h"

#define WORK_CPU 0u /* the housekeeping pCPU */

struct work {
    struct list link;
    /* One step, at most some 20,000 instructions. True: call me again. */
    bool (*step)(struct work *w);
    u64 not_before; /* ns; 0: now */
};

void work_add(struct work *w); /* from any pCPU; the caller owns `w` until step returned false */

/* For the loop of the housekeeping pCPU: is a step due? Items that wait for their `not_before` have a timer.
 */
bool work_due(void);
/* Runs one step of the item that waited longest. False if none was due. */
bool work_run(void);

#endif
