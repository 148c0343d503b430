/* The driver of a virtio block device (virtio 1.2, 5.2). One context at a time; many requests at once, which
 * may complete in any order. Nothing is shown to the device before virtio_blk_flush_ring(), so that a batch
 * costs one notification. */
#ifndef DRIVERS_VIRTIO_BLK_H
#define DRIVERS_VIRTIO_BLK_H

#include "drivers/virtio_dev.h"

#define VIRTIO_BLK_PARTS 32 /* pieces of memory of a request */

/* The caller's, and the device's as well from submit until `done`: it must lie in memory that the device may
 * reach. */
struct virtio_blk_request {
    enum virtio_blk_type type;
    u64 sector;
    u32 nr; /* parts: IN and OUT; their sum a multiple of VIRTIO_BLK_SECTOR */
    struct {
        void *p;
        u32 len;
    } part[VIRTIO_BLK_PARTS];
    u32 sectors; /* of a DISCARD */
    /* Called from virtio_blk_poll(): 0, -EIO, or -ENOSYS if the device does not know the type. */
    void (*done)(struct virtio_blk_request *q, int error);
    void *arg;
    /* the driver's */
    struct virtio_blk_hdr hdr;
    struct virtio_blk_range range;
    u8 status;
};

struct virtio_blk {
    /* set at start, then constant */
    struct virtio_dev *dev;
    u64 capacity; /* sectors */
    u32 max_parts, max_discard;
    bool read_only, can_flush, can_discard;
    /* the caller's context */
    struct vring_front ring;
    u32 in_flight;
    u64 requests, errors, kicks;
};

/* Brings the device up, with a ring of `size`. Negative errno. */
int virtio_blk_start(struct virtio_blk *b, struct virtio_dev *dev, u32 size);
/* Resets the device; what is in flight ends with -EIO. -ETIMEDOUT: the back end does not let go; nothing was
 * freed. */
int virtio_blk_stop(struct virtio_blk *b);

/* -ENOSPC: the ring is full; -EINVAL: beyond the disk, not whole sectors, too many parts; -ENOSYS: the device
 * did not offer that. A device that cannot flush has nothing to flush: that is -ENOSYS too. */
int virtio_blk_submit(struct virtio_blk *b, struct virtio_blk_request *q);
/* Shows the device what was submitted. True: a notification was due. */
bool virtio_blk_flush_ring(struct virtio_blk *b);
/* Ends what the device is done with: how many requests. */
u32 virtio_blk_poll(struct virtio_blk *b);
/* Asks for an interrupt when the next `n` requests are done (at most all that are in flight). True: they are.
 */
bool virtio_blk_listen(struct virtio_blk *b, u32 n);

#endif
