#include "passthrough/mediate.h"

#include <takt/errno.h>
#include "pci/rules.h"
#include "trace/trace.h"
#include "x86/percpu.h"

DEFINE_COUNTER(device_registers_refused);

#define BAR_IO 1u /* low bits of a BAR: PCI 3.0, 6.2.5.1 */
#define BAR_64 4u
/* of the control word of MSI-X in its dword: bits 0 to 10 are the last entry */
#define MSIX_SIZE_AT 16
#define MSIX_SHOWN   (~((PCI_MSIX_SIZE | PCI_MSIX_MASK) << MSIX_SIZE_AT))

/* What the VM reads in the register of BAR i. */
static u32 bar_shown(const struct assignment *a, u32 i) {
    const struct pci_bar *b = &a->pci->bar[i];
    u32 type = 0;

    if (b->io) type |= BAR_IO;
    if (b->wide) type |= BAR_64;
    if (b->size && a->gpa[i] != PCI_NOWHERE) return (u32)a->gpa[i] | type;
    if (i && b[-1].size && b[-1].wide && a->gpa[i - 1] != PCI_NOWHERE)
        return (u32)(a->gpa[i - 1] >> 32);
    return 0;
}

/* What the VM reads in the register at `offset`, which is a multiple of 4. */
static u32 register_shown(const struct assignment *a, u32 offset, enum pci_rule rule) {
    const struct pci_device *d = a->pci;
    u32 v = pci_read(d->bdf, offset, 4);

    switch (rule) {
    case PCI_RULE_ID: return d->vendor | (u32)d->device << 16;
    case PCI_RULE_BARS: return bar_shown(a, (offset - PCI_BAR0) / 4);
    case PCI_RULE_ZERO: return 0;
    case PCI_RULE_TABLE_SIZE: return (v & (u32)MSIX_SHOWN) | (d->msix_size - 1) << MSIX_SIZE_AT;
    default: return v;
    }
}

static i64 mediate_refuse(struct assignment *a) {
    counter_inc(&device_registers_refused, this_cpu()->id);
    __atomic_fetch_add(&a->refused, 1, __ATOMIC_RELAXED);
    return -EPERM;
}

i64 mediate_read(struct assignment *a, u32 offset, u32 size) {
    enum pci_rule rule;
    u32 dword;

    if (!pci_register_exists(offset, size)) return -EINVAL;
    rule = pci_rule_of(a->pci, offset, size);
    if (rule == PCI_RULE_REFUSED) return mediate_refuse(a);
    dword = register_shown(a, offset & ~3u, rule);
    return dword >> 8 * (offset & 3) & (~0u >> (32 - 8 * size));
}

/* A VM may write COMMAND alone, and there only whether the device is master of the bus, and its
 * INTx if it interrupts by that. All else could hurt others, or the hypervisor does it itself. */
i64 mediate_write(struct assignment *a, u32 offset, u32 size, u32 value) {
    u32 bdf = a->pci->bdf, own = PCI_COMMAND_MASTER; /* the bits that the VM may change */
    bool allowed;

    if (a->irq == PCI_INTX) own |= PCI_COMMAND_NO_INTX;
    if (!pci_register_exists(offset, size)) return -EINVAL;
    if (pci_rule_of(a->pci, offset, size) != PCI_RULE_COMMAND) return mediate_refuse(a);
    if (offset != PCI_COMMAND || size != 2) return mediate_refuse(a);
    spin_lock(&a->lock);
    allowed = !a->off && !((value ^ pci_read(bdf, PCI_COMMAND, 2)) & ~own);
    if (allowed) pci_write(bdf, PCI_COMMAND, 2, value);
    spin_unlock(&a->lock);
    if (!allowed) return mediate_refuse(a);
    return 0;
}
