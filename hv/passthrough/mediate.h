/* Configuration space of a device as the VM that has it sees it. */
#ifndef HV_PASSTHROUGH_MEDIATE_H
#define HV_PASSTHROUGH_MEDIATE_H

#include "passthrough/assign.h"

/* mediate_read() returns the value of a register, and mediate_write() returns 0. Both return
 *   -EINVAL  no register has this offset and size
 *   -EPERM   VMs may not do that (pci/rules.h); such accesses are counted
 * From any pCPU. mediate_write() takes the lock of the assignment. */
i64 mediate_read(struct assignment *a, u32 offset, u32 size);
i64 mediate_write(struct assignment *a, u32 offset, u32 size, u32 value);

#endif
