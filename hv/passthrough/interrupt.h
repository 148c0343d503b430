/* Interrupts of devices that VMs have: pins, messages, MSI-X tables of several entries. */
#ifndef HV_PASSTHROUGH_INTERRUPT_H
#define HV_PASSTHROUGH_INTERRUPT_H

#include "passthrough/assign.h"
#include "vdev/bus.h"

/* Reads the MP table; once at boot. The pointer `a` is kept. */
void interrupt_init(const struct acpi_info *a);
/* Finds out where the device's interrupt pin leads. Sets *gsi, and *flags to IRQ_* bits, and
 * returns the name of the source that says so, for the log. Returns NULL if the device has no pin
 * or no source tells. */
const char *interrupt_line(const struct pci_device *d, u32 *gsi, u32 *flags);

/* All from here on run on the housekeeping pCPU, where nothing else is said.
 *
 * interrupt_connect() makes the device's interrupts raise events of its VM. Each entry of its MSI-X
 * table gets a port; without such a table there is one port. Messages go to the pCPU of the vCPU
 * that the event is bound to, and follow it to another pCPU within a millisecond. Returns 0, or
 *   -ENOSPC  there are fewer vectors or ports than entries
 *   -EBUSY   another device that a VM has uses the same interrupt line
 *   -ENODEV  there is no such pin, or messages cannot reach the pCPU
 * with the sentence in vm->why; then the caller calls interrupt_disconnect(), which takes away what
 * had been made. */
int interrupt_connect(struct vm *vm, struct assignment *a);
void interrupt_disconnect(struct assignment *a);
/* For a virtual function that was held and has been reset: restores its messages and its bus
 * mastering. Does nothing if its VM has ended meanwhile. */
void interrupt_again(struct assignment *a);
/* Stops the device's timers; called before it is reset. */
void interrupt_quiet(struct assignment *a);
/* To be called when the VM has served its interrupt line. Unmasks the line: at once, or, if the
 * device has used up its burst, when the millisecond is over. From any pCPU. */
void interrupt_done(struct assignment *a);

/* Returns whether the MSI-X table of `d` is in BAR i. If so, [*from, *to) become the host-physical
 * pages that hold it. */
bool msix_pages(const struct pci_device *d, u32 i, u64 *from, u64 *to);
/* Keeps all messages of the device back, or lets them through again: a VM that is a PC has switched
 * them off or on. From any pCPU; takes the lock of the assignment. */
void interrupt_shut(struct assignment *a, bool shut);

/* A bus_fn (vdev/bus.h) for the MSI-X table as the VM sees it; `dev` is the assignment. The VM can
 * set and clear the mask bit of an entry. A VM that is a PC can also write what message it wants,
 * and reads that again; the device has another message, at which Takt delivers the one that the VM
 * wants. In other VMs the address of an entry reads as 0, and its data as the port of the event.
 * From any pCPU; takes the lock of the assignment. */
void msix_access(void *dev, const struct bus_access *access, u64 *value);

#endif
