/* The registers of a virtio device: the MMIO transport of virtio 1.2, 4.2.2 (version 2), and the
 * device's side of status (2.1), features (2.2), configuration (2.5) and the set-up of queues. This
 * code never reads or writes the rings.
 *
 * This is a data structure without a lock: the caller makes only one call at a time for a device.
 * virtio_mmio_notify() is an exception, as it may be called at any time. `interrupt` is changed
 * atomically.
 *
 * The driver is not trusted. If it does what the specification forbids, that is dropped and
 * counted, or the device gets into the state in which it needs a reset. */
#ifndef HV_VDEV_VIRTIO_MMIO_H
#define HV_VDEV_VIRTIO_MMIO_H

#include <takt/device.h>
#include "mm/guestmem.h"

/* What several functions return: which ends the caller has to tell about a change. */
#define VIRTIO_TELL_BACK  1u /* the back end: Status has changed */
#define VIRTIO_TELL_FRONT 2u /* the front end: raise its config port */

struct virtio_mmio {
    /* Set at creation, then constant. */
    const struct guestmem *mem; /* the driver's RAM */
    u32 type;                   /* VIRTIO_ID_* */
    u32 port, config_port;      /* event channels of the driver's VM */
    /* The driver cannot begin again when the back end is gone. So the device stays as it is, and
     * the next back end that offers it in the same way goes on with its rings. */
    bool stays;
    /* Set by the back end. */
    struct takt_offer offer; /* nr_queues 0: it has not offered the device */
    u32 generation;          /* changes with the configuration: register ConfigGeneration */
    u32 let_go; /* after how many resets it has let go of the rings. If this is not front.resets, a
                 * reset is pending */
    /* Set by the driver. */
    /* VIRTIO_NEEDS_RESET in `status` means an error; a pending reset does not set it here */
    struct takt_front front;
    u32 device_sel, driver_sel, queue_sel;
    bool served;  /* the back end may use the rings */
    bool absent;  /* the device stays without a back end: its queues may not be notified */
    bool resumed; /* a back end that is gone has used the rings */
    /* a bit for each queue that may be notified; any pCPU may read it at any time */
    u32 live;
    u32 interrupt;                     /* VIRTIO_INT_* bits; changed atomically */
    u64 notifies, interrupts, dropped; /* counts */
};

/* Do an access of the driver, of `size` bytes at `offset` in the device's page. A read returns the
 * value; a write returns a mask of VIRTIO_TELL_*. For a write to QueueNotify the caller uses
 * virtio_mmio_notify() instead. */
u32 virtio_mmio_read(struct virtio_mmio *d, u32 offset, unsigned size);
unsigned virtio_mmio_write(struct virtio_mmio *d, u32 offset, unsigned size, u32 value);
/* Returns what a read of 4 bytes gives in a page that has no device. */
u32 virtio_mmio_read_none(u32 offset);

/* To be called when the driver writes QueueNotify. Returns whether the back end has to be told.
 * From any pCPU, at any time. */
static inline bool virtio_mmio_notify(struct virtio_mmio *d, u32 queue) {
    if (queue < TAKT_MAX_QUEUES && __atomic_load_n(&d->live, __ATOMIC_RELAXED) >> queue & 1) {
        __atomic_fetch_add(&d->notifies, 1, __ATOMIC_RELAXED);
        return true;
    }
    __atomic_fetch_add(&d->dropped, 1, __ATOMIC_RELAXED);
    return false;
}

/* To be called when the back end has used buffers. Returns whether the driver has to be told. */
static inline bool virtio_mmio_used(struct virtio_mmio *d) {
    if (!d->live) return false;
    __atomic_fetch_or(&d->interrupt, VIRTIO_INT_USED, __ATOMIC_RELAXED);
    d->interrupts++;
    return true;
}

/* Is a reset pending? That is so after the driver has made one, until the back end has let go of
 * the rings. */
static inline bool virtio_mmio_resetting(const struct virtio_mmio *d) {
    return d->front.resets != d->let_go;
}

/* Returns what virtio_mmio_offer() would return, and changes nothing. */
int virtio_mmio_offer_refused(const struct virtio_mmio *d, const struct takt_offer *offer);
/* To be called when the back end offers the device, or gives a new configuration for a device that
 * it has offered. A device that has stayed goes on, unless the offer differs in more than its
 * configuration from the one before: then it needs a reset. *tell becomes a mask of VIRTIO_TELL_*.
 * Returns 0, or
 *   -EINVAL  the offer describes no possible device
 *   -EBUSY   the device is offered already, and the offer differs in more than its configuration */
int virtio_mmio_offer(struct virtio_mmio *d, const struct takt_offer *offer, unsigned *tell);
/* The next three return a mask of VIRTIO_TELL_*. */
/* To be called when the back end is gone. If the device does not stay, it needs a reset. */
unsigned virtio_mmio_withdraw(struct virtio_mmio *d);
/* Puts the device into the state in which it needs a reset. */
unsigned virtio_mmio_break(struct virtio_mmio *d);
/* Does TAKT_HC_BACK_STATE: *out becomes what the driver has set up. `resets` is the number of
 * resets that the back end has seen; it has let go of the rings that the driver used before
 * them. */
unsigned virtio_mmio_state(struct virtio_mmio *d, u32 resets, struct takt_front *out);

#endif
