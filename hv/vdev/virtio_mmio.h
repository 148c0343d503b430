/* Registers of a virtio device: the MMIO transport of virtio 1.2, 4.2.2 (version 2), and the device's side of
 * status (2.1), features (2.2), configuration (2.5) and the set-up of queues. Nothing of the rings.
 *
 * A data structure without a lock: calls for one device are made one at a time, but for virtio_mmio_notify(),
 * which may come at any time, and `interrupt`, which is changed by atomics.
 *
 * What the driver must not do is dropped and counted, or makes the device need a reset; nothing here trusts
 * it. */
#ifndef HV_VDEV_VIRTIO_MMIO_H
#define HV_VDEV_VIRTIO_MMIO_H

#include <takt/device.h>
#include "mm/guestmem.h"

/* Who has to hear of a change: what the functions return. */
#define VIRTIO_TELL_BACK  1u /* Status changed */
#define VIRTIO_TELL_FRONT 2u /* what its config port is for */

struct virtio_mmio {
    /* set at creation, then constant */
    const struct guestmem *mem; /* the driver's RAM */
    u32 type, port, config_port;
    /* the back end's */
    struct takt_offer offer; /* nr_queues 0: it has not offered the device */
    u32 generation;
    u32 let_go; /* resets after which it has let go of the rings; fewer than front.resets: one is pending */
    /* the driver's */
    struct takt_front front; /* status: VIRTIO_NEEDS_RESET too, but for a reset that is pending */
    u32 device_sel, driver_sel, queue_sel;
    bool served;                       /* the back end may use the rings */
    u32 live;                          /* a bit a queue: may be notified; written here, read at any time */
    u32 interrupt;                     /* VIRTIO_INT_* */
    u64 notifies, interrupts, dropped; /* counts */
};

/* An access of `size` bytes at `offset` of the page, but for writes of QueueNotify. A write returns
 * VIRTIO_TELL_*. */
u32 virtio_mmio_read(struct virtio_mmio *d, u32 offset, unsigned size);
unsigned virtio_mmio_write(struct virtio_mmio *d, u32 offset, unsigned size, u32 value);
/* The same where there is no device. */
u32 virtio_mmio_read_none(u32 offset);

/* QueueNotify: is the back end to be told? */
static inline bool virtio_mmio_notify(struct virtio_mmio *d, u32 queue) {
    bool live = queue < TAKT_MAX_QUEUES && __atomic_load_n(&d->live, __ATOMIC_RELAXED) >> queue & 1;

    __atomic_fetch_add(live ? &d->notifies : &d->dropped, 1, __ATOMIC_RELAXED);
    return live;
}

/* The back end has used buffers: is the driver to be told? */
static inline bool virtio_mmio_used(struct virtio_mmio *d) {
    if (!d->live) return false;
    __atomic_fetch_or(&d->interrupt, VIRTIO_INT_USED, __ATOMIC_RELAXED);
    d->interrupts++;
    return true;
}

/* The driver has made a reset, and the back end has not yet let go of the rings. */
static inline bool virtio_mmio_resetting(const struct virtio_mmio *d) { return d->front.resets != d->let_go; }
/* What virtio_mmio_offer() would return. */
int virtio_mmio_offer_refused(const struct virtio_mmio *d, const struct takt_offer *offer);
/* The back end offers it, or has a new configuration: *tell. -EINVAL: that is no device; -EBUSY: it is
 * offered, and other than that. */
int virtio_mmio_offer(struct virtio_mmio *d, const struct takt_offer *offer, unsigned *tell);
/* The back end is gone. */
unsigned virtio_mmio_withdraw(struct virtio_mmio *d);
/* The device needs a reset. */
unsigned virtio_mmio_break(struct virtio_mmio *d);
/* As TAKT_HC_BACK_STATE. */
unsigned virtio_mmio_state(struct virtio_mmio *d, u32 resets, struct takt_front *out);

#endif
