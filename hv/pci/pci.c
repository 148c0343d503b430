/* Finds all PCI functions at boot, and notes what they say about themselves. A function is a
 * device, or one of several parts of a device; its number is its bdf (bus, device and function). In
 * its configuration space it has BARs, each of which says at which range of addresses it answers,
 * and a list of capabilities, such as MSI for interrupts. Two functions that can reach
 * each other without passing an IOMMU form a group, and only one VM may have them. */
#include "pci/pci.h"

#include <takt/io.h>
#include "lib/printf.h"
#include "common/string.h"
#include "pci/quirks.h"
#include "platform/hostmap.h"

#define MULTIFUNCTION 0x80u

/* PCI Code and ID Assignment 1.11, 1.1 */
#define CLASS_BRIDGE  0x06u
#define CLASS_SYSTEM  0x08u
#define CLASS_SD_HOST 0x0805u
#define CLASS_SIGNAL  0x11u /* Intel's counters and registers beside the cores */

/* Source validation, redirection of requests and completions, forwarding up: PCI Express 7.16.2. */
#define ACS_ISOLATE    0x1du
#define ACS_CAPABILITY 4 /* offset of the register that says what the function can do */

/* how many entries the table of devices has at first; it is made twice as large when it is full */
#define FIRST_ROOM     64u

#define HEADER_BRIDGE  1u
#define HEADER_CARDBUS 2u

/* Where capabilities can be: PCI 3.0, 6.7; PCI Express 7.9. */
#define FIRST_CAPABILITY 0x40u
#define LAST_CAPABILITY  0xecu /* the longest has 20 bytes, all of which must be below 0x100 */
#define FIRST_EXTENDED   0x100u
#define LAST_SRIOV       (0x1000u - 0x40u)

/* Bits of a BAR: PCI 3.0, 6.2.5.1. */
#define BAR_IO          1u
#define BAR_TYPE        6u
#define BAR_TYPE_64     4u
#define BAR_IO_ADDRESS  0xfffcu /* a BAR for ports may have only 16 bits */
#define BAR_ADDRESS     (~0xfu)

#define MSIX_TABLE      4u /* offset in the MSI-X capability; the lowest three bits say which BAR */
#define MSIX_BAR        7u
#define MSIX_ENTRY_SIZE 16u

/* The network card that Bochs emulates. */
#define INTEL 0x8086u
#define E1000 0x100eu

static struct pci_device **devices; /* in order of bdf */
static u32 nr_devices, room;        /* how many entries of `devices` are used; how many it has */
static u32 left_out;                /* number of functions for which there was no room */
static struct pci_device *bridges;

/* Returns how many functions were found. */
u32 pci_count(void) { return nr_devices; }

/* Returns function number i, in the order of bdfs. */
struct pci_device *pci_at(u32 i) {
    return devices[i];
}

/* Returns the index of the first device with this bdf or a higher one. */
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

/* Returns the function with this bdf, or NULL. */
struct pci_device *pci_find(u32 bdf) {
    u32 i = lower_bound(bdf);

    if (i == nr_devices || devices[i]->bdf != bdf) return NULL;
    return devices[i];
}

#define SECONDARY(bridge) ((bridge)->saved[PCI_SECONDARY / 4] >> 8 * (PCI_SECONDARY % 4) & 0xff)

/* Returns the bridge that leads to this bus (segment << 8 | number), or NULL. */
struct pci_device *pci_bridge_of(u32 bus) {
    for (struct pci_device *b = bridges; b; b = b->next_bridge)
        if (b->bdf >> 16 == bus >> 8 && SECONDARY(b) == (bus & 0xff)) return b;
    return NULL;
}

/* Writes the name of a device, such as "03:00.0", to `name`, and returns it. */
char *pci_name(u32 bdf, char name[PCI_NAME]) {
    u32 n = 0;

    if (bdf >> 16) n = (u32)hv_snprintf(name, PCI_NAME, "%04x:", bdf >> 16);
    hv_snprintf(name + n, PCI_NAME - n, "%02x:%02x.%x", bdf >> 8 & 0xff, bdf >> 3 & 31, bdf & 7);
    return name;
}

/* ---- what a function says about itself ---- */

/* Notes where the capabilities below 0x100 are: a list, each entry of which begins with its kind
 * and the place of the next one (PCI 3.0, 6.7). The walk ends if the list leads in a circle or into
 * the header. */
static void find_capabilities(struct pci_device *d) {
    u32 at = 0;

    if (pci_read(d->bdf, PCI_STATUS, 2) & PCI_STATUS_LIST)
        at = pci_read(d->bdf, PCI_CAPABILITIES, 1) & 0xfc;
    for (u32 n = 0; n < PCI_MAX_CAPS && at >= FIRST_CAPABILITY; n++) {
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
        if (where && !*where && at <= LAST_CAPABILITY) *where = (u8)at;
        at = head >> 8 & 0xfc;
    }
}

/* Notes where the extended capabilities are (PCI Express 7.9). If there are several of one kind,
 * the first one counts. */
static void find_extended(struct pci_device *d) {
    u32 at = FIRST_EXTENDED;

    if (!d->express) return; /* PCI without Express has no space there */
    for (u32 n = 0; n < PCI_MAX_CAPS && at >= FIRST_EXTENDED; n++) {
        u32 head = pci_read(d->bdf, at, 4), id;

        if (head == ~0u) return;
        id = head & 0xffff;
        if (id == PCI_EXT_ACS && !d->acs) d->acs = (u16)at;
        if (id == PCI_EXT_ARI && !d->ari) d->ari = (u16)at;
        if (id == PCI_EXT_SRIOV && !d->sriov && at <= LAST_SRIOV) d->sriov = (u16)at;
        at = head >> 20 & 0xffc;
    }
}

/* Writes all ones to a BAR, and returns the bits that the BAR has kept. Restores the old value. */
static u32 probe_bar(const struct pci_device *d, u32 offset) {
    u32 old = pci_read(d->bdf, offset, 4), v;

    pci_write(d->bdf, offset, 4, ~0u);
    v = pci_read(d->bdf, offset, 4);
    pci_write(d->bdf, offset, 4, old);
    return v;
}

/* Finds out the address and the size of the BAR at `at`, into *b. Returns how many registers the
 * BAR takes, 1 or 2. A size whose bits make no sense, or that does not fit the address, becomes 0:
 * such a BAR is not used. */
u32 pci_size_bar(const struct pci_device *d, u32 at, bool last, struct pci_bar *b) {
    u32 low = pci_read(d->bdf, at, 4), mask = probe_bar(d, at);
    u64 bits;

    b->io = mask & BAR_IO;
    b->wide = !b->io && (mask & BAR_TYPE) == BAR_TYPE_64 && !last;
    if (b->io) {
        bits = mask & BAR_IO_ADDRESS;
        b->addr = low & BAR_IO_ADDRESS;
    } else {
        bits = mask & BAR_ADDRESS;
        b->addr = low & BAR_ADDRESS;
    }
    if (b->wide) {
        bits |= (u64)probe_bar(d, at + 4) << 32;
        b->addr |= (u64)pci_read(d->bdf, at + 4, 4) << 32;
    }
    b->size = bits & -bits;
    if (!mask || mask == ~0u || b->addr & (b->size - 1)) b->size = 0;
    if (b->wide) return 2;
    return 1;
}

/* Returns whether the device is a part of the machine itself, which is never given to a VM. A
 * bridge, a timer or a counter beside the cores works for the whole machine, so a VM that had it
 * could disturb all others. Only SD card controllers of the system class are ordinary devices. */
bool pci_part_of_machine(const struct pci_device *d) {
    u32 class = d->class_rev >> 24;

    return class == CLASS_BRIDGE || class == CLASS_SIGNAL || quirk_no_bars(d) ||
           (class == CLASS_SYSTEM && d->class_rev >> 16 != CLASS_SD_HOST);
}

/* Notes the address and the kind of BAR i, without finding out its size. */
static void read_bar(struct pci_device *d, u32 i) {
    u32 low = pci_read(d->bdf, PCI_BAR0 + 4 * i, 4);
    struct pci_bar *b = &d->bar[i];

    if (i && d->bar[i - 1].wide) return; /* this is the upper half of the BAR before */
    b->io = low & BAR_IO;
    b->wide = !b->io && (low & BAR_TYPE) == BAR_TYPE_64 && i < 5;
    if (b->io)
        b->addr = low & BAR_IO_ADDRESS;
    else
        b->addr = low & BAR_ADDRESS;
    if (b->wide) b->addr |= (u64)pci_read(d->bdf, PCI_BAR0 + 4 * i + 4, 4) << 32;
}

/* Finds out the sizes of the BARs, if a VM can get the device. To size a BAR is to write to it. A
 * device that is a part of the machine may not survive that, nor that it answers to no address for
 * a moment. So the BARs of such a device are only read. The other devices are kept from decoding
 * meanwhile, since they would answer at the addresses that are written. */
static void size_bars(struct pci_device *d) {
    u32 command = pci_read(d->bdf, PCI_COMMAND, 2), nr = ARRAY_SIZE(d->bar);

    if (d->header) nr = 2; /* a bridge has no more */
    d->unsized = d->header || pci_part_of_machine(d) || d->class_rev >> 24 == PCI_CLASS_DISPLAY;
    if (d->unsized) {
        for (u32 i = 0; i < nr; i++) read_bar(d, i);
        return;
    }
    pci_write(d->bdf, PCI_COMMAND, 2, command & ~(u32)(PCI_COMMAND_IO | PCI_COMMAND_MEMORY));
    for (u32 i = 0; i < 6;) i += pci_size_bar(d, PCI_BAR0 + 4 * i, i == 5, &d->bar[i]);
    pci_write(d->bdf, PCI_COMMAND, 2, command);
}

/* Finds the MSI-X table and maps it. d->msix_table stays NULL if the device has no such table, or
 * if the table cannot be where the device says. */
static void map_msix_table(struct pci_device *d) {
    const struct pci_bar *b;
    u32 table, offset, size;

    if (!d->msix) return;
    table = pci_read(d->bdf, d->msix + MSIX_TABLE, 4);
    size = (pci_read(d->bdf, d->msix + PCI_MSI_CONTROL, 2) & PCI_MSIX_SIZE) + 1;
    d->msix_size = MIN(size, (u32)PCI_MAX_VECTORS);
    if ((table & MSIX_BAR) >= ARRAY_SIZE(d->bar)) return;
    b = &d->bar[table & MSIX_BAR];
    offset = table & ~MSIX_BAR;
    d->msix_addr = b->addr + offset;
    if (b->addr && !b->io && offset + (u64)MSIX_ENTRY_SIZE * size <= b->size)
        d->msix_table = mmio_map(d->msix_addr, MSIX_ENTRY_SIZE * d->msix_size);
}

/* Maps the registers of the device that the hypervisor writes itself. This must be done at boot,
 * because no mapping can be made later. */
static void map_device_registers(struct pci_device *d) {
    map_msix_table(d);
    /* Bochs' 8254x goes on writing to memory when it is no longer master of the bus. */
    if (d->vendor == INTEL && d->device == E1000 && d->bar[0].addr && d->bar[0].size >= PAGE_SIZE)
        d->quiet = mmio_map(d->bar[0].addr, PAGE_SIZE);
}

/* ---- isolation: PCI Express 6.12 ---- */

/* Switches ACS on, as far as the device has it: requests then go up to the root, where an IOMMU
 * sees them, and not directly to another device. */
static void isolate(const struct pci_device *d) {
    u32 can, control = d->acs + quirk_acs_control(d);

    if (!d->acs) return;
    can = pci_read(d->bdf, d->acs + (u32)ACS_CAPABILITY, 2);
    pci_write(d->bdf, control, 2, can & ACS_ISOLATE);
}

/* Does all traffic through this function go up to the root? The traffic through a bridge comes from
 * the devices behind it; the traffic through an endpoint is what it sends to other functions of its
 * device. A bridge must have all bits of ACS_ISOLATE switched on. An endpoint needs only the bits
 * that its capability offers, because it cannot do what the other bits would forbid. */
static bool isolates(const struct pci_device *d) {
    u32 wanted = ACS_ISOLATE, does;

    if (quirk_isolated(d)) return true;
    if (!d->acs || !d->express) return false;
    if (!d->header) wanted &= pci_read(d->bdf, d->acs + (u32)ACS_CAPABILITY, 2);
    does = pci_read(d->bdf, d->acs + quirk_acs_control(d), 2);
    return (does & ACS_ISOLATE) == wanted;
}

/* Returns the group of a function. Functions of one group can reach each other without going
 * through the root, and so past the IOMMU. Two things put functions together: going up from the
 * function, a bridge that does not isolate makes one group of all that is behind it; and the
 * functions of one device are together unless each of them isolates. */
static u32 pci_group_of(const struct pci_device *d) {
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

/* Makes sure that the table has room for one more device; makes it twice as large if it is full.
 * Returns false if there are too many devices, or if there is no memory. */
static bool make_room(void) {
    u32 more = MAX(2 * room, FIRST_ROOM);
    struct pci_device **table;

    if (nr_devices < room) return true;
    if (more > PCI_MAX_DEVICES) return false;
    table = heap_alloc(more * sizeof(*table));
    if (!table) return false;
    if (room) memcpy(table, devices, nr_devices * sizeof(*table));
    heap_free(devices);
    devices = table;
    room = more;
    return true;
}

/* Adds a device in its place by bdf. Returns NULL if there are too many, or no memory. */
static struct pci_device *new_device(u32 bdf, u32 id) {
    struct pci_device *d = NULL;
    u32 i = lower_bound(bdf);

    if (make_room()) d = heap_alloc(sizeof(*d));
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

/* Notes the state in which the firmware has left the device: a reset restores it. */
static void save_state(struct pci_device *d) {
    map_device_registers(d);
    for (u32 i = 0; i < ARRAY_SIZE(d->saved); i++) d->saved[i] = pci_read(d->bdf, 4 * i, 4);
    if (d->express)
        d->saved_devctl = (u16)pci_read(d->bdf, d->express + (u32)PCI_EXPRESS_DEVCTL, 2);
}

/* Logs a function and its BARs for developers; it is shown only if the console's level is
 * "debug". */
static void log_device(const struct pci_device *d) {
    static const char *const kinds[] = { "device", "bridge", "bridge", "not understood" };
    const char *kind = kinds[MIN(d->header, 3)], *msi = "", *msix = "";

    if (d->pf) kind = "virtual function";
    if (d->msi) msi = ", MSI";
    if (d->msix) msix = ", MSI-X";
    log_at(LOG_DEBUG, "PCI %s: %04x:%04x, class %06x, %s%s%s", d->name, d->vendor, d->device,
           d->class_rev >> 8, kind, msi, msix);
    for (u32 i = 0; i < ARRAY_SIZE(d->bar); i++) {
        const struct pci_bar *b = &d->bar[i];
        const char *of = "memory";

        if (!b->size) continue;
        if (b->io) of = "ports";
        log_at(LOG_DEBUG, "  BAR %u: %s %lx, %lu bytes", i, of, b->addr, b->size);
    }
}

/* Adds the function `bdf`, whose vendor and device are `id` and whose header type is `header`, and
 * reads what it says about itself. */
static void add_function(u32 bdf, u32 id, u32 header) {
    struct pci_device *d = new_device(bdf, id);

    if (!d) return;
    d->header = header & ~MULTIFUNCTION;
    if (d->header < HEADER_CARDBUS) {
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
        /* No driver serves this device's interrupt line as long as no VM has the device. If it
         * raised the line, and shared it with a device of a VM, the line would never become
         * quiet. */
        if (!pci_part_of_machine(d))
            pci_write(bdf, PCI_COMMAND, 2, pci_read(bdf, PCI_COMMAND, 2) | PCI_COMMAND_NO_INTX);
    }
    if (d->header < HEADER_CARDBUS) save_state(d);
    if (d->header == HEADER_BRIDGE) {
        d->next_bridge = bridges;
        bridges = d;
    }
    log_device(d);
}

/* Adds virtual function number `vf` of `pf` to the devices. Returns it, or NULL if that is not
 * possible. A virtual function has no BARs of its own: those of all virtual functions lie one
 * behind the other, from the address in the capability of the physical function. */
struct pci_device *pci_add_vf(struct pci_device *pf, u32 vf, u32 bdf, u32 id) {
    struct pci_device *d;

    if (pci_read(bdf, PCI_CLASS_REV, 4) == ~0u) return NULL; /* it does not answer */
    d = new_device(bdf, id);
    if (!d) return NULL;
    d->pf = pf;
    d->vf = vf;
    find_capabilities(d);
    find_extended(d);
    for (u32 i = 0; i < 6; i++) {
        d->bar[i] = pf->vf_bar[i];
        d->bar[i].addr += vf * d->bar[i].size;
    }
    save_state(d);
    /* What is saved here is written back after each reset (reset.c). The register of a virtual
     * function's id reads as all ones, so the caller has computed the id.
     *
     * The physical function switches memory decoding on for all its virtual functions. In QEMU a
     * virtual function also looks at its own bit, so that has to be set, too. The command that is
     * written now is that of a device which nobody uses: with this bit, and without the right to
     * access memory by itself (bus mastering). */
    d->saved[PCI_ID / 4] = id;
    d->saved[PCI_COMMAND / 4] = PCI_COMMAND_MEMORY;
    pci_write(bdf, PCI_COMMAND, 2, pci_idle_command(d));
    d->group = pci_group_of(d);
    log_device(d);
    return d;
}

/* Adds all functions of the device whose function 0 is `bdf`. */
static void probe_slot(u32 bdf) {
    for (u32 fn = 0, functions = 1; fn < functions; fn++) {
        u32 id = pci_read(bdf + fn, PCI_ID, 4), header;

        if ((id & 0xffff) == 0xffff || (id & 0xffff) == 0) continue;
        header = pci_read(bdf + fn, PCI_HEADER, 1);
        if (fn == 0 && header & MULTIFUNCTION) functions = 8;
        add_function(bdf + fn, id, header);
    }
}

/* Finds all PCI devices of the machine. It looks at every bus, even if no bridge leads to it: a
 * machine may have several host bridges, and which buses these have is told only in AML, the
 * language of ACPI, which Takt does not read. The groups are computed last, when all bridges are
 * known. */
void pci_enumerate(void) {
    while (nr_devices) heap_free(devices[--nr_devices]);
    left_out = 0;
    bridges = NULL;
    for (u32 bus = pci_next_bus(0); bus != PCI_NO_BUS; bus = pci_next_bus(bus + 1))
        for (u32 device = 0; device < 32; device++) probe_slot(bus << 8 | device << 3);
    for (u32 i = 0; i < nr_devices; i++) devices[i]->group = pci_group_of(devices[i]);
    if (left_out)
        log_warn("Takt knows %u PCI functions at most: %u are left out", PCI_MAX_DEVICES, left_out);
}
