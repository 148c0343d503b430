/* What the firmware's ACPI tables tell, with every length and checksum checked. Built for the host as well.
 */
#ifndef HV_PLATFORM_ACPI_H
#define HV_PLATFORM_ACPI_H

#include <takt/types.h>

#define ACPI_MAX_CPUS      64
#define ACPI_MAX_IOAPICS   16
#define ACPI_MAX_OVERRIDES 16

struct acpi_info {
    u32 nr_cpus, cpus_left_out; /* enabled ones; beyond ACPI_MAX_CPUS */
    struct {
        u32 apic_id, acpi_id;
    } cpu[ACPI_MAX_CPUS];
    u32 nr_ioapics;
    struct {
        u64 addr;
        u32 gsi_base;
    } ioapic[ACPI_MAX_IOAPICS];
    u32 nr_overrides;
    struct {
        u32 gsi;
        u16 flags; /* MPS INTI flags: polarity, trigger */
        u8 irq;
    } override[ACPI_MAX_OVERRIDES];
    u64 lapic_addr;
    u8 nmi_lint; /* the local interrupt pin on which NMI comes */

    u16 pm_timer_port; /* 0: none */
    bool pm_timer_32;
    u16 pm1a_control; /* 0: no soft-off */
    u8 sleep_type;    /* SLP_TYPa of S5 */
    struct {
        u8 space; /* 0 memory, 1 port; 0xff: none */
        u8 value;
        u64 addr;
    } reset;
    u64 hpet_addr, mcfg_addr; /* 0: none */
    u8 mcfg_first_bus, mcfg_last_bus;
    bool dmar, ivrs;
    u32 nr_tables, bad_tables; /* bad: a length or checksum did not hold, table ignored */
};

/* Makes [pa, pa + len) readable; NULL if it cannot. What it gave stays valid. */
typedef const void *(*acpi_map_fn)(void *ctx, u64 pa, u64 len);

/* `rsdp`: a copy of rsdp_len bytes from the loader, or NULL: it is then looked for below 1 MiB (ACPI 6.5,
 * 5.2.5.1).
 * 0, or -ENOENT without usable root table; `out` then holds the defaults. Without a MADT nr_cpus is 0. */
int acpi_parse(struct acpi_info *out, const void *rsdp, u32 rsdp_len, acpi_map_fn map, void *ctx);

#endif
