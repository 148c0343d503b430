/* A virtio device as its driver sees it, whatever carries it (virtio 1.2, 3.1): features, status, queues. The
 * transport is a table of functions: virtio_mmio.h, or a test's. */
#ifndef DRIVERS_VIRTIO_DEV_H
#define DRIVERS_VIRTIO_DEV_H

#include "drivers/vring_front.h"

struct virtio_dev;

struct virtio_ops {
    u64 (*features)(struct virtio_dev *d); /* offered */
    void (*accept)(struct virtio_dev *d, u64 features);
    u32 (*status)(struct virtio_dev *d);
    void (*set_status)(struct virtio_dev *d, u32 status);
    u32 (*queue_max)(struct virtio_dev *d, u32 queue); /* 0: there is no such queue */
    void (*queue_set)(struct virtio_dev *d, u32 queue, u32 size, u64 desc, u64 avail, u64 used);
    void (*notify)(struct virtio_dev *d, u32 queue);
    u32 (*generation)(struct virtio_dev *d);
    u32 (*config)(struct virtio_dev *d, u32 offset, u32 bytes); /* 1, 2 or 4, aligned */
};

struct virtio_dev {
    const struct virtio_ops *ops;
    const struct driver_env *env;
    volatile u8 *regs; /* the transport's */
    u64 features;      /* negotiated */
};

/* Resets the device and negotiates: of `wanted` (bits) what it offers, and VIRTIO_F_VERSION_1. -EINVAL: it
 * will not have that; -ETIMEDOUT: it does not come out of reset. */
int virtio_begin(struct virtio_dev *d, u64 wanted);
/* Makes queue `queue` with at most `size` (a power of two) descriptors. -ENODEV: there is none; -ENOMEM. */
int virtio_queue(struct virtio_dev *d, u32 queue, struct vring_front *r, u32 size);
/* The driver is there: from now on the device may be notified. */
void virtio_go(struct virtio_dev *d);
/* The device lets go of everything. -ETIMEDOUT: its back end does not answer, and the memory of the rings has
 * to stay. */
int virtio_reset(struct virtio_dev *d);
/* False: it needs reset, or nobody serves it any more. */
bool virtio_alive(struct virtio_dev *d);
/* Shows the device what was added to the ring, and notifies it if it wants that. True: it did. */
bool virtio_kick(struct virtio_dev *d, u32 queue, struct vring_front *r);
/* Bytes of the configuration space, all of one generation. */
void virtio_config(struct virtio_dev *d, u32 offset, void *to, u32 bytes);

#endif
