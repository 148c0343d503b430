#include "platform/firmware.h"

#define HEADER         48u
#define INTR_REMAP     1u
#define X2APIC_OPT_OUT 2u
#define ALL            1u /* flag INCLUDE_PCI_ALL of a unit */
#define SCOPE_HEADER   6u

enum { UNIT, REGION }; /* VT-d 8.2; the other kinds tell nothing that is used */

/* VT-d 8.3.1: each is 6 bytes and its path. False: at least one of them is not known now. */
static bool add_scopes(struct dmar_info *out, const u8 *e, u32 len, bool of_region, u32 of) {
    bool all = true;

    for (u32 size; len; e += size, len -= size) {
        struct dmar_scope *s = &out->scope[out->nr_scopes];

        size = len < SCOPE_HEADER ? 0 : e[1];
        if (size < SCOPE_HEADER || size > len) return false;
        if (size < SCOPE_HEADER + 2 || size % 2 || size > SCOPE_HEADER + 2 * DMAR_MAX_HOPS ||
            out->nr_scopes == DMAR_MAX_SCOPES) {
            all = false;
            continue;
        }
        out->nr_scopes++;
        *s = (struct dmar_scope){ .of_region = of_region,
                                  .of = (u8)of,
                                  .kind = e[0],
                                  .id = e[4],
                                  .bus = e[5],
                                  .hops = (u8)((size - SCOPE_HEADER) / 2) };
        memcpy(s->path, e + SCOPE_HEADER, size - SCOPE_HEADER);
    }
    return all;
}

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

/* False: there may be devices of it that are not known to be its own. */
static bool add_unit(struct dmar_info *out, const u8 *e, u32 len) {
    u32 n = out->nr_units;

    if (len < 16 || n == DMAR_MAX_UNITS) return false;
    out->nr_units++;
    out->unit[n].base = table_get(e + 8, 8);
    out->unit[n].segment = (u16)table_get(e + 6, 2);
    out->unit[n].all = e[4] & ALL;
    out->unit[n].odd = odd_unit(out, n);
    out->unit[n].unsure = !add_scopes(out, e + 16, len - 16, false, n);
    if (out->unit[n].unsure && !out->unit[n].odd)
        out->unit[n].odd = "the entry of its IOMMU in firmware's table is malformed";
    return true;
}

static bool add_region(struct dmar_info *out, const u8 *e, u32 len) {
    u32 n = out->nr_regions;

    if (len < 24 || n == DMAR_MAX_REGIONS) return false;
    out->nr_regions++;
    out->region[n].segment = (u16)table_get(e + 6, 2);
    out->region[n].first = table_get(e + 8, 8);
    out->region[n].last = table_get(e + 16, 8);
    out->region[n].odd = out->region[n].first & (PAGE_SIZE - 1) ||
                         (out->region[n].last + 1) & (PAGE_SIZE - 1) ||
                         out->region[n].first >= out->region[n].last;
    return add_scopes(out, e + 24, len - 24, true, n);
}

bool dmar_opts_out_of_x2apic(const u8 *t, u32 len) {
    return len >= HEADER && (t[37] & (INTR_REMAP | X2APIC_OPT_OUT)) == (INTR_REMAP | X2APIC_OPT_OUT);
}

void dmar_parse(struct dmar_info *out, const u8 *t, u32 len) {
    memset(out, 0, sizeof(*out));
    out->unsure = len < HEADER;
    if (out->unsure) return;
    out->remaps_interrupts = t[37] & INTR_REMAP;
    for (u32 at = HEADER, size; at < len; at += size) {
        u32 kind;

        size = len - at < 4 ? 0 : (u32)table_get(t + at + 2, 2);
        if (size < 4 || size > len - at) { /* what follows cannot be found */
            out->unsure = true;
            return;
        }
        kind = (u32)table_get(t + at, 2);
        if (kind == UNIT && !add_unit(out, t + at, size)) out->unsure = true;
        if (kind == REGION && !add_region(out, t + at, size)) out->lost_regions++;
    }
}
