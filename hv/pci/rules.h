/* Which registers of configuration space a VM may see, and how: docs/passthrough.md has the
 * table. */
#ifndef HV_PCI_RULES_H
#define HV_PCI_RULES_H

#include "pci/pci.h"

enum pci_rule {
    PCI_RULE_REFUSED, /* not at all */
    PCI_RULE_AS_IT_IS,
    PCI_RULE_COMMAND, /* as it is; parts of it may be written */
    PCI_RULE_ID,      /* as Takt knows it: a virtual function's reads as ones */
    PCI_RULE_BARS,    /* the addresses at which the VM sees them */
    PCI_RULE_ZERO,    /* reads as 0 */
    /* the control word of MSI-X with the size that the VM gets, never masked */
    PCI_RULE_TABLE_SIZE,
};

/* Is there a register at `offset` of `size` bytes: 1, 2 or 4, at a multiple of its size? */
bool pci_register_exists(u32 offset, u32 size);
/* Returns the rule for a register that exists. Reading by any rule changes nothing in the
 * device. */
enum pci_rule pci_rule_of(const struct pci_device *d, u32 offset, u32 size);

#endif
