/* Giving a device of the machine to a VM, and taking it back. */
#ifndef HV_PASSTHROUGH_GIVE_H
#define HV_PASSTHROUGH_GIVE_H

#include "passthrough/assign.h"

/* Once at boot, when all devices are known, virtual functions too. `ram` is all RAM of this
 * machine, where no register of a device can be. The pointers `a` and `ram` are kept. */
void give_init(const struct acpi_info *a, const struct memmap *ram);
/* Two parts of a VM (vm/vm.h). pci_claim_part comes before all others: the devices that the VM's
 * section names belong to the VM from then on. pci_part comes after RAM, vCPUs and event channels:
 * the VM gets these devices. Once it is undone, no device reaches the VM's RAM or raises its
 * events. */
extern const struct vm_part pci_claim_part, pci_part;
/* The hypercalls TAKT_HC_PCI_* of a VM about its device `index` (include/takt/abi.h). From any
 * pCPU. They return -ENOENT if the VM has no such device. */
i64 give_info(struct vm *vm, u32 index, gpa_t to);
i64 give_eoi(struct vm *vm, u32 index);
i64 give_read(struct vm *vm, u32 index, u32 offset, u32 size);
i64 give_write(struct vm *vm, u32 index, u32 offset, u32 size, u32 value);
/* Returns why no VM can have this device, as one sentence; NULL if one can. */
const char *give_refused(const struct pci_device *d);

/* Give a device to a VM that runs, or take it away. Both take many steps, so that each is short:
 * the caller calls them again with the same arguments as long as they return 1. They run on the
 * housekeeping pCPU, one sequence of steps at a time. `asked` is as in config.h. They return
 *   1        call again, when the clock has come to *at (ns); 0 means soon
 *   0        all is done
 *   -ENOENT, -EINVAL, -EBUSY, -EPERM, -ENOSPC, -ENOMEM, -EIO, -EAGAIN
 *            it cannot be done; vm->why holds the sentence for the operator
 * give_detach() tells the VM through the store that the device is `leaving`, and gives its driver
 * 2 s to let go, unless `force` is set. give_stop() ends a sequence of steps early. */
int give_attach(struct vm *vm, u64 asked, u64 *at);
int give_detach(struct vm *vm, u32 bdf, bool force, u64 *at);
void give_stop(void);

#endif
