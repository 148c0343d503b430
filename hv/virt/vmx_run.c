/* How a guest is entered and left with VT-x. Before an entry, vmx_run() writes to the VMCS what has
 * changed; the VMCS is the structure that describes a vCPU to the CPU. After an exit it decodes why
 * the CPU has left the guest. A "window" is an exit at the moment at which the guest can take an
 * interrupt or an NMI that waits. A "shadow" is the one instruction after STI or MOV SS during
 * which nothing is delivered. */
#include "common/insn.h"
#include "platform/timer.h"
#include "virt/hw.h"
#include "virt/vendor.h"
#include "virt/vmcs.h"
#include "virt/vmx.h"
#include "x86/tsc.h"

#define TIMER_MOST 0xffffffffull /* the largest value of the preemption timer, of 32 bits */
/* index of the word in the virtual-APIC page: SDM 3A 11.8.3.1 */
#define VAPIC_TPR       (0x80 / sizeof(u32))
#define TPR_CLASS_SHIFT 4 /* CR8 is the upper half of TPR */

/* ---- entry ---- */

/* Makes the CPU forget translations; tlb_prepare() calls this. The vCPU gets a new VPID, for which
 * the CPU has no translations yet. But translations of guest-physical addresses depend only on the
 * EPT pointer (SDM 3C 29.4.1), so the CPU has to forget those of this VM. If it can, it forgets
 * only those, because other VMs would have to walk their tables again. */
static void vmx_flush(enum tlb_flush what, void *ctx) {
    if (what == TLB_FLUSH_VM && vmx_invept_single) {
        invept(INVEPT_SINGLE, vmx_eptp(ctx));
        return;
    }
    invept(INVEPT_ALL, 0);
    if (what == TLB_FLUSH_ALL) invvpid_all();
}

/* Gives the vCPU a VPID under which the CPU has no old translations, because the VM's tables have
 * changed or the vCPU comes from another pCPU. */
static void vmx_prepare_tlb(struct virt_vcpu *v) {
    tlb_prepare(&v->vm->npt.tlb, &this_virt()->tags, &v->tlb, this_cpu()->id, vmx_flush, v);
    vmwrite(VMCS_VPID, v->tlb.tag);
}

/* Sets the controls for those exits that are wanted: at a window (as soon as the guest can take an
 * interrupt or an NMI), and when the guest writes CR8. In the shadow of STI (before the end of the
 * instruction after it) the CPU may open an NMI window although no NMI can be delivered there. So
 * in that case we ask for an interrupt window, which opens at the end of the shadow, because STI
 * has set IF. */
static void set_primary(struct virt_vcpu *v, struct vmx_vcpu *s) {
    u32 want = vmx_control[VMX_PRIMARY].value;

    if (v->want_irq_window) want |= PRI_IRQ_WINDOW;
    if (v->want_nmi_window && vmread(VMCS_SHADOW) & SHADOW_STI)
        want |= PRI_IRQ_WINDOW;
    else if (v->want_nmi_window)
        want |= PRI_NMI_WINDOW;
    if (v->want_cr8_exit) want |= PRI_CR8_LOAD;
    if (want == s->primary) return;
    s->primary = want;
    vmwrite(VMCS_PRIMARY, want);
}

/* Lets the CPU deliver the pending event at the entry. */
static void vmx_inject(struct virt_vcpu *v) {
    u32 event = event_encode(&v->pending, vmread(VMCS_GUEST_CR0) & CR0_PE);

    if (v->pending.icebp_len) {
        /* Deliver it as the instruction does: RIP moves over it only if the delivery succeeds. */
        event = (event & ~EVENT_TYPE_MASK) | EVENT_TYPE_ICEBP << EVENT_TYPE_SHIFT;
        vmwrite(VMCS_ENTRY_INSN_LEN, v->pending.icebp_len);
    }
    vmwrite(VMCS_ENTRY_EVENT, event);
    if (event & EVENT_HAS_CODE) vmwrite(VMCS_ENTRY_CODE, v->pending.code);
    v->pending.type = EVENT_NONE;
}

/* Arms the preemption timer, or the LAPIC's timer if the CPU has no preemption timer. The
 * preemption timer counts down once every 2^vmx_timer_shift ticks of the TSC, and causes an exit
 * whatever IF is: SDM 3C 26.5.1. But debug exceptions come before it, and a guest may cause them
 * without end. So this function checks the deadline as well, and returns false if it has passed. */
static bool arm_timer(struct vmx_vcpu *s, u64 deadline_ns) {
    u64 now = rdtsc(), left;

    if (deadline_ns != s->deadline_ns) {
        s->deadline_ns = deadline_ns;
        s->deadline_tsc = tsc_at(deadline_ns);
    }
    if (now >= s->deadline_tsc) return false;
    if (!(vmx_control[VMX_PIN].value & PIN_PREEMPTION_TIMER)) {
        lapic_timer_arm(deadline_ns);
        return true;
    }
    left = ((s->deadline_tsc - now) >> vmx_timer_shift) + 1;
    vmwrite(VMCS_PREEMPTION_TIMER, MIN(left, TIMER_MOST));
    return true;
}

/* ---- exit ---- */

/* Blocks NMIs again, if the instruction that exited was an IRET that had ended the blocking
 * already. The IRET will be executed again, and until then NMIs must be blocked: SDM 3C 28.2.3.
 * `info` has the bit NMI_UNBLOCKED. */
static void block_nmi_again(u64 info) {
    if (info & NMI_UNBLOCKED && !(vmread(VMCS_IDT_EVENT) & EVENT_VALID))
        vmwrite(VMCS_SHADOW, vmread(VMCS_SHADOW) | SHADOW_NMI);
}

/* Returns the default operand size of the loaded guest's code: 16, 32 or 64. */
static u8 mode_now(void) {
    return code_mode(vmread(VMCS_GUEST_EFER), vmx_seg_attr(vmread(VMCS_GUEST_AR + 2 * SEG_CS)));
}

/* Decodes an exit by an exception. An NMI or a machine check is the host's, so its handler runs
 * here. The rest is the guest's. */
static void vmx_decode_exception(struct virt_vcpu *v, struct vm_exit *e) {
    u32 event = (u32)vmread(VMCS_EXIT_EVENT), type = EVENT_TYPE(event);

    if (type == EVENT_TYPE_NMI) {
        raise_nmi();
        e->reason = EXIT_NMI;
        return;
    }
    e->reason = EXIT_EXCEPTION;
    e->exc.vector = (u8)event;
    e->exc.icebp_len = 0;
    e->exc.has_code = event & EVENT_HAS_CODE;
    e->exc.code = 0;
    if (e->exc.has_code) e->exc.code = (u32)vmread(VMCS_EXIT_CODE);
    if (e->exc.vector == EXC_MC) {
        raise_mc();
        return;
    }
    block_nmi_again(event);
    if (e->exc.vector == EXC_DB) { /* the exit has left DR6 and DR7 as they were: SDM 3C 28.1 */
        u64 dr6 = vmx_get_reg(v, VREG_DR6) & ~DR6_BREAKPOINTS;

        vmx_set_reg(v, VREG_DR6, dr6 | (vmread(VMCS_QUALIFICATION) & QUAL_DEBUG_DR6));
        if (type == EVENT_TYPE_ICEBP) e->exc.icebp_len = e->insn_len;
    }
    vmx_end_shadow(); /* the instruction in the shadow is the one that raised the exception */
}

/* Decodes an access to a control register: which one, whether it was written, and by which general
 * register. Outside 64-bit mode only 32 bits of that are moved. */
static void vmx_decode_cr(struct virt_vcpu *v, struct vm_exit *e) {
    u64 q = vmread(VMCS_QUALIFICATION);

    /* There are no exits of CLTS and LMSW, which cannot change bits in VMCS_CR0_MASK. */
    e->reason = EXIT_CR;
    if (QUAL_CR_ACCESS(q) > CR_ACCESS_FROM) e->reason = EXIT_UNKNOWN;
    e->cr.cr = QUAL_CR(q);
    e->cr.write = QUAL_CR_ACCESS(q) == CR_ACCESS_TO;
    e->cr.gpr = QUAL_CR_GPR(q);
    e->cr.value = v->regs.gpr[e->cr.gpr];
    if (mode_now() != 64) e->cr.value = (u32)e->cr.value;
}

/* Decodes an access to memory that the VM's tables do not allow (an EPT violation). `in_walk` says
 * that the CPU came to it while it walked the guest's own page tables. */
static void vmx_decode_npf(struct virt_vcpu *v, struct vm_exit *e) {
    u64 q = vmread(VMCS_QUALIFICATION);

    block_nmi_again(q);
    e->reason = EXIT_NPF;
    e->npf.gpa = vmread(VMCS_GPA);
    e->npf.write = q & QUAL_EPT_WRITE;
    e->npf.exec = q & QUAL_EPT_FETCH;
    e->npf.present = q & QUAL_EPT_RIGHTS;
    e->npf.in_walk = q & QUAL_EPT_LINEAR && !(q & QUAL_EPT_FINAL);
    e->npf.in_delivery = false;
    npf_bytes(v, e, mode_now(), vmread(VMCS_GUEST_CR3));
}

/* Decodes an access to a port. */
static void vmx_decode_io(struct vm_exit *e) {
    u64 q = vmread(VMCS_QUALIFICATION);

    e->reason = EXIT_IO;
    e->io.port = QUAL_IO_PORT(q);
    e->io.size = QUAL_IO_SIZE(q);
    e->io.in = q & QUAL_IO_IN;
    e->io.string = q & QUAL_IO_STRING;
    e->io.rep = q & QUAL_IO_REP;
}

/* Decodes a hypercall: in which mode the guest's code is, and with which rights. */
static void decode_vmcall(struct virt_vcpu *v, struct vm_exit *e) {
    e->reason = EXIT_HYPERCALL;
    e->hc.mode = mode_now();
    e->hc.cpl = vmx_current_cpl();
    e->hc.real = !(vmread(VMCS_GUEST_CR0) & CR0_PE);
}

/* Exits about which the basic reason tells all. EXIT_HIDDEN is for instructions that guests do not
 * have. */
static const u8 simple_exits[] = {
    [VMX_INTR] = EXIT_INTR,
    [VMX_TRIPLE_FAULT] = EXIT_SHUTDOWN,
    [VMX_INIT] = EXIT_INIT,
    [VMX_IRQ_WINDOW] = EXIT_IRQ_WINDOW,
    [VMX_NMI_WINDOW] = EXIT_NMI_WINDOW,
    [VMX_TPR_BELOW] = EXIT_IRQ_WINDOW,
    [VMX_TASK_SWITCH] = EXIT_TASK_SWITCH,
    [VMX_CPUID] = EXIT_CPUID,
    [VMX_GETSEC] = EXIT_HIDDEN,
    [VMX_HLT] = EXIT_HLT,
    [VMX_INVD] = EXIT_WBINVD,
    [VMX_RDPMC] = EXIT_RDPMC,
    [VMX_RSM] = EXIT_HIDDEN,
    [VMX_VMCLEAR... VMX_VMXON] = EXIT_HIDDEN,
    [VMX_RDMSR] = EXIT_RDMSR,
    [VMX_WRMSR] = EXIT_WRMSR,
    [VMX_BAD_STATE] = EXIT_ENTRY_FAILED,
    [VMX_BAD_MSR] = EXIT_ENTRY_FAILED,
    [VMX_MWAIT] = EXIT_HIDDEN,
    [VMX_MONITOR] = EXIT_HIDDEN,
    [VMX_PAUSE] = EXIT_PAUSE,
    [VMX_EPT_MISCONFIG] = EXIT_NPT_MISCONFIG,
    [VMX_INVEPT] = EXIT_HIDDEN,
    [VMX_PREEMPTION_TIMER] = EXIT_TIMER,
    [VMX_INVVPID] = EXIT_HIDDEN,
    [VMX_WBINVD] = EXIT_WBINVD,
    [VMX_XSETBV] = EXIT_XSETBV,
    [VMX_INVPCID] = EXIT_HIDDEN,
    [VMX_VMFUNC] = EXIT_HIDDEN,
    [VMX_ENCLS] = EXIT_HIDDEN,
    [VMX_XSAVES] = EXIT_HIDDEN,
    [VMX_XRSTORS] = EXIT_HIDDEN,
    [VMX_PCONFIG] = EXIT_HIDDEN,
    [VMX_UMWAIT] = EXIT_HIDDEN,
    [VMX_TPAUSE] = EXIT_HIDDEN,
};

/* Decodes an exit by the table above; an exit that is not there is unknown. */
static void decode_simple(u32 reason, struct vm_exit *e) {
    e->reason = EXIT_UNKNOWN;
    if (reason < ARRAY_SIZE(simple_exits)) e->reason = simple_exits[reason];
    if (e->reason != EXIT_UNKNOWN) return;
    e->info[0] = vmread(VMCS_QUALIFICATION);
    e->info[1] = 0;
}

/* Fills in *e with what the exit was about. A machine check during the entry is the host's; its
 * handler runs here, and then the exit is decoded as one of those that need no more than their
 * number. */
static void vmx_decode(struct virt_vcpu *v, struct vm_exit *e) {
    u32 reason = (u16)vmread(VMCS_REASON);

    e->raw = reason;
    e->insn_len = (u8)vmread(VMCS_INSN_LEN);
    switch (reason) {
    case VMX_EXCEPTION: vmx_decode_exception(v, e); break;
    case VMX_VMCALL: decode_vmcall(v, e); break;
    case VMX_CR: vmx_decode_cr(v, e); break;
    case VMX_IO: vmx_decode_io(e); break;
    case VMX_EPT_VIOLATION: vmx_decode_npf(v, e); break;
    case VMX_APIC_ACCESS:
        vmx_decode_apic_access(v, e);
        npf_bytes(v, e, mode_now(), vmread(VMCS_GUEST_CR3));
        break;
    case VMX_VIRTUAL_EOI: vmx_decode_apic_write(e, EXIT_APIC_EOI); break;
    case VMX_APIC_WRITE: vmx_decode_apic_write(e, EXIT_APIC_WRITE); break;
    case VMX_MC_ENTRY: raise_mc(); /* fall through */
    default: decode_simple(reason, e);
    }
}

/* Queues an event again whose delivery an exit has cut short. If it is an NMI, the CPU blocks NMIs
 * since its delivery began. This has to end, or the NMI itself could not be delivered. */
static void vmx_requeue(struct virt_vcpu *v, u32 event) {
    event_requeue(v, event, (u32)vmread(VMCS_IDT_CODE));
    if (v->pending.type == EVENT_NMI) vmwrite(VMCS_SHADOW, vmread(VMCS_SHADOW) & ~SHADOW_NMI);
}

/* Enters the guest, and returns after the next exit, which is described in *e. VMWRITE is slow, so
 * a field is written only if it changed. If the deadline has passed already, the guest is not
 * entered, and *e says that the timer has ended its stay. An exit may have cut the delivery of an
 * event short; that event is queued again. */
void vmx_run(struct virt_vcpu *v, u64 deadline_ns, struct vm_exit *e) {
    struct vmx_vcpu *s = v->priv;
    u32 event;

    if (!arm_timer(s, deadline_ns)) {
        *e = (struct vm_exit){ .reason = EXIT_TIMER };
        return;
    }
    if (!v->apic.page)
        s->vapic[VAPIC_TPR] = (u32)v->cr8 << TPR_CLASS_SHIFT;
    else if (v->cr8 != CR8_IN_PAGE)
        vmx_apic_enter(v); /* before tlb_stale(), because it may take a page away from the guest */
    if (tlb_stale(&v->vm->npt.tlb, &v->tlb)) vmx_prepare_tlb(v);
    if (v->regs.rip != s->rip) vmwrite(VMCS_GUEST_RIP, v->regs.rip);
    if (v->regs.gpr[REG_RSP] != s->rsp) vmwrite(VMCS_GUEST_RSP, v->regs.gpr[REG_RSP]);
    if (v->regs.rflags != s->rflags) vmwrite(VMCS_GUEST_RFLAGS, v->regs.rflags);
    set_primary(v, s);
    if (v->pending.type != EVENT_NONE) vmx_inject(v);
    if (vmx_enter(&v->regs, s->launched)) {
        s->error = vmread(VMCS_ERROR);
        *e = (struct vm_exit){ .reason = EXIT_ENTRY_FAILED, .raw = (u32)s->error };
        return;
    }

    s->launched = true;
    if (!v->apic.page) v->cr8 = (u8)(s->vapic[VAPIC_TPR] >> TPR_CLASS_SHIFT);
    v->regs.rip = s->rip = vmread(VMCS_GUEST_RIP);
    v->regs.gpr[REG_RSP] = s->rsp = vmread(VMCS_GUEST_RSP);
    v->regs.rflags = s->rflags = vmread(VMCS_GUEST_RFLAGS);
    event = (u32)vmread(VMCS_IDT_EVENT);
    if (__builtin_expect(event & EVENT_VALID, 0)) vmx_requeue(v, event);
    vmx_decode(v, e);
    if (__builtin_expect(event & EVENT_VALID, 0) && e->reason == EXIT_NPF)
        e->npf.in_delivery = true;
    if (v->apic.page) vmx_apic_exit(v, e);
}

/* Returns in words why the last entry failed, by the number that the CPU has written to the VMCS.
 * Returns NULL if there was no such number. */
const char *vmx_why(struct virt_vcpu *v) {
    const struct vmx_vcpu *s = v->priv;

    switch (s->error) {
    case VMX_ERROR_NONE: return NULL;
    case VMX_ERROR_CONTROLS: return "invalid control fields";
    case VMX_ERROR_HOST: return "invalid host state";
    case VMX_ERROR_MOV_SS: return "events blocked by MOV SS";
    default: return "VMLAUNCH or VMRESUME at the wrong time";
    }
}
