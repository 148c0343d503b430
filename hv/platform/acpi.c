/* ACPI 6.5, section 5.2. Tables lie: nothing is read beyond what a checked length covers. */
#include "platform/acpi.h"

#include <takt/errno.h>
#include "lib/string.h"

#define HEADER     36u
#define MAX_TABLE  (1u << 20)
#define MAX_TABLES 128u

struct reader {
    struct acpi_info *out;
    acpi_map_fn map;
    void *ctx;
};

static u64 get(const u8 *p, unsigned bytes) {
    u64 v = 0;

    memcpy(&v, p, bytes);
    return v;
}

static bool sums_to_zero(const u8 *p, u32 len) {
    u8 sum = 0;

    while (len--) sum = (u8)(sum + *p++);
    return sum == 0;
}

/* The whole table at `pa`, checked, and its length; NULL and counted as bad if it does not hold. */
static const u8 *table_at(struct reader *r, u64 pa, u32 *len) {
    const u8 *t = pa ? r->map(r->ctx, pa, HEADER) : NULL;

    *len = t ? (u32)get(t + 4, 4) : 0;
    if (*len < HEADER || *len > MAX_TABLE) goto bad;
    t = r->map(r->ctx, pa, *len);
    if (!t || !sums_to_zero(t, *len)) goto bad;
    return t;
bad:
    r->out->bad_tables++;
    return NULL;
}

static void add_cpu(struct acpi_info *a, u32 apic_id, u32 acpi_id, u32 flags) {
    if (!(flags & 1)) /* enabled; "online capable" ones are not there yet */
        return;
    for (u32 i = 0; i < a->nr_cpus; i++)
        if (a->cpu[i].apic_id == apic_id) return;
    if (a->nr_cpus == ACPI_MAX_CPUS) {
        a->cpus_left_out++;
        return;
    }
    a->cpu[a->nr_cpus].apic_id = apic_id;
    a->cpu[a->nr_cpus++].acpi_id = acpi_id;
}

static void add_override(struct acpi_info *a, const u8 *e) {
    if (a->nr_overrides == ACPI_MAX_OVERRIDES) return;
    a->override[a->nr_overrides].irq = e[3];
    a->override[a->nr_overrides].gsi = (u32)get(e + 4, 4);
    a->override[a->nr_overrides++].flags = (u16)get(e + 8, 2);
}

static void add_ioapic(struct acpi_info *a, const u8 *e) {
    if (a->nr_ioapics == ACPI_MAX_IOAPICS) return;
    a->ioapic[a->nr_ioapics].addr = get(e + 4, 4);
    a->ioapic[a->nr_ioapics++].gsi_base = (u32)get(e + 8, 4);
}

static void parse_madt_entry(struct acpi_info *a, const u8 *e, u8 len) {
    static const u8 shortest[] = { 8, 12, 10, 8, 6, 12, 0, 0, 0, 16, 12 };

    if (e[0] >= sizeof(shortest) || !shortest[e[0]] || len < shortest[e[0]]) return;
    switch (e[0]) {
    case 0:
        if (e[3] != 0xff) add_cpu(a, e[3], e[2], (u32)get(e + 4, 4));
        break;
    case 1: add_ioapic(a, e); break;
    case 2: add_override(a, e); break;
    case 4: a->nmi_lint = e[5] & 1; break;
    case 5: a->lapic_addr = get(e + 4, 8); break;
    case 9: add_cpu(a, (u32)get(e + 4, 4), (u32)get(e + 12, 4), (u32)get(e + 8, 4)); break;
    }
}

static void parse_madt(struct reader *r, const u8 *t, u32 len) {
    if (len < 44) return;
    r->out->lapic_addr = get(t + 36, 4);
    for (u32 at = 44; len - at >= 2; at += t[at + 1]) {
        if (t[at + 1] < 2 || t[at + 1] > len - at) { /* the rest cannot be found */
            r->out->bad_tables++;
            return;
        }
        parse_madt_entry(r->out, t + at, t[at + 1]);
    }
}

/* SLP_TYPa of S5 is the first element of the package \_S5: looked for as bytes, since all else would take an
 * interpreter (ACPI 6.5, 7.4.2 and 20.2). */
static bool find_s5(const u8 *t, u32 len, u8 *type) {
    for (u32 i = HEADER; i + 9 < len; i++) {
        u32 at = i + 5;

        if (memcmp(t + i, "_S5_", 4) || t[i + 4] != 0x12) continue;
        at += (t[at] >> 6) + 2; /* the package's length, the number of elements */
        if (at + 1 >= len) return false;
        *type = t[at] == 0x0a ? t[at + 1] : t[at];
        return *type < 8;
    }
    return false;
}

static void parse_fadt(struct reader *r, const u8 *t, u32 len) {
    struct acpi_info *a = r->out;
    u32 flags, dsdt_len;
    const u8 *dsdt;
    u64 dsdt_pa;

    if (len < 116) return;
    flags = (u32)get(t + 112, 4);
    if (t[91] == 4) a->pm_timer_port = (u16)get(t + 76, 4);
    a->pm_timer_32 = flags >> 8 & 1;
    if (len >= 129 && flags >> 10 & 1 && t[116] <= 1) {
        a->reset.space = t[116];
        a->reset.addr = get(t + 120, 8);
        a->reset.value = t[128];
    }
    dsdt_pa = len >= 148 && get(t + 140, 8) ? get(t + 140, 8) : get(t + 40, 4);
    dsdt = table_at(r, dsdt_pa, &dsdt_len);
    if (dsdt && find_s5(dsdt, dsdt_len, &a->sleep_type)) a->pm1a_control = (u16)get(t + 64, 4);
}

static void parse_table(struct reader *r, u64 pa) {
    struct acpi_info *a = r->out;
    u32 len;
    const u8 *t = table_at(r, pa, &len);

    if (!t) return;
    a->nr_tables++;
    if (!memcmp(t, "APIC", 4)) {
        parse_madt(r, t, len);
    } else if (!memcmp(t, "FACP", 4)) {
        parse_fadt(r, t, len);
    } else if (!memcmp(t, "HPET", 4) && len >= 56 && t[40] == 0) {
        a->hpet_addr = get(t + 44, 8);
    } else if (!memcmp(t, "MCFG", 4) && len >= 60 && get(t + 52, 2) == 0) {
        a->mcfg_addr = get(t + 44, 8);
        a->mcfg_first_bus = t[54];
        a->mcfg_last_bus = t[55];
    } else if (!memcmp(t, "DMAR", 4)) {
        a->dmar = len >= 48;
    } else if (!memcmp(t, "IVRS", 4)) {
        a->ivrs = len >= 48;
    }
}

/* Reads the root table at `pa`, whose entries have `width` bytes. */
static bool parse_root(struct reader *r, u64 pa, const char *signature, unsigned width) {
    u32 len;
    const u8 *t = table_at(r, pa, &len);

    if (!t || memcmp(t, signature, 4)) return false;
    for (u32 at = HEADER, n = 0; at + width <= len && n < MAX_TABLES; at += width, n++)
        parse_table(r, get(t + at, width));
    return true;
}

static bool rsdp_ok(const u8 *p, u32 len) {
    if (len < 20 || memcmp(p, "RSD PTR ", 8) || !sums_to_zero(p, 20)) return false;
    return p[15] < 2 || (len >= 36 && get(p + 20, 4) >= 36);
}

static const u8 *scan(struct reader *r, u64 start, u64 len) {
    const u8 *p = r->map(r->ctx, start, len);

    for (u64 i = 0; p && i + 36 <= len; i += 16)
        if (rsdp_ok(p + i, 36)) return p + i;
    return NULL;
}

static const u8 *find_rsdp(struct reader *r) {
    const u8 *bda = r->map(r->ctx, 0x400, 0x100), *p = NULL;
    u64 ebda = bda ? get(bda + 0x0e, 2) << 4 : 0;

    if (ebda >= 0x80000 && ebda <= 0x9fc00) p = scan(r, ebda, 1024);
    return p ? p : scan(r, 0xe0000, 0x20000);
}

int acpi_parse(struct acpi_info *out, const void *rsdp, u32 rsdp_len, acpi_map_fn map, void *ctx) {
    struct reader r = { out, map, ctx };
    const u8 *p = rsdp;

    memset(out, 0, sizeof(*out));
    out->lapic_addr = 0xfee00000;
    out->nmi_lint = 1;
    out->reset.space = 0xff;
    if (!p || !rsdp_ok(p, rsdp_len)) p = find_rsdp(&r);
    if (!p) return -ENOENT;
    if (p[15] >= 2 && parse_root(&r, get(p + 24, 8), "XSDT", 8)) return 0;
    return parse_root(&r, get(p + 16, 4), "RSDT", 4) ? 0 : -ENOENT;
}
