/* Commands about PCI devices, named as in xl: pci-list, pci-assignable-list and so on. A device is
 * named by its bdf (bus, device, function), such as 01:10.0. A physical function is a card that can
 * show itself as several devices, its virtual functions (SR-IOV). */
#include <takt/errno.h>
#include "lib/parse.h"
#include "common/string.h"
#include "passthrough/give.h"
#include "passthrough/interrupt.h"
#include "pci/sriov.h"
#include "platform/irq.h"
#include "shell/shell.h"
#include "vm/vm.h"

#define BDF_TEXT PCI_NAME

COLUMNS(device_columns, COL("Device", "bdf", 's', -8), COL("ID", "id", 's', -9),
        MORE("Class", "class", 's', -6), COL(NULL, "vm", 's', 0),
        COL("Interrupts", "interrupts", 'u', 10), COL("By", "irq", 's', 5),
        MORE("Group", "group", 's', 8), MORE("VF of", "pf", 's', 8),
        MORE("Refused", "refused", 'u', 8), MORE("Faults", "faults", 'u', 6),
        COL(NULL, "vfs", 'u', 0), COL(NULL, "vectors", 'u', 0), COL(NULL, "pin", 'd', 0),
        COL(NULL, "pin_source", 's', 0), COL(NULL, "why_not", 's', 0),
        COL("VM, or why none", NULL, 's', 0));

/* Writes the name of a device into `text` and returns it. The text is "" if `d` is NULL. */
static const char *bdf_text(char text[BDF_TEXT], const struct pci_device *d) {
    *text = 0;
    if (d) hv_snprintf(text, BDF_TEXT, "%s", d->name);
    return text;
}

/* Returns the name of the best way in which a device can interrupt. *gsi becomes the number of its
 * interrupt line, or -1 if none is known. *source says how the line is known, and is "" if it is
 * not. */
static const char *irq_name(const struct pci_device *d, i64 *gsi, const char **source) {
    u32 pin = 0, flags;

    *gsi = -1;
    *source = interrupt_line(d, &pin, &flags);
    if (*source)
        *gsi = pin;
    else
        *source = "";
    if (d->msix_table) return "MSI-X";
    if (d->msi) return "MSI";
    if (**source) return "INTx";
    return "none";
}

/* Shows a device: as a row of the table, or, with `alone`, a person gets a line for each column.
 * `why` says why no VM can be given the device ("" if one can). A program that asked for JSON gets
 * the owner and `why` in two fields; for a person both share the last column, which has the owner
 * if there is one. "Group" names the first of the devices that can reach each other past the IOMMU.
 * "Refused" counts the owner's accesses to the device's configuration space that Takt has
 * refused. */
static void device_row(struct shell_call *c, const struct pci_device *d, bool alone) {
    char bdf[BDF_TEXT], group[BDF_TEXT], pf[BDF_TEXT], id[10], class[8];
    const struct assignment *a = assignment_of(d);
    const char *why = give_refused(d), *owner = "", *source;
    i64 pin;
    const char *irq = irq_name(d, &pin, &source), *owner_or_why;
    const union cell *cells;

    if (!why) why = "";
    if (a->owner) owner = a->owner->name;
    owner_or_why = owner;
    if (!*owner) owner_or_why = why;
    hv_snprintf(id, sizeof(id), "%04x:%04x", d->vendor, d->device);
    hv_snprintf(class, sizeof(class), "%06x", d->class_rev >> 8);
    cells = CELLS(S(bdf_text(bdf, d)), S(id), S(class), S(owner), U(a->interrupts), S(irq),
                  S(bdf_text(group, pci_find(d->group))), S(bdf_text(pf, d->pf)), U(a->refused),
                  U(a->faults), U(d->nr_vfs), U(a->nr_vectors), D(pin), S(source), S(why),
                  S(owner_or_why));
    if (alone && !c->json) {
        record(c, device_columns, cells);
    } else {
        c->columns = device_columns;
        table_row(c, cells);
    }
}

/* Lists all devices, or those of one VM: one at each step. */
static int cmd_pci_list(struct shell_call *c) {
    const struct pci_device *d;

    c->columns = device_columns;
    if (c->index == pci_count()) return 0;
    d = pci_at(c->index++);
    if (!c->only || assignment_of(d)->owner == c->vm) device_row(c, d, false);
    return SHELL_AGAIN;
}

/* Lists the devices that a VM could be given now: one at each step. */
static int cmd_assignable_list(struct shell_call *c) {
    const struct pci_device *d;

    c->columns = device_columns;
    if (c->index == pci_count()) return 0;
    d = pci_at(c->index++);
    if (!assignment_of(d)->owner && !give_refused(d)) device_row(c, d, false);
    return SHELL_AGAIN;
}

/* Fails because `s` does not name a device. */
static int expected_device(const char *s) {
    return shell_fail(-EINVAL, "expected a PCI device such as 01:10.0, or igb0/any, not %s", s);
}

/* Shows all that is known of one device, a line for each column. */
static int cmd_pci_info(struct shell_call *c) {
    u64 bdf;

    if (parse_pci(c->argv[1], &bdf, NULL)) return expected_device(c->argv[1]);
    if (!pci_find((u32)bdf)) return shell_fail(-ENOENT, "there is no PCI device %s", c->argv[1]);
    device_row(c, pci_find((u32)bdf), true);
    return 0;
}

COLUMNS(sriov_columns, COL("Name", "name", 's', -6), COL("Device", "bdf", 's', -8),
        COL("VFs", "vfs", 'u', 4), COL("Given", "given", 'u', 6), COL("Lost", "lost", 'u', 5),
        COL("First", "first", 's', -8));

/* Lists physical functions: one at each step. */
static int cmd_sriov(struct shell_call *c) {
    char name[12] = "", bdf[BDF_TEXT], at[BDF_TEXT] = "";
    const struct pci_device *pf;
    u64 given = 0, lost = 0;

    c->columns = sriov_columns;
    if (c->index == pci_count()) return 0;
    pf = pci_at(c->index++);
    if (!pf->sriov) return SHELL_AGAIN;
    for (u32 i = 0; i < pci_count(); i++) {
        const struct pci_device *d = pci_at(i);

        if (d->pf != pf) continue;
        if (assignment_of(d)->owner) given++;
        lost += d->lost;
        if (d->vf == 0) bdf_text(at, d);
    }
    if (sriov_number(pf) >= 0) hv_snprintf(name, sizeof(name), "igb%d", sriov_number(pf));
    table_row(c, CELLS(S(name), S(bdf_text(bdf, pf)), U(pf->nr_vfs), U(given), U(lost), S(at)));
    return SHELL_AGAIN;
}

/* Ends the steps of pci-attach or pci-detach, also if the operator has interrupted the command. */
static void end_hot_plug(struct shell_call *c) { give_stop(); }

/* Returns what the command has to return after a step of giving a device or taking it away. `r` is
 * what that step returned. */
static int hot_plug_result(struct shell_call *c, int r) {
    c->end = end_hot_plug;
    if (r < 0) return shell_fail(r, "%s: %s", c->vm->name, c->vm->why);
    return r;
}

/* Gives a device to a VM that runs. give_attach() is called at each step until it is done. */
static int cmd_attach(struct shell_call *c) {
    u64 asked;

    if (parse_pci(c->argv[2], &asked, NULL) && config_vf(c->argv[2], &asked))
        return expected_device(c->argv[2]);
    return hot_plug_result(c, give_attach(c->vm, asked, &c->at));
}

/* Takes a device from a VM. give_detach() is called at each step until it is done. */
static int cmd_detach(struct shell_call *c) {
    u64 bdf;

    if (parse_pci(c->argv[2], &bdf, NULL)) return expected_device(c->argv[2]);
    return hot_plug_result(c, give_detach(c->vm, (u32)bdf, c->opt['f'], &c->at));
}

const struct shell_command pci_commands[] = {
    { "pci-list", "[-l] [VM]",
      "lists PCI devices, who has them and how they interrupt\n"
      "-l  shows all columns, also where they are wider than a terminal",
      cmd_pci_list, "?V", "l" },
    { "pci-assignable-list", "[-l]",
      "lists PCI devices that a VM could be given\n"
      "-l  shows all columns, also where they are wider than a terminal",
      cmd_assignable_list, "", "l" },
    { "pci-info", "DEVICE", "shows all that is known of a PCI device", cmd_pci_info, "w", "" },
    { "pci-attach", "VM DEVICE",
      "gives a PCI device to a VM that runs\n"
      "DEVICE  01:10.0, or a virtual function of a card: igb0/any",
      cmd_attach, "Vw", "" },
    { "pci-detach", "[-f] VM DEVICE",
      "takes a PCI device from a VM\n"
      "-f  at once; without it the VM has 2 s to let go",
      cmd_detach, "Vw", "f" },
    { "sriov", "", "lists physical functions and their virtual ones", cmd_sriov, "", "" },
    { 0 },
};
