/* Commands about PCI devices, named as in xl: pci-list pci-assignable-list. */
#include "passthrough/give.h"
#include "platform/irq.h"
#include "shell/shell.h"
#include "vm/vm.h"

COLUMNS(device_columns, COL("Device", "bdf", 's', -9), COL("ID", "id", 's', -11),
        COL("Class", "class", 's', -8), COL("VM", "vm", 's', -16), COL("Interrupts", "interrupts", 'u', 12),
        COL("By", "irq", 's', 6), COL(NULL, "pin", 'd', 0), COL(NULL, "pin_source", 's', 0),
        COL(NULL, "why_not", 's', 0));

static const char *irq_name(const struct pci_device *d, i64 *gsi, const char **source) {
    static const char *const names[] = { "none", "INTx", "MSI", "MSI-X" };
    u32 pin = 0, flags;
    enum pci_irq irq = d->msix_entry ? PCI_MSIX : d->msi ? PCI_MSI : PCI_NO_IRQ;

    *source = give_line(d, &pin, &flags);
    *gsi = *source ? (i64)pin : -1;
    if (irq == PCI_NO_IRQ && *source) irq = PCI_INTX;
    return names[irq];
}

static void device_row(struct shell_call *c, const struct pci_device *d) {
    char bdf[8], id[10], class[8];
    const char *why = give_refused(d), *source;
    i64 pin;
    const char *irq = irq_name(d, &pin, &source);

    hv_snprintf(bdf, sizeof(bdf), "%02x:%02x.%x", d->bdf >> 8, d->bdf >> 3 & 31, d->bdf & 7);
    hv_snprintf(id, sizeof(id), "%04x:%04x", d->vendor, d->device);
    hv_snprintf(class, sizeof(class), "%06x", d->class_rev >> 8);
    table_row(c, CELLS(S(bdf), S(id), S(class), S(d->owner ? d->owner->name : ""), U(d->interrupts), S(irq),
                       D(pin), S(source ? source : ""), S(why ? why : "")));
}

/* A device a step: all, or those of one VM. */
static int cmd_pci_list(struct shell_call *c) {
    const struct pci_device *d;

    c->columns = device_columns;
    if (c->index == pci_count()) return 0;
    d = pci_at(c->index++);
    if (!c->only || d->owner == c->vm) device_row(c, d);
    return SHELL_AGAIN;
}

/* Those that a VM could have now. */
static int cmd_assignable(struct shell_call *c) {
    const struct pci_device *d;

    c->columns = device_columns;
    if (c->index == pci_count()) return 0;
    d = pci_at(c->index++);
    if (!d->owner && !give_refused(d)) device_row(c, d);
    return SHELL_AGAIN;
}

const struct shell_command pci_commands[] = {
    { "pci-list", "[VM]", "PCI devices, who has them and how often they interrupted", cmd_pci_list, "?V",
      "" },
    { "pci-assignable-list", "", "PCI devices that a VM could be given", cmd_assignable, "", "" },
    { 0 },
};
