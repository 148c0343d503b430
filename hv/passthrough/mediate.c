/* What a VM reads and writes in the configuration space of a PCI device that it was given
 * (passthrough). The registers there decide at which addresses the device answers, and how it
 * interrupts. So the VM does not get at them by itself: it asks by hypercalls, which end here, and
 * which let through only what cannot hurt anybody else. A BAR is the register that holds the
 * address of a part of the device. */
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

/* Returns what the BAR as a whole holds for the VM: where the VM sees it, or, if the VM has written
 * all ones to register `reg`, the bits that can be set (PCI 3.0, 6.2.5.1). */
static u64 bar_holds(const struct assignment *a, u32 i, u32 reg) {
    if (a->sizing >> reg & 1) return ~(a->pci->bar[i].size - 1);
    return a->gpa[i];
}

/* Returns what the VM reads in the register of BAR i: where the VM itself sees that part of the
 * device (a->gpa), not where it is in the machine. A wide BAR takes two registers; the second one,
 * which has no size of its own, holds the upper half of the address. It reads 0 if the VM sees
 * nothing there. */
static u32 bar_shown(const struct assignment *a, u32 i) {
    const struct pci_bar *b = &a->pci->bar[i];
    u32 type = 0;

    if (b->io) type |= BAR_IO;
    if (b->wide) type |= BAR_64;
    if (b->size && a->gpa[i] != PCI_NOWHERE) return (u32)bar_holds(a, i, i) | type;
    if (i && b[-1].size && b[-1].wide && a->gpa[i - 1] != PCI_NOWHERE)
        return (u32)(bar_holds(a, i - 1, i) >> 32);
    return 0;
}

/* Returns what the VM reads in the register at `offset`, a multiple of 4, by the rule that
 * pci/rules.c has for that register. By default that is what the device has there. */
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

/* Counts an access that the VM is not allowed, and returns the error for it. */
static i64 mediate_refuse(struct assignment *a) {
    counter_inc(&device_registers_refused, this_cpu()->id);
    __atomic_fetch_add(&a->refused, 1, __ATOMIC_RELAXED);
    return -EPERM;
}

/* Returns what the VM reads in its device's configuration space at `offset`, or a negative errno. A
 * read may be of 1, 2 or 4 bytes. It is answered from the whole register of 4 bytes around it. */
i64 mediate_read(struct assignment *a, u32 offset, u32 size) {
    enum pci_rule rule;
    u32 dword;

    if (!pci_register_exists(offset, size)) return -EINVAL;
    rule = pci_rule_of(a->pci, offset, size);
    if (rule == PCI_RULE_REFUSED) return mediate_refuse(a);
    dword = register_shown(a, offset & ~3u, rule);
    return dword >> 8 * (offset & 3) & (~0u >> (32 - 8 * size));
}

/* Carries out a VM's write to its device's configuration space. Returns 0 or a negative errno. A VM
 * may write only the register COMMAND. There it may change whether the device may read and write
 * memory (bus mastering) and, if the device has an interrupt wire, whether the device uses that.
 * All other bits have to stay as they are: they could hurt others, or the hypervisor sets them
 * itself. The lock keeps a->off from changing between the check and the write; otherwise a device
 * that is being taken away could become master of the bus again. */
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
