/* What the drivers of all virtio devices have in common: the handshake in which the driver sets
 * bits of the Status register and both sides agree on features, and the making of queues. How
 * registers are reached is up to a table of functions (struct virtio_ops). virtio_dev.h has the
 * contracts. */
#include "drivers/virtio_dev.h"
#include <takt/errno.h>

#define RESET_TRIES 100000 /* the back end may have to wait until it gets a CPU */

/* Sets one more bit of Status. The bits that are set already have to stay (virtio 1.2, 2.1). */
static void add_status(struct virtio_dev *d, u32 bit) {
    d->ops->set_status(d, d->ops->status(d) | bit);
}

/* Resets the device and waits until it uses no memory of the driver any more. Returns 0, or
 * -ETIMEDOUT if its back end does not answer. Writing 0 to Status asks for a reset. If another VM
 * serves the device, Status reads 0 only after that VM has released the rings, so this waits. */
int virtio_reset(struct virtio_dev *d) {
    d->ops->set_status(d, 0);
    for (u32 i = 0; i < RESET_TRIES; i++) {
        if (!d->ops->status(d)) return 0;
        d->env->relax();
    }
    return -ETIMEDOUT;
}

/* Resets the device and negotiates features: the driver takes those of `wanted` that the device
 * offers. Returns 0 or an error. The order of the steps is that of section 3.1.1 of the virtio
 * specification. Status is read back, because the device clears FEATURES_OK if it does not accept
 * what the driver takes. */
int virtio_begin(struct virtio_dev *d, u64 wanted) {
    int error = virtio_reset(d);

    if (error) return error;
    add_status(d, VIRTIO_ACKNOWLEDGE);
    add_status(d, VIRTIO_DRIVER);
    d->features = d->ops->features(d) & (wanted | BIT(VIRTIO_F_VERSION_1));
    d->ops->accept(d, d->features);
    add_status(d, VIRTIO_FEATURES_OK);
    if (d->features & BIT(VIRTIO_F_VERSION_1) && d->ops->status(d) & VIRTIO_FEATURES_OK) return 0;
    add_status(d, VIRTIO_FAILED);
    return -EINVAL;
}

/* Sets up queue number `queue` with a ring of at most `size` descriptors. Returns 0, -ENODEV if the
 * device has no such queue, or -ENOMEM. The device is told of the ring only after it is complete,
 * because it may use it from that moment on. */
int virtio_queue(struct virtio_dev *d, u32 queue, struct vring_front *r, u32 size) {
    u32 max = d->ops->queue_max(d, queue);
    int error;

    if (!max) return -ENODEV;
    error = vring_front_init(r, d->env, MIN(MIN(size, max), TAKT_QUEUE_MAX), d->features);
    if (error) return error;
    d->ops->queue_set(d, queue, r->size, d->env->dma_addr(r->desc), d->env->dma_addr(r->avail),
                      d->env->dma_addr(r->used));
    return 0;
}

void virtio_go(struct virtio_dev *d) { add_status(d, VIRTIO_DRIVER_OK); }

bool virtio_alive(struct virtio_dev *d) {
    return (d->ops->status(d) & (VIRTIO_DRIVER_OK | VIRTIO_NEEDS_RESET)) == VIRTIO_DRIVER_OK;
}

bool virtio_kick(struct virtio_dev *d, u32 queue, struct vring_front *r) {
    bool wanted = vring_front_publish(r);

    if (wanted) d->ops->notify(d, queue);
    return wanted;
}

/* Reads `bytes` bytes of the configuration space from `offset` on, all of the same generation. A
 * field of more than one byte could change between two reads. The generation changes then, and all
 * is read again. */
void virtio_config(struct virtio_dev *d, u32 offset, void *to, u32 bytes) {
    u32 before;

    do {
        before = d->ops->generation(d);
        for (u32 i = 0; i < bytes; i++) ((u8 *)to)[i] = (u8)d->ops->config(d, offset + i, 1);
    } while (d->ops->generation(d) != before);
}
