/* The driver and the back end of a virtio device in one process, joined in the way in which the
 * hypervisor would join them. */
#ifndef TESTS_DEVICE_RIG_H
#define TESTS_DEVICE_RIG_H

#include "drivers/back_dev.h"
#include "drivers/virtio_dev.h"
#include "ring_rig.h"

struct rig_device {
    struct virtio_dev dev; /* the driver's */
    struct takt_offer offer;
    struct takt_front front;
    u32 sel, kicks, irqs, broken;
    void (*start)(struct rig_device *r);
    void (*stop)(struct rig_device *r);
    u64 hidden; /* features that it does not offer after all */
};

static struct rig_device *rig_of_handle[64]; /* by handle */

static inline struct rig_device *rig_of(struct virtio_dev *d) {
    return container_of(d, struct rig_device, dev);
}

static inline u64 rig_features(struct virtio_dev *d) {
    return rig_of(d)->offer.features & ~rig_of(d)->hidden;
}

static inline void rig_accept(struct virtio_dev *d, u64 f) { rig_of(d)->front.features = f; }

static inline u32 rig_status(struct virtio_dev *d) { return rig_of(d)->front.status; }

static inline void rig_set_status(struct virtio_dev *d, u32 s) {
    struct rig_device *r = rig_of(d);
    u32 old = r->front.status;

    r->front.status = s;
    if (!s) {
        if (old & VIRTIO_DRIVER_OK) r->stop(r);
        memset(r->front.queue, 0, sizeof(r->front.queue));
    } else if (s & ~old & VIRTIO_DRIVER_OK) {
        r->start(r);
    }
}

static inline u32 rig_queue_max(struct virtio_dev *d, u32 q) {
    return q < rig_of(d)->offer.nr_queues ? rig_of(d)->offer.queue_max : 0;
}

static inline void rig_queue_set(struct virtio_dev *d, u32 q, u32 size, u64 desc, u64 avail,
                                 u64 used) {
    rig_of(d)->front.queue[q] = (struct takt_queue){ size, 1, desc, avail, used };
    rig_of(d)->front.nr_queues = rig_of(d)->offer.nr_queues;
}

static inline void rig_notify(struct virtio_dev *d, u32 q) { rig_of(d)->kicks++; }

static inline u32 rig_generation(struct virtio_dev *d) { return 0; }

static inline u32 rig_config(struct virtio_dev *d, u32 offset, u32 bytes) {
    u32 v = 0;

    if (offset + bytes <= rig_of(d)->offer.config_len)
        memcpy(&v, rig_of(d)->offer.config + offset, bytes);
    return v;
}

static inline void rig_irq(u32 handle) { rig_of_handle[handle]->irqs++; }

static inline void rig_broken(u32 handle) {
    rig_of_handle[handle]->broken++;
    rig_of_handle[handle]->front.status |= VIRTIO_NEEDS_RESET;
}

static bool rig_front_gone;

static inline bool rig_gone(u32 handle) { return rig_front_gone; }

static const struct back_calls rig_calls = { rig_irq, rig_broken, rig_gone };

static inline void rig_init(struct rig_device *r, u32 handle, void (*start)(struct rig_device *),
                            void (*stop)(struct rig_device *)) {
    static const struct virtio_ops ops = {
        rig_features,  rig_accept, rig_status,     rig_set_status, rig_queue_max,
        rig_queue_set, rig_notify, rig_generation, rig_config,
    };

    *r = (struct rig_device){ .dev = { .ops = &ops, .env = &arena_env },
                              .start = start,
                              .stop = stop };
    rig_of_handle[handle] = r;
}

#endif
