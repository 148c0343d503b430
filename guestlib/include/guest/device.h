/* The virtio devices of this VM, and the memory of VMs whose devices it serves. Only on Takt. */
#ifndef GUEST_DEVICE_H
#define GUEST_DEVICE_H

#include <guest/event.h>
#include <takt/device.h>
#include "drivers/virtio_dev.h"

/* What drivers need of a guest. */
extern const struct driver_env guest_env;

/* The index-th device (from 0, in the order of the VM file) of that type, VIRTIO_ID_*; waits for as long as
 * it and those before it have not been offered. -ENODEV: the VM has none; -ETIMEDOUT. From a thread. */
int device_open(struct virtio_dev *d, u32 type, u32 index, u64 timeout_ns);
/* Calls fn(port, arg) in an interrupt handler of `vcpu` (the turbo vCPU is 0): buffers were used. */
int device_on_used(struct virtio_dev *d, u32 vcpu, event_handler fn, void *arg);
/* Likewise: configuration changed, needs reset, offered, back end gone. virtio_alive() tells. */
int device_on_config(struct virtio_dev *d, u32 vcpu, event_handler fn, void *arg);
u32 device_port(const struct virtio_dev *d); /* of the first, to poll */

/* The index-th PCI device that this VM was given: *pci is what TAKT_HC_PCI_INFO tells, and its
 * BARs of memory can be reached. -ENOENT: there is none; -ENOMEM. */
int pci_get(u32 index, struct takt_pci *pci);

/* Puts a window into the page tables, so that the front end's address x is at base + x. -ENOMEM. */
int window_map(const struct takt_window *w);

#endif
