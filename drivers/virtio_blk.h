/* The driver of a virtio block device (virtio 1.2, 5.2). One caller at a time. Many requests may be
 * under way, and complete in any order. The device sees nothing before virtio_blk_flush_ring(), so
 * that a batch costs one notification. */
#ifndef DRIVERS_VIRTIO_BLK_H
#define DRIVERS_VIRTIO_BLK_H

#include "drivers/virtio_dev.h"

#define VIRTIO_BLK_PARTS 32 /* the most pieces of memory of a request */

/* A request. It is the caller's, but must not be touched from virtio_blk_submit() until `done`. It
 * must lie in memory that the device can reach. */
struct virtio_blk_request {
    enum virtio_blk_type type;
    u64 sector;
    u32 nr; /* parts of IN and OUT; their lengths together are a multiple of VIRTIO_BLK_SECTOR */
    struct {
        void *p;
        u32 len;
    } part[VIRTIO_BLK_PARTS];
    u32 sectors; /* of a DISCARD */
    /* Called from virtio_blk_poll() with 0, with -EIO, or with -ENOSYS if the device does not know
     * the type. */
    void (*done)(struct virtio_blk_request *q, int error);
    void *arg; /* for the caller's own use */
    /* for the driver's own use */
    struct virtio_blk_hdr hdr;
    struct virtio_blk_range range;
    u8 status;
};

struct virtio_blk {
    /* set at start, then constant */
    struct virtio_dev *dev;
    u32 queue;    /* whose ring `ring` is */
    u64 capacity; /* sectors */
    u32 max_parts, max_discard;
    bool read_only, can_flush, can_discard;
    /* changed by the calls below */
    struct vring_front ring;
    u32 in_flight; /* requests that are under way */
    u64 requests, errors, kicks;
};

/* Brings the device up, with a ring of `size` descriptors. Returns 0, or an error of virtio_begin()
 * or virtio_queue(). */
int virtio_blk_start(struct virtio_blk *b, struct virtio_dev *dev, u32 size);
/* The same with several queues, as many as the device has, but at most `most` (1 or more): b[0],
 * b[1] and so on become one each. Each of them may have a caller of its own. Returns how many there
 * are, or an error. */
int virtio_blk_start_queues(struct virtio_blk *b, u32 most, struct virtio_dev *dev, u32 size);
/* Resets the device; requests that are under way end with -EIO. Returns 0, or -ETIMEDOUT if the
 * back end does not release the memory: nothing was freed then. */
int virtio_blk_stop(struct virtio_blk *b);
/* The same for the `nr` queues of a device. Nobody may call one of them meanwhile. */
int virtio_blk_stop_queues(struct virtio_blk *b, u32 nr);

/* Submits a request. Returns 0, or
 *   -ENOSPC  the ring is full
 *   -EINVAL  the request goes beyond the disk, is not of whole sectors, or has too many parts
 *   -ENOSYS  the device did not offer such requests; one that did not offer FLUSH has nothing to
 *            flush */
int virtio_blk_submit(struct virtio_blk *b, struct virtio_blk_request *q);
/* Shows the device what was submitted. Returns whether that took a notification. */
bool virtio_blk_flush_ring(struct virtio_blk *b);
/* Ends the requests that the device is done with. Returns how many there were. */
u32 virtio_blk_poll(struct virtio_blk *b);
/* Asks for an interrupt when the next `n` requests are done, or all that are under way if these are
 * fewer. Returns true if they are done already; then there may be no interrupt. */
bool virtio_blk_listen(struct virtio_blk *b, u32 n);

#endif
