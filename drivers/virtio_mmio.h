/* The transport of virtio devices whose registers are in memory (virtio 1.2, 4.2.2). takt/device.h
 * has the registers. */
#ifndef DRIVERS_VIRTIO_MMIO_H
#define DRIVERS_VIRTIO_MMIO_H

#include "drivers/virtio_dev.h"

/* Returns the type of the device (VIRTIO_ID_*), or 0 if there is no device or it has no back end
 * yet. */
u32 virtio_mmio_type(volatile u8 *regs);
/* Makes *d the device with these registers. */
void virtio_mmio_init(struct virtio_dev *d, const struct driver_env *env, volatile u8 *regs);

#endif
