/* Giving a device of the machine to a VM, and taking it back. */
#ifndef HV_PASSTHROUGH_GIVE_H
#define HV_PASSTHROUGH_GIVE_H

#include "passthrough/assign.h"

/* Once at boot, when all devices are known, virtual functions too. `ram`: all RAM of this machine,
 * where no register of a device can be; it has to stay, as has `a`. */
void give_init(const struct acpi_info *a, const struct memmap *ram);
/* Parts of a VM: before it has anything else, the claim on the devices that its section names; and
 * these devices themselves, which come after RAM, vCPUs and event channels. When they are undone no
 * device reaches the VM's RAM or raises its events. */
extern const struct vm_part pci_claim_part, pci_part;
/* The hypercalls TAKT_HC_PCI_* of a VM about its device `index`. -ENOENT: it has none. */
i64 give_info(struct vm *vm, u32 index, gpa_t to);
i64 give_eoi(struct vm *vm, u32 index);
i64 give_read(struct vm *vm, u32 index, u32 offset, u32 size);
i64 give_write(struct vm *vm, u32 index, u32 offset, u32 size, u32 value);
/* Returns why no VM can have this device, as one sentence; NULL if one can. */
const char *give_refused(const struct pci_device *d);

/* Give a device to a VM that runs, or take it away, in steps: they return 1 to be called again, at
 * *at or soon (0); 0 when all is done; or an error with vm->why. `asked` is as in config.h.
 * give_detach() tells the VM by its store that the device is `leaving`, and gives it 2 s to let go,
 * unless by `force`. give_stop() ends a sequence of steps early. On the housekeeping pCPU, one
 * sequence at a time. */
int give_attach(struct vm *vm, u64 asked, u64 *at);
int give_detach(struct vm *vm, u32 bdf, bool force, u64 *at);
void give_stop(void);

#endif
