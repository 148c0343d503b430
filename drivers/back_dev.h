/* What the back ends of all device types have in common: the hypercalls that they make, and the
 * state of one device. A back end runs in the driver domain and serves a virtio device of another
 * VM, which is called the front VM. It sees that VM's memory through a window. */
#ifndef DRIVERS_BACK_DEV_H
#define DRIVERS_BACK_DEV_H

#include "drivers/env.h"
#include "drivers/vring_back.h"

/* The hypercalls TAKT_HC_BACK_* of the same names. A test has functions of its own in their place.
 */
struct back_calls {
    void (*irq)(u32 handle);
    void (*broken)(u32 handle);
    /* Whether the front VM of this device goes or has gone: then what was read from its memory
     * before the call may be something else than the VM had there. */
    bool (*gone)(u32 handle);
};

struct back_dev {
    u32 handle;
    const struct back_calls *calls;
    struct takt_window window;
    u64 features; /* negotiated */
    bool live;    /* the driver is there, and its rings are in order */
    bool irq;     /* an interrupt is due at the end of this round */
    u64 irqs;
};

/* Reports that the front end has broken the rules. After this its memory is not touched until it
 * has reset the device. */
static inline void back_broken(struct back_dev *d) {
    if (d->live) d->calls->broken(d->handle);
    d->live = false;
    d->irq = false;
}

/* Begins to serve a front end. An earlier back end may have shown buffers, and ended before it
 * raised the interrupt for them. */
static inline void back_begin(struct back_dev *d, const struct takt_front *f) {
    d->features = f->features;
    d->irq = f->flags & TAKT_FRONT_RESUMED;
    d->live = true;
}

/* Raises the interrupt of this round, if one is due. */
static inline void back_interrupt(struct back_dev *d) {
    if (!d->live || !d->irq) return;
    d->irq = false;
    d->irqs++;
    d->calls->irq(d->handle);
}

/* Sets up the ring of queue `q` as the front end describes it, or goes on with it where an earlier
 * back end has ended. Returns false if the front end has not set it up, or has set it up wrongly.
 */
static inline bool back_ring(struct back_dev *d, struct vring_back *r, const struct takt_front *f,
                             u32 q) {
    const struct takt_queue *k = &f->queue[q];

    if (q >= f->nr_queues || !k->ready) return false;
    if (vring_back_init(r, &d->window, d->features, k->size, k->desc, k->avail, k->used))
        return false;
    if (f->flags & TAKT_FRONT_RESUMED) vring_back_resume(r);
    return true;
}

#endif
