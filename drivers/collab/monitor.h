/* Measures what a disk, or a device under several disks, did in the last period (IOrchestra,
 * section 3.1: the monitoring module). The back end says when each request begins and ends; the
 * manager ends the period and publishes the result (docs/collab.md).
 *
 * A request's latency is the time from when the back end takes it from the ring until the disk has
 * done it. The time that it waited in the ring is not known here. */
#ifndef DRIVERS_COLLAB_MONITOR_H
#define DRIVERS_COLLAB_MONITOR_H

#include "common/hist.h"
#include "drivers/lock.h"

/* Kinds of requests. Flushes and discards are counted as others: they move no data. */
enum monitor_kind { MONITOR_READ, MONITOR_WRITE, MONITOR_OTHER, MONITOR_KINDS };

/* What is counted in one period. */
struct monitor_counts {
    u64 began; /* ns */
    u64 busy;  /* ns in which any request was under way */
    u64 queue; /* the integral of `under_way` over time, in requests * ns */
    u64 requests[MONITOR_KINDS], bytes[MONITOR_KINDS];
    struct hist latency;
};

struct monitor {
    struct monitor *device;  /* what happens here is counted there as well; NULL: nowhere */
    bool shared;             /* several vCPUs tell it what happens */
    struct driver_lock lock; /* if so, it guards all that follows */
    u32 under_way;           /* requests that have begun and not ended */
    u64 at;                  /* when that number last changed, or the period began, ns */
    struct monitor_counts of_period;
    /* since the beginning */
    u64 written; /* bytes */
    u64 in_use;  /* ns in which any request was under way */
};

/* The numbers of one period. */
struct monitor_period {
    u64 ns;                                      /* how long it was */
    u64 requests[MONITOR_KINDS];                 /* that have ended in it */
    u64 bytes_per_s[MONITOR_KINDS];              /* of those */
    u64 latency_mean, latency_p99, latency_p999; /* of those, ns; 0: there were none */
    u32 depth_milli;                             /* requests under way on average, in 1/1000 */
    u32 busy_permille;                           /* of the time, any request was under way */
};

/* Sets the monitor up; its first period begins at `now`. What it counts is also counted in
 * `device`, unless that is NULL; if `device` is shared, so is *m. The times of later calls must not
 * go back. Only those of a shared monitor may be a little out of order. */
void monitor_init(struct monitor *m, struct monitor *device, u64 now);
/* Notes that a request begins. */
void monitor_begin(struct monitor *m, u64 now);
/* Notes that a request which began at `begun` has ended. It has moved `bytes`. */
void monitor_end(struct monitor *m, enum monitor_kind kind, u64 bytes, u64 begun, u64 now);
/* Notes that the `nr` requests of this monitor that are under way were given up. They count as not
 * done. */
void monitor_give_up(struct monitor *m, u32 nr, u64 now);
/* Returns for how long any request was under way since the beginning, ns. */
u64 monitor_in_use(struct monitor *m, u64 now);
/* Ends the period, stores its figures in *p, and begins the next period. */
void monitor_cut(struct monitor *m, u64 now, struct monitor_period *p);

/* Returns whether there was any request since the period began. */
static inline bool monitor_is_used(const struct monitor *m) {
    return m->under_way || m->of_period.busy || m->of_period.latency.count;
}

#endif
