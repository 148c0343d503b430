/* Devices that firmware left running. */
#ifndef HV_PASSTHROUGH_QUIESCE_H
#define HV_PASSTHROUGH_QUIESCE_H

#include <takt/types.h>

/* Once at boot, after pci_enumerate() and iommu_read(). Network cards, storage and USB controllers
 * lose the right to be master of the bus until a VM gets them. Those that firmware itself goes on
 * using keep it. The log says what was done. */
void pci_quiesce(void);

#endif
