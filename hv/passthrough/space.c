/* Configuration space as a PC has it: memory (PCI Express 7.2.2) or two ports (PCI 3.0, 3.2.2.3.2). */
#include <takt/io.h>
#include "passthrough/pci.h"
#include "platform/hostmap.h"

#define ADDRESS 0xcf8
#define DATA    0xcfc

static struct spinlock lock; /* the ports are two */
static volatile u8 *ecam;    /* NULL: by ports */
static u32 ecam_last;        /* bus */

static volatile u8 *at(u32 bdf, u32 offset) {
    return ecam && bdf >> 8 <= ecam_last && offset < 4096 ? ecam + ((u64)bdf << 12) + offset : NULL;
}

static u32 memory_read(volatile u8 *p, u32 size) {
    return size == 1 ? *p : size == 2 ? *(volatile u16 *)p : mmio_read32(p);
}

static u32 ports_read(u32 bdf, u32 offset, u32 size) {
    u16 data = (u16)(DATA + (offset & 3));
    u32 v;

    spin_lock(&lock);
    outl(ADDRESS, (u32)BIT(31) | bdf << 8 | (offset & ~3u));
    v = size == 1 ? inb(data) : size == 2 ? inw(data) : inl(data);
    spin_unlock(&lock);
    return v;
}

u32 pci_read(u32 bdf, u32 offset, u32 size) {
    volatile u8 *p = at(bdf, offset);

    if (p) return memory_read(p, size);
    return offset < 256 ? ports_read(bdf, offset, size) : ~0u >> (32 - 8 * size);
}

void pci_write(u32 bdf, u32 offset, u32 size, u32 value) {
    volatile u8 *p = at(bdf, offset);
    u16 data = (u16)(DATA + (offset & 3));

    if (p) {
        if (size == 1) *p = (u8)value;
        if (size == 2) *(volatile u16 *)p = (u16)value;
        if (size == 4) mmio_write32(p, value);
        return;
    }
    if (offset > 255) return;
    spin_lock(&lock);
    outl(ADDRESS, (u32)BIT(31) | bdf << 8 | (offset & ~3u));
    if (size == 1) outb(data, (u8)value);
    if (size == 2) outw(data, (u16)value);
    if (size == 4) outl(data, value);
    spin_unlock(&lock);
}

/* Is there what the ports show? A table may say anything. */
static bool same(volatile u8 *p, u32 bus) {
    for (u32 bdf = bus << 8; p && bdf < (bus + 1) << 8; bdf += 8)
        if (memory_read(p + ((u64)bdf << 12), 4) != ports_read(bdf, PCI_ID, 4)) return false;
    return p;
}

const char *pci_space_init(const struct acpi_info *a) {
    volatile u8 *p = a->ecam ? mmio_map(a->ecam, (a->ecam_last + 1ull) << 20) : NULL;

    if (same(p, 0)) {
        ecam_last = a->ecam_last;
        ecam = p;
    }
    return ecam ? "ECAM" : "ports";
}
