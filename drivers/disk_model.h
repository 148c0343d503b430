/* When a modelled disk is done with its requests: each waits a latency, `depth` of them at the same time,
 * then its data go over one bus of limited bandwidth, in order. So requests end in the order in which they
 * began. */
#ifndef DRIVERS_DISK_MODEL_H
#define DRIVERS_DISK_MODEL_H

#include <takt/types.h>

struct disk_model {
    u64 bandwidth; /* bytes a second; 0: any */
    u64 latency;   /* ns */
    u64 bus_free;  /* when the last one ends */
};

/* A request of `bytes`, at most 2^34, begins at `now`: when it ends. That no more than `depth` have begun is
 * the caller's.
 */
static inline u64 disk_model_begin(struct disk_model *m, u64 now, u64 bytes) {
    m->bus_free = MAX(now + m->latency, m->bus_free);
    if (m->bandwidth) m->bus_free += bytes * NS_PER_S / m->bandwidth;
    return m->bus_free;
}

#endif
