/* Facts about certain models of devices that their registers do not tell, or tell wrongly. */
#ifndef HV_PCI_QUIRKS_H
#define HV_PCI_QUIRKS_H

#include "pci/pci.h"

/* Does this device have other registers at the place of the BARs? If so, to size its BARs would do
 * harm, because that writes to them. */
bool quirk_no_bars(const struct pci_device *d);
/* Does the vendor say that this function cannot reach the other functions of its device, although
 * it has no ACS capability to tell so? */
bool quirk_isolated(const struct pci_device *d);
/* Returns the offset of the control register in the device's ACS capability. */
u32 quirk_acs_control(const struct pci_device *d);

#endif
