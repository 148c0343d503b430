/* Interrupts of devices that VMs have: pins, messages, MSI-X tables of several entries. */
#ifndef HV_PASSTHROUGH_INTERRUPT_H
#define HV_PASSTHROUGH_INTERRUPT_H

#include "pci/pci.h"
#include "vdev/bus.h"

/* Once at boot. */
void interrupt_init(const struct acpi_info *a);
/* How the device interrupts, or would, by its pin: GSI and IRQ_* flags. NULL: it cannot; else where that is
 * told. */
const char *interrupt_line(const struct pci_device *d, u32 *gsi, u32 *flags);

/* Its interrupts raise events of the VM, its owner: one port for each entry of its MSI-X table, else one.
 * Messages go to the pCPU of the vCPU that the event is bound to, and within a millisecond follow it to
 * another. Errors with vm->why, -ENOSPC: there are fewer vectors or ports than entries;
 * interrupt_disconnect() takes away as much as was made. Both on the housekeeping pCPU. */
int interrupt_connect(struct vm *vm, struct pci_device *d);
void interrupt_disconnect(struct pci_device *d);
/* A virtual function that was held is as after a reset: it may interrupt as before, and be master of the bus,
 * if its VM still lives. */
void interrupt_again(struct pci_device *d);
/* Nothing that is timed will happen any more to the device, which is about to be reset. */
void interrupt_quiet(struct pci_device *d);
/* The VM has done what its line asked for. */
void interrupt_done(struct pci_device *d);

/* The pages of the MSI-X table in BAR i: from, to; false: it is not there. */
bool msix_pages(const struct pci_device *d, u32 i, u64 *from, u64 *to);
/* For the bus of the VM: the table as a VM sees it (`dev` is the device). Of an entry it can set the mask
 * bit; the address reads 0 and the data is the port of the entry's event. */
void msix_access(void *dev, const struct bus_access *a, u64 *value);

#endif
