/* The back end of a virtio block device: takes requests from the ring, judges them, and has a disk do them.
 */
#ifndef DRIVERS_BACK_BLK_H
#define DRIVERS_BACK_BLK_H

#include "drivers/back_dev.h"
#include "drivers/disk.h"

#define BACK_BLK_BATCH 32 /* requests before others have their turn */

struct back_blk {
    struct back_dev dev;
    const struct driver_env *env;
    struct vring_back ring;
    struct disk *disk;
    struct disk_request *requests, *unused; /* disk->depth of them */
    u32 nr, nr_most;                        /* that have begun */
    u32 done;                               /* in this turn */
    size_t pages;
    u64 reads, writes, flushes, discards, errors, bytes;
};

/* `disk` stays the caller's. -ENOMEM. */
int back_blk_init(struct back_blk *b, const struct driver_env *env, const struct back_calls *calls,
                  const struct takt_back *info, struct disk *disk, struct takt_offer *offer);
void back_blk_fini(struct back_blk *b);
/* The driver is there, and dev.window is mapped. */
void back_blk_start(struct back_blk *b, const struct takt_front *f);
/* What has begun does not end any more. */
void back_blk_stop(struct back_blk *b);
/* Begins and ends requests. When to call again: 0 at once, ~0 after the next notification, or when the disk
 * has ended something. */
u64 back_blk_serve(struct back_blk *b, u64 now);
/* The end of a round: shows the driver what has ended. */
void back_blk_flush(struct back_blk *b);

#endif
