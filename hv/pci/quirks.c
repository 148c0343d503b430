/* PCI devices that do not behave as the specification says ("quirks"), by vendor and device number.
 * ACS is the ability of a device to send all its requests up to the root of PCI, where an IOMMU
 * sees them, instead of to its neighbours. */
#include "pci/quirks.h"

#define INTEL                0x8086

#define EXPRESS_FLAGS        2 /* PCI Express 7.8.2 */
#define EXPRESS_TYPE(flags)  ((flags) >> 4 & 15)
#define ROOT_PORT            4u
#define INTEGRATED_ENDPOINT  9u

#define ACS_CONTROL          6 /* PCI Express 7.16.3 */
#define ACS_CONTROL_OF_DWORD 8

/* Devices [first, last] of a vendor. The ids are those that Linux has in drivers/pci/quirks.c,
 * which took them from errata sheets and from statements of the vendors. */
struct range {
    u16 vendor, first, last;
};

static const struct range no_bars[] = {
    { INTEL, 0x2fc0, 0x2fc0 }, /* Xeon E5 v3, erratum HSE43 */
    { INTEL, 0x6f60, 0x6f60 }, /* Xeon E5 v4, erratum BDF2, as the next two */
    { INTEL, 0x6fa0, 0x6fa0 }, { INTEL, 0x6fc0, 0x6fc0 }, { INTEL, 0xa1ec, 0xa1ed }, /* C620 */
    { INTEL, 0xa26c, 0xa26d },
};

static const struct range isolated[] = {
    /* 82598, 82599, X520 */
    { INTEL, 0x10c6, 0x10c6 },
    { INTEL, 0x10db, 0x10db },
    { INTEL, 0x10dd, 0x10dd },
    { INTEL, 0x10e1, 0x10e1 },
    { INTEL, 0x10f1, 0x10f1 },
    { INTEL, 0x10f7, 0x10fc },
    { INTEL, 0x1507, 0x1507 },
    { INTEL, 0x1514, 0x1514 },
    { INTEL, 0x151c, 0x151c },
    { INTEL, 0x1529, 0x152a },
    { INTEL, 0x154d, 0x154d },
    { INTEL, 0x154f, 0x154f },
    { INTEL, 0x1551, 0x1551 },
    { INTEL, 0x1558, 0x1558 },
    /* 82580 */
    { INTEL, 0x1509, 0x1509 },
    { INTEL, 0x150e, 0x1511 },
    { INTEL, 0x1516, 0x1516 },
    { INTEL, 0x1527, 0x1527 },
    /* 82576 */
    { INTEL, 0x10c9, 0x10c9 },
    { INTEL, 0x10e6, 0x10e8 },
    { INTEL, 0x150a, 0x150a },
    { INTEL, 0x150d, 0x150d },
    { INTEL, 0x1518, 0x1518 },
    { INTEL, 0x1526, 0x1526 },
    /* 82575 */
    { INTEL, 0x10a7, 0x10a7 },
    { INTEL, 0x10a9, 0x10a9 },
    { INTEL, 0x10d6, 0x10d6 },
    /* I350 */
    { INTEL, 0x1521, 0x1524 },
    /* 82571; cards with four ports are not among these, as they have a switch without ACS */
    { INTEL, 0x105e, 0x1060 },
    { INTEL, 0x10d9, 0x10d9 },
    /* I219 */
    { INTEL, 0x15b7, 0x15b8 },
    /* Solarflare; Emulex; Broadcom */
    { 0x1924, 0x0903, 0x0903 },
    { 0x1924, 0x0923, 0x0923 },
    { 0x1924, 0x0a03, 0x0a03 },
    { 0x19a2, 0x0710, 0x0710 },
    { 0x10df, 0x0720, 0x0720 },
    { 0x14e4, 0x16d7, 0x16d7 },
    { 0x14e4, 0x1750, 0x1752 },
    { 0x14e4, 0x1760, 0x1763 },
};

/* Root ports of Intel's 100 and 200 series chipsets, and of its mobile processors of those years.
 * Their two registers of ACS have 32 bits each, where the specification has 16 (erratum 23 of the
 * 100 series). */
static const struct range acs_of_dwords[] = { { INTEL, 0xa110, 0xa11f },
                                              { INTEL, 0xa167, 0xa16a },
                                              { INTEL, 0xa290, 0xa29f },
                                              { INTEL, 0xa2e7, 0xa2ee },
                                              { INTEL, 0x9d10, 0x9d1b } };

/* Is the device in a list of `nr` ranges? */
static bool is_in(const struct pci_device *d, const struct range *r, u32 nr) {
    for (const struct range *end = r + nr; r < end; r++)
        if (d->vendor == r->vendor && d->device >= r->first && d->device <= r->last) return true;
    return false;
}

/* Is it a PCI Express device of this type? */
static bool is_type(const struct pci_device *d, u32 type) {
    return d->express && EXPRESS_TYPE(pci_read(d->bdf, d->express + (u32)EXPRESS_FLAGS, 2)) == type;
}

/* Returns whether the device has other registers at the place of its BARs. */
bool quirk_no_bars(const struct pci_device *d) { return is_in(d, no_bars, ARRAY_SIZE(no_bars)); }

/* Returns whether the vendor says that the function reaches no other function of its device.
 * Besides the devices of the list, these are endpoints that are integrated in Intel's root complex:
 * they reach other devices only through the root (VT-d 3.16). */
bool quirk_isolated(const struct pci_device *d) {
    if (d->header) return false;
    return is_in(d, isolated, ARRAY_SIZE(isolated)) ||
           (d->vendor == INTEL && is_type(d, INTEGRATED_ENDPOINT));
}

/* Returns where the control register of ACS is in the device's capability: some devices have
 * registers of another size before it. */
u32 quirk_acs_control(const struct pci_device *d) {
    if (is_in(d, acs_of_dwords, ARRAY_SIZE(acs_of_dwords)) && is_type(d, ROOT_PORT))
        return ACS_CONTROL_OF_DWORD;
    return ACS_CONTROL;
}
