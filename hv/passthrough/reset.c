/* Resets a device that is given to a VM or taken from one. Resetting a card makes its virtual
 * functions vanish for some time, though other VMs may have them. So those are held: they may not
 * access memory until they are back, and the store tells their VMs. */
#include "passthrough/reset.h"

#include "passthrough/interrupt.h"

/* Switches off the virtual functions of a card that is to be reset, as far as VMs have them. */
static void hold_vfs(const struct pci_device *pf) {
    FOR_ASSIGNMENTS(a) {
        if (a->pci->pf != pf || !a->owner) continue;
        assign_off(a, true);
        assign_tell(a);
    }
}

/* After the reset of the card: switches its virtual functions on again, unless they did not come
 * back. */
static void resume_vfs(const struct pci_device *pf) {
    FOR_ASSIGNMENTS(a) {
        if (a->pci->pf != pf || !a->owner) continue;
        if (a->held && !a->pci->lost) interrupt_again(a);
        assign_tell(a);
    }
}

/* Does one phase of the reset of a device. Returns in how many ns the next phase may come, or 0
 * after the last one. A reset takes several phases with pauses between them, so that no step of the
 * caller is long. Phase 0 is the first one, in which the device is still in use. */
u64 assign_reset(struct assignment *a, u32 phase) {
    struct pci_device *d = a->pci;
    bool was_in_reset = d->in_reset;
    u64 wait;

    if (phase == 0) {
        assign_forbid(a);
        if (d->nr_vfs) hold_vfs(d);
    }
    wait = pci_reset(d, phase);
    if (phase && was_in_reset && !d->in_reset) resume_vfs(d);
    return wait;
}
