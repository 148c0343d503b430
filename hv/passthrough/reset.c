#include "passthrough/reset.h"

#include "passthrough/interrupt.h"

/* The reset of a physical function takes its virtual functions away for a while. */
static void hold_vfs(const struct pci_device *pf) {
    FOR_ASSIGNMENTS(a) {
        if (a->pci->pf != pf || !a->owner) continue;
        assign_off(a, true);
        assign_tell(a);
    }
}

/* Those that were held go on, unless they are lost together with their physical function. */
static void resume_vfs(const struct pci_device *pf) {
    FOR_ASSIGNMENTS(a) {
        if (a->pci->pf != pf || !a->owner) continue;
        if (a->held && !a->pci->lost) interrupt_again(a);
        assign_tell(a);
    }
}

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
