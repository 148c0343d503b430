/* Configuration space as VMs see it: docs/passthrough.md has the table. */
#ifndef HV_PASSTHROUGH_MEDIATE_H
#define HV_PASSTHROUGH_MEDIATE_H

#include "pci/pci.h"

/* The value; -EINVAL: no register has this offset or size; -EPERM: it is not for VMs, which is counted. */
i64 mediate_read(struct pci_device *d, u32 offset, u32 size);
i64 mediate_write(struct pci_device *d, u32 offset, u32 size, u32 value); /* 0, or as above */

#endif
