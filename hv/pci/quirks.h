/* What single devices do not tell of themselves, or tell wrongly. */
#ifndef HV_PCI_QUIRKS_H
#define HV_PCI_QUIRKS_H

#include "pci/pci.h"

/* Are the registers where BARs should be something else? Writing there does harm. */
bool quirk_no_bars(const struct pci_device *d);
/* Can this function not reach the other functions of its device, though it has no ACS capability?
 * Its vendor says so. */
bool quirk_isolated(const struct pci_device *d);
/* Returns the offset of ACS' control register in that capability. */
u32 quirk_acs_control(const struct pci_device *d);

#endif
