/* A virtio device as its driver sees it (virtio 1.2, 3.1): features, status, queues. The transport
 * is a table of functions: that of virtio_mmio.h, or that of a test. */
#ifndef DRIVERS_VIRTIO_DEV_H
#define DRIVERS_VIRTIO_DEV_H

#include "drivers/vring_front.h"

struct virtio_dev;

struct virtio_ops {
    u64 (*features)(struct virtio_dev *d); /* returns the features that the device offers */
    /* tells the device which ones the driver takes */
    void (*accept)(struct virtio_dev *d, u64 features);
    u32 (*status)(struct virtio_dev *d);
    void (*set_status)(struct virtio_dev *d, u32 status);
    u32 (*queue_max)(struct virtio_dev *d, u32 queue); /* 0: there is no such queue */
    void (*queue_set)(struct virtio_dev *d, u32 queue, u32 size, u64 desc, u64 avail, u64 used);
    void (*notify)(struct virtio_dev *d, u32 queue);
    u32 (*generation)(struct virtio_dev *d);
    /* bytes: 1, 2 or 4; the offset is aligned */
    u32 (*config)(struct virtio_dev *d, u32 offset, u32 bytes);
};

struct virtio_dev {
    const struct virtio_ops *ops;
    const struct driver_env *env;
    volatile u8 *regs; /* for the transport's own use */
    u64 features;      /* negotiated */
};

/* Resets the device and negotiates: the driver takes those of the features `wanted` (bits) that the
 * device offers, and VIRTIO_F_VERSION_1. Returns 0, or
 *   -EINVAL     the device does not accept that
 *   -ETIMEDOUT  the device does not come out of reset */
int virtio_begin(struct virtio_dev *d, u64 wanted);
/* Sets up queue number `queue` with at most `size` (a power of two) descriptors. Returns 0, or
 *   -ENODEV  the device has no such queue
 *   -ENOMEM  there is too little memory */
int virtio_queue(struct virtio_dev *d, u32 queue, struct vring_front *r, u32 size);
/* Tells the device that the driver is ready. From now on the device may be notified. */
void virtio_go(struct virtio_dev *d);
/* Resets the device, which then uses no memory of the driver any more. Returns 0, or -ETIMEDOUT if
 * its back end does not answer: the memory of the rings must not be freed then. */
int virtio_reset(struct virtio_dev *d);
/* Returns whether the device is served. If it is not, it needs a reset, or its back end is gone. */
bool virtio_alive(struct virtio_dev *d);
/* Shows the device what was added to the ring, and notifies it if it wants that. Returns whether it
 * was notified. */
bool virtio_kick(struct virtio_dev *d, u32 queue, struct vring_front *r);
/* Reads bytes of the configuration space, all of the same generation. */
void virtio_config(struct virtio_dev *d, u32 offset, void *to, u32 bytes);

#endif
