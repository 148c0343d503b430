/* The transport of virtio devices whose registers are in memory: the functions of struct
 * virtio_ops, by which drivers/virtio_dev.c reaches a device. takt/device.h has the registers. */
#include "drivers/virtio_mmio.h"
#include <takt/io.h>

static u32 reg_get(struct virtio_dev *d, u32 reg) { return mmio_read32(d->regs + reg); }

static void reg_put(struct virtio_dev *d, u32 reg, u32 value) {
    mmio_write32(d->regs + reg, value);
}

static void reg_put64(struct virtio_dev *d, u32 reg, u64 value) {
    reg_put(d, reg, (u32)value);
    reg_put(d, reg + 4, (u32)(value >> 32));
}

/* Returns the 64 features that the device offers. The register shows 32 of them at a time. */
static u64 features(struct virtio_dev *d) {
    u64 low;

    reg_put(d, VIRTIO_DEVICE_FEATURES_SEL, 0);
    low = reg_get(d, VIRTIO_DEVICE_FEATURES);
    reg_put(d, VIRTIO_DEVICE_FEATURES_SEL, 1);
    return low | (u64)reg_get(d, VIRTIO_DEVICE_FEATURES) << 32;
}

static void accept(struct virtio_dev *d, u64 f) {
    reg_put(d, VIRTIO_DRIVER_FEATURES_SEL, 0);
    reg_put(d, VIRTIO_DRIVER_FEATURES, (u32)f);
    reg_put(d, VIRTIO_DRIVER_FEATURES_SEL, 1);
    reg_put(d, VIRTIO_DRIVER_FEATURES, (u32)(f >> 32));
}

static u32 status(struct virtio_dev *d) { return reg_get(d, VIRTIO_STATUS); }

static void set_status(struct virtio_dev *d, u32 s) { reg_put(d, VIRTIO_STATUS, s); }

static u32 queue_max(struct virtio_dev *d, u32 queue) {
    reg_put(d, VIRTIO_QUEUE_SEL, queue);
    return reg_get(d, VIRTIO_QUEUE_NUM_MAX);
}

/* Tells the device where the three parts of queue number `queue` are (addresses for DMA).
 * QUEUE_READY comes last, because the device may use the queue from then on. */
static void queue_set(struct virtio_dev *d, u32 queue, u32 size, u64 desc, u64 avail, u64 used) {
    reg_put(d, VIRTIO_QUEUE_SEL, queue);
    reg_put(d, VIRTIO_QUEUE_NUM, size);
    reg_put64(d, VIRTIO_QUEUE_DESC, desc);
    reg_put64(d, VIRTIO_QUEUE_DRIVER, avail);
    reg_put64(d, VIRTIO_QUEUE_DEVICE, used);
    reg_put(d, VIRTIO_QUEUE_READY, 1);
}

static void notify(struct virtio_dev *d, u32 queue) { reg_put(d, VIRTIO_QUEUE_NOTIFY, queue); }

static u32 generation(struct virtio_dev *d) { return reg_get(d, VIRTIO_CONFIG_GENERATION); }

/* Reads 1, 2 or 4 bytes of the device's configuration, with one access of that size. */
static u32 config(struct virtio_dev *d, u32 offset, u32 bytes) {
    const volatile u8 *p = d->regs + VIRTIO_CONFIG + offset;

    switch (bytes) {
    case 1: return mmio_read8(p);
    case 2: return mmio_read16(p);
    default: return mmio_read32(p);
    }
}

u32 virtio_mmio_type(volatile u8 *regs) {
    if (mmio_read32(regs + VIRTIO_MAGIC) != VIRTIO_MAGIC_VALUE) return 0;
    if (mmio_read32(regs + VIRTIO_VERSION) != 2) return 0;
    return mmio_read32(regs + VIRTIO_DEVICE_ID);
}

void virtio_mmio_init(struct virtio_dev *d, const struct driver_env *env, volatile u8 *regs) {
    static const struct virtio_ops ops = {
        features, accept, status, set_status, queue_max, queue_set, notify, generation, config,
    };

    *d = (struct virtio_dev){ .ops = &ops, .env = env, .regs = regs };
}
