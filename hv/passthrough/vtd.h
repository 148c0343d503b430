/* Intel VT-d: which memory devices reach, and what they may interrupt. Once it is on, a device that
 * is not attached cannot read, write or interrupt, but for what firmware asks for (RMRR).
 * Architecture specification 4.1, legacy mode, with queued invalidation. All but iommu_map() run on
 * the housekeeping pCPU. */
#ifndef HV_PASSTHROUGH_VTD_H
#define HV_PASSTHROUGH_VTD_H

#include "passthrough/assign.h"
#include "platform/irq.h"

/* Once at boot, after pci_enumerate(): reads firmware's tables, and changes nothing. `relax`: a
 * device that firmware goes on using (RMRR) may be given to a VM all the same, and all devices of
 * that VM then reach the memory that firmware reserves for it. */
void iommu_read(const struct acpi_info *a, bool relax);
/* Do the tables say that firmware goes on using this device (RMRR)? */
bool iommu_firmware_uses(const struct pci_device *d);
/* Once at boot, after iommu_read() and give_init(). `ram` is all RAM of the machine. Returns NULL
 * if at least one unit confines DMA and interrupts. Otherwise it returns why none does, as the part
 * of a sentence that follows the word "as". */
const char *iommu_init(const struct acpi_info *a, const struct memmap *ram);
/* Returns NULL if a unit confines this device; otherwise why none can, likewise to follow "as". */
const char *iommu_refused(const struct pci_device *d);
/* Is the device blocked as long as it is not attached? Then unsafe_dma is of no use. */
bool iommu_blocks(const struct pci_device *d);
/* How many accesses of the device the IOMMU has stopped since it was given to a VM, or since
 * boot. */
u64 iommu_faults(const struct pci_device *d);

/* The domain of a VM is what its devices reach, at guest-physical addresses. iommu_prepare() makes
 * it of the VM's RAM and of the memory that firmware reserves for `d`, in several calls. It takes
 * backend_lock. Returns
 *   1        call again
 *   0        the domain is complete
 *   -ENOMEM  there is no memory
 *   -EBUSY   the VM already has windows on the RAM of other VMs, which would not be in the domain
 *   -EINVAL  reserved memory lies where the VM has its own
 * With the last two, vm->why holds the sentence. iommu_release() frees the domain, also one that is
 * not complete, when no device is attached to it any more. */
int iommu_prepare(struct vm *vm, const struct pci_device *d);
/* Frees the VM's domain, and does nothing if it has none. */
void iommu_release(struct vm *vm);
/* Lets all devices of the VM read and write [hpa, hpa + len) at the guest-physical address `gpa`,
 * instead of what was mapped there; HPA_NONE: they reach nothing there. When it returns, none of
 * them uses what was there before. If the VM has no domain, it does nothing. Returns 0, or -ENOMEM
 * as npt_map() does. From any pCPU; takes leaf locks. */
int iommu_map(struct vm *vm, gpa_t gpa, hpa_t hpa, u64 len);

/* iommu_attach() lets the device use the domain of the VM, which must be complete. Returns 0, or
 *   -ENOMEM  there is no memory for a table
 *   -EIO     the unit does not answer
 * After iommu_detach() the device reaches nothing, and no access of it is under way any more. */
int iommu_attach(struct assignment *a, struct vm *vm);
void iommu_detach(struct assignment *a);

/* Sets *m to the message by which the device interrupts `cpu` on `vector`, which irq_alloc() gave.
 * Another device that writes the same message does not interrupt. For a confined device the message
 * stays the same when this is called again for another pCPU; a device that no unit confines gets
 * the plain message. Returns 0, or
 *   -ENODEV  messages cannot reach that pCPU
 *   -EIO     the unit does not answer */
int iommu_irq(const struct assignment *a, u32 vector, u32 cpu, struct irq_message *m);
void iommu_irq_free(u32 vector);

#endif
