#include "passthrough/mediate.h"

#include <takt/errno.h>
#include "trace/trace.h"
#include "x86/percpu.h"

DEFINE_COUNTER(device_registers_refused);

enum { AS_IT_IS, COMMAND, ID, BARS, NONE, TABLE_SIZE };

#define HEADER      0u
#define EXTENDED(n) (0x100u | (n))

/* Registers [first, end) of a capability, or of the header. What is not here is refused, but for the heads
 * of all capabilities, by which they are found: PCI 3.0, 6.1; PCI Express 7.8 to 7.10. Of those that may be
 * read none changes anything by it. */
static const struct rule {
    u16 capability;
    u8 first, end, how;
} rules[] = {
    { HEADER, 0x00, 0x04, ID },
    { HEADER, 0x04, 0x08, COMMAND },
    { HEADER, 0x08, 0x10, AS_IT_IS },
    { HEADER, 0x10, 0x28, BARS },
    { HEADER, 0x28, 0x30, AS_IT_IS },
    { HEADER, 0x30, 0x34, NONE }, /* ROM */
    { HEADER, 0x34, 0x40, AS_IT_IS },
    { PCI_CAP_PM, 0x00, 0x08, AS_IT_IS },
    { PCI_CAP_MSIX, 0x00, 0x04, TABLE_SIZE },
    { PCI_CAP_MSIX, 0x04, 0x0c, AS_IT_IS },
    { PCI_CAP_EXPRESS, 0x00, 0x3c, AS_IT_IS },
    { EXTENDED(0x01), 0x00, 0x2c, AS_IT_IS }, /* AER */
    { EXTENDED(0x03), 0x00, 0x0c, AS_IT_IS }, /* serial number */
    { EXTENDED(PCI_EXT_ARI), 0x00, 0x08, AS_IT_IS },
    { EXTENDED(PCI_EXT_SRIOV), 0x00, 0x40, AS_IT_IS },
};

static const struct rule *covers(u32 capability, u32 at) {
    for (const struct rule *r = rules; r < rules + ARRAY_SIZE(rules); r++)
        if (r->capability == capability && at - r->first < (u32)(r->end - r->first)) return r;
    return NULL;
}

/* What is said of these bytes; NULL: nothing. A list that leads in a circle ends. */
static const struct rule *find(const struct pci_device *d, u32 offset, u32 size) {
    static const struct rule head = { 0, 0, 0, AS_IT_IS };
    bool extended = offset >= 0x100;
    u32 at = d->express ? 0x100 : 0;

    if (offset < 0x40) return covers(HEADER, offset);
    if (!extended)
        at = pci_read(d->bdf, PCI_STATUS, 2) & BIT(4) ? pci_read(d->bdf, PCI_CAPABILITIES, 1) & 0xfc : 0;
    for (u32 n = 0; n < PCI_MAX_CAPS && at >= (extended ? 0x100u : 0x40u); n++) {
        u32 word = pci_read(d->bdf, at, 4), id = extended ? EXTENDED(word & 0xffff) : word & 0xff;
        const struct rule *r = offset >= at ? covers(id, offset - at) : NULL;

        if (word == ~0u || r) return word == ~0u ? NULL : r;
        if (offset >= at && offset + size <= at + (extended ? 4 : 2)) return &head;
        at = extended ? word >> 20 & 0xffc : word >> 8 & 0xfc;
    }
    return NULL;
}

/* Where the VM sees it. */
static u32 bar(const struct pci_device *d, u32 i) {
    const struct pci_bar *b = &d->bar[i], *below = i ? b - 1 : b;

    if (b->size && d->gpa[i] != PCI_NOWHERE) return (u32)d->gpa[i] | b->io | (b->wide ? 4u : 0);
    if (i && below->size && below->wide && d->gpa[i - 1] != PCI_NOWHERE) return (u32)(d->gpa[i - 1] >> 32);
    return 0;
}

/* The register at `offset`, which is a multiple of 4. */
static u32 shown(const struct pci_device *d, u32 offset, u8 how) {
    u32 v = pci_read(d->bdf, offset, 4);

    switch (how) {
    case ID: return d->vendor | (u32)d->device << 16;
    case BARS: return bar(d, (offset - PCI_BAR0) / 4);
    case NONE: return 0;
    case TABLE_SIZE: return (v & ~0x47ff0000u) | (d->msix_size - 1) << 16; /* nor the function's mask */
    default: return v;
    }
}

static i64 refuse(struct pci_device *d) {
    counter_inc(&device_registers_refused, this_cpu()->id);
    __atomic_fetch_add(&d->refused, 1, __ATOMIC_RELAXED);
    return -EPERM;
}

static bool exists(u32 offset, u32 size) {
    return (size == 1 || size == 2 || size == 4) && offset < 4096 && !(offset & (size - 1));
}

i64 mediate_read(struct pci_device *d, u32 offset, u32 size) {
    const struct rule *r = exists(offset, size) ? find(d, offset, size) : NULL;

    if (!exists(offset, size)) return -EINVAL;
    if (!r) return refuse(d);
    return shown(d, offset & ~3u, r->how) >> 8 * (offset & 3) & (~0u >> (32 - 8 * size));
}

/* COMMAND alone: whether it is master of the bus, and its INTx. All else could hurt others, or the
 * hypervisor does it itself. */
i64 mediate_write(struct pci_device *d, u32 offset, u32 size, u32 value) {
    const struct rule *r = exists(offset, size) ? find(d, offset, size) : NULL;
    bool allowed;
    u32 own = PCI_COMMAND_MASTER | (d->irq == PCI_INTX ? PCI_COMMAND_NO_INTX : 0);

    if (!exists(offset, size)) return -EINVAL;
    if (!r || r->how != COMMAND || offset != PCI_COMMAND || size != 2) return refuse(d);
    spin_lock(&d->lock);
    allowed = !d->off && !((value ^ pci_read(d->bdf, PCI_COMMAND, 2)) & ~own);
    if (allowed) pci_write(d->bdf, PCI_COMMAND, 2, value);
    spin_unlock(&d->lock);
    return allowed ? 0 : refuse(d);
}
