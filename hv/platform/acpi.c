/* ACPI 6.5, section 5.2. Tables lie: nothing is read beyond what a checked length covers. The FADT is
 * read for what ends a session (how the machine is switched off, how it is reset), and for whether there
 * is a keyboard controller. */
#include <takt/errno.h>
#include "platform/firmware.h"
#include "platform/irq.h"

#define HEADER     36u
#define MAX_TABLE  (1u << 20)
#define MAX_TABLES 128u

/* Offsets in the header of a table: ACPI 6.5, table 5.4. */
enum { TABLE_LENGTH = 4, TABLE_REVISION = 8 };

/* The whole table at `pa`, checked, and its length; NULL and counted as bad if it does not hold. */
static const u8 *table_at(struct acpi_info *a, u64 pa, u32 *len) {
    const u8 *t = pa ? acpi_map(pa, HEADER) : NULL;

    *len = t ? (u32)table_get(t + TABLE_LENGTH, 4) : 0;
    t = *len < HEADER || *len > MAX_TABLE ? NULL : acpi_map(pa, *len);
    if (t && table_sums_to_zero(t, *len)) return t;
    a->bad_tables++;
    return NULL;
}

/* ~0 is the address of all CPUs, not of one. Those that are "online capable" are not there yet. */
static void add_cpu(struct acpi_info *a, u32 apic_id, u32 flags) {
    if (!(flags & 1) || apic_id == ~0u) return;
    for (u32 i = 0; i < a->nr_cpus; i++)
        if (a->apic_id[i] == apic_id) return;
    if (a->nr_cpus == ACPI_MAX_CPUS)
        a->cpus_left_out++;
    else
        a->apic_id[a->nr_cpus++] = apic_id;
}

void acpi_boot_cpu(struct acpi_info *a, u32 apic_id) {
    u32 i = 0;

    while (i < a->nr_cpus && a->apic_id[i] != apic_id) i++;
    if (i == ACPI_MAX_CPUS) { /* it takes the last one's place, which is left out instead */
        a->cpus_left_out = MAX(a->cpus_left_out, 1u);
        i--;
    } else if (i == a->nr_cpus) {
        a->nr_cpus++;
    }
    a->apic_id[i] = a->apic_id[0];
    a->apic_id[0] = apic_id;
}

static void parse_madt_entry(struct acpi_info *a, const u8 *e) {
    switch (e[0]) {
    case 0: add_cpu(a, e[3] == 0xff ? ~0u : e[3], (u32)table_get(e + 4, 4)); break;
    case 1:
        if (a->nr_ioapics == ACPI_MAX_IOAPICS) break;
        a->ioapic[a->nr_ioapics++] =
            (struct acpi_ioapic){ table_get(e + 4, 4), (u32)table_get(e + 8, 4), e[2] };
        break;
    case 2:
        if (a->nr_overrides == ACPI_MAX_OVERRIDES) break;
        a->override[a->nr_overrides++] =
            (struct acpi_override){ (u32)table_get(e + 4, 4), (u16)table_get(e + 8, 2), e[3] };
        break;
    case 4: a->nmi_lint = e[5] & 1; break;
    case 9: add_cpu(a, (u32)table_get(e + 4, 4), (u32)table_get(e + 8, 4)); break;
    }
}

static void parse_madt(struct acpi_info *a, const u8 *t, u32 len) {
    static const u8 least[] = { 8, 12, 10, 8, 6, 12, 0, 0, 0, 16 };

    for (u32 at = 44; len - at >= 2; at += t[at + 1]) {
        const u8 *e = t + at;

        if (e[1] < 2 || e[1] > len - at) { /* the rest cannot be found */
            a->bad_tables++;
            return;
        }
        if (e[0] < sizeof(least) && e[1] >= least[e[0]]) parse_madt_entry(a, e);
    }
}

static void parse_hpet(struct acpi_info *a, const u8 *t, u32 len) {
    if (t[40] == 0) a->hpet_addr = table_get(t + 44, 8);
}

/* Whether they can be used is looked at where they are: hv/passthrough/space.c. */
static void parse_mcfg(struct acpi_info *a, const u8 *t, u32 len) {
    for (u32 at = 44; len - at >= 16 && a->nr_ecams < ACPI_MAX_ECAMS; at += 16)
        a->ecam[a->nr_ecams++] = (struct acpi_ecam){ .base = table_get(t + at, 8),
                                                     .segment = (u16)table_get(t + at + 8, 2),
                                                     .first = t[at + 10],
                                                     .last = t[at + 11] };
}

/* The number of a proximity domain; ACPI_MAX_NODES: there are too many. */
static u32 node_of(struct acpi_info *a, u32 domain) {
    for (u32 i = 0; i < a->nr_nodes; i++)
        if (a->domain[i] == domain) return i;
    if (a->nr_nodes == ACPI_MAX_NODES) return ACPI_MAX_NODES;
    a->domain[a->nr_nodes] = domain;
    return a->nr_nodes++;
}

static void add_cpu_node(struct acpi_info *a, u32 apic_id, u32 domain, u32 flags) {
    u32 node = flags & 1 ? node_of(a, domain) : ACPI_MAX_NODES;

    if (node == ACPI_MAX_NODES || a->nr_cpu_nodes == ACPI_MAX_CPU_NODES) return;
    a->cpu_node[a->nr_cpu_nodes++] = (struct acpi_cpu_node){ apic_id, node };
}

static void add_mem_node(struct acpi_info *a, u64 start, u64 len, u32 domain, u32 flags) {
    u32 node = flags & 1 && len && start + len > start ? node_of(a, domain) : ACPI_MAX_NODES;

    if (node == ACPI_MAX_NODES || a->nr_mem_nodes == ACPI_MAX_MEM_NODES) return;
    a->mem_node[a->nr_mem_nodes++] = (struct acpi_mem_node){ start, start + len, node };
}

/* ACPI 6.5, 5.2.16: which CPUs and which memory are near each other. */
static void parse_srat(struct acpi_info *a, const u8 *t, u32 len) {
    enum { LOCAL_APIC, MEMORY, LOCAL_X2APIC, KINDS };
    static const u8 least[KINDS] = { 16, 40, 24 };

    for (u32 at = 48; len - at >= 2; at += t[at + 1]) {
        const u8 *e = t + at;

        if (e[1] < 2 || e[1] > len - at) { /* the rest cannot be found */
            a->bad_tables++;
            return;
        }
        if (e[0] >= KINDS || e[1] < least[e[0]]) continue;
        if (e[0] == LOCAL_APIC)
            add_cpu_node(a, e[3], e[2] | (u32)table_get(e + 9, 3) << 8, (u32)table_get(e + 4, 4));
        else if (e[0] == MEMORY)
            add_mem_node(a, table_get(e + 8, 8), table_get(e + 16, 8), (u32)table_get(e + 2, 4),
                         (u32)table_get(e + 28, 4));
        else
            add_cpu_node(a, (u32)table_get(e + 8, 4), (u32)table_get(e + 4, 4), (u32)table_get(e + 12, 4));
    }
}

static void parse_dmar(struct acpi_info *a, const u8 *t, u32 len) {
    a->dmar = t;
    a->dmar_len = len;
    a->x2apic_opt_out = dmar_opts_out_of_x2apic(t, len);
}

/* Microsoft's Serial Port Console Redirection Table, revisions 1 to 4. Only 16550s are understood:
 * kinds 0 and 1 are that, and 0x12 is one whose registers are as far apart as the address structure
 * says. A base address of 0 means that the firmware's redirection is switched off. */
static void parse_spcr(struct acpi_info *a, const u8 *t, u32 len) {
    static const u32 rate[] = { [3] = 9600, [4] = 19200, [6] = 57600, [7] = 115200 };
    u8 kind = t[36], space = t[40], width = t[41], access = t[43], code = t[58];
    struct acpi_serial *s = &a->serial;

    if ((kind > 1 && kind != 0x12) || space > 1 || !table_get(t + 44, 8)) return;
    s->there = true;
    s->in_memory = space == 0;
    s->addr = table_get(t + 44, 8);
    s->stride = access == 3 || width == 32 ? 4 : 1; /* access 3: 32 bits (ACPI 6.5, 5.2.3.2) */
    if (t[52] & 1) s->irq = t[53];
    if (t[52] & 2) s->gsi = (u32)table_get(t + 54, 4);
    s->has_irq = t[52] & 1;
    s->has_gsi = t[52] & 2;
    s->baud = code < ARRAY_SIZE(rate) ? rate[code] : 0;
}

/* ---- how the machine is switched off and reset ---- */

/* Opcodes of AML, the language of DSDT and SSDT (ACPI 6.5, 20.2). */
enum { AML_ZERO = 0, AML_ONE = 1, AML_NAME = 0x08, AML_BYTE = 0x0a, AML_PACKAGE = 0x12, AML_ROOT = '\\' };

/* Reads the head of a package and its first two elements, small numbers, from [p, end). Returns false
 * if they do not lie there, or are something else (ACPI 6.5, 20.2.5.4: DefPackage). */
static bool read_package(const u8 *p, const u8 *end, u8 values[2]) {
    if (end - p < 2 || *p != AML_PACKAGE) return false;
    p++;
    p += 1 + (*p >> 6); /* the package's length: bits 7 and 6 say how many bytes follow the first */
    if (p >= end || *p++ < 2) return false; /* the number of elements */
    for (u32 i = 0; i < 2; i++) {
        bool prefixed = p < end && *p == AML_BYTE;

        if (prefixed) p++;
        if (p >= end || (!prefixed && *p != AML_ZERO && *p != AML_ONE)) return false;
        values[i] = *p++;
    }
    return true;
}

/* Looks in a DSDT or SSDT for the object \_S5_, whose first two elements are what the PM1 control
 * registers want for "off" (ACPI 6.5, 7.4.2). There is no interpreter of AML, and none is needed:
 * firmware writes the sleep states as constants. Nothing else is found by mistake, as a name in front
 * of which the opcode for "define a name" stands, and behind which a package, is not seen elsewhere. */
static void find_s5(struct acpi_power *p, const u8 *t, u32 len) {
    const u8 *end = t + len;

    for (const u8 *at = t + HEADER; !p->s5_known && end - at > 5; at++) {
        const u8 *name = at + 1;
        u8 type[2];

        if (*at != AML_NAME) continue;
        if (*name == AML_ROOT) name++;
        if (end - name < 4 || memcmp(name, "_S5_", 4) || !read_package(name + 4, end, type)) continue;
        if (type[0] > ACPI_MAX_SLEEP_TYPE || type[1] > ACPI_MAX_SLEEP_TYPE) continue;
        p->s5_known = true;
        p->type_a = type[0];
        p->type_b = type[1];
    }
}

static void parse_ssdt(struct acpi_info *a, const u8 *t, u32 len) { find_s5(&a->power, t, len); }

/* Offsets in the FADT (ACPI 6.5, table 5.9), and its length in ACPI 1 and from ACPI 2 on. */
enum {
    FADT_DSDT = 40,
    FADT_SMI_CMD = 48,
    FADT_ACPI_ENABLE = 52,
    FADT_PM1A_CNT = 64,
    FADT_PM1B_CNT = 68,
    FADT_IAPC_BOOT_ARCH = 109,
    FADT_FLAGS = 112,
    FADT_RESET_REG = 116,
    FADT_RESET_VALUE = 128,
    FADT_X_DSDT = 140,
    FADT_X_PM1A_CNT = 172,
    FADT_X_PM1B_CNT = 184,
    FADT_V1_LEN = 116,
    FADT_V2_LEN = 244,
};
#define FADT_RESET_REG_SUP   BIT(10)
#define FADT_HW_REDUCED_ACPI BIT(20) /* there are no PM1 registers */
#define BOOT_ARCH_REVISION   3       /* of the FADT, from which on IAPC_BOOT_ARCH is believed */
#define BOOT_ARCH_8042       BIT(1)  /* ACPI 6.5, 5.2.9.3: ports 60h and 64h are a keyboard controller's */

/* A Generic Address Structure (ACPI 6.5, 5.2.3.2): its address space, and the address. */
enum { GAS_SPACE = 0, GAS_ADDRESS = 4 };

/* The port of a PM1 control register: the FADT has a field of 4 bytes for it, and from ACPI 2 on also a
 * generic address. Either may be empty. 0: there is no such register, or none that is a port. */
static u16 pm1_port(const u8 *t, u32 len, u32 at, u32 generic_at) {
    u64 port = table_get(t + at, 4);

    if (!port && len >= FADT_V2_LEN && t[generic_at + GAS_SPACE] == ACPI_SPACE_IO)
        port = table_get(t + generic_at + GAS_ADDRESS, 8);
    return port <= 0xffff ? (u16)port : 0;
}

/* Does the firmware say that there is no keyboard controller? In older tables the field is reserved and
 * reads 0, although those machines have one. */
static bool denies_8042(const u8 *t, u32 len) {
    if (t[TABLE_REVISION] < BOOT_ARCH_REVISION || len < FADT_V2_LEN) return false;
    return !(table_get(t + FADT_IAPC_BOOT_ARCH, 2) & BOOT_ARCH_8042);
}

static void parse_fadt(struct acpi_info *a, const u8 *t, u32 len) {
    struct acpi_power *p = &a->power;
    u64 wide = len >= FADT_V2_LEN ? table_get(t + FADT_X_DSDT, 8) : 0, narrow = table_get(t + FADT_DSDT, 4);
    u64 smi = table_get(t + FADT_SMI_CMD, 4), flags = table_get(t + FADT_FLAGS, 4);
    const u8 *dsdt = NULL;
    u32 dsdt_len;

    if (wide) dsdt = table_at(a, wide, &dsdt_len);
    if (!dsdt && narrow && narrow != wide) dsdt = table_at(a, narrow, &dsdt_len);
    if (dsdt) find_s5(p, dsdt, dsdt_len);
    if (!(flags & FADT_HW_REDUCED_ACPI)) {
        p->pm1a = pm1_port(t, len, FADT_PM1A_CNT, FADT_X_PM1A_CNT);
        p->pm1b = pm1_port(t, len, FADT_PM1B_CNT, FADT_X_PM1B_CNT);
    }
    a->no_keyboard_controller = denies_8042(t, len);
    p->smi_command = smi <= 0xffff ? (u16)smi : 0;
    p->acpi_enable = t[FADT_ACPI_ENABLE];
    if (len <= FADT_RESET_VALUE || !(flags & FADT_RESET_REG_SUP)) return;
    p->reset_space = t[FADT_RESET_REG + GAS_SPACE];
    p->reset_address = table_get(t + FADT_RESET_REG + GAS_ADDRESS, 8);
    p->reset_value = t[FADT_RESET_VALUE];
    p->can_reset = p->reset_space <= ACPI_SPACE_PCI && p->reset_address;
    if (p->reset_space == ACPI_SPACE_IO && p->reset_address > 0xffff) p->can_reset = false;
}

static void parse_wdat(struct acpi_info *a, const u8 *t, u32 len) {
    a->wdat = t;
    a->wdat_len = len;
}

static void parse_ivrs(struct acpi_info *a, const u8 *t, u32 len) { a->ivrs = true; }

static void parse_table(struct acpi_info *a, u64 pa) {
    static const struct {
        char signature[5];
        u8 least;
        void (*parse)(struct acpi_info *a, const u8 *t, u32 len);
    } kinds[] = { { "APIC", 44, parse_madt },     { "HPET", 56, parse_hpet },
                  { "MCFG", 60, parse_mcfg },     { "SRAT", 48, parse_srat },
                  { "DMAR", 48, parse_dmar },     { "IVRS", 48, parse_ivrs },
                  { "SPCR", 64, parse_spcr },     { "FACP", FADT_V1_LEN, parse_fadt },
                  { "SSDT", HEADER, parse_ssdt }, { "WDAT", 68, parse_wdat } };
    u32 len;
    const u8 *t = table_at(a, pa, &len);

    if (t && a->nr_tables < ACPI_MAX_TABLES) a->table[a->nr_tables++] = (struct acpi_table){ pa, len };
    for (u32 i = 0; t && i < ARRAY_SIZE(kinds); i++)
        if (!memcmp(t, kinds[i].signature, 4) && len >= kinds[i].least) kinds[i].parse(a, t, len);
}

/* Reads the root table at `pa`, whose entries have `width` bytes. */
static bool parse_root(struct acpi_info *a, u64 pa, const char *signature, unsigned width) {
    u32 len;
    const u8 *t = table_at(a, pa, &len);

    if (!t || memcmp(t, signature, 4)) return false;
    for (u32 at = HEADER, n = 0; at + width <= len && n < MAX_TABLES; at += width, n++)
        parse_table(a, table_get(t + at, width));
    return true;
}

static bool rsdp_ok(const u8 *p, u32 len) {
    return len >= 20 && !memcmp(p, "RSD PTR ", 8) && table_sums_to_zero(p, 20) && (p[15] < 2 || len >= 36);
}

static const u8 *scan(u64 start, u64 end, u32 size, bool (*ok)(const u8 *p, u32 len)) {
    const u8 *p = acpi_map(start, end - start);

    for (; p && start + size <= end; p += 16, start += 16)
        if (ok(p, size)) return p;
    return NULL;
}

const u8 *firmware_find(u64 rom, u32 size, bool (*ok)(const u8 *p, u32 len)) {
    const u8 *bda = acpi_map(0x400, 0x100), *p = NULL;
    u64 ebda = bda ? table_get(bda + 0x0e, 2) << 4 : 0;

    if (ebda >= 0x80000 && ebda <= 0x9fc00) p = scan(ebda, ebda + 1024, size, ok);
    return p ? p : scan(rom, 0x100000, size, ok);
}

u32 acpi_node_of_cpu(const struct acpi_info *a, u32 apic_id) {
    for (u32 i = 0; i < a->nr_cpu_nodes; i++)
        if (a->cpu_node[i].apic_id == apic_id) return a->cpu_node[i].node;
    return 0;
}

u32 acpi_line(const struct acpi_info *a, u32 irq, u32 *flags) {
    *flags = 0;
    for (u32 i = 0; i < a->nr_overrides; i++) {
        u32 polarity = a->override[i].flags & 3, trigger = a->override[i].flags >> 2 & 3;

        if (a->override[i].irq != irq) continue;
        if (polarity == 3) *flags |= IRQ_LOW;
        if (trigger == 3) *flags |= IRQ_LEVEL;
        return a->override[i].gsi;
    }
    return irq;
}

int acpi_parse(struct acpi_info *out, const u8 *rsdp, u32 rsdp_len) {
    const u8 *p = rsdp_ok(rsdp, rsdp_len) ? rsdp : firmware_find(0xe0000, 36, rsdp_ok);

    memset(out, 0, sizeof(*out));
    out->nmi_lint = 1;
    if (!p) return -ENOENT;
    /* from revision 2 on the XSDT, under a checksum of its own; the RSDT if that does not hold */
    if (p[15] >= 2 && table_get(p + 20, 4) == 36 && table_sums_to_zero(p, 36) &&
        parse_root(out, table_get(p + 24, 8), "XSDT", 8))
        return 0;
    return parse_root(out, table_get(p + 16, 4), "RSDT", 4) ? 0 : -ENOENT;
}
