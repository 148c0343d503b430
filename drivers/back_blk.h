/* The back end of a virtio block device: it takes requests from the ring, judges whether they can
 * be done, and has a disk do them. */
#ifndef DRIVERS_BACK_BLK_H
#define DRIVERS_BACK_BLK_H

#include "drivers/back_dev.h"
#include "drivers/collab/monitor.h"
#include "drivers/disk.h"

#define BACK_BLK_BATCH 32 /* requests that may end in one turn, before other devices get theirs */

struct back_blk {
    struct back_dev dev;
    const struct driver_env *env;
    struct vring_back ring;
    u32 queue;   /* whose ring that is; 0 unless the owner sets it */
    bool polled; /* set by the owner: it calls again and again, and is not to be notified */
    struct disk *disk;
    /* `requests` is an array of disk->depth; `unused` is the list of those that are free. */
    struct disk_request *requests, *unused;
    /* If `ordered`, requests are given back in the order in which they were taken, and `oldest` is
     * the list of those that were not given back. */
    bool ordered;
    struct disk_request *oldest, *youngest;
    bool lost; /* what the driver wrote ended with an earlier back end: all requests fail */
    /* nr: how many have begun and not ended; nr_most: the most that there ever were. */
    u32 nr, nr_most;
    u32 done;     /* how many have ended in this turn */
    size_t pages; /* pages that `requests` takes */
    u64 reads, writes, flushes, discards, errors, bytes;
    struct monitor *monitor; /* it is told what the disk does; NULL: nobody wants to know */
};

/* Sets the back end up for the device that `info` describes, and fills in *offer, which is what the
 * front end will see. `disk` belongs to the caller, and has to live until back_blk_fini(). Returns
 * 0, or -ENOMEM. */
int back_blk_init(struct back_blk *b, const struct driver_env *env, const struct back_calls *calls,
                  const struct takt_back *info, struct disk *disk, struct takt_offer *offer);
/* Frees what back_blk_init() has allocated. Call it after back_blk_stop(). */
void back_blk_fini(struct back_blk *b);
/* Changes the offer of back_blk_init() into that of a device with `nr` queues. Each of them is
 * served by a back end of its own, whose `queue` says which one it is. A driver that does not know
 * several queues uses only number 0. */
void back_blk_offer_queues(struct takt_offer *offer, u32 nr);
/* Begins to serve. Call it when the driver is there and dev.window is mapped. */
void back_blk_start(struct back_blk *b, const struct takt_front *f);
/* Ends it. Requests that have begun are given up: the driver does not see their end. */
void back_blk_stop(struct back_blk *b);
/* Begins requests, and ends those that the disk is done with. Returns the time (ns) at which it
 * wants to be called again: 0 means at once; ~0 means after the next notification, or when the disk
 * has ended a request. */
u64 back_blk_serve(struct back_blk *b, u64 now);
/* Shows the driver the requests that have ended. Call it at the end of a round over all devices, so
 * that a round costs one interrupt. */
void back_blk_flush(struct back_blk *b);

#endif
