/* A model of a disk: it says when requests end. Each request first waits for a latency; `depth`
 * requests do so at the same time. Then its data goes over one bus of limited bandwidth, in order.
 * So requests end in the order in which they began.
 *
 * A disk in memory has a model of its own, or shares a model with disks of other VMs, as virtual
 * disks on one device do (docs/io.md, "A device under several disks"). A shared model takes up to
 * `queue` requests at a time. All times follow from the requests and from the seed. */
#ifndef DRIVERS_DISK_MODEL_H
#define DRIVERS_DISK_MODEL_H

#include "drivers/disk_load.h"
#include "drivers/options.h"

#define DISK_MODEL_DEPTH 32u  /* of a shared model, if the options do not say */
#define DISK_MODEL_QUEUE 128u /* as Linux's nr_requests */
#define DISK_MODEL_MOST  256u /* depth and queue */

struct disk_set;
struct disk_turns;

struct disk_model {
    /* Of the bandwidth 0 means that there is no limit. A disk's own model has no limit of requests
     * either, because the disk itself limits them. */
    struct disk_load load;
    u64 latency;  /* ns */
    u64 bus_free; /* when the last request ends, ns */

    /* For a shared model; 0 in a disk's own model. */
    u32 depth;                      /* requests whose latency runs at the same time */
    u32 vary;                       /* how much the latency varies, up or down, in parts of 2^32 */
    u64 rng;                        /* state of the random numbers for the variation */
    u64 slot_free[DISK_MODEL_MOST]; /* for each of `depth` places, when it is free again, ns */
    u32 slot;                       /* the place that the next request takes */
    struct disk_turns
        *turns;           /* whose request is next (drivers/disk_turns.h); NULL: who comes first */
    struct disk_set *set; /* the devices that it is made of (drivers/disk_set.h); NULL: one */
};

/* The words that describe a shared model: `bw=50M lat=100us depth=8 queue=64 vary=10% seed=7`. bw
 * is in bytes a second. */
extern const struct option_kind disk_model_options[];

/* Makes a model that disks can share. Depth and queue are made at least 1 and at most
 * DISK_MODEL_MOST. */
void disk_model_init(struct disk_model *m, const char *options);

/* Begins a request of `bytes` (at most 2^34) at the time `now`, which must never go back. Returns
 * when the request ends, ns. */
u64 disk_model_begin(struct disk_model *m, u64 now, u64 bytes);

/* The end of one request was taken, or the request is given up. The time that it uses on the bus
 * stays used. */
static inline void disk_model_end(struct disk_model *m) { m->load.in_queue--; }

/* Returns whether another request may begin that belongs to a disk with `own` requests under way. A
 * disk that has none may always begin one, so that no disk starves because others keep the queue
 * full. */
static inline bool disk_model_room(const struct disk_model *m, u32 own) {
    return !m->load.queue || m->load.in_queue < m->load.queue || !own;
}

#endif
