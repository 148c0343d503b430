/* What is known of single devices that their configuration space does not tell, or tells
 * wrongly. */
#ifndef HV_PCI_QUIRKS_H
#define HV_PCI_QUIRKS_H

#include "pci/pci.h"

/* Its BARs are no BARs: what is written there does harm. */
bool quirk_no_bars(const struct pci_device *d);
/* One function of several, without an ACS capability, that cannot reach the others: its vendor
 * says so. */
bool quirk_isolated(const struct pci_device *d);
/* Where the control register of ACS is, from the capability on. */
u32 quirk_acs_control(const struct pci_device *d);

#endif
