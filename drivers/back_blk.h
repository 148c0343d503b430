/* The back end of a virtio block device: it takes requests from the ring, judges whether they can
 * be done, and has a disk do them. */
#ifndef DRIVERS_BACK_BLK_H
#define DRIVERS_BACK_BLK_H

#include "drivers/back_dev.h"
#include "drivers/collab/monitor.h"
#include "drivers/disk.h"

#define BACK_BLK_BATCH 32 /* requests that may end in one turn, before other devices have theirs */

struct back_blk {
    struct back_dev dev;
    const struct driver_env *env;
    struct vring_back ring;
    struct disk *disk;
    /* disk->depth of them; the list of those that are free */
    struct disk_request *requests, *unused;
    /* how many have begun and not ended; the most there ever were */
    u32 nr, nr_most;
    u32 done;     /* how many have ended in this turn */
    size_t pages; /* that `requests` take */
    u64 reads, writes, flushes, discards, errors, bytes;
    struct monitor *monitor; /* is told of what the disk does; NULL: nobody wants to know */
};

/* Sets the back end up for the device that `info` describes, and fills in what the front end is to
 * see. `disk` stays the caller's, and must live until back_blk_fini(). Returns 0, or -ENOMEM. */
int back_blk_init(struct back_blk *b, const struct driver_env *env, const struct back_calls *calls,
                  const struct takt_back *info, struct disk *disk, struct takt_offer *offer);
void back_blk_fini(struct back_blk *b);
/* Begins to serve. Call it when the driver is there and dev.window is mapped. */
void back_blk_start(struct back_blk *b, const struct takt_front *f);
/* Ends it. Requests that have begun are given up: the driver does not see their end. */
void back_blk_stop(struct back_blk *b);
/* Begins and ends requests. Returns when to call it again (ns): 0 at once, ~0 after the next
 * notification or when the disk has ended something. */
u64 back_blk_serve(struct back_blk *b, u64 now);
/* Shows the driver the requests that have ended. Call it at the end of a round over all devices, so
 * that a round costs one interrupt. */
void back_blk_flush(struct back_blk *b);

#endif
