/* Resets of devices that VMs have, or had. */
#ifndef HV_PASSTHROUGH_RESET_H
#define HV_PASSTHROUGH_RESET_H

#include "passthrough/assign.h"

/* Does one phase of the reset of a device; takes and returns what pci_reset() does (pci/pci.h).
 * From the first phase on the VM cannot make the device master of the bus any more. If other VMs
 * have virtual functions of the device, these are off until they are there again, and the store
 * tells those VMs. On the housekeeping pCPU. */
u64 assign_reset(struct assignment *a, u32 phase);

#endif
