/* Reads and writes configuration space, the registers by which every PCI device is recognised and
 * set up. A PC has two ways to it. With ECAM (PCI Express 7.2.2) the registers are in memory: a
 * "window" covers some buses of a segment. Or they are reached by two I/O ports (PCI 3.0,
 * 3.2.2.3.2), which reach only segment 0. In this file a bus is segment << 8 | number. */
#include <takt/io.h>
#include "lib/printf.h"
#include "lib/spinlock.h"
#include "pci/pci.h"
#include "platform/hostmap.h"

#define ADDRESS      0xcf8
#define DATA         0xcfc
#define PORTS_ENABLE 0x80000000u
#define PORT_BUSES   256u    /* how many buses the ports reach: those of segment 0 */
#define BUS_SIZE     BIT(20) /* bytes of a window for one bus: 4 KiB for each of 256 functions */

/* Each access by the ports takes two steps, an address and data, and nobody may come in between. */
static struct spinlock lock;
static struct window {
    volatile u8 *regs; /* where the configuration space of bus `first` is mapped */
    u32 first, last;
} window[ACPI_MAX_ECAMS];
static u32 nr_windows;

/* Returns where a register is in memory, or NULL if no window covers its bus. */
static volatile u8 *register_at(u32 bdf, u32 offset) {
    u32 bus = bdf >> 8;

    for (const struct window *w = window; w < window + nr_windows && offset < 4096; w++)
        if (bus >= w->first && bus <= w->last)
            return w->regs + ((u64)(bdf - (w->first << 8)) << 12) + offset;
    return NULL;
}

/* Reads with an access of the register's size, since some devices ignore others. */
static u32 memory_read(volatile u8 *p, u32 size) {
    if (size == 1) return *p;
    if (size == 2) return *(volatile u16 *)p;
    return mmio_read32(p);
}

/* Reads by the ports: the address of the word goes to one port, and its bytes are read at the
 * other. */
static u32 ports_read(u32 bdf, u32 offset, u32 size) {
    u16 data = (u16)(DATA + (offset & 3));
    u32 v;

    spin_lock(&lock);
    outl(ADDRESS, PORTS_ENABLE | bdf << 8 | (offset & ~3u));
    switch (size) {
    case 1: v = inb(data); break;
    case 2: v = inw(data); break;
    default: v = inl(data);
    }
    spin_unlock(&lock);
    return v;
}

/* Returns whether the I/O ports reach this register: they know segment 0 and 256 bytes of a
 * function. */
static bool ports_reach(u32 bdf, u32 offset) { return bdf >> 8 < PORT_BUSES && offset < 256; }

/* Reads `size` bytes of a register in configuration space; all ones if it cannot be reached. */
u32 pci_read(u32 bdf, u32 offset, u32 size) {
    volatile u8 *p = register_at(bdf, offset);

    if (p) return memory_read(p, size);
    if (ports_reach(bdf, offset)) return ports_read(bdf, offset, size);
    return ~0u >> (32 - 8 * size); /* all ones */
}

/* Writes `size` bytes to a register in configuration space: through the memory window if one covers
 * the bus, or else through the I/O ports. */
void pci_write(u32 bdf, u32 offset, u32 size, u32 value) {
    volatile u8 *p = register_at(bdf, offset);
    u16 data = (u16)(DATA + (offset & 3));

    if (p) {
        if (size == 1) *p = (u8)value;
        if (size == 2) *(volatile u16 *)p = (u16)value;
        if (size == 4) mmio_write32(p, value);
        return;
    }
    if (!ports_reach(bdf, offset)) return;
    spin_lock(&lock);
    outl(ADDRESS, PORTS_ENABLE | bdf << 8 | (offset & ~3u));
    if (size == 1) outb(data, (u8)value);
    if (size == 2) outw(data, (u16)value);
    if (size == 4) outl(data, value);
    spin_unlock(&lock);
}

/* Returns the first bus from `bus` on that can be reached, or PCI_NO_BUS. */
u32 pci_next_bus(u32 bus) {
    u32 next = PCI_NO_BUS;

    if (bus < PORT_BUSES) return bus; /* the ports reach it */
    for (const struct window *w = window; w < window + nr_windows; w++)
        if (w->last >= bus) next = MIN(next, MAX(w->first, bus));
    return next;
}

/* ---- which windows are believed ---- */

/* Does the configuration space of bus `bus` that is in memory at `p` show the same devices as the
 * ports do? */
static bool same_as_ports(volatile u8 *p, u32 bus) {
    for (u32 bdf = bus << 8; bdf < (bus + 1) << 8; bdf += 8)
        if (memory_read(p + ((u64)(bdf & 0xff) << 12), 4) != ports_read(bdf, PCI_ID, 4))
            return false;
    return true;
}

/* Does an earlier entry of the firmware's list have some of the buses of `e`, or some of the memory
 * [from, to)? */
static bool is_taken(const struct acpi_ecam *e, u64 from, u64 to, const struct acpi_info *a) {
    for (const struct acpi_ecam *o = a->ecam; o < e; o++) {
        u64 first = o->base + o->first * BUS_SIZE, end = o->base + (o->last + 1ull) * BUS_SIZE;

        if (o->segment == e->segment && o->first <= e->last && e->first <= o->last) return true;
        if (first < to && from < end) return true;
    }
    return false;
}

/* Uses a window (memory that shows the configuration space of some buses) of the firmware's list,
 * if what the list says of it can be true, as it may say anything. For segment 0 the ports show
 * whether it is. Nothing shows that for other segments, so their windows must at least lie where
 * neither RAM nor another window is. Returns NULL, or why the window is not used. */
static const char *add_window(const struct acpi_info *a, const struct acpi_ecam *e,
                              const struct memmap *ram) {
    u64 from = e->base + e->first * BUS_SIZE, to = e->base + (e->last + 1ull) * BUS_SIZE;
    struct window *w = &window[nr_windows];

    if (!e->base || e->base % BUS_SIZE || e->first > e->last || to < from) return "it is malformed";
    if (memmap_overlaps(ram, from, to)) return "RAM lies there";
    if (is_taken(e, from, to, a)) return "another window has these buses, or this memory";
    w->regs = mmio_map(from, to - from);
    if (!w->regs) return "it cannot be mapped";
    if (!e->segment && !same_as_ports(w->regs, e->first))
        return "it does not show the same devices as the I/O ports";
    w->first = (u32)e->segment << 8 | e->first;
    w->last = (u32)e->segment << 8 | e->last;
    nr_windows++;
    return NULL;
}

/* Finds out how configuration space is reached. Returns "ECAM" if at least one memory window is
 * used, or else "ports". A wrong window would let us write into other devices or RAM. So each is
 * checked (add_window()), and the log names those that are not used. */
const char *pci_space_init(const struct acpi_info *a, const struct memmap *ram) {
    nr_windows = 0;
    for (const struct acpi_ecam *e = a->ecam; e < a->ecam + a->nr_ecams; e++) {
        const char *why = add_window(a, e, ram);

        if (why)
            log_warn("MCFG: configuration space of segment %u, buses %02x to %02x, at %lx is not "
                     "used: %s",
                     e->segment, e->first, e->last, e->base, why);
    }
    if (!nr_windows) return "ports";
    return "ECAM";
}
