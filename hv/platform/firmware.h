/* Reads what the boot loader (multiboot2 tags) and the firmware (ACPI and other tables) tell about
 * the machine. Their data may be wrong, so each parser checks a length before it reads the bytes
 * that the length covers. The parsers use no privileged instruction, so that they can also be
 * built for the host, where they are tested and fuzzed. They run on the boot CPU, before the other
 * CPUs are started, and take no locks. */
#ifndef HV_PLATFORM_FIRMWARE_H
#define HV_PLATFORM_FIRMWARE_H

#include <takt/types.h>
#include "common/string.h"

/* Returns the little-endian number in the `bytes` bytes (at most 8) at `p`. `p` need not be
 * aligned. */
static inline u64 table_get(const u8 *p, unsigned bytes) {
    u64 v = 0;

    memcpy(&v, p, bytes);
    return v;
}

/* Is the checksum of a table right? It is if all `len` bytes at `p` add up to 0 modulo 256, as in
 * ACPI 6.5, 5.2.6. */
static inline bool table_sums_to_zero(const u8 *p, u32 len) {
    u8 sum = 0;

    while (len--) sum = (u8)(sum + *p++);
    return sum == 0;
}

/* ---- the loader: bootinfo.c ---- */

#define MB2_BOOT_MAGIC   0x36d76289u
#define BOOT_MAX_SIZE    (1u << 20) /* bytes of the information block: more is refused as wrong */
#define BOOT_MAX_MODULES 80
#define BOOT_MAX_RANGES  128
#define BOOT_NAME        64
#define BOOT_CMDLINE     1024
#define BOOT_RAM_LIMIT   (1ull << 46) /* 64 TiB, as the direct map: RAM above is not used */

/* A set of physical addresses. It consists of ranges in any order. No range is empty, and no two
 * ranges overlap or touch. If there are more ranges than fit, the last ones are dropped, so the set
 * may be smaller than it should be, but never larger. */
struct memmap {
    u32 nr;
    struct {
        u64 start, end; /* `end` is the first address behind the range */
    } range[BOOT_MAX_RANGES];
};

/* Add [start, end) to the set, or remove it. They do nothing if start >= end. */
void memmap_add(struct memmap *m, u64 start, u64 end);
void memmap_remove(struct memmap *m, u64 start, u64 end);
/* Is all of [start, end), or at least one byte of it, in the set? */
bool memmap_contains(const struct memmap *m, u64 start, u64 end);
bool memmap_overlaps(const struct memmap *m, u64 start, u64 end);

/* A file that the boot loader has put into memory, such as a guest's image. */
struct boot_module {
    char name[BOOT_NAME]; /* the first word of the module's line, without directories */
    u64 start, end;       /* physical addresses; `end` is the first one behind the file */
};

enum { SCREEN_PIXELS = 1, SCREEN_TEXT = 2 };

/* The screen that the loader has set up. The layout is that of the tag (Multiboot2 3.6.12), since
 * the tag is copied here as it is. */
struct boot_screen {
    u64 addr; /* physical address of the frame buffer or of the text buffer */
    /* bytes from one row to the next; then the size in pixels, or in characters for SCREEN_TEXT */
    u32 pitch, width, height;
    u8 bits, kind; /* bits of a pixel; SCREEN_*: a screen of any other kind is of no use */
};

struct boot_info {
    char cmdline[BOOT_CMDLINE];
    struct memmap ram; /* usable RAM: memory that any entry of the map reserves is taken out */
    u32 nr_modules;
    struct boot_module module[BOOT_MAX_MODULES];
    u8 rsdp[36];  /* copy of ACPI's RSDP; of two, the longer one, which is the newer version */
    u32 rsdp_len; /* bytes of `rsdp` that are used; 0: the loader gave none */
    struct boot_screen screen;
};

/* Parses the boot information at `mbi` and fills in *out. Of the memory at `mbi`, `room` bytes can
 * be read. Returns NULL, or one sentence that says why the information is refused. */
const char *bootinfo_parse(const void *mbi, size_t room, struct boot_info *out);

/* ---- the firmware: acpi.c ---- */

#define ACPI_MAX_CPUS      1024 /* CPUs in the list; at most TAKT_MAX_CPUS of them are used */
#define ACPI_MAX_IOAPICS   16
#define ACPI_MAX_OVERRIDES 16
#define ACPI_MAX_NODES     8
#define ACPI_MAX_CPU_NODES 512
#define ACPI_MAX_MEM_NODES 32
#define ACPI_MAX_ECAMS     64
#define ACPI_MAX_TABLES    64

/* The address space in which a register lies. The numbers are those of ACPI 6.5, 5.2.3.2. */
enum { ACPI_SPACE_MEMORY, ACPI_SPACE_IO, ACPI_SPACE_PCI };

#define ACPI_MAX_SLEEP_TYPE 7 /* SLP_TYP has three bits */

/* How the machine is switched off and reset (ACPI 6.5, 4.8.3.2 and 4.8.3.6). */
struct acpi_power {
    bool s5_known;     /* type_a and type_b are valid */
    u8 type_a, type_b; /* the values for the two control registers that mean state S5, "off" */
    u16 pm1a, pm1b;    /* I/O ports of the PM1 control registers; 0: there is no such register */
    /* I/O port by which Takt asks the firmware to hand ACPI over; 0: it need not be asked */
    u16 smi_command;
    u8 acpi_enable;    /* the byte to write to smi_command */
    bool can_reset;    /* the three fields below are valid */
    u8 reset_space;    /* ACPI_SPACE_* of reset_address */
    u64 reset_address; /* where the reset register is */
    u8 reset_value;    /* the value that resets the machine when it is written there */
};

/* What the ACPI tables say. */
struct acpi_info {
    struct acpi_power power;
    /* the tables whose length and checksum are right, as many as there is room for */
    u32 nr_tables;
    struct acpi_table {
        u64 addr;
        u32 len;
    } table[ACPI_MAX_TABLES];
    /* enabled CPUs that are in apic_id[]; enabled CPUs for which apic_id[] had no room */
    u32 nr_cpus, cpus_left_out;
    u32 apic_id[ACPI_MAX_CPUS];
    u32 nr_ioapics, nr_overrides;
    struct acpi_ioapic {
        u64 addr;     /* physical address of its registers */
        u32 gsi_base; /* the number of its first pin among the pins of all IOAPICs */
        u8 id;
    } ioapic[ACPI_MAX_IOAPICS];
    struct acpi_override {
        u32 gsi;   /* the IOAPIC pin to which the line is wired */
        u16 flags; /* MPS INTI flags: polarity and trigger mode */
        u8 irq;    /* one of a PC's 16 interrupt lines */
    } override[ACPI_MAX_OVERRIDES];
    /* From the SRAT: the NUMA nodes to which CPUs and memory belong. Takt numbers the nodes from 0
     * in the order in which the table names them. With 0 or 1 node, all memory is equally near to
     * all CPUs, or there is no such table. */
    u32 nr_nodes, nr_cpu_nodes, nr_mem_nodes;
    u32 domain[ACPI_MAX_NODES]; /* the number of each node in the table: its proximity domain */
    struct acpi_cpu_node {
        u32 apic_id, node;
    } cpu_node[ACPI_MAX_CPU_NODES];
    struct acpi_mem_node {
        u64 start, end; /* physical; `end` is the first address behind it */
        u32 node;
    } mem_node[ACPI_MAX_MEM_NODES];
    const u8 *slit;   /* the table SLIT, for acpi_distance(); NULL: there is none that is valid */
    u32 slit_domains; /* how many proximity domains it is about: those from 0 on */
    u8 nmi_lint;      /* the pin of the local APIC, 0 or 1, on which NMIs arrive */
    u64 hpet_addr;    /* physical address of the HPET's registers; 0: there is no HPET */
    u32 nr_ecams;
    struct acpi_ecam {
        /* Physical address at which the configuration space of bus 0 of the segment would be, even
         * if `first` is not 0: PCI Firmware 3.3, 4.1.2. */
        u64 base;
        u16 segment;
        u8 first, last; /* the buses that can be reached through this window */
    } ecam[ACPI_MAX_ECAMS];
    const u8 *dmar; /* the table DMAR, for dmar_parse(); NULL: there is none */
    u32 dmar_len;
    const u8 *wdat; /* the table WDAT, at least 68 bytes, for watchdog.c; NULL: there is none */
    u32 wdat_len;
    bool ivrs;                   /* there is a table IVRS, so the machine has AMD's IOMMU */
    bool no_keyboard_controller; /* the firmware says that ports 60h and 64h are not an 8042 */
    struct acpi_serial {         /* the serial port that the firmware uses (table SPCR) */
        /* the table names a port that Takt can drive; its registers are in memory, not at ports */
        bool there, in_memory;
        u64 addr;              /* its first I/O port, or a physical address */
        u32 stride;            /* bytes from one register in memory to the next: 1 or 4 */
        bool has_irq, has_gsi; /* `irq` is valid; `gsi` is valid */
        u32 irq, gsi;          /* one of a PC's 16 interrupt lines; a pin of the IOAPICs */
        u32 baud;              /* 0: the rate stays as the firmware has set it */
    } serial;
    bool x2apic_opt_out; /* the firmware asks the system not to switch x2APIC on */
    /* How often a length or a checksum was wrong. Such a table is ignored. If the length of an
     * entry in a table was wrong, the rest of that table is ignored. */
    u32 bad_tables;
    u32 repeated_tables; /* tables that were ignored because one of the same kind came before */
    u32 kinds_seen;      /* a bit for each kind of table that parse_table() knows */
};

/* Should CPUs that have x2APIC use it? Yes, unless the firmware asks for xAPIC. But if the firmware
 * has switched x2APIC on itself (`is_on`), its request does not count: then the machine may have
 * CPUs whose ids are too large for xAPIC. */
static inline bool acpi_wants_x2apic(const struct acpi_info *a, bool is_on) {
    return is_on || !a->x2apic_opt_out;
}

/* Reads all ACPI tables and fills in *out. `rsdp` is the loader's copy of the RSDP, rsdp_len bytes
 * of it. If that copy is not valid, the RSDP is searched for below 1 MiB (ACPI 6.5, 5.2.5.1).
 * Returns 0, or
 *   -ENOENT  there is no usable root table; *out then holds the defaults
 * If there is no MADT, out->nr_cpus is 0. */
int acpi_parse(struct acpi_info *out, const u8 *rsdp, u32 rsdp_len);
/* Puts the boot CPU, which has this APIC id, first in a->apic_id, because smp_start() expects it
 * there. If the tables forgot it, it is added. If the list is full without it, it replaces the last
 * CPU of the list, since the boot CPU runs already and cannot be left out. */
void acpi_boot_cpu(struct acpi_info *a, u32 apic_id);
/* Returns the node of the CPU with this APIC id; 0 if the SRAT does not name that CPU. */
u32 acpi_node_of_cpu(const struct acpi_info *a, u32 apic_id);
/* Returns how far apart two of Takt's nodes are, as the SLIT says it: 10 is a node to itself, and
 * 20 is twice as slow (ACPI 6.5, 5.2.17). What the table does not say counts as 20. */
u32 acpi_distance(const struct acpi_info *a, u32 from, u32 to);
/* Returns the IOAPIC pin (ACPI's GSI) of `irq`, one of a PC's 16 interrupt lines. Sets *flags to
 * the IRQ_* bits of irq.h that say how the pin signals. This is active high and edge triggered, as
 * on the ISA bus, unless an entry of the MADT says otherwise (ACPI 6.5, 5.2.12.5). */
u32 acpi_line(const struct acpi_info *a, u32 irq, u32 *flags);
/* Makes the physical addresses [pa, pa + len) readable for ever, and returns where. Returns NULL if
 * that is impossible. The image has this function in hostmap.c; unit tests have their own. */
const void *acpi_map(u64 pa, u64 len);

/* Searches for a structure that a BIOS leaves on a multiple of 16 bytes: first in the first KiB of
 * the EBDA, then in the BIOS' ROM from physical address `rom` to 1 MiB. Returns the first `size`
 * bytes for which ok() returns true; NULL if there are none. */
const u8 *firmware_find(u64 rom, u32 size, bool (*ok)(const u8 *p, u32 len));

/* ---- where the IOMMUs are: dmar.c ----
 *
 * If an entry of the DMAR table is malformed, we do not know for sure which IOMMU has the devices
 * that the entry names. If we guessed wrong, a VM's device could read and write all memory. So such
 * devices count as confined by no IOMMU. If even the names are unreadable, the entry may mean any
 * device that no good entry names. Then we do not trust that these devices belong to the unit with
 * `all` either; this is what the two fields `unsure` are for. */

#define DMAR_MAX_UNITS   64
#define DMAR_MAX_REGIONS 32
#define DMAR_MAX_SCOPES  1024
#define DMAR_MAX_HOPS    8

enum { DMAR_ENDPOINT = 1, DMAR_BRIDGE, DMAR_IOAPIC, DMAR_HPET, DMAR_NAMESPACE };

/* What the DMAR table says. */
struct dmar_info {
    bool unsure;            /* an entry for a unit of any segment may be missing here */
    bool remaps_interrupts; /* the platform can remap interrupts (flag INTR_REMAP) */
    u32 nr_units, nr_regions, nr_scopes;
    u32 lost_regions; /* how many regions are missing here, or lack some of their devices */
    struct {
        u64 base; /* physical address of the unit's registers */
        u16 segment;
        bool all;        /* it has each device of its segment that no scope of a unit names */
        bool unsure;     /* some of its scopes are missing here */
        const char *odd; /* why it cannot be used, as words to follow "as"; NULL: it can be */
    } unit[DMAR_MAX_UNITS];
    struct {
        u64 first, last; /* physical memory that the firmware goes on using by devices (RMRR) */
        u16 segment;
        bool odd; /* [first, last] does not consist of whole pages */
    } region[DMAR_MAX_REGIONS];
    struct dmar_scope { /* names one device, and the unit or region to which it belongs */
        bool of_region; /* it belongs to a region, not to a unit */
        u8 of;          /* index in region[] or unit[] */
        /* DMAR_ENDPOINT and so on; the number of an IOAPIC or HPET; the bus where the path
         * begins */
        u8 kind, id, bus;
        u8 hops; /* steps of the path, at least 1 */
        /* device and function of each bridge on the way, and in the last step of the device */
        u8 path[DMAR_MAX_HOPS][2];
    } scope[DMAR_MAX_SCOPES];
};

/* Parses the DMAR table (VT-d, chapter 8) of `len` bytes at `t` and fills in *out. The caller has
 * checked the table's length and checksum. */
void dmar_parse(struct dmar_info *out, const u8 *t, u32 len);
/* Does the firmware ask the system not to switch x2APIC on? The flag is X2APIC_OPT_OUT, which is
 * valid only together with INTR_REMAP (VT-d 8.1). */
bool dmar_opts_out_of_x2apic(const u8 *t, u32 len);

/* ---- the MP table: mptable.c ----
 *
 * Takt reads only how PCI interrupt pins are wired to the IOAPICs. ACPI describes that in AML, its
 * own language, for which Takt has no interpreter. */

#define MP_MAX_ROUTES 128

struct mp_info {
    u32 nr;
    struct mp_route {
        u8 bus, device, pin; /* of the PCI device; pin 0 is INTA */
        u16 flags;           /* MPS INTI flags: polarity and trigger mode */
        u32 gsi;             /* the IOAPIC pin */
    } route[MP_MAX_ROUTES];
    /* A checksum is wrong, so the whole table is ignored; or an entry goes beyond the end of the
     * table, so this entry and the ones behind it are ignored. */
    bool bad;
};

/* Parses the MP table (MultiProcessor Specification 1.4, chapter 4) and fills in *out: to which
 * IOAPIC pin the interrupt of each PCI device goes. It is needed where ACPI's tables do not say
 * so. `a` says which GSIs each IOAPIC has. If the machine has no MP table, out->nr is 0. */
void mp_parse(struct mp_info *out, const struct acpi_info *a);

#endif
