/* Who has which PCI device. Each device of the machine has one "assignment", which says which VM
 * owns it, and holds what giving it needs (assign.h). It exists from boot on, also while no VM has
 * the device. */
#include "passthrough/assign.h"

#include "config.h"
#include "lib/printf.h"
#include "pci/sriov.h"
#include "nodes/nodes.h"

struct assignment *assignments;
/* Stands for each device that is not known, or for whose assignment there was no memory. */
static struct assignment stranger;

/* Makes an assignment (a record of which VM has the device) for each device. Those of an earlier
 * call, as tests make, are freed first. If memory is short, a device gets none, and can then not be
 * given to any VM (give_refused()). */
void assign_init(void) {
    struct assignment **end = &assignments;

    while (assignments) {
        struct assignment *a = assignments;

        assignments = a->next;
        heap_free(a);
    }
    for (u32 i = 0; i < pci_count(); i++) {
        struct pci_device *d = pci_at(i);
        struct assignment *a = heap_alloc(sizeof(*a));

        d->assignment = a;
        if (!a) continue;
        a->pci = d;
        *end = a;
        end = &a->next;
    }
}

/* Returns the assignment of a device. For a device without one, it is a record that no VM has, so
 * that callers need not look for NULL. */
struct assignment *assignment_of(const struct pci_device *d) {
    if (!d || !d->assignment) return &stranger;
    return d->assignment;
}

/* Returns virtual function number `vf` of `pf`, or, if `any`, the first one that nobody has.
 * Returns NULL if there is none. */
static struct pci_device *find_vf(const struct pci_device *pf, bool any, u32 vf) {
    for (u32 i = 0; i < pci_count(); i++) {
        struct pci_device *d = pci_at(i);

        if (d->pf != pf) continue;
        if (any && !assignment_of(d)->owner && !d->lost) return d;
        if (!any && d->vf == vf) return d;
    }
    return NULL;
}

/* Returns the device that `asked` means, or NULL if there is none. A request names a device by its
 * bdf. It names a virtual function by its card, which is a bdf or a name such as igb0, and by a
 * number or "any", which is any function that no VM has. */
struct pci_device *assign_asked(u64 request) {
    const struct pci_device *pf;

    if (!(request & CONFIG_VF)) return pci_find((u32)request);
    if (request & CONFIG_VF_NAMED)
        pf = sriov_named((u32)request);
    else
        pf = pci_find((u32)request);
    if (!pf) return NULL;
    return find_vf(pf, request & CONFIG_VF_ANY, CONFIG_VF_NUMBER(request));
}

/* Makes the formatted sentence the reason for which the VM's job fails. Returns `error`. Without
 * the sentence, the operator would only learn that the VM could not be made. */
int assign_refuse(struct vm *vm, int error, const char *fmt, ...) {
    va_list ap;

    va_start(ap, fmt);
    hv_vsnprintf(vm->why, sizeof(vm->why), fmt, ap);
    va_end(ap);
    vm->job.why = vm->why;
    return error;
}

/* Tells the owner of the device, by the node of the device in the store, that its state has
 * changed. */
void assign_tell(const struct assignment *a) {
    for (u32 i = 0; i < a->owner->nr_pci; i++)
        if (a->owner->pci[i] == a) storelink_pci(a->owner, i);
}

/* Keeps the VM from making the device master of the bus from now on. mediate_write() looks at
 * `a->off` when the VM writes to the device's command register. */
void assign_forbid(struct assignment *a) {
    spin_lock(&a->lock);
    a->held = false;
    a->off = true;
    spin_unlock(&a->lock);
}

/* Takes bus mastering and the interrupt wire away from the device at once. `a->held` notes that the
 * device was in use and is to go on after the reset of its card. If it was off already, or its VM
 * is losing it, it must not go on. */
void assign_off(struct assignment *a, bool hold) {
    spin_lock(&a->lock);
    a->held = hold && (a->held || !a->off);
    a->off = true;
    pci_write(a->pci->bdf, PCI_COMMAND, 2, pci_idle_command(a->pci));
    spin_unlock(&a->lock);
}
