/* The virtio and PCI devices of this VM; and, for a driver domain, the memory of the VMs whose
 * devices it serves. Only on Takt. */
#ifndef GUEST_DEVICE_H
#define GUEST_DEVICE_H

#include <guest/event.h>
#include <takt/device.h>
#include "drivers/virtio_dev.h"

/* What virtio drivers need from a guest. */
extern const struct driver_env guest_env;

/* Opens the index-th device (from 0, in the order of the VM file) of a type, VIRTIO_ID_*. Waits
 * until this device and those before it have a back end. Call it from a thread. Returns 0, or
 *   -ENODEV     the VM has no such device
 *   -ETIMEDOUT  a back end has not come in time */
int device_open(struct virtio_dev *d, u32 type, u32 index, u64 timeout_ns);
/* Calls fn(port, arg) in an interrupt handler of `vcpu` (0 is the turbo vCPU, if there is one) when
 * the device has used buffers. Errors as event_set_handler(). */
int device_on_used(struct virtio_dev *d, u32 vcpu, event_handler fn, void *arg);
/* The same for all other events: the device has changed its configuration, needs a reset, was
 * offered, or its back end is gone. virtio_alive() tells whether it can still be used. */
int device_on_config(struct virtio_dev *d, u32 vcpu, event_handler fn, void *arg);
/* Returns the port of device_on_used(), for a caller that polls it. */
u32 device_port(const struct virtio_dev *d);

/* Finds the index-th PCI device that this VM was given, and maps its BARs. *pci becomes what
 * TAKT_HC_PCI_INFO says. Returns 0, or
 *   -ENOENT  there is no such device
 *   -ENOMEM  there is no memory for page tables */
int pci_get(u32 index, struct takt_pci *pci);

/* Maps a window on the memory of a front end, so that the front end's address x is at w->base + x.
 * Returns 0, or -ENOMEM. */
int window_map(const struct takt_window *w);

#endif
