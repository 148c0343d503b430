/* Stops devices that the firmware has left running. */
#ifndef HV_PASSTHROUGH_QUIESCE_H
#define HV_PASSTHROUGH_QUIESCE_H

#include <takt/types.h>

/* Switches bus mastering off for network cards, storage and USB controllers, so that they cannot
 * write to memory until a VM gets them. Devices that the firmware itself goes on using keep bus
 * mastering. The log says what was done. To be called once at boot, after pci_enumerate() and
 * iommu_read(). */
void pci_quiesce(void);

#endif
