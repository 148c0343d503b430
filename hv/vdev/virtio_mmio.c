/* The registers of a virtio device, by which a guest's driver (the front end) sets it up. The
 * device itself is another VM's program (the back end): it offers the device, and serves its rings,
 * the queues in memory for data. This file only keeps what both sides have said, and checks it. Its
 * functions return a mask of VIRTIO_TELL_*, which says which side has to be told. Section numbers
 * are of virtio 1.2. */
#include <takt/errno.h>
#include "common/string.h"
#include "vdev/virtio_mmio.h"

/* Feature bits 33 to 40 (section 6). Some of them need registers or rings of a form that this code
 * does not have; the ones in FEATURES_CARRIED do not. */
#define FEATURES_RESERVED (BIT(41) - BIT(33))
/* ACCESS_PLATFORM, IN_ORDER, ORDER_PLATFORM */
#define FEATURES_CARRIED (BIT(33) | BIT(35) | BIT(36))

/* Has the driver finished its set-up, without an error since then, and is there a back end? */
static bool driver_runs(const struct virtio_mmio *d) {
    u32 status = d->front.status;

    if (d->absent) return false;
    if ((status & (VIRTIO_DRIVER_OK | VIRTIO_NEEDS_RESET | VIRTIO_FAILED)) != VIRTIO_DRIVER_OK)
        return false;
    return !virtio_mmio_resetting(d);
}

/* Computes d->live, the queues that may be notified. To be called when anything has changed on
 * which that depends. */
static void update_live(struct virtio_mmio *d) {
    u32 mask = 0;

    for (u32 i = 0; i < d->offer.nr_queues && driver_runs(d); i++)
        mask |= d->front.queue[i].ready << i;
    __atomic_store_n(&d->live, mask, __ATOMIC_RELAXED);
}

/* Notes that the configuration has changed, which interrupts the driver. */
static unsigned config_interrupt(struct virtio_mmio *d) {
    __atomic_fetch_or(&d->interrupt, VIRTIO_INT_CONFIG, __ATOMIC_RELAXED);
    return VIRTIO_TELL_FRONT;
}

/* Drops an access that the driver must not make. */
static unsigned drop(struct virtio_mmio *d) {
    __atomic_fetch_add(&d->dropped, 1, __ATOMIC_RELAXED);
    return 0;
}

/* ---- the driver: status and features ---- */

/* Gives all registers that the driver writes the values that they have after a reset. */
static void forget_driver(struct virtio_mmio *d) {
    u32 resets = d->front.resets;

    d->front = (struct takt_front){ .resets = resets, .nr_queues = d->offer.nr_queues };
    d->device_sel = 0;
    d->driver_sel = 0;
    d->queue_sel = 0;
    d->resumed = false;
    __atomic_store_n(&d->interrupt, 0, __ATOMIC_RELAXED);
}

/* The driver resets the device. The registers get their initial values at once. But Status reads as
 * VIRTIO_NEEDS_RESET until the back end has let go of the old rings, and a driver has to wait for
 * that. The reset is not counted if another one is pending, or if the back end never used the
 * rings. */
static unsigned reset_device(struct virtio_mmio *d) {
    bool served = d->served;

    d->front.resets += served && !virtio_mmio_resetting(d);
    d->served = false;
    forget_driver(d);
    update_live(d);
    return served ? VIRTIO_TELL_BACK : 0;
}

/* Has the driver chosen only features that were offered, and no older version of virtio? */
static bool features_agree(const struct virtio_mmio *d) {
    return !(d->front.features & ~d->offer.features) && d->front.features & BIT(VIRTIO_F_VERSION_1);
}

/* Returns Status after the driver has written `value`. A write can only set bits (2.1, 3.1.1):
 * FEATURES_OK only if the features are good, and DRIVER_OK only after FEATURES_OK. Once the device
 * needs a reset, only FAILED can be set. */
static u32 status_after(const struct virtio_mmio *d, u32 value) {
    u32 now = d->front.status;

    now |= value & VIRTIO_FAILED;
    if (now & VIRTIO_NEEDS_RESET) return now;
    now |= value & (VIRTIO_ACKNOWLEDGE | VIRTIO_DRIVER);
    if (value & VIRTIO_FEATURES_OK && now & VIRTIO_DRIVER && features_agree(d))
        now |= VIRTIO_FEATURES_OK;
    if (now & VIRTIO_FEATURES_OK) now |= value & VIRTIO_DRIVER_OK;
    return now;
}

/* The driver writes Status: 0 resets the device; other values say how far its set-up has come. With
 * DRIVER_OK the back end begins to serve the rings, unless there is none. A write while no device
 * is offered, or of a bit that cannot be set now, is counted as dropped. Returns whether the back
 * end has to be told. */
static unsigned write_status(struct virtio_mmio *d, u32 value) {
    u32 old = d->front.status, now;

    if (!value) return reset_device(d);
    if (!d->offer.nr_queues) return drop(d);
    now = status_after(d, value);
    d->front.status = now;
    if (now & VIRTIO_DRIVER_OK) d->served = !d->absent;
    update_live(d);
    if (value & ~now & ~VIRTIO_NEEDS_RESET) drop(d);
    if ((now ^ old) & (VIRTIO_DRIVER_OK | VIRTIO_FAILED)) return VIRTIO_TELL_BACK;
    return 0;
}

/* Writes the upper or the lower half of a 64-bit register, of which the driver writes 32 bits at a
 * time. */
static void set_half(u64 *whole, bool upper, u32 value) {
    if (upper)
        *whole = (u32)*whole | (u64)value << 32;
    else
        *whole = (*whole & ~0xffffffffull) | value;
}

/* The driver chooses features. It may do so only until it has said that it is done with that. */
static unsigned write_features(struct virtio_mmio *d, u32 value) {
    if (d->driver_sel > 1 || d->front.status & VIRTIO_FEATURES_OK) return drop(d);
    set_half(&d->front.features, d->driver_sel, value);
    return 0;
}

/* ---- queues ---- */

/* Returns the queue that QueueSel names; NULL if there is none. */
static struct takt_queue *selected(struct virtio_mmio *d) {
    if (d->queue_sel >= d->offer.nr_queues) return NULL;
    return &d->front.queue[d->queue_sel];
}

/* Is one part of a ring aligned and in RAM? */
static bool part_valid(const struct guestmem *m, u64 at, u64 align, u64 size) {
    return !(at & (align - 1)) && guestmem_has(m, at, size);
}

/* Can this be a split ring (2.7): is its size allowed, and are its three parts aligned and in
 * RAM? */
static bool queue_valid(const struct virtio_mmio *d, const struct takt_queue *q) {
    u64 n = q->size;

    return n && n <= d->offer.queue_max && !(n & (n - 1)) &&
           part_valid(d->mem, q->desc, 16, 16 * n) && part_valid(d->mem, q->avail, 2, 6 + 2 * n) &&
           part_valid(d->mem, q->used, 4, 6 + 8 * n);
}

/* The driver writes QueueReady. That is allowed only between FEATURES_OK and DRIVER_OK, so that the
 * queues do not change any more once the back end has seen them. */
static unsigned write_ready(struct virtio_mmio *d, struct takt_queue *q, u32 value) {
    u32 status = d->front.status;

    if (value > 1 || !(status & VIRTIO_FEATURES_OK)) return drop(d);
    if (status & (VIRTIO_DRIVER_OK | VIRTIO_NEEDS_RESET)) return drop(d);
    if (value && !queue_valid(d, q)) return virtio_mmio_break(d);
    q->ready = value;
    return 0;
}

/* The driver sets up the queue that it has selected. A queue that is ready must not change any
 * more, because the back end may use it. */
static unsigned write_queue(struct virtio_mmio *d, u32 offset, u32 value) {
    struct takt_queue *q = selected(d);
    bool upper = offset & 4;

    if (!q) return drop(d);
    if (offset == VIRTIO_QUEUE_READY) return write_ready(d, q, value);
    if (q->ready) return drop(d);
    switch (offset) {
    case VIRTIO_QUEUE_NUM: q->size = value; break;
    case VIRTIO_QUEUE_DESC:
    case VIRTIO_QUEUE_DESC + 4: set_half(&q->desc, upper, value); break;
    case VIRTIO_QUEUE_DRIVER:
    case VIRTIO_QUEUE_DRIVER + 4: set_half(&q->avail, upper, value); break;
    case VIRTIO_QUEUE_DEVICE:
    case VIRTIO_QUEUE_DEVICE + 4: set_half(&q->used, upper, value); break;
    default: return drop(d);
    }
    return 0;
}

/* ---- registers ---- */

/* Reads the configuration of the device, such as a network card's address. */
static u32 read_config(const struct virtio_mmio *d, u32 offset, unsigned size) {
    u32 value = 0;

    for (unsigned i = 0; i < size && i < 4 && offset + i < d->offer.config_len; i++)
        value |= (u32)d->offer.config[offset + i] << (8 * i);
    return value;
}

/* Returns what a driver reads in a page that has no device: enough for it to see a virtio device of
 * no type, so that it leaves the page alone. */
u32 virtio_mmio_read_none(u32 offset) {
    switch (offset) {
    case VIRTIO_MAGIC: return VIRTIO_MAGIC_VALUE;
    case VIRTIO_VERSION: return 2;
    case VIRTIO_VENDOR_ID: return VIRTIO_VENDOR_TAKT;
    default: break;
    }
    /* A shared memory region that is not there has the length ~0 (4.2.2). */
    if (offset >= VIRTIO_SHM_LEN && offset < VIRTIO_SHM_END) return ~0u;
    return 0;
}

/* Returns the half of the offered features that the driver has selected. */
static u32 read_features(const struct virtio_mmio *d) {
    if (d->device_sel > 1) return 0;
    return (u32)(d->offer.features >> (32 * d->device_sel));
}

/* Returns Status as the driver reads it: with NEEDS_RESET while a reset is pending. */
static u32 read_status(const struct virtio_mmio *d) {
    if (virtio_mmio_resetting(d)) return d->front.status | VIRTIO_NEEDS_RESET;
    return d->front.status;
}

/* Returns what the driver reads in a register of the device. Accesses that the standard does not
 * allow read as 0 and are counted. */
u32 virtio_mmio_read(struct virtio_mmio *d, u32 offset, unsigned size) {
    const struct takt_queue *q = selected(d);

    if (size > 4) return drop(d);
    if (offset >= VIRTIO_CONFIG) return read_config(d, offset - VIRTIO_CONFIG, size);
    if (size != 4 || offset & 3) return drop(d);
    switch (offset) {
    case VIRTIO_DEVICE_ID: return d->offer.nr_queues ? d->type : 0;
    case VIRTIO_DEVICE_FEATURES: return read_features(d);
    case VIRTIO_QUEUE_NUM_MAX: return q ? d->offer.queue_max : 0;
    case VIRTIO_QUEUE_READY: return q ? q->ready : 0;
    case VIRTIO_INTERRUPT_STATUS: return __atomic_load_n(&d->interrupt, __ATOMIC_RELAXED);
    case VIRTIO_STATUS: return read_status(d);
    case TAKT_VIRTIO_CONFIG_PORT: return d->config_port;
    case TAKT_VIRTIO_PORT: return d->port;
    case VIRTIO_CONFIG_GENERATION: return d->generation;
    default: return virtio_mmio_read_none(offset);
    }
}

/* Carries out the driver's write to a register of the device. Anything that is no register of these
 * is one of a queue, or unknown. */
unsigned virtio_mmio_write(struct virtio_mmio *d, u32 offset, unsigned size, u32 value) {
    if (size != 4 || offset & 3) return drop(d);
    switch (offset) {
    case VIRTIO_DEVICE_FEATURES_SEL: d->device_sel = value; return 0;
    case VIRTIO_DRIVER_FEATURES_SEL: d->driver_sel = value; return 0;
    case VIRTIO_QUEUE_SEL: d->queue_sel = value; return 0;
    case VIRTIO_DRIVER_FEATURES: return write_features(d, value);
    case VIRTIO_INTERRUPT_ACK:
        __atomic_fetch_and(&d->interrupt, ~value, __ATOMIC_RELAXED);
        return 0;
    case VIRTIO_STATUS: return write_status(d, value);
    default: return write_queue(d, offset, value);
    }
}

/* ---- the back end ---- */

/* Can there be such a device? A back end is a guest, so its offer is not trusted. */
static bool offer_valid(const struct takt_offer *o) {
    if (!o->nr_queues || o->nr_queues > TAKT_MAX_QUEUES) return false;
    if (!o->queue_max || o->queue_max > TAKT_QUEUE_MAX) return false;
    if (o->queue_max & (o->queue_max - 1)) return false; /* no power of two */
    if (o->config_len > TAKT_MAX_CONFIG || o->reserved) return false;
    if (!(o->features & BIT(VIRTIO_F_VERSION_1))) return false;
    return !(o->features & FEATURES_RESERVED & ~FEATURES_CARRIED);
}

/* Does the offer differ from the one before in nothing but the configuration? */
static bool same_device(const struct virtio_mmio *d, const struct takt_offer *offer) {
    return memcmp(&d->offer, offer, offsetof(struct takt_offer, config)) == 0;
}

/* Returns whether virtio_mmio_offer() would refuse the offer: 0 or an error. Nothing is changed. */
int virtio_mmio_offer_refused(const struct virtio_mmio *d, const struct takt_offer *offer) {
    if (!offer_valid(offer)) return -EINVAL;
    if (!d->offer.nr_queues || d->absent || same_device(d, offer)) return 0;
    return -EBUSY;
}

/* The back end is gone, and with it the device. A driver that has begun with its set-up sees that
 * the device needs a reset, so it begins again. */
static unsigned lose_back_end(struct virtio_mmio *d) {
    u32 status = d->front.status;

    if (status) status |= VIRTIO_NEEDS_RESET;
    d->offer = (struct takt_offer){ 0 };
    d->front = (struct takt_front){ .status = status };
    d->let_go = 0;
    d->served = false;
    d->absent = false;
    d->generation++;
    update_live(d);
    return config_interrupt(d);
}

/* The back end is gone, and the device stays as it is until another one comes. The driver notices
 * nothing: what it puts into the rings waits there. Nobody uses the old rings any more, so a reset
 * that is pending is done. */
static unsigned wait_for_back_end(struct virtio_mmio *d) {
    d->resumed |= d->served;
    d->served = false;
    d->absent = true;
    d->front.resets = 0;
    d->let_go = 0;
    update_live(d);
    return 0;
}

/* A new back end goes on where the one before has ended. It has to look at the rings now, as the
 * driver's notifications meanwhile went nowhere. */
static unsigned go_on(struct virtio_mmio *d) {
    d->absent = false;
    d->served = d->front.status & VIRTIO_DRIVER_OK;
    update_live(d);
    return VIRTIO_TELL_BACK;
}

/* Lets a back end offer the device to the front end. The front end's driver may look at the device
 * from now on. */
int virtio_mmio_offer(struct virtio_mmio *d, const struct takt_offer *offer, unsigned *tell) {
    int error = virtio_mmio_offer_refused(d, offer);

    if (error) return error;
    *tell = 0;
    if (d->absent && same_device(d, offer)) {
        *tell = go_on(d);
        if (memcmp(d->offer.config, offer->config, sizeof(offer->config)) == 0) return 0;
    }
    if (d->absent) lose_back_end(d);
    d->offer = *offer;
    d->front.nr_queues = offer->nr_queues;
    d->generation++;
    *tell |= config_interrupt(d);
    return 0;
}

/* Takes a back end's offer back, because it is gone. Does nothing if it has not offered the
 * device. */
unsigned virtio_mmio_withdraw(struct virtio_mmio *d) {
    if (!d->offer.nr_queues) return 0;
    if (d->stays) return wait_for_back_end(d);
    return lose_back_end(d);
}

/* Makes the device need a reset, because the driver or the back end has made an error from which it
 * cannot go on. */
unsigned virtio_mmio_break(struct virtio_mmio *d) {
    if (d->front.status & VIRTIO_NEEDS_RESET) return 0;
    d->front.status |= VIRTIO_NEEDS_RESET;
    update_live(d);
    if (d->served) return config_interrupt(d) | VIRTIO_TELL_BACK;
    return config_interrupt(d);
}

/* Tells the back end what the driver has set up. If the driver has reset the device, Status shows
 * NEEDS_RESET until the back end has let go of the old rings. The back end says so by `resets`, the
 * number of resets that it has seen. */
unsigned virtio_mmio_state(struct virtio_mmio *d, u32 resets, struct takt_front *out) {
    unsigned tell = 0;

    if (virtio_mmio_resetting(d) && resets == d->front.resets) {
        d->let_go = resets;
        update_live(d);
        tell = VIRTIO_TELL_FRONT;
    }
    *out = d->front;
    out->status = read_status(d);
    if (d->stays) out->flags |= TAKT_FRONT_ORDERED;
    if (d->resumed) out->flags |= TAKT_FRONT_RESUMED;
    return tell;
}
