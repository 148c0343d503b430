/* Which registers of a device's configuration space a VM may read and write, and what it reads
 * there. docs/passthrough.md has the table. */
#ifndef HV_PCI_RULES_H
#define HV_PCI_RULES_H

#include "pci/pci.h"

enum pci_rule {
    PCI_RULE_REFUSED,  /* the VM may not read it */
    PCI_RULE_AS_IT_IS, /* the VM reads what the device has there */
    PCI_RULE_COMMAND,  /* likewise, and the VM may write some bits of it */
    /* The VM reads the id that Takt knows: in a virtual function this register reads as all
     * ones. */
    PCI_RULE_ID,
    PCI_RULE_BARS, /* the VM reads the addresses at which it sees the BARs */
    PCI_RULE_ZERO, /* the VM reads 0 */
    /* The VM reads the control word of MSI-X, with the number of entries that it gets, and without
     * the mask that the hypervisor may have set. */
    PCI_RULE_TABLE_SIZE,
};

/* Can there be a register of `size` bytes at `offset`? The size must be 1, 2 or 4, and the offset a
 * multiple of it within the 4 KiB of configuration space. */
bool pci_register_exists(u32 offset, u32 size);
/* Returns the rule for a register for which pci_register_exists() is true. No register that a VM
 * may read by these rules changes its state when it is read. */
enum pci_rule pci_rule_of(const struct pci_device *d, u32 offset, u32 size);

#endif
