/* Registers of a virtio device: the MMIO transport of virtio 1.2, 4.2.2 (version 2), and the
 * device's side of status (2.1), features (2.2), configuration (2.5) and the set-up of queues.
 * It knows nothing of the rings.
 *
 * This is a data structure without a lock: the caller makes one call at a time for a device. Only
 * virtio_mmio_notify() may come at any time, and `interrupt` is changed by atomics.
 *
 * The driver is not trusted: what it must not do is dropped and counted, or makes the device
 * need a reset. */
#ifndef HV_VDEV_VIRTIO_MMIO_H
#define HV_VDEV_VIRTIO_MMIO_H

#include <takt/device.h>
#include "mm/guestmem.h"

/* Which ends have to be told of a change: what the functions return. */
#define VIRTIO_TELL_BACK  1u /* Status changed */
#define VIRTIO_TELL_FRONT 2u /* by its config port */

struct virtio_mmio {
    /* Set at creation, then constant. */
    const struct guestmem *mem; /* the driver's RAM */
    u32 type;                   /* VIRTIO_ID_* */
    u32 port, config_port;      /* event channels of the driver's VM */
    /* The back end's. */
    struct takt_offer offer; /* nr_queues 0: it has not offered the device */
    u32 generation;
    u32 let_go; /* the number of resets after which it has let go of the rings; if it is not
                 * front.resets, a reset is pending */
    /* The driver's. */
    /* `status` has VIRTIO_NEEDS_RESET, but not for a reset that is pending */
    struct takt_front front;
    u32 device_sel, driver_sel, queue_sel;
    bool served; /* the back end may use the rings */
    /* a bit for each queue that may be notified; read at any time */
    u32 live;
    u32 interrupt;                     /* VIRTIO_INT_*; changed by atomics */
    u64 notifies, interrupts, dropped; /* counts */
};

/* An access of `size` bytes at `offset` of the page. Writes of QueueNotify are
 * virtio_mmio_notify(). A write returns a mask of VIRTIO_TELL_*. */
u32 virtio_mmio_read(struct virtio_mmio *d, u32 offset, unsigned size);
unsigned virtio_mmio_write(struct virtio_mmio *d, u32 offset, unsigned size, u32 value);
/* A read of 4 bytes where there is no device. */
u32 virtio_mmio_read_none(u32 offset);

/* The driver writes QueueNotify. Returns whether the back end is to be told. */
static inline bool virtio_mmio_notify(struct virtio_mmio *d, u32 queue) {
    if (queue < TAKT_MAX_QUEUES && __atomic_load_n(&d->live, __ATOMIC_RELAXED) >> queue & 1) {
        __atomic_fetch_add(&d->notifies, 1, __ATOMIC_RELAXED);
        return true;
    }
    __atomic_fetch_add(&d->dropped, 1, __ATOMIC_RELAXED);
    return false;
}

/* The back end has used buffers. Returns whether the driver is to be told. */
static inline bool virtio_mmio_used(struct virtio_mmio *d) {
    if (!d->live) return false;
    __atomic_fetch_or(&d->interrupt, VIRTIO_INT_USED, __ATOMIC_RELAXED);
    d->interrupts++;
    return true;
}

/* Has the driver made a reset, and the back end not yet let go of the rings? */
static inline bool virtio_mmio_resetting(const struct virtio_mmio *d) {
    return d->front.resets != d->let_go;
}

/* What virtio_mmio_offer() would return. */
int virtio_mmio_offer_refused(const struct virtio_mmio *d, const struct takt_offer *offer);
/* The back end offers the device, or has a new configuration for it; *tell becomes a mask of
 * VIRTIO_TELL_*. Returns 0, or
 *   -EINVAL  the offer is not one of a device,
 *   -EBUSY   the device is offered already, and differs in more than its configuration. */
int virtio_mmio_offer(struct virtio_mmio *d, const struct takt_offer *offer, unsigned *tell);
/* The following return a mask of VIRTIO_TELL_*. */
/* The back end is gone. */
unsigned virtio_mmio_withdraw(struct virtio_mmio *d);
/* The device needs a reset. */
unsigned virtio_mmio_break(struct virtio_mmio *d);
/* TAKT_HC_BACK_STATE: *out becomes what the driver has set up. `resets` is the last number of
 * resets that the back end has seen and answered. */
unsigned virtio_mmio_state(struct virtio_mmio *d, u32 resets, struct takt_front *out);

#endif
