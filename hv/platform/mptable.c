#include "platform/firmware.h"

#define FLOATING 16u
#define HEADER   44u

enum { MP_CPU, MP_BUS, MP_IOAPIC, MP_INTERRUPT };

static bool floating_ok(const u8 *p, u32 len) { return !memcmp(p, "_MP_", 4) && table_sums_to_zero(p, len); }

static const u8 *find_table(struct mp_info *out, u32 *len) {
    const u8 *p = firmware_find(0xf0000, FLOATING, floating_ok), *t; /* 4.1 */
    u64 pa = p ? table_get(p + 4, 4) : 0;

    t = pa ? acpi_map(pa, HEADER) : NULL;
    *len = t ? (u32)table_get(t + 4, 2) : 0;
    t = *len < HEADER ? NULL : acpi_map(pa, *len);
    if (t && !memcmp(t, "PCMP", 4) && table_sums_to_zero(t, *len)) return t;
    out->bad = pa;
    return NULL;
}

/* The entry with this id: every kind but MP_CPU has it in its second byte. */
static const u8 *find(const u8 *t, u32 len, u8 type, u8 id) {
    for (u32 at = HEADER; at + 8 <= len; at += t[at] == MP_CPU ? 20 : 8)
        if (t[at] == type && t[at + 1] == id) return t + at;
    return NULL;
}

/* 4.3.4: an ordinary interrupt from a PCI bus, to one IOAPIC. */
static void add_route(struct mp_info *out, const struct acpi_info *a, const u8 *t, u32 len, const u8 *e) {
    const u8 *bus = find(t, len, MP_BUS, e[4]), *apic = find(t, len, MP_IOAPIC, e[6]);

    if (e[1] != 0 || !bus || memcmp(bus + 2, "PCI", 3) || !apic || out->nr == MP_MAX_ROUTES) return;
    for (u32 i = 0; i < a->nr_ioapics; i++) {
        if (a->ioapic[i].addr != table_get(apic + 4, 4)) continue;
        out->route[out->nr++] = (struct mp_route){
            .bus = e[4],
            .device = e[5] >> 2 & 31,
            .pin = e[5] & 3,
            .flags = (u16)table_get(e + 2, 2),
            .gsi = a->ioapic[i].gsi_base + e[7],
        };
        return;
    }
}

void mp_parse(struct mp_info *out, const struct acpi_info *a) {
    const u8 *t;
    u32 len;

    memset(out, 0, sizeof(*out));
    t = find_table(out, &len);
    for (u32 at = HEADER, size; t && at < len; at += size) {
        size = t[at] == MP_CPU ? 20 : 8;
        out->bad = size > len - at;
        if (out->bad) return;
        if (t[at] == MP_INTERRUPT) add_route(out, a, t, len, t + at);
    }
}
