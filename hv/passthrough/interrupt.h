/* Interrupts of devices that VMs have: pins, messages, MSI-X tables of several entries. */
#ifndef HV_PASSTHROUGH_INTERRUPT_H
#define HV_PASSTHROUGH_INTERRUPT_H

#include "passthrough/assign.h"
#include "vdev/bus.h"

/* Reads the MP table; once at boot. `a` must stay. */
void interrupt_init(const struct acpi_info *a);
/* Finds out where the device's pin leads. Returns who says so, for the log, with the GSI and IRQ_*
 * flags in *gsi and *flags; NULL: it has no pin, or nothing tells. */
const char *interrupt_line(const struct pci_device *d, u32 *gsi, u32 *flags);

/* All from here on run on the housekeeping pCPU.
 *
 * interrupt_connect() makes the device's interrupts raise events of its VM: one port for each entry
 * of its MSI-X table, or else one in all. Messages go to the pCPU of the vCPU that the event is
 * bound to, and follow it to another pCPU within a millisecond. 0, or an error with vm->why
 * (-ENOSPC: there are fewer vectors or ports than entries); then interrupt_disconnect() takes away
 * what had been made. */
int interrupt_connect(struct vm *vm, struct assignment *a);
void interrupt_disconnect(struct assignment *a);
/* For a virtual function that was held, and has been reset: it interrupts as before and is master
 * of the bus again, unless its VM has ended meanwhile. */
void interrupt_again(struct assignment *a);
/* Stops the device's timers; called before it is reset. */
void interrupt_quiet(struct assignment *a);
/* The VM has served its line: unmasks it, at once or when its millisecond is over. From any
 * pCPU. */
void interrupt_done(struct assignment *a);

/* Writes to *from and *to the host-physical range of pages that hold the MSI-X table, if it is in
 * BAR i; else returns false. */
bool msix_pages(const struct pci_device *d, u32 i, u64 *from, u64 *to);
/* A bus_fn: the MSI-X table as the VM sees it; `dev` is the assignment. The VM can set the mask bit
 * of an entry. Its address reads as 0, and its data as the port of the entry's event. */
void msix_access(void *dev, const struct bus_access *access, u64 *value);

#endif
