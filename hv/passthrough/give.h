/* Giving a device of the machine to a VM, and taking it back. */
#ifndef HV_PASSTHROUGH_GIVE_H
#define HV_PASSTHROUGH_GIVE_H

#include "pci/pci.h"

/* Once at boot, after pci_enumerate(). `ram`: all RAM of this machine, where no register of a
 * device is believed to be; it has to stay. */
void give_init(const struct acpi_info *a, const struct memmap *ram);
/* Why it can be given to nobody, one sentence; NULL: it can. */
const char *give_refused(const struct pci_device *d);
/* Why the VM cannot be made, or have the device: one sentence, in vm->why. Returns `error`. */
int give_refuse(struct vm *vm, int error, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Gives a device to a VM that runs, or takes it, in steps: 1: call again, at *at or soon (0). Else 0, or an
 * error with vm->why. `asked` as in config.h. A VM is told by its store that a device is `leaving`, and has
 * 2 s to let go, unless by force. give_stop(): there will be no more steps. On the housekeeping pCPU, one at
 * a time. */
int give_attach(struct vm *vm, u64 asked, u64 *at);
int give_detach(struct vm *vm, u32 bdf, bool force, u64 *at);
void give_stop(void);
/* What the VM that has it is told of it by its store has changed. */
void give_tell(const struct pci_device *d);

#endif
