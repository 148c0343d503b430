#include "passthrough/pci.h"

#include <takt/io.h>
#include "lib/printf.h"
#include "platform/hostmap.h"

#define MULTIFUNCTION  0x80u
#define STATUS_LIST    BIT(4)
#define MAX_CAPS       48 /* as many as fit behind the header */

#define EXPRESS_DEVCAP 4
#define EXPRESS_DEVCTL 8
#define DEVCAP_FLR     BIT(28)
#define DEVCTL_FLR     BIT(15)
#define AF_CAP         3 /* a byte: bit 0 transactions pending can be told, bit 1 FLR */
#define AF_CONTROL     4
#define PM_CONTROL     4
#define PM_NO_RESET    BIT(3)
#define PM_D3          3u
#define RESET_NS       (100 * NS_PER_MS) /* after FLR, PCI Express 6.6.2; more than D3 asks for */
#define POWER_UP_NS    (10 * NS_PER_MS)  /* from D3 to D0, PCI PM 5.4 */

static struct pci_device *devices[PCI_MAX_DEVICES];
static u32 nr_devices, left_out;

u32 pci_count(void) { return nr_devices; }

struct pci_device *pci_at(u32 i) {
    return devices[i];
}

struct pci_device *pci_find(u32 bdf) {
    for (u32 i = 0; i < nr_devices; i++)
        if (devices[i]->bdf == bdf) return devices[i];
    return NULL;
}

struct pci_device *pci_bridge_of(u32 bus) {
    for (u32 i = 0; i < nr_devices; i++)
        if (devices[i]->header == 1 && pci_read(devices[i]->bdf, PCI_SECONDARY, 1) == bus) return devices[i];
    return NULL;
}

/* ---- what a function says about itself ---- */

/* A list that leads in a circle, or into the header, ends the walk. */
static void find_capabilities(struct pci_device *d) {
    u32 at = 0;

    if (pci_read(d->bdf, PCI_STATUS, 2) & STATUS_LIST) at = pci_read(d->bdf, PCI_CAPABILITIES, 1) & 0xfc;
    for (u32 n = 0; n < MAX_CAPS && at >= 0x40; n++) {
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

/* Writes all ones to a BAR and returns what stays of them. */
static u32 probe(const struct pci_device *d, u32 offset) {
    u32 old = pci_read(d->bdf, offset, 4), v;

    pci_write(d->bdf, offset, 4, ~0u);
    v = pci_read(d->bdf, offset, 4);
    pci_write(d->bdf, offset, 4, old);
    return v;
}

/* PCI 3.0, 6.2.5.1: the lowest bit that can be set is the size. Returns how many BARs it takes. */
static u32 size_bar(struct pci_device *d, u32 i) {
    u32 at = PCI_BAR0 + 4 * i, low = pci_read(d->bdf, at, 4), mask = probe(d, at);
    struct pci_bar *b = &d->bar[i];
    u64 bits;

    b->io = mask & 1;
    b->wide = !b->io && (mask & 6) == 4 && i < 5;
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

/* With decoding off, so that nobody is at the addresses that sizing makes. */
static void size_bars(struct pci_device *d) {
    u32 command = pci_read(d->bdf, PCI_COMMAND, 2);

    pci_write(d->bdf, PCI_COMMAND, 2, command & ~(u32)(PCI_COMMAND_IO | PCI_COMMAND_MEMORY));
    for (u32 i = 0; i < 6;) i += size_bar(d, i);
    pci_write(d->bdf, PCI_COMMAND, 2, command);
}

/* Registers that the hypervisor writes itself are mapped now: later it cannot be. */
static void map_registers(struct pci_device *d) {
    u32 table = d->msix ? pci_read(d->bdf, d->msix + 4u, 4) : 7;
    const struct pci_bar *b = (table & 7) < 6 ? &d->bar[table & 7] : NULL;

    if (b && b->addr && !b->io && (table & ~7u) + 16ull <= b->size)
        d->msix_entry = mmio_map(b->addr + (table & ~7u), 16);
    /* 8254x: Bochs' goes on writing to memory without the right to be master of the bus */
    if (d->vendor == 0x8086 && d->device == 0x100e && d->bar[0].addr && d->bar[0].size >= PAGE_SIZE)
        d->quiet = mmio_map(d->bar[0].addr, PAGE_SIZE);
}

static const char *kind(const struct pci_device *d) {
    return d->header == 0 ? "device" : d->header < 3 ? "bridge" : "not understood";
}

static void add(u32 bdf, u32 id, u32 header) {
    struct pci_device *d = nr_devices < PCI_MAX_DEVICES ? heap_alloc(sizeof(*d)) : NULL;

    if (!d) {
        left_out++;
        return;
    }
    devices[nr_devices++] = d;
    d->bdf = bdf;
    d->vendor = (u16)id;
    d->device = (u16)(id >> 16);
    d->class_rev = pci_read(bdf, PCI_CLASS_REV, 4);
    d->header = header & ~MULTIFUNCTION;
    if (d->header == 0) {
        d->line = (u8)pci_read(bdf, PCI_LINE, 1);
        d->pin = (u8)pci_read(bdf, PCI_PIN, 1);
        if (d->pin > 4) d->pin = 0;
        find_capabilities(d);
        size_bars(d);
        map_registers(d);
        /* Takt has no drivers: who shares a line with a device of a VM is not to disturb it. */
        pci_write(bdf, PCI_COMMAND, 2, pci_read(bdf, PCI_COMMAND, 2) | PCI_COMMAND_NO_INTX);
        for (u32 i = 0; i < ARRAY_SIZE(d->saved); i++) d->saved[i] = pci_read(bdf, 4 * i, 4);
        if (d->express) d->saved_devctl = (u16)pci_read(bdf, d->express + (u32)EXPRESS_DEVCTL, 2);
    }
    log_at(LOG_DEBUG, "PCI %02x:%02x.%x: %04x:%04x, class %06x, %s%s%s", bdf >> 8, bdf >> 3 & 31, bdf & 7,
           d->vendor, d->device, d->class_rev >> 8, kind(d), d->msi ? ", MSI" : "", d->msix ? ", MSI-X" : "");
    for (u32 i = 0; i < 6; i++)
        if (d->bar[i].size)
            log_at(LOG_DEBUG, "  BAR %u: %s %lx, %lu bytes", i, d->bar[i].io ? "ports" : "memory",
                   d->bar[i].addr, d->bar[i].size);
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

/* Every bus, whether a bridge leads there or not: a machine may have several host bridges, which only ACPI's
 * language tells. */
void pci_enumerate(void) {
    while (nr_devices) heap_free(devices[--nr_devices]);
    left_out = 0;
    for (u32 bdf = 0; bdf < 256 << 8; bdf += 8) probe_slot(bdf);
    if (left_out) log_warn("%u PCI functions beyond %u are not known", left_out, PCI_MAX_DEVICES);
}

/* ---- taking it back ---- */

/* No message any more, and none of the interrupts of old: MSI 6.8.1.3, MSI-X 6.8.2.3. */
static void messages_off(const struct pci_device *d) {
    if (d->msi) pci_write(d->bdf, d->msi + 2u, 2, pci_read(d->bdf, d->msi + 2u, 2) & ~(u32)PCI_MSI_ENABLE);
    if (d->msix)
        pci_write(d->bdf, d->msix + 2u, 2, pci_read(d->bdf, d->msix + 2u, 2) & ~(u32)PCI_MSIX_ENABLE);
}

/* 8254x: interrupts masked, receiver and transmitter off (software developer's manual 317453, 13.4). */
static void keep_quiet(const struct pci_device *d) {
    if (!d->quiet) return;
    mmio_write32(d->quiet + 0x0d8, ~0u);
    mmio_write32(d->quiet + 0x100, 0);
    mmio_write32(d->quiet + 0x400, 0);
}

static bool begin_reset(const struct pci_device *d) {
    u32 af = d->af ? pci_read(d->bdf, d->af + (u32)AF_CAP, 1) : 0;
    u32 pm = d->pm ? pci_read(d->bdf, d->pm + (u32)PM_CONTROL, 2) : (u32)PM_NO_RESET;

    if (d->express && pci_read(d->bdf, d->express + (u32)EXPRESS_DEVCAP, 4) & DEVCAP_FLR)
        pci_write(d->bdf, d->express + (u32)EXPRESS_DEVCTL, 2, d->saved_devctl | (u32)DEVCTL_FLR);
    else if ((af & 3) == 3)
        pci_write(d->bdf, d->af + (u32)AF_CONTROL, 1, 1);
    else if (!(pm & PM_NO_RESET))
        pci_write(d->bdf, d->pm + (u32)PM_CONTROL, 2, pm | PM_D3);
    else
        return false;
    return true;
}

static void restore(const struct pci_device *d) {
    for (u32 i = PCI_BAR0 / 4; i < 10; i++) pci_write(d->bdf, 4 * i, 4, d->saved[i]);
    pci_write(d->bdf, PCI_CACHE_LINE, 2, d->saved[PCI_CACHE_LINE / 4] & 0xffff);
    pci_write(d->bdf, PCI_LINE, 1, d->line);
    if (d->express)
        pci_write(d->bdf, d->express + (u32)EXPRESS_DEVCTL, 2, d->saved_devctl & ~(u32)DEVCTL_FLR);
    pci_write(d->bdf, PCI_COMMAND, 2, pci_idle_command(d));
}

u32 pci_idle_command(const struct pci_device *d) {
    return (d->saved[PCI_COMMAND / 4] & (PCI_COMMAND_IO | PCI_COMMAND_MEMORY)) | PCI_COMMAND_NO_INTX;
}

u64 pci_reset(struct pci_device *d, u32 phase) {
    if (phase == 0) {
        keep_quiet(d);
        pci_write(d->bdf, PCI_COMMAND, 2, pci_idle_command(d));
        messages_off(d);
        d->in_reset = d->was_reset = begin_reset(d);
        return d->in_reset ? RESET_NS : 0;
    }
    if (!d->in_reset) return 0;
    if (phase == 1 && d->pm && (pci_read(d->bdf, d->pm + (u32)PM_CONTROL, 2) & PM_D3) == PM_D3) {
        pci_write(d->bdf, d->pm + (u32)PM_CONTROL, 2, 0);
        return POWER_UP_NS;
    }
    restore(d);
    d->in_reset = false;
    return 0;
}
