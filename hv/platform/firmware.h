/* What the loader (multiboot2 tags) and the firmware (ACPI tables) tell, checked and copied:
 * nothing that they say is believed beyond a length that was checked. No privileged instruction:
 * also built for the host, where it is tested and fuzzed. */
#ifndef HV_PLATFORM_FIRMWARE_H
#define HV_PLATFORM_FIRMWARE_H

#include <takt/types.h>
#include "common/string.h"

/* The number of `bytes` bytes at `p`, which need not be aligned. */
static inline u64 table_get(const u8 *p, unsigned bytes) {
    u64 v = 0;

    memcpy(&v, p, bytes);
    return v;
}

static inline bool table_sums_to_zero(const u8 *p, u32 len) {
    u8 sum = 0;

    while (len--) sum = (u8)(sum + *p++);
    return sum == 0;
}

/* ---- the loader: bootinfo.c ---- */

#define MB2_BOOT_MAGIC   0x36d76289u
#define BOOT_MAX_SIZE    (1u << 20) /* of the information block: more is not believed */
#define BOOT_MAX_MODULES 80
#define BOOT_MAX_RANGES  128
#define BOOT_NAME        64
#define BOOT_CMDLINE     1024
#define BOOT_RAM_LIMIT   (1ull << 46) /* 64 TiB, as the direct map */

/* A set of bytes, as ranges that are disjoint, not empty and never adjacent, in any order. What
 * makes more ranges than fit is left out. */
struct memmap {
    u32 nr;
    struct {
        u64 start, end; /* end is the first that does not belong */
    } range[BOOT_MAX_RANGES];
};

void memmap_add(struct memmap *m, u64 start, u64 end);
void memmap_remove(struct memmap *m, u64 start, u64 end);
bool memmap_contains(const struct memmap *m, u64 start, u64 end);
bool memmap_overlaps(const struct memmap *m, u64 start, u64 end);

struct boot_module {
    char name[BOOT_NAME]; /* the first word of its line, without directories */
    u64 start, end;
};

enum { SCREEN_PIXELS = 1, SCREEN_TEXT = 2 };

/* As the tag has it (3.6.12). */
struct boot_screen {
    u64 addr;
    u32 pitch, width, height; /* bytes; then pixels or characters */
    u8 bits, kind;            /* of a pixel; SCREEN_*, else it is of no use */
};

struct boot_info {
    char cmdline[BOOT_CMDLINE];
    struct memmap ram; /* usable: what is reserved in any entry is taken out */
    u32 nr_modules;
    struct boot_module module[BOOT_MAX_MODULES];
    u8 rsdp[36]; /* copy of the newest; rsdp_len 0: none */
    u32 rsdp_len;
    struct boot_screen screen;
};

/* Parses the block of at most `room` bytes at `mbi`. NULL, or why it is refused, one sentence. */
const char *bootinfo_parse(const void *mbi, size_t room, struct boot_info *out);

/* ---- the firmware: acpi.c ---- */

#define ACPI_MAX_CPUS      1024 /* that are known; TAKT_MAX_CPUS of them are used */
#define ACPI_MAX_IOAPICS   16
#define ACPI_MAX_OVERRIDES 16
#define ACPI_MAX_NODES     8
#define ACPI_MAX_CPU_NODES 512
#define ACPI_MAX_MEM_NODES 32
#define ACPI_MAX_ECAMS     64
#define ACPI_MAX_TABLES    64

/* Where a register lies: the numbers of ACPI 6.5, 5.2.3.2. */
enum { ACPI_SPACE_MEMORY, ACPI_SPACE_IO, ACPI_SPACE_PCI };

#define ACPI_MAX_SLEEP_TYPE 7 /* SLP_TYP has three bits */

/* How the machine is switched off and reset (ACPI 6.5, 4.8.3.2 and 4.8.3.6). */
struct acpi_power {
    bool s5_known;     /* type_a and type_b are there */
    u8 type_a, type_b; /* what the two control registers want for state S5 */
    u16 pm1a, pm1b;    /* ports of the PM1 control registers; 0: there is none */
    /* port where the firmware is asked to hand ACPI over; 0: it need not be asked */
    u16 smi_command;
    u8 acpi_enable; /* the byte that asks */
    bool can_reset;
    u8 reset_space; /* ACPI_SPACE_* of reset_address */
    u64 reset_address;
    u8 reset_value;
};

struct acpi_info {
    struct acpi_power power;
    u32 nr_tables; /* those whose length and checksum hold, as many as there is room for */
    struct acpi_table {
        u64 addr;
        u32 len;
    } table[ACPI_MAX_TABLES];
    u32 nr_cpus, cpus_left_out; /* enabled ones; beyond ACPI_MAX_CPUS */
    u32 apic_id[ACPI_MAX_CPUS];
    u32 nr_ioapics, nr_overrides;
    struct acpi_ioapic {
        u64 addr;
        u32 gsi_base;
        u8 id;
    } ioapic[ACPI_MAX_IOAPICS];
    struct acpi_override {
        u32 gsi;
        u16 flags; /* MPS INTI flags: polarity, trigger */
        u8 irq;
    } override[ACPI_MAX_OVERRIDES];
    /* SRAT: which node CPUs and memory belong to. Nodes are numbered from 0 in the order in
     * which the table names them; 0 or 1 node: memory is equally near everywhere, or nothing is
     * said. */
    u32 nr_nodes, nr_cpu_nodes, nr_mem_nodes;
    u32 domain[ACPI_MAX_NODES]; /* the table's own number of each node */
    struct acpi_cpu_node {
        u32 apic_id, node;
    } cpu_node[ACPI_MAX_CPU_NODES];
    struct acpi_mem_node {
        u64 start, end;
        u32 node;
    } mem_node[ACPI_MAX_MEM_NODES];
    u8 nmi_lint;   /* the local interrupt pin on which NMI comes */
    u64 hpet_addr; /* 0: none */
    u32 nr_ecams;
    struct acpi_ecam {
        /* where configuration space of bus 0 of the segment would be: PCI Firmware 3.3, 4.1.2 */
        u64 base;
        u16 segment;
        u8 first, last; /* buses */
    } ecam[ACPI_MAX_ECAMS];
    const u8 *dmar; /* the table, for dmar_parse(); NULL: none */
    u32 dmar_len;
    const u8 *wdat; /* the table of the watchdog, at least 68 bytes, for watchdog.c; NULL: none */
    u32 wdat_len;
    bool ivrs;                   /* there is AMD's */
    bool no_keyboard_controller; /* the firmware says that ports 60h and 64h are no 8042's */
    struct acpi_serial {         /* the port on which the firmware speaks (SPCR) */
        bool there, in_memory;
        u64 addr;   /* a port, or physical */
        u32 stride; /* bytes from register to register in memory: 1 or 4 */
        bool has_irq, has_gsi;
        u32 irq, gsi; /* of a PC's 16 lines; a pin of the IOAPICs */
        u32 baud;     /* 0: as the firmware has left it */
    } serial;
    bool x2apic_opt_out; /* firmware asks that x2APIC is not switched on */
    u32 bad_tables;      /* a length or checksum did not hold: ignored, or what follows in it */
    u32 repeated_tables; /* there was one of the same kind before: ignored */
    u32 kinds_seen;      /* a bit for each kind of table that parse_table() knows */
};

/* Is x2APIC to be used by CPUs that have it? Firmware's wish counts, unless it has switched it
 * on itself (`is_on`), as then there are CPUs that ids of xAPIC cannot name. */
static inline bool acpi_wants_x2apic(const struct acpi_info *a, bool is_on) {
    return is_on || !a->x2apic_opt_out;
}

/* `rsdp`: a copy of rsdp_len bytes from the loader; if it is of no use, one is looked for below 1
 * MiB (ACPI 6.5, 5.2.5.1). 0, or -ENOENT without usable root table; `out` then holds the defaults.
 * Without a MADT nr_cpus is 0. */
int acpi_parse(struct acpi_info *out, const u8 *rsdp, u32 rsdp_len);
/* Puts the boot CPU first among a->apic_id, where smp_start() counts on it. A machine with more
 * than ACPI_MAX_CPUS CPUs may have left it out: then it takes another's place, as it runs
 * already. A table that forgot it gets it added. */
void acpi_boot_cpu(struct acpi_info *a, u32 apic_id);
/* The node of the CPU with this APIC id, 0 if the SRAT does not name it. */
u32 acpi_node_of_cpu(const struct acpi_info *a, u32 apic_id);
/* The IOAPIC pin (ACPI's GSI) of one of a PC's 16 interrupt lines, and how it signals, IRQ_* of
 * irq.h. Active high and by edges, as on the ISA bus, unless an entry of the MADT says otherwise
 * (ACPI 6.5, 5.2.12.5). */
u32 acpi_line(const struct acpi_info *a, u32 irq, u32 *flags);
/* Makes [pa, pa + len) readable, for ever; NULL if it cannot. hostmap.c's in the image. */
const void *acpi_map(u64 pa, u64 len);

/* What firmware leaves on a multiple of 16 bytes in the first KiB of the EBDA or in the BIOS' ROM,
 * from `rom` to 1 MiB: the first `size` bytes that are `ok`; NULL. */
const u8 *firmware_find(u64 rom, u32 size, bool (*ok)(const u8 *p, u32 len));

/* ---- where the IOMMUs are: dmar.c. An entry that does not hold costs the devices that it
 * names: they are confined by none. Where it cannot be told which these are, they may be any
 * that no good entry names: then a unit with `all` is not known to have them, as a device that
 * an IOMMU forgets would have all memory ---- */

#define DMAR_MAX_UNITS   64
#define DMAR_MAX_REGIONS 32
#define DMAR_MAX_SCOPES  1024
#define DMAR_MAX_HOPS    8

enum { DMAR_ENDPOINT = 1, DMAR_BRIDGE, DMAR_IOAPIC, DMAR_HPET, DMAR_NAMESPACE };

struct dmar_info {
    bool unsure;            /* there may be units that are not here, in any segment */
    bool remaps_interrupts; /* this platform does (flag INTR_REMAP) */
    u32 nr_units, nr_regions, nr_scopes;
    u32 lost_regions; /* so many are not here, or not with all their devices */
    struct {
        u64 base; /* of its registers */
        u16 segment;
        bool all;        /* it has every device of its segment that no other unit's scopes name */
        bool unsure;     /* some of its scopes are not here */
        const char *odd; /* why it cannot be used, as it follows "as"; NULL: it can */
    } unit[DMAR_MAX_UNITS];
    struct {
        u64 first, last; /* memory that firmware goes on using by devices */
        u16 segment;
        bool odd; /* these are no whole pages */
    } region[DMAR_MAX_REGIONS];
    struct dmar_scope {
        bool of_region;
        u8 of; /* that unit, that region */
        /* DMAR_ENDPOINT ...; the IOAPIC's or HPET's own id; where the path begins */
        u8 kind, id, bus;
        u8 hops;                   /* at least 1 */
        u8 path[DMAR_MAX_HOPS][2]; /* device, function: bridges, and last what is meant */
    } scope[DMAR_MAX_SCOPES];
};

/* VT-d 8: the table at `t`, whose length and checksum hold. */
void dmar_parse(struct dmar_info *out, const u8 *t, u32 len);
/* Does firmware ask that x2APIC is not switched on? VT-d 8.1: flag X2APIC_OPT_OUT, which is
 * valid with INTR_REMAP alone. */
bool dmar_opts_out_of_x2apic(const u8 *t, u32 len);

/* ---- the MP table: mptable.c. Of it only how PCI interrupts reach the IOAPICs, which ACPI tells
 * in a language that would need an interpreter ---- */

#define MP_MAX_ROUTES 128

struct mp_info {
    u32 nr;
    struct mp_route {
        u8 bus, device, pin; /* PCI's; the pin from 0 */
        u16 flags;           /* MPS INTI flags */
        u32 gsi;
    } route[MP_MAX_ROUTES];
    /* a checksum did not hold, or an entry reaches beyond the end: what is behind is ignored */
    bool bad;
};

/* MultiProcessor Specification 1.4, chapter 4. `a` says which GSIs an IOAPIC has. Without a table
 * nr is 0. */
void mp_parse(struct mp_info *out, const struct acpi_info *a);

#endif
