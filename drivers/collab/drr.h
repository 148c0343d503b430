/* Deficit round robin by bytes: how one I/O core divides its time among the request buffers of VMs
 * (IOrchestra, Algorithm 3). Visit the buffers that are not empty in turn:
 *
 *   drr_visit(d);
 *   while (there is a first request && drr_serve(d, its size)) do it;
 *   if (there is none) drr_empty(d);
 *
 * The paper's quantum, BW_max * S_SKT, is bytes a second while credit is bytes, so it is multiplied
 * by the time between two visits. */
#ifndef DRIVERS_COLLAB_DRR_H
#define DRIVERS_COLLAB_DRR_H

#include "drivers/collab/divide.h"

#define DRR_INTERVAL_NS NS_PER_MS /* between two visits of a buffer */

struct drr {
    u64 quantum; /* bytes a visit */
    u64 credit;  /* bytes; below quantum + the largest request after each visit */
};

/* The quantum of a VM with `share` (of COLLAB_ONE) of a device that does `bw_max` bytes a second,
 * at most 2^34. It is never below `most`, the largest request, so that every visit can serve one
 * and a VM with a share of 0 does not starve. Shares that are smaller than that get more than
 * theirs. `interval_ns` is at most a second. */
static inline u64 drr_quantum(u64 bw_max, u64 share, u64 interval_ns, u64 most) {
    u64 rate = bw_max * (share >> 2) / (COLLAB_ONE >> 2); /* bytes a second */

    return MAX(rate * (interval_ns / NS_PER_US) / (NS_PER_S / NS_PER_US), most);
}

static inline void drr_visit(struct drr *d) { d->credit += d->quantum; }

/* May the first request, of `bytes`, be served? Then it is paid for. If not, the credit is kept
 * for the next visit. */
static inline bool drr_serve(struct drr *d, u64 bytes) {
    if (bytes > d->credit) return false;
    d->credit -= bytes;
    return true;
}

/* An empty buffer saves nothing up. */
static inline void drr_empty(struct drr *d) { d->credit = 0; }

/* Quanta in the ratio of the shares, the least of which is the largest request (`most`). That is
 * the paper's quantum with the shortest time between two visits at which none has to be raised to
 * the largest request. With a fixed time all of them would be raised, and so be equal, on a slow
 * device. share[i] is from 1 to 2^16, `most` at most 2^32. */
static inline void drr_quanta(const u32 *share, u32 n, u64 most, u64 *quantum) {
    u32 least = ~0u;

    for (u32 i = 0; i < n; i++) least = MIN(least, share[i]);
    for (u32 i = 0; i < n; i++) quantum[i] = most * share[i] / least;
}

#endif
