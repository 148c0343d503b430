/* What the two files for AMD-V share: svm.c makes a vCPU's VMCB and reads and writes its registers,
 * and svm_run.c enters the guest. */
#ifndef HV_VIRT_SVM_H
#define HV_VIRT_SVM_H

#include "virt/vendor.h"
#include "virt/vmcb.h"

/* What AMD-V keeps for a vCPU; priv in struct virt_vcpu points to it. */
struct svm_vcpu {
    struct vmcb *vmcb;
    /* the address of this VMCB, and of the host's VMCB on the pCPU that has the vCPU loaded */
    hpa_t pa, host;
    bool nmi_masked; /* an NMI was delivered, and the guest has not executed its IRET yet */
    /* The guest executes one instruction, and TF was set by us so that it traps behind it. */
    bool stepping;
    u64 step_rip, iret_rip; /* where that instruction is; where the last IRET was that exited */
    u64 cr0_hidden;         /* the bits of CR0_OWNED that the guest has set, and reads back */
    bool virq;              /* at the last entry the interrupt was a virtual one */
    /* Accesses to CR0 do not exit at the next entry, so that the CPU executes LMSW, SMSW or
     * CLTS. */
    bool cr0_free;
};

/* After an exit for an instruction, this CPU says where the next one is (APM2 15.7.1). */
extern bool svm_has_next_rip;
/* This CPU tells more about an exit (APM2 15.8), and says where the next instruction is: after a
 * MOV to or from a control register, which general register that names; and after a nested page
 * fault by an access to data, the bytes of the instruction. */
extern bool svm_has_decode_assists;

static inline struct vmcb *svm_vmcb(const struct virt_vcpu *v) {
    return ((struct svm_vcpu *)v->priv)->vmcb;
}

/* Switches exits of IRET on or off. Such an exit tells when the handler of an NMI ends. */
static inline void svm_watch_iret(struct vmcb *b, bool on) {
    if (on)
        b->intercept[0] |= SVM_INTERCEPT(SVM_EXIT_IRET);
    else
        b->intercept[0] &= ~SVM_INTERCEPT(SVM_EXIT_IRET);
    b->clean &= ~CLEAN_INTERCEPTS;
}

/* Ends the shadow of STI or MOV SS. */
static inline void svm_end_shadow(struct vmcb *b) { b->int_shadow = 0; }

/* Sets which accesses to control registers exit, by the state of the vCPU. */
void svm_set_cr_intercepts(struct virt_vcpu *v);
/* Writes CR0, as the guest sees it. */
void svm_set_cr0(struct virt_vcpu *v, u64 value);
/* Switches on the exits that a new vCPU has all its life. */
void svm_set_intercepts(struct vmcb *b);

/* Hooks of struct virt_ops. */
void svm_run(struct virt_vcpu *v, u64 deadline_ns, struct vm_exit *e);
const char *svm_why(struct virt_vcpu *v);

#endif
