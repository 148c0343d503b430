/* Reads ACPI's table DMAR, by which the firmware tells where the IOMMUs are (VT-d; the table calls
 * them "units") and which devices are behind each of them. It also tells of "regions": memory that
 * the firmware goes on using by devices. Both name their devices by "scopes": a bus, and the path
 * from there over bridges to the device. Section numbers are of the VT-d specification. Firmware
 * may have written nonsense. A device about which the table is not clear must count as one that no
 * IOMMU confines: if we guessed wrong, a VM that has the device could read and write all memory. */
#include "platform/firmware.h"

/* Offsets in the table, and bits of its flags: VT-d 8.1. */
enum { DMAR_FLAGS = 37, DMAR_ENTRIES = 48 };
#define INTR_REMAP     BIT(0)
#define X2APIC_OPT_OUT BIT(1)

/* The head of each entry, and the kinds that are read: VT-d 8.2. */
enum { ENTRY_KIND = 0, ENTRY_LENGTH = 2, ENTRY_HEAD = 4 };
enum { KIND_UNIT = 0, KIND_REGION = 1 };

/* An entry for a unit (DRHD): VT-d 8.3. */
enum { UNIT_FLAGS = 4, UNIT_SEGMENT = 6, UNIT_BASE = 8, UNIT_SCOPES = 16 };
#define UNIT_ALL BIT(0) /* INCLUDE_PCI_ALL */

/* An entry for a region (RMRR): VT-d 8.4. */
enum { REGION_SEGMENT = 6, REGION_FIRST = 8, REGION_LAST = 16, REGION_SCOPES = 24 };

/* A scope, which names a device: VT-d 8.3.1. Its path has two bytes for each hop. */
enum { SCOPE_KIND = 0, SCOPE_LENGTH = 1, SCOPE_ID = 4, SCOPE_BUS = 5, SCOPE_PATH = 6 };
#define HOP_BYTES 2u

/* Can *out hold one more scope, whose entry in the table has `size` bytes? No if the path has no
 * hop, half a hop, or more hops than there is room for. */
static bool scope_fits(const struct dmar_info *out, u32 size) {
    if (size < SCOPE_PATH + HOP_BYTES || size % HOP_BYTES) return false;
    if (size > SCOPE_PATH + HOP_BYTES * DMAR_MAX_HOPS) return false;
    return out->nr_scopes < DMAR_MAX_SCOPES;
}

/* Copies the scopes of one unit or region, the `len` bytes at `e`, to out->scope. `of` is the
 * number of that unit (or region, if `of_region`). Each scope begins with its own length, so the
 * walk goes from one to the next. Returns false if some scope could not be added. The caller then
 * marks the unit as unsure, because a device that was meant to be confined may be missing. */
static bool add_scopes(struct dmar_info *out, const u8 *e, u32 len, bool of_region, u32 of) {
    bool all = true;

    for (u32 size; len; e += size, len -= size) {
        struct dmar_scope *s;

        size = 0;
        if (len >= SCOPE_PATH) size = e[SCOPE_LENGTH];
        if (size < SCOPE_PATH || size > len) return false; /* the rest cannot be found */
        if (!scope_fits(out, size)) {
            all = false;
            continue;
        }
        s = &out->scope[out->nr_scopes++];
        *s = (struct dmar_scope){ .of_region = of_region,
                                  .of = (u8)of,
                                  .kind = e[SCOPE_KIND],
                                  .id = e[SCOPE_ID],
                                  .bus = e[SCOPE_BUS],
                                  .hops = (u8)((size - SCOPE_PATH) / HOP_BYTES) };
        memcpy(s->path, e + SCOPE_PATH, size - SCOPE_PATH);
    }
    return all;
}

/* Returns why unit n cannot be used, in words to follow "as", or NULL if it can. A unit that shares
 * its address, or its claim to all other devices, with another one contradicts it: we cannot know
 * which of the two is right. */
static const char *odd_unit(const struct dmar_info *out, u32 n) {
    if (!out->unit[n].base || out->unit[n].base & (PAGE_SIZE - 1))
        return "firmware's table tells no address of its IOMMU";
    for (u32 i = 0; i < n; i++) {
        if (out->unit[i].base == out->unit[n].base)
            return "firmware's table has another IOMMU at the same address";
        if (out->unit[i].all && out->unit[n].all && out->unit[i].segment == out->unit[n].segment)
            return "firmware's table has two IOMMUs for all other devices";
    }
    return NULL;
}

/* Adds the unit that the entry at `e` of `len` bytes describes. Returns false if the entry had to
 * be left out, so that nobody knows which devices the unit has. */
static bool add_unit(struct dmar_info *out, const u8 *e, u32 len) {
    u32 n = out->nr_units;

    if (len < UNIT_SCOPES || n == DMAR_MAX_UNITS) return false;
    out->nr_units++;
    out->unit[n].base = table_get(e + UNIT_BASE, 8);
    out->unit[n].segment = (u16)table_get(e + UNIT_SEGMENT, 2);
    out->unit[n].all = e[UNIT_FLAGS] & UNIT_ALL;
    out->unit[n].odd = odd_unit(out, n);
    out->unit[n].unsure = !add_scopes(out, e + UNIT_SCOPES, len - UNIT_SCOPES, false, n);
    if (out->unit[n].unsure && !out->unit[n].odd)
        out->unit[n].odd = "the entry of its IOMMU in firmware's table is malformed";
    return true;
}

/* Does [first, last] consist of whole pages? Rights of devices are given by the page, so any other
 * region would grant a device more memory than the firmware has asked for. */
static bool whole_pages(u64 first, u64 last) {
    return !(first & (PAGE_SIZE - 1)) && !((last + 1) & (PAGE_SIZE - 1)) && first < last;
}

/* Adds the region that the entry at `e` of `len` bytes describes. Returns false if the entry, or a
 * device that it names, had to be left out. */
static bool add_region(struct dmar_info *out, const u8 *e, u32 len) {
    u32 n = out->nr_regions;

    if (len < REGION_SCOPES || n == DMAR_MAX_REGIONS) return false;
    out->nr_regions++;
    out->region[n].segment = (u16)table_get(e + REGION_SEGMENT, 2);
    out->region[n].first = table_get(e + REGION_FIRST, 8);
    out->region[n].last = table_get(e + REGION_LAST, 8);
    out->region[n].odd = !whole_pages(out->region[n].first, out->region[n].last);
    return add_scopes(out, e + REGION_SCOPES, len - REGION_SCOPES, true, n);
}

/* Does the firmware ask that the APICs stay in xAPIC mode? The bit counts only on a machine that
 * can remap interrupts. */
bool dmar_opts_out_of_x2apic(const u8 *t, u32 len) {
    const u32 both = INTR_REMAP | X2APIC_OPT_OUT;

    return len >= DMAR_ENTRIES && (t[DMAR_FLAGS] & both) == both;
}

/* Reads the ACPI table DMAR, which describes the IOMMUs, into *out. Goes through the entries of the
 * table, and adds units and regions to *out. Entries of other kinds are not needed. If the length
 * of an entry makes no sense, the walk ends, and all is unsure. */
void dmar_parse(struct dmar_info *out, const u8 *t, u32 len) {
    memset(out, 0, sizeof(*out));
    out->unsure = len < DMAR_ENTRIES;
    if (out->unsure) return;
    out->remaps_interrupts = t[DMAR_FLAGS] & INTR_REMAP;
    for (u32 at = DMAR_ENTRIES, size; at < len; at += size) {
        u32 kind;

        size = 0;
        if (len - at >= ENTRY_HEAD) size = (u32)table_get(t + at + ENTRY_LENGTH, 2);
        if (size < ENTRY_HEAD || size > len - at) { /* what follows cannot be found */
            out->unsure = true;
            return;
        }
        kind = (u32)table_get(t + at + ENTRY_KIND, 2);
        if (kind == KIND_UNIT && !add_unit(out, t + at, size)) out->unsure = true;
        if (kind == KIND_REGION && !add_region(out, t + at, size)) out->lost_regions++;
    }
}
