/* When a modelled disk is done with its requests. Each waits a latency, `depth` of them at the same
 * time, then its data go over one bus of limited bandwidth, in order. So requests end in the order
 * in which they began.
 *
 * A disk in memory has a model of its own, or shares one with disks of other VMs, as virtual disks
 * on one device do (docs/io.md, "A device under several disks"). The shared one takes up to `queue`
 * requests at a time; all times follow from what was begun and from the seed. */
#ifndef DRIVERS_DISK_MODEL_H
#define DRIVERS_DISK_MODEL_H

#include "drivers/options.h"

#define DISK_MODEL_DEPTH 32u  /* of a shared one, if nothing is told */
#define DISK_MODEL_QUEUE 128u /* as Linux's nr_requests */
#define DISK_MODEL_MOST  256u /* depth and queue */

struct disk_model {
    u64 bandwidth; /* bytes a second; 0: any */
    u64 latency;   /* ns */
    u64 bus_free;  /* when the last one ends */

    /* Of a shared one; all 0 in a disk's own, whose `room` sees to the depth. */
    u32 depth;                      /* requests whose latency runs at the same time */
    u32 queue;                      /* requests that may have begun; 0: any number */
    u32 vary;                       /* of the latency, up or down: a part of 2^32 */
    u32 in_queue;                   /* requests that have begun and were not yet taken */
    u64 rng;                        /* of the variation */
    u64 slot_free[DISK_MODEL_MOST]; /* when each of `depth` places is free again */
    u32 slot;                       /* which place the next one takes */
    u64 bytes;                      /* begun so far */
};

/* The words of a shared model: `bw=50M lat=100us depth=8 queue=64 vary=10% seed=7`; bw in bytes a
 * second. */
extern const struct option_kind disk_model_options[];

/* A model to share. Depth and queue are at least 1 and at most DISK_MODEL_MOST. */
void disk_model_init(struct disk_model *m, const char *options);

/* A request of `bytes`, at most 2^34, begins at `now`, which never goes back. Returns when it ends,
 * ns. */
u64 disk_model_begin(struct disk_model *m, u64 now, u64 bytes);

/* One of them was taken, or is given up. The time that it was to use the bus stays used. */
static inline void disk_model_end(struct disk_model *m) { m->in_queue--; }

/* May another request begin that belongs to a disk with `own` of them? A disk that has none always
 * may, so that no disk starves because others keep the queue full. */
static inline bool disk_model_room(const struct disk_model *m, u32 own) {
    return !m->queue || m->in_queue < m->queue || !own;
}

#endif
