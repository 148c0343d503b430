/* What each vCPU is entitled to: max-min by weight, within its demand and cap. Integers only; a share is in
 * parts per million of one pCPU. */
#ifndef HV_SHELL_ENTITLE_H
#define HV_SHELL_ENTITLE_H

#include "lib/cpumask.h"

#define SHARE_ONE 1000000u /* a whole pCPU */

struct claim {
    struct cpumask cpus; /* where it may run; changed by entitle_step */
    u64 weight;          /* at least 1; of the vCPU: its VM's over the number of its vCPUs, in any unit */
    u32 limit;           /* what it can use at most: demand and cap, at most SHARE_ONE */
    u32 share;           /* the result */
    bool settled;
};

/* Computes a little; false when all shares are there. Begin with `settled` false in all claims. Exact if any
 * two sets of CPUs are the same or have nothing in common; sets that overlap in part are taken as one, in
 * which everybody may run everywhere. */
bool entitle_step(struct claim *claims, u32 n);

#endif
