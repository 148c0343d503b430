/* What the two files for VT-x share: vmx.c makes a vCPU's VMCS and reads and writes its registers,
 * and vmx_run.c enters the guest. */
#ifndef HV_VIRT_VMX_H
#define HV_VIRT_VMX_H

#include "virt/hw.h"
#include "virt/vendor.h"
#include "virt/vmcs.h"

/* What VT-x keeps for a vCPU; priv in struct virt_vcpu points to it. */
struct vmx_vcpu {
    hpa_t vmcs;
    u32 *vapic;    /* the page that holds the guest's TPR, or all registers of its LAPIC */
    bool launched; /* the next entry is a VMRESUME, not a VMLAUNCH */
    u32 host_cpu;  /* the pCPU whose state is in the host fields of the VMCS, plus 1; 0: none */
    u32 primary;   /* the primary controls that the VMCS holds now */
    u32 secondary; /* likewise */
    u64 rip, rsp, rflags;          /* the values of these registers that the VMCS holds now */
    u64 eoi_exits[4];              /* what the VMCS holds: the EOIs of which vectors exit */
    u64 deadline_ns, deadline_tsc; /* the last deadline, and the same in TSC ticks */
    u64 error;                     /* of an entry that failed: VMX_ERROR_* */
};

/* The controls: what makes a guest exit, and what an entry and an exit load. */
enum { VMX_PIN, VMX_PRIMARY, VMX_SECONDARY, VMX_EXIT, VMX_ENTRY, VMX_CONTROLS };
struct vmx_control {
    u16 field, msr; /* the field of the VMCS; the MSR that says what the CPU allows */
    u32 needed, wanted;
    u32 value; /* set by vmx_probe(), then constant */
};
extern struct vmx_control vmx_control[VMX_CONTROLS];

/* Set by vmx_probe(), then constant. */
extern unsigned vmx_timer_shift; /* the preemption timer counts once in 2^this ticks of the TSC */
extern bool vmx_invept_single;   /* the CPU can forget the translations of one VM alone */

/* The bitmap by which all MSRs exit but those that guests use freely; and the one for guests whose
 * LAPIC is in x2APIC mode and emulated by the CPU. All VMs share them. */
extern u8 *vmx_msr_bitmap, *vmx_x2apic_bitmap;

#define EPTP_WALK_4 (3ull << 3) /* SDM 3C 25.6.11 */
#define EPTP_WB     6ull

/* Returns the pointer to the VM's tables in the form in which the CPU takes it. */
static inline u64 vmx_eptp(const struct virt_vcpu *v) {
    return v->vm->npt.root | EPTP_WALK_4 | EPTP_WB;
}

/* Turns access rights of the VMCS into attributes of struct guest_seg. */
static inline u16 vmx_seg_attr(u64 ar) { return (u16)((ar & AR_LOW) | (ar & AR_HIGH) >> AR_GAP); }

/* Ends the shadow of STI or MOV SS. */
static inline void vmx_end_shadow(void) {
    u64 shadow = vmread(VMCS_SHADOW);

    if (shadow & (SHADOW_STI | SHADOW_MOV_SS))
        vmwrite(VMCS_SHADOW, shadow & ~(SHADOW_STI | SHADOW_MOV_SS));
}

/* Returns the privilege level of the loaded vCPU. */
static inline u8 vmx_current_cpl(void) {
    return (u8)ATTR_DPL((u32)vmread(VMCS_GUEST_AR + 2 * SEG_SS));
}

/* ---- APIC virtualization (vmx_apic.c) ---- */

/* Can the CPU do all of it? To be called after the controls were chosen. */
bool vmx_has_apicv(void);
/* Brings the registers of the LAPIC to the page, and what the CPU has to know of them to the VMCS,
 * if they are not there. Before each entry. */
void vmx_apic_enter(struct virt_vcpu *v);
/* Fetches them after this exit if the guest may access its LAPIC by it. */
void vmx_apic_exit(struct virt_vcpu *v, const struct vm_exit *e);
/* Decode the exits that there are with it. */
void vmx_decode_apic_access(struct virt_vcpu *v, struct vm_exit *e);
void vmx_decode_apic_write(struct vm_exit *e, enum exit_reason reason);

/* Hooks of struct virt_ops. */
u64 vmx_get_reg(struct virt_vcpu *v, enum virt_reg reg);
void vmx_set_reg(struct virt_vcpu *v, enum virt_reg reg, u64 value);
void vmx_run(struct virt_vcpu *v, u64 deadline_ns, struct vm_exit *e);
const char *vmx_why(struct virt_vcpu *v);

#endif
