#include "drivers/virtio_mmio.h"
#include <takt/io.h>

static u32 get(struct virtio_dev *d, u32 reg) { return mmio_read32(d->regs + reg); }

static void put(struct virtio_dev *d, u32 reg, u32 value) { mmio_write32(d->regs + reg, value); }

static void put64(struct virtio_dev *d, u32 reg, u64 value) {
    put(d, reg, (u32)value);
    put(d, reg + 4, (u32)(value >> 32));
}

static u64 features(struct virtio_dev *d) {
    u64 low;

    put(d, VIRTIO_DEVICE_FEATURES_SEL, 0);
    low = get(d, VIRTIO_DEVICE_FEATURES);
    put(d, VIRTIO_DEVICE_FEATURES_SEL, 1);
    return low | (u64)get(d, VIRTIO_DEVICE_FEATURES) << 32;
}

static void accept(struct virtio_dev *d, u64 f) {
    put(d, VIRTIO_DRIVER_FEATURES_SEL, 0);
    put(d, VIRTIO_DRIVER_FEATURES, (u32)f);
    put(d, VIRTIO_DRIVER_FEATURES_SEL, 1);
    put(d, VIRTIO_DRIVER_FEATURES, (u32)(f >> 32));
}

static u32 status(struct virtio_dev *d) { return get(d, VIRTIO_STATUS); }

static void set_status(struct virtio_dev *d, u32 s) { put(d, VIRTIO_STATUS, s); }

static u32 queue_max(struct virtio_dev *d, u32 queue) {
    put(d, VIRTIO_QUEUE_SEL, queue);
    return get(d, VIRTIO_QUEUE_NUM_MAX);
}

static void queue_set(struct virtio_dev *d, u32 queue, u32 size, u64 desc, u64 avail, u64 used) {
    put(d, VIRTIO_QUEUE_SEL, queue);
    put(d, VIRTIO_QUEUE_NUM, size);
    put64(d, VIRTIO_QUEUE_DESC, desc);
    put64(d, VIRTIO_QUEUE_DRIVER, avail);
    put64(d, VIRTIO_QUEUE_DEVICE, used);
    put(d, VIRTIO_QUEUE_READY, 1);
}

static void notify(struct virtio_dev *d, u32 queue) { put(d, VIRTIO_QUEUE_NOTIFY, queue); }

static u32 generation(struct virtio_dev *d) { return get(d, VIRTIO_CONFIG_GENERATION); }

static u32 config(struct virtio_dev *d, u32 offset, u32 bytes) {
    volatile u8 *p = d->regs + VIRTIO_CONFIG + offset;

    return bytes == 1 ? *p : bytes == 2 ? *(volatile u16 *)p : *(volatile u32 *)p;
}

u32 virtio_mmio_type(volatile u8 *regs) {
    bool known =
        mmio_read32(regs + VIRTIO_MAGIC) == VIRTIO_MAGIC_VALUE && mmio_read32(regs + VIRTIO_VERSION) == 2;

    return known ? mmio_read32(regs + VIRTIO_DEVICE_ID) : 0;
}

void virtio_mmio_init(struct virtio_dev *d, const struct driver_env *env, volatile u8 *regs) {
    static const struct virtio_ops ops = {
        features, accept, status, set_status, queue_max, queue_set, notify, generation, config,
    };

    *d = (struct virtio_dev){ .ops = &ops, .env = env, .regs = regs };
}
