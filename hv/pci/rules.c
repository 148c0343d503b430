/* Which registers of a PCI device's configuration space its VM may read or write, as a table of
 * rules. Only what a driver needs and what tells nothing about the rest of the machine is shown;
 * anything that is not in the table is refused. passthrough/mediate.c goes by it. A capability is a
 * group of registers for one ability of the device; its head holds its number and where the next
 * one begins. */
#include "pci/rules.h"

#define FIRST_CAPABILITY 0x40u  /* the first offset behind the header */
#define FIRST_EXTENDED   0x100u /* the first offset that only PCI Express has */

/* The header and extended capabilities have numbers that no capability of a device has. Any number
 * of 8 bits may be one, 0 as well: it stands for a capability that is empty. */
#define HEADER      0x20000u
#define EXTENDED(n) (0x10000u | (n))
#define EXT_AER     0x01
#define EXT_SERIAL  0x03

/* The rule for the bytes [first, end) of a capability, or of the header (PCI 3.0, 6.1; PCI Express
 * 7.8 to 7.10). Registers that are not in this table are refused, except the heads of all
 * capabilities: a VM needs these to find the capabilities that it may read. */
static const struct range {
    u32 capability;
    u8 first, end;
    u8 rule; /* enum pci_rule */
} ranges[] = {
    { HEADER, 0x00, 0x04, PCI_RULE_ID },
    { HEADER, 0x04, 0x08, PCI_RULE_COMMAND },
    { HEADER, 0x08, 0x10, PCI_RULE_AS_IT_IS },
    { HEADER, 0x10, 0x28, PCI_RULE_BARS },
    { HEADER, 0x28, 0x30, PCI_RULE_AS_IT_IS },
    { HEADER, 0x30, 0x34, PCI_RULE_ZERO }, /* expansion ROM: VMs see none */
    { HEADER, 0x34, 0x40, PCI_RULE_AS_IT_IS },
    { PCI_CAP_PM, 0x00, 0x08, PCI_RULE_AS_IT_IS },
    { PCI_CAP_MSIX, 0x00, 0x04, PCI_RULE_TABLE_SIZE },
    { PCI_CAP_MSIX, 0x04, 0x0c, PCI_RULE_AS_IT_IS },
    { PCI_CAP_EXPRESS, 0x00, 0x3c, PCI_RULE_AS_IT_IS },
    { EXTENDED(EXT_AER), 0x00, 0x2c, PCI_RULE_AS_IT_IS },
    { EXTENDED(EXT_SERIAL), 0x00, 0x0c, PCI_RULE_AS_IT_IS },
    { EXTENDED(PCI_EXT_ARI), 0x00, 0x08, PCI_RULE_AS_IT_IS },
    { EXTENDED(PCI_EXT_SRIOV), 0x00, 0x40, PCI_RULE_AS_IT_IS },
};

/* Returns the rule of the table for byte `at` of a capability. */
static enum pci_rule rule_at(u32 capability, u32 at) {
    for (const struct range *r = ranges; r < ranges + ARRAY_SIZE(ranges); r++)
        if (r->capability == capability && at >= r->first && at < r->end)
            return (enum pci_rule)r->rule;
    return PCI_RULE_REFUSED;
}

/* Is this an access that configuration space has: of 1, 2 or 4 bytes, aligned, within 4 KiB? */
bool pci_register_exists(u32 offset, u32 size) {
    return (size == 1 || size == 2 || size == 4) && offset < 4096 && !(offset & (size - 1));
}

/* Returns the rule for a register below 0x100, by walking the list of capabilities. If the list
 * leads in a circle, the walk ends after PCI_MAX_CAPS. */
static enum pci_rule rule_of_capability(const struct pci_device *d, u32 offset, u32 size) {
    u32 at = 0;

    if (pci_read(d->bdf, PCI_STATUS, 2) & PCI_STATUS_LIST)
        at = pci_read(d->bdf, PCI_CAPABILITIES, 1) & 0xfc;
    for (u32 n = 0; n < PCI_MAX_CAPS && at >= FIRST_CAPABILITY; n++) {
        u32 word = pci_read(d->bdf, at, 4);
        enum pci_rule rule = PCI_RULE_REFUSED;

        if (word == ~0u) return PCI_RULE_REFUSED;
        if (offset >= at) rule = rule_at(word & 0xff, offset - at);
        if (rule != PCI_RULE_REFUSED) return rule;
        if (offset >= at && offset + size <= at + 2) return PCI_RULE_AS_IT_IS; /* its head */
        at = word >> 8 & 0xfc;
    }
    return PCI_RULE_REFUSED;
}

/* Returns the rule for a register from 0x100 on, by walking the list of extended capabilities.
 * Their heads have another form than those below 0x100: PCI Express 7.9.3. */
static enum pci_rule rule_of_extended(const struct pci_device *d, u32 offset, u32 size) {
    u32 at = FIRST_EXTENDED;

    if (!d->express) return PCI_RULE_REFUSED; /* PCI without Express has no space there */
    for (u32 n = 0; n < PCI_MAX_CAPS && at >= FIRST_EXTENDED; n++) {
        u32 word = pci_read(d->bdf, at, 4);
        enum pci_rule rule = PCI_RULE_REFUSED;

        if (word == ~0u) return PCI_RULE_REFUSED;
        if (offset >= at) rule = rule_at(EXTENDED(word & 0xffff), offset - at);
        if (rule != PCI_RULE_REFUSED) return rule;
        if (offset >= at && offset + size <= at + 4) return PCI_RULE_AS_IT_IS; /* its head */
        at = word >> 20 & 0xffc;
    }
    return PCI_RULE_REFUSED;
}

/* Returns the rule for an access to the configuration space of a device. */
enum pci_rule pci_rule_of(const struct pci_device *d, u32 offset, u32 size) {
    if (offset < FIRST_CAPABILITY) return rule_at(HEADER, offset);
    if (offset < FIRST_EXTENDED) return rule_of_capability(d, offset, size);
    return rule_of_extended(d, offset, size);
}
