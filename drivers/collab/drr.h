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

/* Returns the quantum, in bytes, of a VM that has `share` (in units of 1 / COLLAB_ONE) of a device
 * which moves `bw_max` bytes a second (at most 2^34). `interval_ns` is the time between two visits,
 * at most a second. The quantum is never below `most`, the size of the largest request, so that
 * every visit can serve a request and a VM with a share of 0 does not starve. So a VM with a very
 * small share gets more than that. */
static inline u64 drr_quantum(u64 bw_max, u64 share, u64 interval_ns, u64 most) {
    u64 rate = bw_max * (share >> 2) / (COLLAB_ONE >> 2); /* bytes a second */

    return MAX(rate * (interval_ns / NS_PER_US) / (NS_PER_S / NS_PER_US), most);
}

/* Begins a visit of the buffer: its credit grows by the quantum. */
static inline void drr_visit(struct drr *d) { d->credit += d->quantum; }

/* Returns whether the buffer's first request, of `bytes`, may be served. If so, it is paid for from
 * the credit. If not, the credit is kept for the next visit. */
static inline bool drr_serve(struct drr *d, u64 bytes) {
    if (bytes > d->credit) return false;
    d->credit -= bytes;
    return true;
}

/* Notes that the buffer is empty: its credit is lost, because a buffer without requests must not
 * save credit up. */
static inline void drr_empty(struct drr *d) { d->credit = 0; }

/* Computes the quanta of `n` buffers, in bytes: they are in the ratio of the shares, and the
 * smallest one is `most`, the size of the largest request. That is the paper's quantum with the
 * shortest time between two visits at which no quantum has to be raised to the largest request.
 * With a fixed time all of them would be raised, and so be equal, on a slow device. share[i] is
 * from 1 to 2^16, `most` at most 2^32. */
static inline void drr_quanta(const u32 *share, u32 n, u64 most, u64 *quantum) {
    u32 least = ~0u;

    for (u32 i = 0; i < n; i++) least = MIN(least, share[i]);
    for (u32 i = 0; i < n; i++) quantum[i] = most * share[i] / least;
}

#endif
