/* What CPU time each vCPU is entitled to: the max-min fair share by its weight, within its demand
 * and its cap. Everything is in integers; a share is in millionths of one pCPU. */
#ifndef HV_SHELL_ENTITLE_H
#define HV_SHELL_ENTITLE_H

#include "lib/cpumask.h"

#define SHARE_ONE 1000000u /* a whole pCPU */

struct claim {
    struct cpumask cpus; /* where the vCPU may run */
    u64 weight;          /* the VM's weight divided among its vCPUs, at least 1, in any unit */
    /* the most that the vCPU can use, by its demand and its cap; up to SHARE_ONE */
    u32 limit;
    u32 share;    /* the result */
    bool settled; /* `share` is final */
};

/* Computes a little of the shares of `n` claims, which begin with `settled` false. Returns false
 * when all shares are final. The result is exact if any two sets of CPUs are the same or have
 * nothing in common. Sets that overlap in part are taken as one set, all of whose CPUs each of the
 * vCPUs may use. */
bool entitle_step(struct claim *claims, u32 n);

#endif
