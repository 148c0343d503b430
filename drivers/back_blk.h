/* The back end of a virtio block device: a disk in memory, as fast as a model says. */
#ifndef DRIVERS_BACK_BLK_H
#define DRIVERS_BACK_BLK_H

#include "drivers/back_dev.h"
#include "drivers/disk_model.h"
#include "drivers/options.h"
#include "drivers/virtio.h"

#define BACK_BLK_SIZE  (1024 * 1024)
#define BACK_BLK_DEPTH 32
#define BACK_BLK_MOST  128 /* depth */
#define BACK_BLK_BATCH 32  /* requests before others have their turn */

/* One that the disk works at. */
struct back_blk_request {
    u64 due;
    struct virtio_blk_hdr hdr;
    struct vring_chain c;
};

struct back_blk {
    struct back_dev dev;
    const struct driver_env *env;
    struct vring_back ring;
    u8 *data; /* the disk */
    u64 sectors;
    struct disk_model model;
    /* a ring of those that have begun */
    struct back_blk_request *pending;
    u32 depth, first, nr, nr_most;
    size_t pages;
    u64 reads, writes, flushes, discards, errors, bytes;
};

/* What the words behind the back end's name may be: `size=16M bw=100M lat=100us depth=32`; bw in bytes a
 * second. */
extern const struct option_kind back_blk_options[];

/* Bytes that the disk has, by its options. */
u64 back_blk_bytes(const struct takt_back *info);
/* `data` is the disk, of that size; it stays the caller's. -ENOMEM. */
int back_blk_init(struct back_blk *b, const struct driver_env *env, const struct back_calls *calls,
                  const struct takt_back *info, u8 *data, struct takt_offer *offer);
void back_blk_fini(struct back_blk *b);
/* The driver is there, and dev.window is mapped. */
void back_blk_start(struct back_blk *b, const struct takt_front *f);
/* What has begun does not end any more. */
void back_blk_stop(struct back_blk *b);
/* Begins and ends requests. When to call again: 0 at once, ~0 after the next notification. */
u64 back_blk_serve(struct back_blk *b, u64 now);
/* The end of a round: shows the driver what has ended. */
void back_blk_flush(struct back_blk *b);

#endif
