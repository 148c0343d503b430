/* Resets of devices that VMs have, or had. */
#ifndef HV_PASSTHROUGH_RESET_H
#define HV_PASSTHROUGH_RESET_H

#include "passthrough/assign.h"

/* A phase of the reset of a device: takes and returns what pci_reset() does. The VM cannot make the
 * device master of the bus any more. If it has virtual functions that other VMs have, these are off
 * until they are there again, and their VMs are told by the store. On the housekeeping pCPU. */
u64 assign_reset(struct assignment *a, u32 phase);

#endif
