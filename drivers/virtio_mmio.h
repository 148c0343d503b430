/* The registers of a virtio device in memory (virtio 1.2, 4.2.2), as takt/device.h has them. */
#ifndef DRIVERS_VIRTIO_MMIO_H
#define DRIVERS_VIRTIO_MMIO_H

#include "drivers/virtio_dev.h"

/* The device type behind the registers; 0: none, or nobody serves it yet. */
u32 virtio_mmio_type(volatile u8 *regs);
void virtio_mmio_init(struct virtio_dev *d, const struct driver_env *env, volatile u8 *regs);

#endif
