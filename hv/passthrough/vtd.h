/* Intel VT-d: what devices of VMs reach of memory, and what they may interrupt. Once it is on, no
 * device reads, writes or interrupts that is not attached, but for what firmware asks for (RMRR).
 * Architecture specification 4.1, legacy mode, by queued invalidation. All but iommu_map() on the
 * housekeeping pCPU. */
#ifndef HV_PASSTHROUGH_VTD_H
#define HV_PASSTHROUGH_VTD_H

#include "passthrough/assign.h"
#include "platform/irq.h"

/* Once at boot, after pci_enumerate(): reads firmware's tables, and changes nothing. `relax`: a
 * device that firmware goes on using (RMRR) may be given to a VM all the same, and all devices of
 * that VM then reach the memory that firmware uses it by. */
void iommu_read(const struct acpi_info *a, bool relax);
/* Do the tables say that firmware goes on using this device (RMRR)? */
bool iommu_firmware_uses(const struct pci_device *d);
/* Once at boot, after iommu_read(). `ram`: all of the machine's. NULL: DMA and interrupts are
 * confined by at least one unit; else why not, as it follows "as". */
const char *iommu_init(const struct acpi_info *a, const struct memmap *ram);
/* Why no unit can confine this device, as it follows "as"; NULL: one does. */
const char *iommu_refused(const struct pci_device *d);
/* What is not attached is blocked: unsafe_dma would be of no use. */
bool iommu_blocks(const struct pci_device *d);
/* How many accesses of the device the IOMMU has stopped since it was given to a VM, or since
 * boot. */
u64 iommu_faults(const struct pci_device *d);

/* The domain of a VM: what its devices reach, at guest-physical addresses. iommu_prepare() makes
 * it, of its RAM and of the memory that firmware reserves for the device `d`, in parts: 1: call
 * again; -ENOMEM; -EBUSY: there are windows already, which would not be in it; then with
 * vm->why. Not under backend_lock. iommu_release(), with no device attached any more, frees it,
 * or what there is of it. */
int iommu_prepare(struct vm *vm, const struct pci_device *d);
void iommu_release(struct vm *vm);
/* All devices of the VM reach [hpa, ...) at `gpa` instead of what was there, to read and to write;
 * HPA_NONE: nothing. At return none of them uses what was there before. A VM without a domain: does
 * nothing. From any pCPU; takes leaf locks. 0, -ENOMEM as npt_map(). */
int iommu_map(struct vm *vm, gpa_t gpa, hpa_t hpa, u64 len);

/* The device gets the domain of its VM, which is prepared: -ENOMEM, -EIO. Detached, it reaches
 * nothing, and all that it had asked for is over. */
int iommu_attach(struct assignment *a, struct vm *vm);
void iommu_detach(struct assignment *a);

/* What an attached device has to write where, to interrupt `cpu` on `vector` (irq_alloc()'s);
 * another device that writes the same does not interrupt. Again, for another pCPU: *m stays the
 * same. For one that nobody confines the plain message. -ENODEV: that pCPU cannot be reached; -EIO:
 * the unit does not answer. */
int iommu_irq(const struct assignment *a, u32 vector, u32 cpu, struct irq_message *m);
void iommu_irq_free(u32 vector);

#endif
