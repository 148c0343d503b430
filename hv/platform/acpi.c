/* Reads the tables by which the firmware describes the machine: ACPI 6.5, section 5.2. The root
 * table (XSDT, or RSDT in old firmware) lists the others. The MADT names CPUs and interrupt
 * controllers, the SRAT says to which node each CPU and each piece of memory belongs, the MCFG
 * where PCI's configuration space is, the SPCR which serial port the firmware uses. From the FADT
 * Takt reads how the machine is switched off and reset, and whether there is a keyboard controller.
 * A table may contain errors, so nothing is read beyond a length that was checked. */
#include <takt/errno.h>
#include "platform/firmware.h"
#include "platform/irq.h"

#define HEADER     36u
#define MAX_TABLE  (1u << 20)
#define MAX_TABLES 128u

/* Offsets in the header of a table: ACPI 6.5, table 5.4. */
enum { TABLE_LENGTH = 4, TABLE_REVISION = 8 };

/* Offsets in a Generic Address Structure (ACPI 6.5, 5.2.3.2): its address space, the width of the
 * register in bits, the size of an access, and the address. */
enum { GAS_SPACE = 0, GAS_WIDTH = 1, GAS_ACCESS = 3, GAS_ADDRESS = 4 };
enum { GAS_ACCESS_DWORD = 3 };

/* Returns the table at `pa`, with its length in *len. Returns NULL if it is nowhere, or if its
 * length or its checksum is wrong. */
static const u8 *sound_table(u64 pa, u32 *len) {
    const u8 *t;

    *len = 0;
    if (!pa) return NULL;
    t = acpi_map(pa, HEADER);
    if (!t) return NULL;
    *len = (u32)table_get(t + TABLE_LENGTH, 4);
    if (*len < HEADER || *len > MAX_TABLE) return NULL;
    t = acpi_map(pa, *len);
    if (!t || !table_sums_to_zero(t, *len)) return NULL;
    return t;
}

/* Returns the table at `pa`, with its length in *len, if it is sound. Otherwise returns NULL, and
 * counts it as bad, so that the operator is told how many tables were left out. */
static const u8 *table_at(struct acpi_info *a, u64 pa, u32 *len) {
    const u8 *t = sound_table(pa, len);

    if (!t) a->bad_tables++;
    return t;
}

/* A flag in entries of MADT and SRAT: the CPU or memory that the entry names can be used now. A CPU
 * that is only "online capable" could be added later, which Takt does not support. */
#define ENTRY_ENABLED BIT(0)
#define APIC_ALL      0xffffffffu /* an APIC id that means all CPUs, not one of them */

/* Adds a CPU to the list, if it is enabled and is not in the list yet: the MADT may name it twice,
 * by an id of 8 bits and by one of 32. */
static void add_cpu(struct acpi_info *a, u32 apic_id, u32 flags) {
    if (!(flags & ENTRY_ENABLED) || apic_id == APIC_ALL) return;
    for (u32 i = 0; i < a->nr_cpus; i++)
        if (a->apic_id[i] == apic_id) return;
    if (a->nr_cpus == ACPI_MAX_CPUS)
        a->cpus_left_out++;
    else
        a->apic_id[a->nr_cpus++] = apic_id;
}

/* Puts the boot CPU first in the list of CPUs. If the boot CPU is in the list already, it changes
 * places with the first one; if not, the first one moves to the end. */
void acpi_boot_cpu(struct acpi_info *a, u32 apic_id) {
    u32 i = 0;

    while (i < a->nr_cpus && a->apic_id[i] != apic_id) i++;
    if (i == ACPI_MAX_CPUS) {
        /* The list is full. The boot CPU was one of those that were left out, and now the last CPU
         * of the list is one instead, so their number stays. If none was left out, the firmware
         * did not list the boot CPU at all. */
        a->cpus_left_out = MAX(a->cpus_left_out, 1u);
        i--;
    } else if (i == a->nr_cpus) {
        a->nr_cpus++;
    }
    a->apic_id[i] = a->apic_id[0];
    a->apic_id[0] = apic_id;
}

/* MADT and SRAT are lists of entries, each of which begins with its kind and its length in
 * bytes. */
enum { ENTRY_KIND = 0, ENTRY_LENGTH = 1, ENTRY_HEAD = 2 };

/* Calls fn(a, entry) for the entries of table `t` from offset `at` to its end, `len`. Entries whose
 * kind is not below `kinds` are skipped, and so are those that are shorter than least[kind]
 * bytes. */
static void parse_entries(struct acpi_info *a, const u8 *t, u32 len, u32 at, const u8 *least,
                          u8 kinds, void (*fn)(struct acpi_info *a, const u8 *e)) {
    for (; len - at >= ENTRY_HEAD; at += t[at + ENTRY_LENGTH]) {
        const u8 *e = t + at;

        /* If this length is impossible, we cannot find the entries behind this one. */
        if (e[ENTRY_LENGTH] < ENTRY_HEAD || e[ENTRY_LENGTH] > len - at) {
            a->bad_tables++;
            return;
        }
        if (e[ENTRY_KIND] < kinds && e[ENTRY_LENGTH] >= least[e[ENTRY_KIND]]) fn(a, e);
    }
}

/* The MADT: ACPI 6.5, 5.2.12. */
enum { MADT_ENTRIES = 44 };
enum {
    MADT_LAPIC = 0,     /* 5.2.12.2 */
    MADT_IOAPIC = 1,    /* 5.2.12.3 */
    MADT_OVERRIDE = 2,  /* 5.2.12.5 */
    MADT_LAPIC_NMI = 4, /* 5.2.12.7 */
    MADT_X2APIC = 9,    /* 5.2.12.12 */
    MADT_KINDS
};

/* Offsets in the entries of each kind. */
enum { LAPIC_ID = 3, LAPIC_FLAGS = 4 };
enum { IOAPIC_ID = 2, IOAPIC_ADDRESS = 4, IOAPIC_GSI_BASE = 8 };
enum { OVERRIDE_IRQ = 3, OVERRIDE_GSI = 4, OVERRIDE_FLAGS = 8 };
enum { NMI_LINT = 5 };
enum { X2APIC_ID = 4, X2APIC_FLAGS = 8 };
#define LAPIC_ALL 0xff /* a LAPIC_ID that means all CPUs, not one of them */

/* Takes one entry of the MADT: a CPU, an IOAPIC (a chip with pins for interrupts), or an exception
 * from the rule that interrupt line n of a PC is pin n. parse_entries() has checked its length. */
static void parse_madt_entry(struct acpi_info *a, const u8 *e) {
    switch (e[ENTRY_KIND]) {
    case MADT_LAPIC:
        if (e[LAPIC_ID] != LAPIC_ALL) add_cpu(a, e[LAPIC_ID], (u32)table_get(e + LAPIC_FLAGS, 4));
        break;
    case MADT_IOAPIC:
        if (a->nr_ioapics == ACPI_MAX_IOAPICS) break;
        a->ioapic[a->nr_ioapics++] =
            (struct acpi_ioapic){ .addr = table_get(e + IOAPIC_ADDRESS, 4),
                                  .gsi_base = (u32)table_get(e + IOAPIC_GSI_BASE, 4),
                                  .id = e[IOAPIC_ID] };
        break;
    case MADT_OVERRIDE:
        if (a->nr_overrides == ACPI_MAX_OVERRIDES) break;
        a->override[a->nr_overrides++] =
            (struct acpi_override){ .gsi = (u32)table_get(e + OVERRIDE_GSI, 4),
                                    .flags = (u16)table_get(e + OVERRIDE_FLAGS, 2),
                                    .irq = e[OVERRIDE_IRQ] };
        break;
    case MADT_LAPIC_NMI: a->nmi_lint = e[NMI_LINT] & 1; break; /* a local APIC has two pins */
    case MADT_X2APIC:
        add_cpu(a, (u32)table_get(e + X2APIC_ID, 4), (u32)table_get(e + X2APIC_FLAGS, 4));
        break;
    }
}

/* least[] is the size of each kind of entry; a shorter one would make us read behind it. */
static void parse_madt(struct acpi_info *a, const u8 *t, u32 len) {
    static const u8 least[MADT_KINDS] = {
        [MADT_LAPIC] = 8,     [MADT_IOAPIC] = 12, [MADT_OVERRIDE] = 10,
        [MADT_LAPIC_NMI] = 6, [MADT_X2APIC] = 16,
    };

    parse_entries(a, t, len, MADT_ENTRIES, least, MADT_KINDS, parse_madt_entry);
}

/* "IA-PC HPET Specification" 1.0a, 3.2.4. At HPET_ADDRESS there is a generic address. */
enum { HPET_ADDRESS = 40, HPET_LEAST = 56 };

/* Notes where the HPET is, a timer of a known rate by which clock.c measures the TSC. */
static void parse_hpet(struct acpi_info *a, const u8 *t, u32 len) {
    const u8 *gas = t + HPET_ADDRESS;

    if (gas[GAS_SPACE] == ACPI_SPACE_MEMORY) a->hpet_addr = table_get(gas + GAS_ADDRESS, 8);
}

/* The MCFG (PCI Firmware Specification 3.3, 4.1.2): where its entries begin, the size of an entry,
 * and offsets in an entry. */
enum { MCFG_ENTRIES = 44, MCFG_ENTRY = 16 };
enum { MCFG_BASE = 0, MCFG_SEGMENT = 8, MCFG_FIRST_BUS = 10, MCFG_LAST_BUS = 11 };

/* Copies the entries without checking them: hv/pci/space.c decides which of them are plausible. */
static void parse_mcfg(struct acpi_info *a, const u8 *t, u32 len) {
    for (u32 at = MCFG_ENTRIES; len - at >= MCFG_ENTRY && a->nr_ecams < ACPI_MAX_ECAMS;
         at += MCFG_ENTRY) {
        const u8 *e = t + at;

        a->ecam[a->nr_ecams++] = (struct acpi_ecam){ .base = table_get(e + MCFG_BASE, 8),
                                                     .segment = (u16)table_get(e + MCFG_SEGMENT, 2),
                                                     .first = e[MCFG_FIRST_BUS],
                                                     .last = e[MCFG_LAST_BUS] };
    }
}

/* Returns Takt's number of the node with this proximity domain. A domain that was not seen before
 * gets a new number. Returns ACPI_MAX_NODES if there are too many nodes. */
static u32 srat_node_of(struct acpi_info *a, u32 domain) {
    for (u32 i = 0; i < a->nr_nodes; i++)
        if (a->domain[i] == domain) return i;
    if (a->nr_nodes == ACPI_MAX_NODES) return ACPI_MAX_NODES;
    a->domain[a->nr_nodes] = domain;
    return a->nr_nodes++;
}

/* Notes to which node a CPU belongs. What there is no room for is left out; such a CPU counts as
 * one of node 0, which costs speed but breaks nothing. */
static void add_cpu_node(struct acpi_info *a, u32 apic_id, u32 domain, u32 flags) {
    u32 node;

    if (!(flags & ENTRY_ENABLED)) return;
    node = srat_node_of(a, domain);
    if (node == ACPI_MAX_NODES || a->nr_cpu_nodes == ACPI_MAX_CPU_NODES) return;
    a->cpu_node[a->nr_cpu_nodes++] = (struct acpi_cpu_node){ apic_id, node };
}

/* Notes to which node the memory [start, start + len) belongs. A range whose end would be beyond
 * 2^64 is left out. */
static void add_mem_node(struct acpi_info *a, u64 start, u64 len, u32 domain, u32 flags) {
    u32 node;

    if (!(flags & ENTRY_ENABLED) || start + len <= start) return;
    node = srat_node_of(a, domain);
    if (node == ACPI_MAX_NODES || a->nr_mem_nodes == ACPI_MAX_MEM_NODES) return;
    a->mem_node[a->nr_mem_nodes++] = (struct acpi_mem_node){ start, start + len, node };
}

/* The SRAT (ACPI 6.5, 5.2.16): its entries have the same head as those of the MADT. */
enum { SRAT_ENTRIES = 48 };
enum { SRAT_LAPIC, SRAT_MEMORY, SRAT_X2APIC, SRAT_KINDS }; /* 5.2.16.1 to 5.2.16.3 */

/* Offsets in the entries of each kind. A LAPIC's domain number is split into two fields. */
enum { SRAT_LAPIC_DOMAIN = 2, SRAT_LAPIC_ID = 3, SRAT_LAPIC_FLAGS = 4, SRAT_LAPIC_DOMAIN_HIGH = 9 };
enum {
    SRAT_MEMORY_DOMAIN = 2,
    SRAT_MEMORY_BASE = 8,
    SRAT_MEMORY_LENGTH = 16,
    SRAT_MEMORY_FLAGS = 28
};
enum { SRAT_X2APIC_DOMAIN = 4, SRAT_X2APIC_ID = 8, SRAT_X2APIC_FLAGS = 12 };

/* Takes one entry of the SRAT: the node ("proximity domain") of a CPU, which may be named by an id
 * of 8 or of 32 bits, or of a range of memory. */
static void parse_srat_entry(struct acpi_info *a, const u8 *e) {
    switch (e[ENTRY_KIND]) {
    case SRAT_LAPIC:
        add_cpu_node(a, e[SRAT_LAPIC_ID],
                     e[SRAT_LAPIC_DOMAIN] | (u32)table_get(e + SRAT_LAPIC_DOMAIN_HIGH, 3) << 8,
                     (u32)table_get(e + SRAT_LAPIC_FLAGS, 4));
        break;
    case SRAT_MEMORY:
        add_mem_node(a, table_get(e + SRAT_MEMORY_BASE, 8), table_get(e + SRAT_MEMORY_LENGTH, 8),
                     (u32)table_get(e + SRAT_MEMORY_DOMAIN, 4),
                     (u32)table_get(e + SRAT_MEMORY_FLAGS, 4));
        break;
    case SRAT_X2APIC:
        add_cpu_node(a, (u32)table_get(e + SRAT_X2APIC_ID, 4),
                     (u32)table_get(e + SRAT_X2APIC_DOMAIN, 4),
                     (u32)table_get(e + SRAT_X2APIC_FLAGS, 4));
        break;
    }
}

/* Reads the SRAT, which says to which NUMA node CPUs and memory belong. */
static void parse_srat(struct acpi_info *a, const u8 *t, u32 len) {
    static const u8 least[SRAT_KINDS] = {
        [SRAT_LAPIC] = 16, [SRAT_MEMORY] = 40, [SRAT_X2APIC] = 24
    };

    parse_entries(a, t, len, SRAT_ENTRIES, least, SRAT_KINDS, parse_srat_entry);
}

/* The SLIT (ACPI 6.5, 5.2.17): the number of proximity domains, and a byte for each pair. */
enum { SLIT_DOMAINS = 36, SLIT_DISTANCES = 44 };
#define SLIT_LOCAL   10u   /* from a domain to itself */
#define SLIT_UNKNOWN 20u   /* what is assumed of two domains that the table does not name */
#define SLIT_MOST    4096u /* domains; their square must not overflow */

/* Notes where the SLIT is, if it can be believed: no domain may be nearer to another one than to
 * itself. The table may come before the SRAT, which numbers the nodes, so acpi_distance() reads the
 * distances later. */
static void parse_slit(struct acpi_info *a, const u8 *t, u32 len) {
    u64 nr = table_get(t + SLIT_DOMAINS, 8);
    bool good = nr <= SLIT_MOST && SLIT_DISTANCES + nr * nr <= len;

    for (u64 i = 0; good && i < nr * nr; i++) {
        u32 distance = t[SLIT_DISTANCES + i];

        if (i / nr == i % nr)
            good = distance == SLIT_LOCAL;
        else
            good = distance > SLIT_LOCAL;
    }
    if (!good) {
        a->bad_tables++;
        return;
    }
    a->slit = t;
    a->slit_domains = (u32)nr;
}

/* Returns the distance between two nodes. The table names them by their proximity domains. */
u32 acpi_distance(const struct acpi_info *a, u32 from, u32 to) {
    if (from == to) return SLIT_LOCAL;
    if (from >= a->nr_nodes || to >= a->nr_nodes || a->domain[from] >= a->slit_domains ||
        a->domain[to] >= a->slit_domains)
        return SLIT_UNKNOWN;
    return a->slit[SLIT_DISTANCES + a->domain[from] * a->slit_domains + a->domain[to]];
}

/* Notes where the table of the IOMMUs is. dmar.c reads it later; only the firmware's wish about
 * x2APIC is needed early, before the local APIC is set up. */
static void parse_dmar(struct acpi_info *a, const u8 *t, u32 len) {
    a->dmar = t;
    a->dmar_len = len;
    a->x2apic_opt_out = dmar_opts_out_of_x2apic(t, len);
}

/* Offsets in Microsoft's "Serial Port Console Redirection Table", revisions 1 to 4. */
enum {
    SPCR_KIND = 36,
    SPCR_ADDRESS = 40, /* a generic address */
    SPCR_IRQ_KINDS = 52,
    SPCR_IRQ = 53,
    SPCR_GSI = 54,
    SPCR_BAUD = 58,
    SPCR_LEAST = 64, /* bytes of the shortest table that is read */
};
enum { SPCR_16550 = 0, SPCR_16550_LIKE = 1, SPCR_16550_GAS = 0x12 }; /* of SPCR_KIND */
#define SPCR_HAS_IRQ BIT(0)                                          /* of SPCR_IRQ_KINDS */
#define SPCR_HAS_GSI BIT(1)

/* Reads which serial port the firmware uses. Takt can drive only the 16550 and ports like it, so
 * others are ignored. The generic address says how far apart the registers are. An address of 0
 * means that the firmware uses no serial port. */
static void parse_spcr(struct acpi_info *a, const u8 *t, u32 len) {
    /* the rate for each value of SPCR_BAUD; 0: the value means no fixed rate, or is unknown */
    static const u32 rate[] = { [3] = 9600, [4] = 19200, [6] = 57600, [7] = 115200 };
    u8 kind = t[SPCR_KIND], code = t[SPCR_BAUD], irqs = t[SPCR_IRQ_KINDS];
    const u8 *gas = t + SPCR_ADDRESS;
    u64 address = table_get(gas + GAS_ADDRESS, 8);
    struct acpi_serial *s = &a->serial;

    if (kind != SPCR_16550 && kind != SPCR_16550_LIKE && kind != SPCR_16550_GAS) return;
    if (gas[GAS_SPACE] > ACPI_SPACE_IO || !address) return;
    s->there = true;
    s->in_memory = gas[GAS_SPACE] == ACPI_SPACE_MEMORY;
    s->addr = address;
    s->stride = 1;
    if (gas[GAS_ACCESS] == GAS_ACCESS_DWORD || gas[GAS_WIDTH] == 32) s->stride = 4;
    s->has_irq = irqs & SPCR_HAS_IRQ;
    if (s->has_irq) s->irq = t[SPCR_IRQ];
    s->has_gsi = irqs & SPCR_HAS_GSI;
    if (s->has_gsi) s->gsi = (u32)table_get(t + SPCR_GSI, 4);
    if (code < ARRAY_SIZE(rate)) s->baud = rate[code];
}

/* ---- how the machine is switched off and reset ---- */

/* Opcodes of AML, the language of DSDT and SSDT (ACPI 6.5, 20.2). */
enum {
    AML_ZERO = 0,
    AML_ONE = 1,
    AML_NAME = 0x08,
    AML_BYTE = 0x0a,
    AML_PACKAGE = 0x12,
    AML_ROOT = '\\'
};

/* Reads the head of a package at `p` and its first two elements, which must be numbers of one byte
 * (ACPI 6.5, 20.2.5.4: DefPackage). Returns false if there is something else, or if the package
 * goes beyond `end`. */
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

/* Looks in a DSDT or SSDT for the object \_S5_. Its first two elements are the values for the PM1
 * control registers that mean "off" (ACPI 6.5, 7.4.2). This needs no interpreter for AML, since
 * firmware writes the sleep states as constants. To avoid mistaking other bytes for the object, the
 * opcode for "define a name" must be in front of the name, and a package behind it. */
static void find_s5(struct acpi_power *p, const u8 *t, u32 len) {
    const u8 *end = t + len;

    for (const u8 *at = t + HEADER; !p->s5_known && end - at > 5; at++) {
        const u8 *name = at + 1;
        u8 type[2];

        if (*at != AML_NAME) continue;
        if (*name == AML_ROOT) name++;
        if (end - name < 4 || memcmp(name, "_S5_", 4) || !read_package(name + 4, end, type))
            continue;
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
#define LAST_PORT            0xffffu
#define FADT_HW_REDUCED_ACPI BIT(20) /* there are no PM1 registers */
#define BOOT_ARCH_REVISION   3 /* revision of the FADT from which on IAPC_BOOT_ARCH is valid */
/* ACPI 6.5, 5.2.9.3: ports 60h and 64h are a keyboard controller's */
#define BOOT_ARCH_8042 BIT(1)

/* Returns the port of a PM1 control register. The FADT has a field of 4 bytes for it, and from ACPI
 * 2 on also a generic address; either may be empty. Returns 0 if there is no such register, or if
 * it is no port. */
static u16 pm1_port(const u8 *t, u32 len, u32 at, u32 generic_at) {
    u64 port = table_get(t + at, 4);

    if (!port && len >= FADT_V2_LEN && t[generic_at + GAS_SPACE] == ACPI_SPACE_IO)
        port = table_get(t + generic_at + GAS_ADDRESS, 8);
    if (port > LAST_PORT) return 0;
    return (u16)port;
}

/* Does the firmware say that there is no keyboard controller? In older tables the field is reserved
 * and reads 0, although those machines have one. */
static bool denies_8042(const u8 *t, u32 len) {
    if (t[TABLE_REVISION] < BOOT_ARCH_REVISION || len < FADT_V2_LEN) return false;
    return !(table_get(t + FADT_IAPC_BOOT_ARCH, 2) & BOOT_ARCH_8042);
}

/* Reads the FADT, which names the registers for power-off and reset, and, from the DSDT, whose
 * address is in the FADT, the values for "off". A later version of ACPI has added wider fields for
 * the same things; those count if the table is long enough to have them. */
static void parse_fadt(struct acpi_info *a, const u8 *t, u32 len) {
    struct acpi_power *p = &a->power;
    u64 wide = 0, narrow = table_get(t + FADT_DSDT, 4); /* two addresses of the DSDT */
    u64 smi = table_get(t + FADT_SMI_CMD, 4), flags = table_get(t + FADT_FLAGS, 4);
    const u8 *dsdt = NULL;
    u32 dsdt_len;

    if (len >= FADT_V2_LEN) wide = table_get(t + FADT_X_DSDT, 8);
    if (wide) dsdt = table_at(a, wide, &dsdt_len);
    if (!dsdt && narrow && narrow != wide) dsdt = table_at(a, narrow, &dsdt_len);
    if (dsdt) find_s5(p, dsdt, dsdt_len);
    if (!(flags & FADT_HW_REDUCED_ACPI)) {
        p->pm1a = pm1_port(t, len, FADT_PM1A_CNT, FADT_X_PM1A_CNT);
        p->pm1b = pm1_port(t, len, FADT_PM1B_CNT, FADT_X_PM1B_CNT);
    }
    a->no_keyboard_controller = denies_8042(t, len);
    if (smi <= LAST_PORT) p->smi_command = (u16)smi;
    p->acpi_enable = t[FADT_ACPI_ENABLE];
    if (len <= FADT_RESET_VALUE || !(flags & FADT_RESET_REG_SUP)) return;
    p->reset_space = t[FADT_RESET_REG + GAS_SPACE];
    p->reset_address = table_get(t + FADT_RESET_REG + GAS_ADDRESS, 8);
    p->reset_value = t[FADT_RESET_VALUE];
    p->can_reset = p->reset_space <= ACPI_SPACE_PCI && p->reset_address;
    if (p->reset_space == ACPI_SPACE_IO && p->reset_address > LAST_PORT) p->can_reset = false;
}

/* Notes where the table WDAT is, which describes a watchdog; watchdog.c reads it. */
static void parse_wdat(struct acpi_info *a, const u8 *t, u32 len) {
    a->wdat = t;
    a->wdat_len = len;
}

/* Notes that there is AMD's table of IOMMUs, which Takt does not know. */
static void parse_ivrs(struct acpi_info *a, const u8 *t, u32 len) { a->ivrs = true; }

/* Reads one table. If there are several tables of one kind, only the first counts, as in Linux. A
 * second MADT would number the same CPUs and IOAPICs in another way, and both together would
 * describe a machine that does not exist. But there may be many SSDTs, and each of them counts. */
static void parse_table(struct acpi_info *a, u64 pa) {
    static const struct {
        char signature[5];
        u8 least;
        void (*parse)(struct acpi_info *a, const u8 *t, u32 len);
        bool many;
    } kinds[] = {
        { "APIC", MADT_ENTRIES, parse_madt, false },
        { "HPET", HPET_LEAST, parse_hpet, false },
        { "MCFG", MCFG_ENTRIES + MCFG_ENTRY, parse_mcfg, false },
        { "SRAT", SRAT_ENTRIES, parse_srat, false },
        { "SLIT", SLIT_DISTANCES, parse_slit, false },
        { "DMAR", 48, parse_dmar, false },
        { "IVRS", 48, parse_ivrs, false },
        { "SPCR", SPCR_LEAST, parse_spcr, false },
        { "FACP", FADT_V1_LEN, parse_fadt, false },
        { "SSDT", HEADER, parse_ssdt, true },
        { "WDAT", 68, parse_wdat, false },
    };
    u32 len;
    const u8 *t = table_at(a, pa, &len);

    if (t && a->nr_tables < ACPI_MAX_TABLES)
        a->table[a->nr_tables++] = (struct acpi_table){ pa, len };
    for (u32 i = 0; t && i < ARRAY_SIZE(kinds); i++) {
        if (memcmp(t, kinds[i].signature, 4) || len < kinds[i].least) continue;
        if (a->kinds_seen & BIT(i) && !kinds[i].many) {
            a->repeated_tables++;
        } else {
            kinds[i].parse(a, t, len);
            a->kinds_seen |= BIT(i);
        }
    }
}

/* Reads the root table at `pa`, whose entries have `width` bytes, and all tables that it lists.
 * Returns false if there is no such root table. */
static bool parse_root(struct acpi_info *a, u64 pa, const char *signature, unsigned width) {
    u32 len;
    const u8 *t = table_at(a, pa, &len);

    if (!t || memcmp(t, signature, 4)) return false;
    for (u32 at = HEADER, n = 0; at + width <= len && n < MAX_TABLES; at += width, n++)
        parse_table(a, table_get(t + at, width));
    return true;
}

/* Offsets in the RSDP, and its size in ACPI 1 and from ACPI 2 on: ACPI 6.5, 5.2.5.3. */
enum { RSDP_REVISION = 15, RSDP_RSDT = 16, RSDP_LENGTH = 20, RSDP_XSDT = 24 };
#define RSDP_V1_SIZE  20u
#define RSDP_V2_SIZE  36u
#define RSDP_HAS_XSDT 2u /* from this revision on */

/* Are the `len` bytes at `p` a valid RSDP? */
static bool rsdp_ok(const u8 *p, u32 len) {
    if (len < RSDP_V1_SIZE || memcmp(p, "RSD PTR ", 8) || !table_sums_to_zero(p, RSDP_V1_SIZE))
        return false;
    return p[RSDP_REVISION] < RSDP_HAS_XSDT || len >= RSDP_V2_SIZE;
}

/* A BIOS leaves the RSDP and the MP table's pointer on a multiple of 16 bytes, either in the first
 * KiB of the EBDA or in its ROM. The BIOS data area (BDA) holds the segment of the EBDA. */
enum { BDA = 0x400, BDA_SIZE = 0x100, BDA_EBDA = 0x0e };
#define EBDA_LOWEST  0x80000u /* an EBDA outside of these limits is taken for an error */
#define EBDA_HIGHEST 0x9fc00u
#define EBDA_LOOK    1024u
#define ROM_END      0x100000u
#define ACPI_ROM     0xe0000u

/* Returns the first `size` bytes in [start, end), on a multiple of 16, for which ok() returns true;
 * NULL if there are none. */
static const u8 *firmware_scan(u64 start, u64 end, u32 size, bool (*ok)(const u8 *p, u32 len)) {
    const u8 *p = acpi_map(start, end - start);

    for (; p && start + size <= end; p += 16, start += 16)
        if (ok(p, size)) return p;
    return NULL;
}

/* Returns the first structure of the BIOS that ok() accepts, or NULL if there is none. The word at
 * 40Eh is where a BIOS notes the segment of its extended data area (EBDA). */
const u8 *firmware_find(u64 rom, u32 size, bool (*ok)(const u8 *p, u32 len)) {
    const u8 *bda = acpi_map(BDA, BDA_SIZE), *p = NULL;
    u64 ebda = 0;

    if (bda) ebda = table_get(bda + BDA_EBDA, 2) << 4;
    if (ebda >= EBDA_LOWEST && ebda <= EBDA_HIGHEST)
        p = firmware_scan(ebda, ebda + EBDA_LOOK, size, ok);
    if (p) return p;
    return firmware_scan(rom, ROM_END, size, ok);
}

/* Returns the NUMA node of the CPU with this APIC id; 0 if the tables do not say. */
u32 acpi_node_of_cpu(const struct acpi_info *a, u32 apic_id) {
    for (u32 i = 0; i < a->nr_cpu_nodes; i++)
        if (a->cpu_node[i].apic_id == apic_id) return a->cpu_node[i].node;
    return 0;
}

/* MPS INTI flags: ACPI 6.5, table 5.24. */
#define INTI_POLARITY(flags) ((flags)&3u)
#define INTI_TRIGGER(flags)  ((flags) >> 2 & 3u)
#define INTI_ACTIVE_LOW      3u
#define INTI_LEVEL           3u

/* Returns the IOAPIC pin of a PC's interrupt line `irq`, and in *flags how the pin signals. On most
 * machines line 0, the old timer, is wired to pin 2, and all others to the pin with their own
 * number. So a line without an entry is its own pin. */
u32 acpi_line(const struct acpi_info *a, u32 irq, u32 *flags) {
    *flags = 0;
    for (u32 i = 0; i < a->nr_overrides; i++) {
        if (a->override[i].irq != irq) continue;
        if (INTI_POLARITY(a->override[i].flags) == INTI_ACTIVE_LOW) *flags |= IRQ_LOW;
        if (INTI_TRIGGER(a->override[i].flags) == INTI_LEVEL) *flags |= IRQ_LEVEL;
        return a->override[i].gsi;
    }
    return irq;
}

/* Reads all ACPI tables into *out. Returns 0, or -ENOENT if there is no usable root table. The copy
 * of the loader comes first, since firmware that started by UEFI leaves none in low memory. */
int acpi_parse(struct acpi_info *out, const u8 *rsdp, u32 rsdp_len) {
    const u8 *p = rsdp;
    bool has_xsdt;

    if (!rsdp_ok(rsdp, rsdp_len)) p = firmware_find(ACPI_ROM, RSDP_V2_SIZE, rsdp_ok);
    memset(out, 0, sizeof(*out));
    out->nmi_lint = 1; /* NMIs come at LINT1 unless the tables say otherwise, as on every PC */
    if (!p) return -ENOENT;
    /* A second checksum covers the address of the XSDT. If the checksum or the XSDT is wrong, we
     * can still use the RSDT. */
    has_xsdt = p[RSDP_REVISION] >= RSDP_HAS_XSDT && table_get(p + RSDP_LENGTH, 4) == RSDP_V2_SIZE &&
               table_sums_to_zero(p, RSDP_V2_SIZE);
    if (has_xsdt && parse_root(out, table_get(p + RSDP_XSDT, 8), "XSDT", 8)) return 0;
    if (!parse_root(out, table_get(p + RSDP_RSDT, 4), "RSDT", 4)) return -ENOENT;
    return 0;
}
