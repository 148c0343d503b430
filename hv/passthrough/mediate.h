/* Configuration space of a device as the VM that has it sees it. */
#ifndef HV_PASSTHROUGH_MEDIATE_H
#define HV_PASSTHROUGH_MEDIATE_H

#include "passthrough/assign.h"

/* Both return -EINVAL if no register has this offset and size, and -EPERM if the access is not for
 * VMs (pci/rules.h), which is counted. Else mediate_read() returns the value and mediate_write() 0.
 * From any pCPU; they take the lock of the assignment. */
i64 mediate_read(struct assignment *a, u32 offset, u32 size);
i64 mediate_write(struct assignment *a, u32 offset, u32 size, u32 value);

#endif
