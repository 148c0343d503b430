#include <takt/errno.h>
#include "virt/virt.h"
#include "x86/insn.h"

int virt_probe(struct virt_caps *caps) {
    static const struct virt_ops *const all[] = { &vmx_ops, &svm_ops };

    for (unsigned i = 0; i < ARRAY_SIZE(all); i++) {
        all[i]->probe(caps);
        if (!caps->present) continue;
        if (caps->reason) return -ENODEV;
        virt = all[i];
        return 0;
    }
    caps->reason = "this CPU has neither VT-x nor AMD-V.";
    return -ENODEV;
}
