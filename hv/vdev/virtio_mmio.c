#include <takt/errno.h>
#include "lib/string.h"
#include "vdev/virtio_mmio.h"

/* Bits 33 to 40 (virtio 1.2, 6): some need registers that are not here, or other rings. */
#define FEATURES_RESERVED (BIT(41) - BIT(33))
#define FEATURES_CARRIED  (BIT(33) | BIT(35) | BIT(36)) /* ACCESS_PLATFORM, IN_ORDER, ORDER_PLATFORM */

/* Which queues may be notified follows from all the rest. */
static void update(struct virtio_mmio *d) {
    u32 mask = 0;

    if ((d->front.status & (VIRTIO_DRIVER_OK | VIRTIO_NEEDS_RESET | VIRTIO_FAILED)) == VIRTIO_DRIVER_OK &&
        d->offer.nr_queues && !virtio_mmio_resetting(d))
        for (u32 i = 0; i < d->offer.nr_queues; i++) mask |= d->front.queue[i].ready << i;
    __atomic_store_n(&d->live, mask, __ATOMIC_RELAXED);
}

static unsigned config_interrupt(struct virtio_mmio *d) {
    __atomic_fetch_or(&d->interrupt, VIRTIO_INT_CONFIG, __ATOMIC_RELAXED);
    return VIRTIO_TELL_FRONT;
}

static unsigned drop(struct virtio_mmio *d) {
    __atomic_fetch_add(&d->dropped, 1, __ATOMIC_RELAXED);
    return 0;
}

/* ---- the driver: status and features ---- */

static void forget_driver(struct virtio_mmio *d) {
    u32 resets = d->front.resets;

    d->front = (struct takt_front){ .resets = resets, .nr_queues = d->offer.nr_queues };
    d->device_sel = d->driver_sel = d->queue_sel = 0;
    __atomic_store_n(&d->interrupt, 0, __ATOMIC_RELAXED);
}

/* The registers are new at once. Status tells when the back end has let go of the old rings: a driver that
 * does not wait for that has only itself to blame. */
static unsigned reset(struct virtio_mmio *d) {
    bool served = d->served;

    d->front.resets += served && !virtio_mmio_resetting(d); /* else nobody has seen what was begun */
    d->served = false;
    forget_driver(d);
    update(d);
    return served ? VIRTIO_TELL_BACK : 0;
}

static bool features_agree(const struct virtio_mmio *d) {
    return !(d->front.features & ~d->offer.features) && d->front.features & BIT(VIRTIO_F_VERSION_1);
}

/* Bits are only ever set: FEATURES_OK if the features are good, DRIVER_OK after it, and once the device needs
 * a reset none but FAILED (2.1, 3.1.1). */
static unsigned write_status(struct virtio_mmio *d, u32 value) {
    u32 old = d->front.status, now = old | (value & (VIRTIO_ACKNOWLEDGE | VIRTIO_DRIVER | VIRTIO_FAILED));

    if (!value) return reset(d);
    if (!d->offer.nr_queues) return drop(d);
    if (old & VIRTIO_NEEDS_RESET) {
        now = old | (value & VIRTIO_FAILED);
    } else {
        if (value & VIRTIO_FEATURES_OK && now & VIRTIO_DRIVER && features_agree(d)) now |= VIRTIO_FEATURES_OK;
        if (now & VIRTIO_FEATURES_OK) now |= value & VIRTIO_DRIVER_OK;
    }
    d->front.status = now;
    d->served |= (now & VIRTIO_DRIVER_OK) != 0;
    update(d);
    if (value & ~now & ~VIRTIO_NEEDS_RESET) drop(d);
    return (now ^ old) & (VIRTIO_DRIVER_OK | VIRTIO_FAILED) ? VIRTIO_TELL_BACK : 0;
}

static void set_half(u64 *whole, bool upper, u32 value) {
    *whole = upper ? (u32)*whole | (u64)value << 32 : (*whole & ~0xffffffffull) | value;
}

static unsigned write_features(struct virtio_mmio *d, u32 value) {
    if (d->driver_sel > 1 || d->front.status & VIRTIO_FEATURES_OK) return drop(d);
    set_half(&d->front.features, d->driver_sel, value);
    return 0;
}

/* ---- queues ---- */

static struct takt_queue *selected(struct virtio_mmio *d) {
    return d->queue_sel < d->offer.nr_queues ? &d->front.queue[d->queue_sel] : NULL;
}

static bool part_valid(const struct guestmem *m, u64 at, u64 align, u64 size) {
    return !(at & (align - 1)) && guestmem_has(m, at, size);
}

/* A split ring: virtio 1.2, 2.7. */
static bool queue_valid(const struct virtio_mmio *d, const struct takt_queue *q) {
    u64 n = q->size;

    return n && n <= d->offer.queue_max && !(n & (n - 1)) && part_valid(d->mem, q->desc, 16, 16 * n) &&
           part_valid(d->mem, q->avail, 2, 6 + 2 * n) && part_valid(d->mem, q->used, 4, 6 + 8 * n);
}

/* Before DRIVER_OK only: what the back end has seen stays until a reset. */
static unsigned write_ready(struct virtio_mmio *d, struct takt_queue *q, u32 value) {
    u32 status = d->front.status;

    if (value > 1 || status & VIRTIO_DRIVER_OK || !(status & VIRTIO_FEATURES_OK) ||
        status & VIRTIO_NEEDS_RESET)
        return drop(d);
    if (value && !queue_valid(d, q)) return virtio_mmio_break(d);
    q->ready = value;
    return 0;
}

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

static u32 read_config(const struct virtio_mmio *d, u32 offset, unsigned size) {
    u32 value = 0;

    for (unsigned i = 0; i < size && i < 4 && offset + i < d->offer.config_len; i++)
        value |= (u32)d->offer.config[offset + i] << (8 * i);
    return value;
}

u32 virtio_mmio_read_none(u32 offset) {
    switch (offset) {
    case VIRTIO_MAGIC: return VIRTIO_MAGIC_VALUE;
    case VIRTIO_VERSION: return 2;
    case VIRTIO_VENDOR_ID: return VIRTIO_VENDOR_TAKT;
    default: return offset >= VIRTIO_SHM_LEN && offset < VIRTIO_SHM_END ? ~0u : 0;
    }
}

u32 virtio_mmio_read(struct virtio_mmio *d, u32 offset, unsigned size) {
    const struct takt_queue *q = selected(d);

    if (size > 4) return drop(d);
    if (offset >= VIRTIO_CONFIG) return read_config(d, offset - VIRTIO_CONFIG, size);
    if (size != 4 || offset & 3) return drop(d);
    switch (offset) {
    case VIRTIO_DEVICE_ID: return d->offer.nr_queues ? d->type : 0;
    case VIRTIO_DEVICE_FEATURES:
        return d->device_sel > 1 ? 0 : (u32)(d->offer.features >> (32 * d->device_sel));
    case VIRTIO_QUEUE_NUM_MAX: return q ? d->offer.queue_max : 0;
    case VIRTIO_QUEUE_READY: return q ? q->ready : 0;
    case VIRTIO_INTERRUPT_STATUS: return __atomic_load_n(&d->interrupt, __ATOMIC_RELAXED);
    case VIRTIO_STATUS: return d->front.status | (virtio_mmio_resetting(d) ? VIRTIO_NEEDS_RESET : 0);
    case TAKT_VIRTIO_CONFIG_PORT: return d->config_port;
    case TAKT_VIRTIO_PORT: return d->port;
    case VIRTIO_CONFIG_GENERATION: return d->generation;
    default: return virtio_mmio_read_none(offset);
    }
}

unsigned virtio_mmio_write(struct virtio_mmio *d, u32 offset, unsigned size, u32 value) {
    if (size != 4 || offset & 3) return drop(d);
    switch (offset) {
    case VIRTIO_DEVICE_FEATURES_SEL: d->device_sel = value; return 0;
    case VIRTIO_DRIVER_FEATURES_SEL: d->driver_sel = value; return 0;
    case VIRTIO_QUEUE_SEL: d->queue_sel = value; return 0;
    case VIRTIO_DRIVER_FEATURES: return write_features(d, value);
    case VIRTIO_INTERRUPT_ACK: __atomic_fetch_and(&d->interrupt, ~value, __ATOMIC_RELAXED); return 0;
    case VIRTIO_STATUS: return write_status(d, value);
    default: return write_queue(d, offset, value);
    }
}

/* ---- the back end ---- */

static bool offer_valid(const struct takt_offer *o) {
    return o->nr_queues && o->nr_queues <= TAKT_MAX_QUEUES && o->queue_max &&
           o->queue_max <= TAKT_QUEUE_MAX && !(o->queue_max & (o->queue_max - 1)) &&
           o->config_len <= TAKT_MAX_CONFIG && !o->reserved && o->features & BIT(VIRTIO_F_VERSION_1) &&
           !(o->features & FEATURES_RESERVED & ~FEATURES_CARRIED);
}

int virtio_mmio_offer_refused(const struct virtio_mmio *d, const struct takt_offer *offer) {
    const size_t head = offsetof(struct takt_offer, config);

    if (!offer_valid(offer)) return -EINVAL;
    return d->offer.nr_queues && memcmp(&d->offer, offer, head) != 0 ? -EBUSY : 0;
}

int virtio_mmio_offer(struct virtio_mmio *d, const struct takt_offer *offer, unsigned *tell) {
    int error = virtio_mmio_offer_refused(d, offer);

    if (error) return error;
    d->offer = *offer;
    d->front.nr_queues = offer->nr_queues;
    d->generation++;
    *tell = config_interrupt(d);
    return 0;
}

/* What was there is there no more; a driver that had begun has to begin anew. */
unsigned virtio_mmio_withdraw(struct virtio_mmio *d) {
    u32 status = d->front.status;

    if (!d->offer.nr_queues) return 0;
    d->offer = (struct takt_offer){ 0 };
    d->front = (struct takt_front){ .status = status ? status | VIRTIO_NEEDS_RESET : 0 };
    d->let_go = 0;
    d->served = false;
    d->generation++;
    update(d);
    return config_interrupt(d);
}

unsigned virtio_mmio_break(struct virtio_mmio *d) {
    if (d->front.status & VIRTIO_NEEDS_RESET) return 0;
    d->front.status |= VIRTIO_NEEDS_RESET;
    update(d);
    return config_interrupt(d) | (d->served ? VIRTIO_TELL_BACK : 0);
}

unsigned virtio_mmio_state(struct virtio_mmio *d, u32 resets, struct takt_front *out) {
    unsigned tell = 0;

    if (virtio_mmio_resetting(d) && resets == d->front.resets) {
        d->let_go = resets;
        update(d);
        tell = VIRTIO_TELL_FRONT;
    }
    *out = d->front;
    if (virtio_mmio_resetting(d)) out->status |= VIRTIO_NEEDS_RESET;
    return tell;
}
