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
/* Once at boot, after iommu_read() and give_init(). `ram`: all RAM of the machine. Returns NULL if
 * at least one unit confines DMA and interrupts; or else why none does, as it follows "as". */
const char *iommu_init(const struct acpi_info *a, const struct memmap *ram);
/* Returns why no unit can confine this device, as it follows "as"; NULL: one does. */
const char *iommu_refused(const struct pci_device *d);
/* Is the device blocked as long as it is not attached? Then unsafe_dma is of no use. */
bool iommu_blocks(const struct pci_device *d);
/* How many accesses of the device the IOMMU has stopped since it was given to a VM, or since
 * boot. */
u64 iommu_faults(const struct pci_device *d);

/* The domain of a VM is what its devices reach, at guest-physical addresses. iommu_prepare() makes
 * it of the VM's RAM and of the memory that firmware reserves for `d`, in parts. 1: call again; 0:
 * done; -ENOMEM; or with vm->why, -EBUSY: the VM has windows on other VMs' RAM already, which would
 * not be in it; -EINVAL: reserved memory lies where the VM has its own. Not under backend_lock.
 * iommu_release() frees the domain, or what there is of it, when no device is attached any more. */
int iommu_prepare(struct vm *vm, const struct pci_device *d);
void iommu_release(struct vm *vm);
/* Lets all devices of the VM reach [hpa, hpa + len) at `gpa`, to read and to write, instead of what
 * was there; HPA_NONE: nothing. On return none of them uses what was there before. If the VM has no
 * domain, it does nothing. 0, or -ENOMEM as npt_map(). From any pCPU; takes leaf locks. */
int iommu_map(struct vm *vm, gpa_t gpa, hpa_t hpa, u64 len);

/* iommu_attach() gives the device the domain of the VM, which must be prepared: 0, -ENOMEM, or -EIO
 * if the unit does not answer. iommu_detach(): from then on the device reaches nothing, and all
 * that it had asked for is over. */
int iommu_attach(struct assignment *a, struct vm *vm);
void iommu_detach(struct assignment *a);

/* Writes to *m what the device must write where, to interrupt `cpu` on `vector` (from irq_alloc()).
 * Another device that writes the same does not interrupt. Calling it again for another pCPU leaves
 * *m the same. A device that nobody confines gets the plain message. 0; -ENODEV: messages cannot
 * reach that pCPU; -EIO: the unit does not answer. */
int iommu_irq(const struct assignment *a, u32 vector, u32 cpu, struct irq_message *m);
void iommu_irq_free(u32 vector);

#endif
