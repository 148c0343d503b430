#include "platform/firmware.h"

#define HEADER     48u
#define INTR_REMAP 1u
#define ALL        1u /* flag INCLUDE_PCI_ALL of a unit */

enum { UNIT, REGION }; /* VT-d 8.2; the other kinds tell nothing that is used */

/* VT-d 8.3.1: each is 6 bytes and its path. */
static bool add_scopes(struct dmar_info *out, const u8 *e, u32 len, bool of_region, u32 of) {
    for (u32 size; len; e += size, len -= size) {
        struct dmar_scope *s = &out->scope[out->nr_scopes];

        size = len < 6 ? 0 : e[1];
        if (size < 8 || size > len || size % 2 || size > 6 + 2 * DMAR_MAX_HOPS) return false;
        if (out->nr_scopes++ == DMAR_MAX_SCOPES) return false;
        *s = (struct dmar_scope){ .of_region = of_region,
                                  .of = (u8)of,
                                  .kind = e[0],
                                  .id = e[4],
                                  .bus = e[5],
                                  .hops = (u8)(size / 2 - 3) };
        memcpy(s->path, e + 6, size - 6);
    }
    return true;
}

static bool add_unit(struct dmar_info *out, const u8 *e, u32 len) {
    u32 n = out->nr_units;

    if (len < 16 || n == DMAR_MAX_UNITS) return false;
    out->unit[n].base = table_get(e + 8, 8);
    out->unit[n].all = e[4] & ALL;
    out->nr_units++;
    /* the ports of configuration space reach segment 0 alone, and so does Takt */
    return !table_get(e + 6, 2) && out->unit[n].base && !(out->unit[n].base & (PAGE_SIZE - 1)) &&
           add_scopes(out, e + 16, len - 16, false, n);
}

static bool add_region(struct dmar_info *out, const u8 *e, u32 len) {
    u32 n = out->nr_regions;

    if (len < 24 || n == DMAR_MAX_REGIONS) return false;
    out->region[n].first = table_get(e + 8, 8);
    out->region[n].last = table_get(e + 16, 8);
    out->nr_regions++;
    return !(out->region[n].first & (PAGE_SIZE - 1)) && !((out->region[n].last + 1) & (PAGE_SIZE - 1)) &&
           out->region[n].first < out->region[n].last && add_scopes(out, e + 24, len - 24, true, n);
}

void dmar_parse(struct dmar_info *out, const u8 *t, u32 len) {
    memset(out, 0, sizeof(*out));
    out->bad = len < HEADER;
    if (out->bad) return;
    out->remaps_interrupts = t[37] & INTR_REMAP;
    for (u32 at = HEADER, size; at < len && !out->bad; at += size) {
        size = len - at < 4 ? 0 : (u32)table_get(t + at + 2, 2);
        if (size < 4 || size > len - at)
            out->bad = true;
        else if (table_get(t + at, 2) == UNIT)
            out->bad = !add_unit(out, t + at, size);
        else if (table_get(t + at, 2) == REGION)
            out->bad = !add_region(out, t + at, size);
    }
}
