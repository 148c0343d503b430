/* Which IOMMU has a device, and whether a VM may get the device, by the firmware's table of IOMMUs
 * (ACPI's DMAR). A "unit" is one IOMMU. A "scope" is an entry of that table which names a device or
 * a bridge, and says that it belongs to a unit or to a region. A "region" (RMRR) is memory that the
 * firmware goes on using by a device. A "bdf" is a device's segment, bus, device and function in
 * one number. Section numbers are of the VT-d specification. */
#include "passthrough/vtd.h"

#include "passthrough/vtd_shared.h"
#include "passthrough/vtd_unit.h"

/* the largest region, in bytes, that a VM's device may have: when the device leaves, the region is
 * unmapped in a single step, which must be short */
#define REGION_MAX (16ull << 20)

/* Returns the number of the segment (a group of up to 256 buses) of what the scope belongs to. */
static u32 scope_segment(const struct dmar_scope *s) {
    if (s->of_region) return vtd.dmar.region[s->of].segment;
    return vtd.dmar.unit[s->of].segment;
}

/* Returns the bdf to which the path of a scope leads (8.3.1): a device and a function on the bus
 * where the path begins, and, if that is a bridge, again on the bus behind it, and so on. Returns
 * NOWHERE if one of these bridges is missing. */
u32 vtd_scope_bdf(const struct dmar_scope *s) {
    u32 segment = scope_segment(s) << 16, bus = s->bus, bdf = NOWHERE;

    for (u32 i = 0; i < s->hops; i++) {
        if (i && (pci_read(bdf, PCI_HEADER, 1) & 0x7f) != 1) return NOWHERE;
        if (i) bus = pci_read(bdf, PCI_SECONDARY, 1);
        bdf = segment | PCI_BDF(bus, s->path[i][0] & 31, s->path[i][1] & 7);
    }
    return bdf;
}

/* Does the scope name this device, or a bridge above it? A bridge stands for all buses from its
 * secondary to its subordinate bus. */
static bool scope_covers(const struct dmar_scope *s, u32 bdf) {
    u32 at = vtd_scope_bdf(s);

    if (at == bdf) return s->kind == DMAR_ENDPOINT || s->kind == DMAR_BRIDGE;
    return s->kind == DMAR_BRIDGE && at != NOWHERE && at >> 16 == bdf >> 16 &&
           (bdf >> 8 & 0xff) >= pci_read(at, PCI_SECONDARY, 1) &&
           (bdf >> 8 & 0xff) <= pci_read(at, PCI_SUBORDINATE, 1);
}

/* Returns the bdf by which firmware's tables name a device. For a virtual function that is its
 * physical function, as tables name no virtual ones. */
static u32 table_bdf(const struct pci_device *d) {
    if (d->pf) return d->pf->bdf;
    return d->bdf;
}

/* Returns a scope that names the device `d`: of a region if `region` is set, or else of a unit.
 * NULL if there is none. */
const struct dmar_scope *vtd_scope_of(const struct pci_device *d, bool region) {
    u32 bdf = table_bdf(d);

    for (const struct dmar_scope *s = vtd.dmar.scope; s < vtd.dmar.scope + vtd.dmar.nr_scopes; s++)
        if (s->of_region == region && scope_covers(s, bdf)) return s;
    return NULL;
}

/* Returns the unit that has a device: the one that names it, or else the one of its segment for all
 * others. */
struct iommu_unit *vtd_unit_of(const struct pci_device *d) {
    const struct dmar_scope *s = vtd_scope_of(d, false);

    if (s) return &vtd.unit[s->of];
    FOR_UNITS(u)
    if (vtd.dmar.unit[u - vtd.unit].all && vtd.dmar.unit[u - vtd.unit].segment == d->bdf >> 16)
        return u;
    return NULL;
}

/* May this device belong to another unit than unit_of() says? It may, if no entry names the device
 * and some entry could not be read: that one might name it. */
static bool is_unsure(const struct pci_device *d) {
    if (vtd_scope_of(d, false)) return false;
    for (u32 i = 0; i < vtd.dmar.nr_units; i++)
        if (vtd.dmar.unit[i].unsure && vtd.dmar.unit[i].segment == d->bdf >> 16) return true;
    return vtd.dmar.unsure;
}

/* Does firmware reserve region n for this device? */
bool vtd_has_region(const struct pci_device *d, u32 n) {
    u32 bdf = table_bdf(d);

    for (const struct dmar_scope *s = vtd.dmar.scope; s < vtd.dmar.scope + vtd.dmar.nr_scopes; s++)
        if (s->of_region && s->of == n && scope_covers(s, bdf)) return true;
    return false;
}

/* Was region n mapped at boot? If not, its entry is malformed, or the machine has RAM there. */
bool vtd_region_is_good(u32 n) { return vtd.good_regions >> n & 1; }

/* Returns the length of region n in bytes. */
u64 vtd_region_len(u32 n) { return vtd.dmar.region[n].last + 1 - vtd.dmar.region[n].first; }

/* Returns why a device that firmware goes on using cannot be given to a VM; NULL if it can be. */
static const char *region_refused(const struct pci_device *d) {
    if (!vtd.relax) return "firmware goes on using it (RMRR; relax_rmrr allows it)";
    for (u32 n = 0; n < vtd.dmar.nr_regions; n++)
        if (vtd_has_region(d, n) && vtd_region_is_good(n) && vtd_region_len(n) > REGION_MAX)
            return "firmware reserves more than 16 MiB of memory for it (RMRR)";
    return NULL;
}

/* Does a unit block this device as long as no VM has it? It does if the unit is on. When the table
 * is unsure which unit the device has, the answer is no. */
bool iommu_blocks(const struct pci_device *d) {
    const struct iommu_unit *u;

    if (!vtd.on) return false;
    u = vtd_unit_of(d);
    return u && u->on && !is_unsure(d);
}

/* Returns why no unit can confine this device, as words to follow "as"; NULL if one does. */
const char *iommu_refused(const struct pci_device *d) {
    const struct iommu_unit *u;

    if (!vtd.on) return vtd.why_off;
    u = vtd_unit_of(d);
    if (!u) return "firmware names no IOMMU for it";
    if (is_unsure(d)) return "firmware's table of IOMMUs has a malformed entry";
    if (!u->why && vtd_scope_of(d, true)) return region_refused(d);
    return u->why;
}

/* Reads the firmware's table of units, if there is one. Nothing is switched on yet. */
void iommu_read(const struct acpi_info *a, bool relax_rmrr) {
    vtd.relax = relax_rmrr;
    if (a->dmar) dmar_parse(&vtd.dmar, a->dmar, a->dmar_len);
}

/* Does the firmware's table reserve memory for this device, so that firmware goes on using it? */
bool iommu_firmware_uses(const struct pci_device *d) { return vtd_scope_of(d, true) != NULL; }
