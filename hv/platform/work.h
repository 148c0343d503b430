/* Work items: what takes longer than an exit handler may is a series of short steps, run on the housekeeping
 * pCPU between guests. */
#ifndef HV_PLATFORM_WORK_H
#define HV_PLATFORM_WORK_H

#include "lib/list.h"

struct work {
    struct list link;
    /* One step, at most some 20,000 instructions. True: call me again. */
    bool (*step)(struct work *w);
    u64 not_before; /* ns; 0: now */
};

void work_add(struct work *w); /* from any pCPU; the caller owns `w` until step returned false */

#endif
