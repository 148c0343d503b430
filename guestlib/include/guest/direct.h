/* A virtio block device without a page cache, whose requests go straight to the ring of the socket
 * on which the thread runs (IOrchestra, section 3.3). A device has as many rings as its VM is on
 * sockets. vCPU k of n is on socket k * rings / n. Only on Takt.
 *
 * A device that loses its back end refuses all requests until it has another one. What the old one
 * had not written, and the contents of a disk in memory, are then lost: direct_lives() tells. */
#ifndef GUEST_DIRECT_H
#define GUEST_DIRECT_H

#include <guest/device.h>
#include <guest/sync.h>
#include "drivers/virtio_blk.h"

struct direct {
    struct virtio_dev dev;
    u32 nr_rings;
    u64 capacity; /* sectors */
    struct virtio_blk ring[TAKT_MAX_QUEUES];
    struct spinlock lock[TAKT_MAX_QUEUES]; /* of each ring */
    /* Only direct.c uses these. */
    u32 index;
    bool up;   /* it has a back end; changed with all locks held */
    u32 lives; /* atomic */
    struct semaphore changed;
};

/* Opens the index-th block device (from 0), and waits for it without a limit. Call it from a thread
 * of vCPU 0, which takes the device's interrupts, after all vCPUs were started. *d must not move
 * afterwards. Returns 0, -ENODEV or -ENOMEM. */
int direct_open(struct direct *d, u32 index);
/* Returns how many back ends the device has had, or 0 while it has none. */
u32 direct_lives(const struct direct *d);
/* Returns the socket of a vCPU. */
u32 direct_socket(const struct direct *d, u32 vcpu);
/* Submits a request to the ring of the caller's socket, and shows it to the device. q->done() is
 * called when it has ended, perhaps before this returns, with interrupts off and on any vCPU, and
 * must not submit requests; it gets -EIO if the back end goes. Returns 0, -EIO if there is no back
 * end, or an error of virtio_blk_submit(). */
int direct_submit(struct direct *d, struct virtio_blk_request *q);

#endif
