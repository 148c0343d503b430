#include "pci/pci.h"

#include <takt/io.h>
#include "lib/printf.h"
#include "lib/string.h"
#include "pci/quirks.h"
#include "platform/hostmap.h"

#define MULTIFUNCTION 0x80u

/* PCI Code and ID Assignment 1.11, 1.1 */
#define CLASS_BRIDGE  0x06u
#define CLASS_SYSTEM  0x08u
#define CLASS_SD_HOST 0x0805u
#define CLASS_SIGNAL  0x11u /* Intel's counters and registers beside the cores */

/* Source validation, redirection of requests and completions, forwarding up: PCI Express 7.16.2. */
#define ACS_ISOLATE 0x1du
#define FIRST_ROOM  64u /* entries that the table of devices begins with */

static struct pci_device **devices; /* in order of bdf; it doubles when it is full */
static u32 nr_devices, room, left_out;
static struct pci_device *bridges;

u32 pci_count(void) { return nr_devices; }

struct pci_device *pci_at(u32 i) {
    return devices[i];
}

/* The index of the first device from bdf on. */
static u32 lower_bound(u32 bdf) {
    u32 from = 0, to = nr_devices;

    while (from < to) {
        u32 middle = (from + to) / 2;

        if (devices[middle]->bdf < bdf)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

struct pci_device *pci_find(u32 bdf) {
    u32 i = lower_bound(bdf);

    return i < nr_devices && devices[i]->bdf == bdf ? devices[i] : NULL;
}

struct pci_device *pci_bridge_of(u32 bus) {
    for (struct pci_device *b = bridges; b; b = b->next_bridge)
        if (b->bdf >> 16 == bus >> 8 && (b->saved[PCI_SECONDARY / 4] >> 8 & 0xff) == (bus & 0xff)) return b;
    return NULL;
}

char *pci_name(u32 bdf, char name[PCI_NAME]) {
    u32 n = bdf >> 16 ? (u32)hv_snprintf(name, PCI_NAME, "%04x:", bdf >> 16) : 0;

    hv_snprintf(name + n, PCI_NAME - n, "%02x:%02x.%x", bdf >> 8 & 0xff, bdf >> 3 & 31, bdf & 7);
    return name;
}

/* ---- what a function says about itself ---- */

/* A list that leads in a circle, or into the header, ends the walk. */
static void find_capabilities(struct pci_device *d) {
    u32 at = 0;

    if (pci_read(d->bdf, PCI_STATUS, 2) & PCI_STATUS_LIST) at = pci_read(d->bdf, PCI_CAPABILITIES, 1) & 0xfc;
    for (u32 n = 0; n < PCI_MAX_CAPS && at >= 0x40; n++) {
        u32 head = pci_read(d->bdf, at, 2);
        u8 *where = NULL;

        if (head == 0xffff) return;
        switch (head & 0xff) {
        case PCI_CAP_PM: where = &d->pm; break;
        case PCI_CAP_MSI: where = &d->msi; break;
        case PCI_CAP_EXPRESS: where = &d->express; break;
        case PCI_CAP_MSIX: where = &d->msix; break;
        case PCI_CAP_AF: where = &d->af; break;
        }
        if (where && !*where && at <= 0xec)
            *where = (u8)at; /* whole before the end: the longest has 20 bytes */
        at = head >> 8 & 0xfc;
    }
}

/* PCI Express 7.9: from 0x100 on; the first of a kind counts. */
static void find_extended(struct pci_device *d) {
    u32 at = d->express ? 0x100 : 0;

    for (u32 n = 0; n < PCI_MAX_CAPS && at >= 0x100; n++) {
        u32 head = pci_read(d->bdf, at, 4);

        if (head == ~0u) return;
        if ((head & 0xffff) == PCI_EXT_ACS && !d->acs) d->acs = (u16)at;
        if ((head & 0xffff) == PCI_EXT_ARI && !d->ari) d->ari = (u16)at;
        if ((head & 0xffff) == PCI_EXT_SRIOV && !d->sriov && at <= 0x1000 - 0x40) d->sriov = (u16)at;
        at = head >> 20 & 0xffc;
    }
}

/* Writes all ones to a BAR and returns what stays of them. */
static u32 probe(const struct pci_device *d, u32 offset) {
    u32 old = pci_read(d->bdf, offset, 4), v;

    pci_write(d->bdf, offset, 4, ~0u);
    v = pci_read(d->bdf, offset, 4);
    pci_write(d->bdf, offset, 4, old);
    return v;
}

u32 pci_size_bar(const struct pci_device *d, u32 at, bool last, struct pci_bar *b) {
    u32 low = pci_read(d->bdf, at, 4), mask = probe(d, at);
    u64 bits;

    b->io = mask & 1;
    b->wide = !b->io && (mask & 6) == 4 && !last;
    if (b->io) {
        bits = mask & 0xfffcu; /* the upper half may not be there */
        b->addr = low & 0xfffcu;
    } else {
        bits = mask & ~0xfu;
        b->addr = low & ~0xfu;
    }
    if (b->wide) {
        bits |= (u64)probe(d, at + 4) << 32;
        b->addr |= (u64)pci_read(d->bdf, at + 4, 4) << 32;
    }
    b->size = bits & -bits;
    if (!mask || mask == ~0u || b->addr & (b->size - 1)) b->size = 0;
    return 1 + b->wide;
}

bool pci_part_of_machine(const struct pci_device *d) {
    u32 class = d->class_rev >> 24;

    return class == CLASS_BRIDGE || class == CLASS_SIGNAL || quirk_no_bars(d) ||
           (class == CLASS_SYSTEM && d->class_rev >> 16 != CLASS_SD_HOST);
}

/* Where it is, as it stands. */
static void read_bar(struct pci_device *d, u32 i) {
    u32 low = pci_read(d->bdf, PCI_BAR0 + 4 * i, 4);
    struct pci_bar *b = &d->bar[i];

    if (i && d->bar[i - 1].wide) return; /* the upper half of the one before */
    b->io = low & 1;
    b->wide = !b->io && (low & 6) == 4 && i < 5;
    b->addr = low & (b->io ? 0xfffcu : ~0xfu);
    if (b->wide) b->addr |= (u64)pci_read(d->bdf, PCI_BAR0 + 4 * i + 4, 4) << 32;
}

/* What nobody is given is not sized: a part of the machine may not survive what is written to its
 * BARs, or that it decodes nothing for a moment. Of other devices it is done with decoding off, so
 * that they do not answer at the addresses that sizing makes. */
static void size_bars(struct pci_device *d) {
    u32 command = pci_read(d->bdf, PCI_COMMAND, 2);

    d->unsized = d->header || pci_part_of_machine(d) || d->class_rev >> 24 == PCI_CLASS_DISPLAY;
    if (d->unsized) {
        for (u32 i = 0; i < (d->header ? 2 : 6); i++) read_bar(d, i);
        return;
    }
    pci_write(d->bdf, PCI_COMMAND, 2, command & ~(u32)(PCI_COMMAND_IO | PCI_COMMAND_MEMORY));
    for (u32 i = 0; i < 6;) i += pci_size_bar(d, PCI_BAR0 + 4 * i, i == 5, &d->bar[i]);
    pci_write(d->bdf, PCI_COMMAND, 2, command);
}

/* Registers that the hypervisor writes itself are mapped now: later it cannot be. */
static void map_registers(struct pci_device *d) {
    u32 table = d->msix ? pci_read(d->bdf, d->msix + 4u, 4) : 7;
    const struct pci_bar *b = (table & 7) < 6 ? &d->bar[table & 7] : NULL;

    u32 size = d->msix ? (pci_read(d->bdf, d->msix + 2u, 2) & 0x7ff) + 1 : 0;

    d->msix_size = MIN(size, (u32)PCI_MAX_VECTORS);
    d->msix_addr = b ? b->addr + (table & ~7u) : 0;
    if (b && b->addr && !b->io && (table & ~7u) + 16ull * size <= b->size)
        d->msix_table = mmio_map(d->msix_addr, 16 * d->msix_size);
    /* 8254x: Bochs' goes on writing to memory without the right to be master of the bus */
    if (d->vendor == 0x8086 && d->device == 0x100e && d->bar[0].addr && d->bar[0].size >= PAGE_SIZE)
        d->quiet = mmio_map(d->bar[0].addr, PAGE_SIZE);
}

/* ---- isolation: PCI Express 6.12 ---- */

/* Requests of one device go up, and not across to another. */
static void isolate(const struct pci_device *d) {
    u32 control = d->acs + quirk_acs_control(d);

    if (d->acs) pci_write(d->bdf, control, 2, pci_read(d->bdf, d->acs + 4u, 2) & ACS_ISOLATE);
}

/* Can what is behind this bridge, or another function of its device, be reached from it but by way
 * of the root? What an endpoint cannot do by its capability it need not be kept from. */
static bool isolates(const struct pci_device *d) {
    u32 can = d->acs ? pci_read(d->bdf, d->acs + 4u, 2) & ACS_ISOLATE : 0;
    u32 does = d->acs ? pci_read(d->bdf, d->acs + quirk_acs_control(d), 2) : 0;

    if (quirk_isolated(d)) return true;
    if (!d->acs || !d->express) return false;
    return (does & ACS_ISOLATE) == (d->header ? ACS_ISOLATE : can);
}

/* Functions of one group can reach each other without going by way of the root. */
static u32 group_of(const struct pci_device *d) {
    const struct pci_device *b = d;
    u32 group = d->bdf;

    for (u32 up = 0; b && up < 32; up++) {
        const struct pci_device *first = b->pf ? b : pci_find(b->bdf & ~7u);

        if (b != d && !isolates(b)) group = b->bdf; /* all that is behind it */
        if (group == b->bdf && first && first->multi && !isolates(b)) group = first->bdf;
        b = pci_bridge_of(b->bdf >> 8);
    }
    return group;
}

/* Is there an entry left in the table, perhaps of one that is twice as large? */
static bool make_room(void) {
    u32 more = room ? 2 * room : FIRST_ROOM;
    struct pci_device **table;

    if (nr_devices < room) return true;
    table = more <= PCI_MAX_DEVICES ? heap_alloc(more * sizeof(*table)) : NULL;
    if (!table) return false;
    if (room) memcpy(table, devices, nr_devices * sizeof(*table));
    heap_free(devices);
    devices = table;
    room = more;
    return true;
}

/* In its place by bdf. NULL: there are too many, or there is no memory. */
static struct pci_device *new_device(u32 bdf, u32 id) {
    struct pci_device *d = make_room() ? heap_alloc(sizeof(*d)) : NULL;
    u32 i = lower_bound(bdf);

    if (!d) {
        left_out++;
        return NULL;
    }
    memmove(devices + i + 1, devices + i, (nr_devices++ - i) * sizeof(*devices));
    devices[i] = d;
    d->bdf = bdf;
    pci_name(bdf, d->name);
    d->vendor = (u16)id;
    d->device = (u16)(id >> 16);
    d->class_rev = pci_read(bdf, PCI_CLASS_REV, 4);
    return d;
}

static void save(struct pci_device *d) {
    map_registers(d);
    for (u32 i = 0; i < ARRAY_SIZE(d->saved); i++) d->saved[i] = pci_read(d->bdf, 4 * i, 4);
    if (d->express) d->saved_devctl = (u16)pci_read(d->bdf, d->express + (u32)PCI_EXPRESS_DEVCTL, 2);
}

static void tell(const struct pci_device *d) {
    static const char *const kinds[] = { "device", "bridge", "bridge", "not understood" };

    log_at(LOG_DEBUG, "PCI %s: %04x:%04x, class %06x, %s%s%s", d->name, d->vendor, d->device,
           d->class_rev >> 8, d->pf ? "virtual function" : kinds[MIN(d->header, 3)], d->msi ? ", MSI" : "",
           d->msix ? ", MSI-X" : "");
    for (u32 i = 0; i < 6; i++)
        if (d->bar[i].size)
            log_at(LOG_DEBUG, "  BAR %u: %s %lx, %lu bytes", i, d->bar[i].io ? "ports" : "memory",
                   d->bar[i].addr, d->bar[i].size);
}

static void add(u32 bdf, u32 id, u32 header) {
    struct pci_device *d = new_device(bdf, id);

    if (!d) return;
    d->header = header & ~MULTIFUNCTION;
    if (d->header < 2) {
        size_bars(d);
        find_capabilities(d);
        find_extended(d);
        isolate(d);
    }
    d->multi = header & MULTIFUNCTION;
    if (d->header == 0) {
        d->line = (u8)pci_read(bdf, PCI_LINE, 1);
        d->pin = (u8)pci_read(bdf, PCI_PIN, 1);
        if (d->pin > 4) d->pin = 0;
        /* Takt has no drivers: a device must not disturb one of a VM by a line that they share. */
        if (!pci_part_of_machine(d))
            pci_write(bdf, PCI_COMMAND, 2, pci_read(bdf, PCI_COMMAND, 2) | PCI_COMMAND_NO_INTX);
    }
    if (d->header < 2) save(d);
    if (d->header == 1) {
        d->next_bridge = bridges;
        bridges = d;
    }
    tell(d);
}

struct pci_device *pci_add_vf(struct pci_device *pf, u32 vf, u32 bdf, u32 id) {
    bool there = pci_read(bdf, PCI_CLASS_REV, 4) != ~0u;
    struct pci_device *d = there ? new_device(bdf, id) : NULL;

    if (!d) return NULL;
    d->pf = pf;
    d->vf = vf;
    find_capabilities(d);
    find_extended(d);
    for (u32 i = 0; i < 6; i++) {
        d->bar[i] = pf->vf_bar[i];
        d->bar[i].addr += vf * d->bar[i].size;
    }
    save(d);
    d->saved[PCI_ID / 4] = id;
    /* memory is the physical function's to switch on; QEMU's functions heed their own bit as
     * well */
    d->saved[PCI_COMMAND / 4] = PCI_COMMAND_MEMORY;
    pci_write(bdf, PCI_COMMAND, 2, pci_idle_command(d));
    d->group = group_of(d);
    tell(d);
    return d;
}

static void probe_slot(u32 bdf) {
    for (u32 fn = 0, functions = 1; fn < functions; fn++) {
        u32 id = pci_read(bdf + fn, PCI_ID, 4), header;

        if ((id & 0xffff) == 0xffff || (id & 0xffff) == 0) continue;
        header = pci_read(bdf + fn, PCI_HEADER, 1);
        if (fn == 0 && header & MULTIFUNCTION) functions = 8;
        add(bdf + fn, id, header);
    }
}

/* Every bus, whether a bridge leads there or not: a machine may have several host bridges, which
 * only ACPI's language tells. */
void pci_enumerate(void) {
    while (nr_devices) heap_free(devices[--nr_devices]);
    left_out = 0;
    bridges = NULL;
    for (u32 bus = pci_next_bus(0); bus != PCI_NO_BUS; bus = pci_next_bus(bus + 1))
        for (u32 device = 0; device < 32; device++) probe_slot(bus << 8 | device << 3);
    for (u32 i = 0; i < nr_devices; i++) devices[i]->group = group_of(devices[i]);
    if (left_out)
        log_warn("PCI functions beyond the first %u, which are not known: %u", PCI_MAX_DEVICES, left_out);
}
