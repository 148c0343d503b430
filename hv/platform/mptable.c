/* Reads the MP table, which tells to which IOAPIC pin the interrupt of each PCI device is wired. An
 * IOAPIC is the chip that turns interrupt wires into messages to CPUs. The table is older than
 * ACPI; section numbers are of the MultiProcessor Specification 1.4. Firmware may have written
 * nonsense, so every length is checked before the bytes are read. */
#include "platform/firmware.h"

/* The floating pointer, which says where the table is: MP 1.4, 4.1. */
enum { FLOATING_TABLE = 4, FLOATING_SIZE = 16 };
#define BIOS_ROM 0xf0000u

/* The table's header (4.2), and kinds and sizes of the entries behind it (4.3). */
enum { MP_LENGTH = 4, MP_ENTRIES = 44 };
enum { MP_CPU, MP_BUS, MP_IOAPIC, MP_INTERRUPT };
enum { CPU_SIZE = 20, ENTRY_SIZE = 8 };

/* Offsets in entries. All but MP_CPU have their own id in ENTRY_ID. */
enum { ENTRY_KIND = 0, ENTRY_ID = 1, BUS_TYPE = 2, IOAPIC_ADDRESS = 4 };
enum { INT_TYPE = 1, INT_FLAGS = 2, INT_BUS = 4, INT_SOURCE = 5, INT_IOAPIC = 6, INT_PIN = 7 };
#define INT_ORDINARY     0                  /* of INT_TYPE: neither NMI nor SMI, 4.3.4 */
#define PCI_DEVICE(from) ((from) >> 2 & 31) /* INT_SOURCE of a PCI bus: appendix D.3 */
#define PCI_PIN(from)    ((from)&3)

/* Is this the floating pointer, the small structure in low memory that says where the table is? */
static bool floating_ok(const u8 *p, u32 len) {
    return !memcmp(p, "_MP_", 4) && table_sums_to_zero(p, len);
}

/* Finds the table and checks it as a whole. Returns it, with its length in *len. Returns NULL if
 * there is none, or if it is damaged; then out->bad is set, so that the operator is told. It is
 * mapped twice, because the length is known only after the header has been read. */
static const u8 *find_table(struct mp_info *out, u32 *len) {
    const u8 *p = firmware_find(BIOS_ROM, FLOATING_SIZE, floating_ok), *t;
    u64 pa;

    if (!p) return NULL;
    pa = table_get(p + FLOATING_TABLE, 4);
    if (!pa) return NULL;
    out->bad = true;
    t = acpi_map(pa, MP_ENTRIES);
    if (!t) return NULL;
    *len = (u32)table_get(t + MP_LENGTH, 2);
    if (*len < MP_ENTRIES) return NULL;
    t = acpi_map(pa, *len);
    if (!t || memcmp(t, "PCMP", 4) || !table_sums_to_zero(t, *len)) return NULL;
    out->bad = false;
    return t;
}

/* Returns how many bytes an entry of the table has. */
static u32 entry_size(const u8 *e) {
    if (e[ENTRY_KIND] == MP_CPU) return CPU_SIZE;
    return ENTRY_SIZE;
}

/* Returns the table's entry of this kind (MP_BUS or MP_IOAPIC) with this id; NULL if there is none.
 * An interrupt's entry names its bus and its IOAPIC only by such ids. */
static const u8 *find_entry(const u8 *t, u32 len, u8 kind, u8 id) {
    for (u32 at = MP_ENTRIES; at + ENTRY_SIZE <= len; at += entry_size(t + at))
        if (t[at + ENTRY_KIND] == kind && t[at + ENTRY_ID] == id) return t + at;
    return NULL;
}

/* Adds the interrupt that entry `e` of table `t` describes to `out`. It is left out unless it is an
 * ordinary one, from a PCI bus to an IOAPIC that ACPI knows as well (`a`). The two tables number
 * the IOAPICs differently, so they are matched by the address of their registers. */
static void add_route(struct mp_info *out, const struct acpi_info *a, const u8 *t, u32 len,
                      const u8 *e) {
    const u8 *bus = find_entry(t, len, MP_BUS, e[INT_BUS]);
    const u8 *apic = find_entry(t, len, MP_IOAPIC, e[INT_IOAPIC]);

    if (e[INT_TYPE] != INT_ORDINARY || !bus || memcmp(bus + BUS_TYPE, "PCI", 3)) return;
    if (!apic || out->nr == MP_MAX_ROUTES) return;
    for (u32 i = 0; i < a->nr_ioapics; i++) {
        if (a->ioapic[i].addr != table_get(apic + IOAPIC_ADDRESS, 4)) continue;
        out->route[out->nr++] = (struct mp_route){
            .bus = e[INT_BUS],
            .device = PCI_DEVICE(e[INT_SOURCE]),
            .pin = PCI_PIN(e[INT_SOURCE]),
            .flags = (u16)table_get(e + INT_FLAGS, 2),
            .gsi = a->ioapic[i].gsi_base + e[INT_PIN],
        };
        return;
    }
}

/* Reads the MP table, which says to which IOAPIC pins the PCI devices' interrupts go, into *out. An
 * entry that reaches beyond the end of the table ends the walk, because where the next one begins
 * is then unknown. */
void mp_parse(struct mp_info *out, const struct acpi_info *a) {
    const u8 *t;
    u32 len = 0;

    memset(out, 0, sizeof(*out));
    t = find_table(out, &len);
    for (u32 at = MP_ENTRIES, size; t && at < len; at += size) {
        size = entry_size(t + at);
        out->bad = size > len - at;
        if (out->bad) return;
        if (t[at + ENTRY_KIND] == MP_INTERRUPT) add_route(out, a, t, len, t + at);
    }
}
