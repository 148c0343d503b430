/* How a guest is entered and left with AMD-V. Before an entry, svm_run() writes to the VMCB what
 * has changed; the VMCB is the structure in memory that describes a vCPU to the CPU. After an exit
 * the functions here decode why the CPU has left the guest. A "window" is an exit at the moment at
 * which the guest can take an interrupt or an NMI that waits. A "shadow" is the one instruction
 * after STI or MOV SS during which nothing is delivered. An "intercept" is a bit of the VMCB that
 * makes the guest exit at something. */
#include "common/insn.h"
#include "platform/smp.h"
#include "platform/timer.h"
#include "virt/hw.h"
#include "virt/svm.h"
#include "virt/vendor.h"
#include "virt/vmcb.h"
#include "x86/tsc.h"

static bool virtual_irqs; /* as svm_use_virtual_irqs() was told */

/* ---- entry ---- */

/* Makes the CPU forget translations at the entry; tlb_prepare() calls this. The CPU tags all that
 * it caches of a guest with the guest's ASID (APM2 15.16). If the vCPU gets a new ASID, there is
 * nothing to flush, unless all ASIDs were used up and their numbers begin anew. */
static void svm_flush(enum tlb_flush what, void *ctx) {
    struct vmcb *b = ctx;

    if (what == TLB_FLUSH_TAG) b->tlb_control = TLB_CTL_ASID;
    if (what == TLB_FLUSH_ALL) b->tlb_control = TLB_CTL_ALL;
}

/* Makes sure that the CPU has no old translations under the vCPU's ASID, because the VM's tables or
 * a control register have changed, or the vCPU comes from another pCPU. */
static void svm_prepare_tlb(struct virt_vcpu *v, struct svm_vcpu *s) {
    tlb_prepare(&v->vm->npt.tlb, &this_virt()->tags, &v->tlb, this_cpu()->id, svm_flush, s->vmcb);
    if (s->vmcb->asid == v->tlb.tag) return;
    s->vmcb->asid = v->tlb.tag;
    s->vmcb->clean &= ~CLEAN_ASID;
}

/* Lets the guest execute one instruction, and sets TF so that it traps behind it. This is needed
 * when an NMI waits for the end of a shadow (the one instruction after STI or MOV SS, before which
 * the CPU takes no interrupt), because AMD-V has no exit for that moment; and while accesses to CR0
 * do not exit (let_through()). */
static void svm_step(struct virt_vcpu *v, struct svm_vcpu *s) {
    s->stepping = true;
    s->step_rip = v->regs.rip;
    s->vmcb->clean = 0;
    s->vmcb->dr6 &= ~DR6_BS;
    v->regs.rflags |= RFLAGS_TF;
}

/* Ends a step, after any exit. Returns true if the exit was caused only by our trap. */
static bool step_ends(struct virt_vcpu *v, struct svm_vcpu *s) {
    struct vmcb *b = s->vmcb;
    bool stepped = b->exit_code == SVM_EXIT_EXC + EXC_DB && b->dr6 & DR6_BS;

    s->stepping = false;
    /* If the instruction was an IRET, it has loaded a TF of the guest's own, which stays. */
    if (v->regs.rip == s->step_rip || s->step_rip != s->iret_rip) v->regs.rflags &= ~RFLAGS_TF;
    if (!stepped) return false;
    svm_end_shadow(b);
    b->dr6 &= ~DR6_BS;
    b->clean = 0;
    return !(b->dr6 & DR6_BREAKPOINTS); /* the guest may have hit a breakpoint of its own as well */
}

void svm_use_virtual_irqs(bool on) { virtual_irqs = on; }

/* Turns the pending interrupt into a virtual interrupt (one that the CPU delivers to the guest by
 * itself, as soon as the guest can take it), if the guest can take it at once, and returns the bits
 * of int_ctl for it. Returns 0 if the event has to be injected, or if no interrupt is pending.
 * There is only one virtual interrupt at a time, and prepare_windows() needs it for an exit when
 * the guest can take an interrupt. So the pending interrupt must be injected while that exit is
 * wanted. */
static __attribute__((noinline)) u64 make_virtual_irq(struct virt_vcpu *v, struct svm_vcpu *s) {
    struct vmcb *b = s->vmcb;
    bool possible = v->regs.rflags & RFLAGS_IF && !(b->int_shadow & INT_SHADOW);

    s->virq = possible && v->pending.type == EVENT_IRQ && !v->want_irq_window;
    if (!s->virq) {
        b->intercept[0] |= SVM_INTERCEPT(SVM_EXIT_VINTR);
        return 0;
    }
    b->intercept[0] &= ~SVM_INTERCEPT(SVM_EXIT_VINTR);
    s->cr0_free = false;
    v->pending.type = EVENT_NONE;
    return INT_CTL_IRQ | INT_CTL_IGN_TPR | (u64)v->pending.vector << INT_CTL_VECTOR;
}

/* For an interrupt that has to be injected although virtual_irqs is on. That happens when its
 * delivery was cut short and another interrupt waits already, for which an exit is wanted as soon
 * as the guest can take it. We make the guest exit after the delivery and before the handler's
 * first instruction. By that exit QEMU forgets the vector, which it would otherwise deliver
 * again. */
static void forget_injected_irq(const struct virt_vcpu *v) {
    if (virtual_irqs && v->pending.type == EVENT_IRQ) cpu_interrupt_self();
}

/* Lets the CPU deliver the pending event at the entry. */
static inline void svm_inject(struct virt_vcpu *v, struct vmcb *b) {
    b->event_inj = (u64)v->pending.code << 32 | event_encode(&v->pending, b->cr0 & CR0_PE);
    v->pending.type = EVENT_NONE;
}

/* Prepares the entry in the rare cases: a window is wanted, or was wanted at the last entry, or an
 * NMI has to be delivered, or interrupts are virtual. A window is an exit as soon as the guest can
 * take an interrupt or an NMI, so that Takt can then deliver one. AMD-V has no control for it. For
 * interrupts we set a virtual interrupt and intercept its delivery. For NMIs we intercept the IRET
 * that ends the handler of the last NMI, or let the guest execute a single instruction. */
static __attribute__((noinline)) void prepare_windows(struct virt_vcpu *v, struct svm_vcpu *s) {
    struct vmcb *b = s->vmcb;
    /* No step together with an event: the delivery would push the TF that we have set. */
    bool event = v->pending.type != EVENT_NONE;
    u64 irq = 0;

    if (v->want_irq_window) irq = INT_CTL_IRQ | INT_CTL_IGN_TPR;
    if (virtual_irqs) irq |= make_virtual_irq(v, s);
    if (v->pending.type != EVENT_NONE) {
        /* The event is delivered first. Afterwards the instruction exits once more. */
        s->cr0_free = false;
        if (v->pending.type == EVENT_NMI) s->nmi_masked = true;
        forget_injected_irq(v);
        svm_inject(v, b);
    }
    svm_watch_iret(b, s->nmi_masked);
    if (((v->want_nmi_window && !s->nmi_masked) || s->cr0_free) && !event &&
        !(v->regs.rflags & RFLAGS_TF))
        svm_step(v, s);
    svm_set_cr_intercepts(v);
    b->int_ctl = INT_CTL_MASKING | v->cr8 | irq;
    b->clean &= ~CLEAN_TPR;
    v->armed =
        v->want_irq_window || v->want_nmi_window || v->want_cr8_exit || s->cr0_free || s->virq;
}

/* Prepares the delivery of the pending event, and the windows that are wanted (exits as soon as the
 * guest can take an interrupt or an NMI). If no window is wanted or was wanted, all intercepts are
 * already as they should be. So the common case is short: an interrupt of a device, which is the
 * only event that most guests ever get. */
static void prepare_events(struct virt_vcpu *v, struct svm_vcpu *s) {
    if (v->wants || virtual_irqs || v->pending.type == EVENT_NMI)
        prepare_windows(v, s);
    else if (v->pending.type != EVENT_NONE)
        svm_inject(v, s->vmcb);
}

/* Prepares an entry that needs more than the registers: the translations are old, an event has to
 * be delivered, or a window is wanted (see prepare_windows()). Returns false if the deadline has
 * passed, so the guest must not be entered. Usually the timer's interrupt ends a stay in time. But
 * a guest may have exceptions that never end, as each delivery causes the next. It exits for each
 * of them before the CPU recognises that interrupt. */
static __attribute__((noinline)) bool prepare(struct virt_vcpu *v, u64 deadline_ns) {
    struct svm_vcpu *s = v->priv;

    if (v->pending.type == EVENT_EXCEPTION && now_ns() >= deadline_ns) return false;
    if (tlb_stale(&v->vm->npt.tlb, &v->tlb)) svm_prepare_tlb(v, s);
    prepare_events(v, s);
    return true;
}

/* ---- exit ---- */

/* Instructions as they stand in memory, first byte in the lowest: APM3. */
#define INSN_INVD        0x080fu
#define INSN_WBINVD      0x090fu
#define INSN_MOV_FROM_CR 0x200fu /* the ModRM byte follows */
#define INSN_MOV_TO_CR   0x220fu
#define INSN_WRMSR       0x300fu
#define INSN_RDMSR       0x320fu
#define INSN_RDPMC       0x330fu
#define INSN_CPUID       0xa20fu
#define INSN_PAUSE       0x90u /* with prefix F3; NOP, which is skipped as well, without it */
#define INSN_ICEBP       0xf1u
#define INSN_HLT         0xf4u
#define INSN_VMMCALL     0xd9010fu
#define INSN_XSETBV      0xd1010fu

/* Returns the default operand size of the guest's code: 16, 32 or 64. */
static u8 mode_of(const struct vmcb *b) { return code_mode(b->efer, b->cs.attr); }

static inline bool is_64bit(const struct vmcb *b) {
    return b->efer & EFER_LMA && b->cs.attr & ATTR_LONG;
}

/* Returns the length of the guest's instruction, which has to be `insn`, or 0 if it is not. *regs:
 * see insn_length(). */
static unsigned length_in_memory(struct virt_vcpu *v, const struct vmcb *b, u32 insn,
                                 struct insn_regs *regs) {
    u64 tables = tables_key(b->cr0, b->cr3, b->cr4, b->efer), va = b->rip;
    bool wraps = mode_of(b) != 64;
    u8 bytes[15];
    unsigned n;

    if (wraps) va = (u32)(b->cs.base + va);
    n = code_copy(v, tables, va, wraps, bytes, sizeof(bytes));
    if (n < sizeof(bytes)) n = guest_fetch(v, bytes, sizeof(bytes));
    return insn_length(bytes, n, mode_of(b), insn, regs);
}

/* Does what set_length() does, also for 32-bit code, at the end of a page, and with prefixes. */
static __attribute__((noinline)) void set_length_slowly(struct virt_vcpu *v, const struct vmcb *b,
                                                        struct vm_exit *e, u32 insn) {
    u64 va = b->rip;
    u32 found = 0;
    bool wraps = mode_of(b) != 64;

    if (wraps) va = (u32)(b->cs.base + va);
    code_copy(v, tables_key(b->cr0, b->cr3, b->cr4, b->efer), va, wraps, (u8 *)&found, e->insn_len);
    if (found != insn) e->insn_len = (u8)length_in_memory(v, b, insn, NULL);
}

/* Sets the length of the instruction that exited, which must be `insn`; 0 if another one is there
 * by now. `len` is its length without prefixes. Some CPUs tell where the next instruction is (APM2
 * 15.7.1). On the others the bytes in memory tell how many prefixes there are. The common case,
 * 64-bit mode without prefixes, is short, as it is on the way of most exits. */
static inline __attribute__((always_inline)) void
set_length(struct virt_vcpu *v, const struct vmcb *b, struct vm_exit *e, u32 insn, u32 len) {
    const u8 *p = NULL;

    if (svm_has_next_rip) {
        e->insn_len = (u8)(b->next_rip - b->rip);
        return;
    }
    if (is_64bit(b) && room_in_page(b->rip, sizeof(insn))) p = code_cached(v, b->cr3, b->rip);
    e->insn_len = (u8)len;
    if (__builtin_expect(!p || (*(const u32 *)p ^ insn) << (32 - 8 * len), 0))
        set_length_slowly(v, b, e, insn);
}

/* LMSW, SMSW and CLTS cannot change CD and NW, but they exit for the same reason as MOV does. Their
 * operands may be in memory, so Takt does not emulate them: the CPU executes them, in one step
 * without these intercepts. */
static void let_through(struct virt_vcpu *v, struct vm_exit *e) {
    struct svm_vcpu *s = v->priv;

    s->cr0_free = true;
    v->armed = true;
    e->reason = EXIT_TIMER; /* nothing has to be done but to enter the guest again */
}

/* Decodes a MOV to or from a control register; the exit code says that it is CR`cr`. A CPU with
 * decode assists tells the general register. On the others only the instruction itself does. Of a
 * read, it also tells which control register it is, because QEMU (10.0) exits with the code of CR0
 * whichever one is read. */
static void decode_mov_cr(struct virt_vcpu *v, struct vmcb *b, struct vm_exit *e, u8 cr,
                          bool write) {
    struct insn_regs regs = { 0, cr };
    u32 insn = INSN_MOV_FROM_CR;

    if (write) insn = INSN_MOV_TO_CR;
    e->reason = EXIT_CR;
    e->cr.cr = cr;
    e->cr.write = write;
    if (svm_has_decode_assists && b->exit_info1 & CR_EXIT_IS_MOV) {
        regs.rm = CR_EXIT_GPR(b->exit_info1);
        e->insn_len = (u8)(b->next_rip - b->rip);
    } else {
        e->insn_len = (u8)length_in_memory(v, b, insn, &regs);
    }
    if (!write) e->cr.cr = regs.reg;
    e->cr.gpr = regs.rm;
    e->cr.value = v->regs.gpr[e->cr.gpr];
    if (mode_of(b) != 64) e->cr.value = (u32)e->cr.value;
    if (!e->insn_len && cr == 0) let_through(v, e);
}

/* Decodes an access to a control register. There is an exit code for each, and its lowest four bits
 * say which register it is. */
static void svm_decode_cr(struct virt_vcpu *v, struct vmcb *b, struct vm_exit *e) {
    decode_mov_cr(v, b, e, b->exit_code & 15, b->exit_code >= SVM_EXIT_CR_WRITE);
}

/* Decodes the exit of the selective intercept: a write to CR0. */
static void decode_cr0_selective(struct virt_vcpu *v, struct vmcb *b, struct vm_exit *e) {
    decode_mov_cr(v, b, e, 0, true);
}

/* Decodes an exit by an exception. A machine check is the host's, so its handler runs here. Of the
 * exceptions that exit, only #AC has an error code, and that is always 0. */
static void svm_decode_exception(struct virt_vcpu *v, struct vmcb *b, struct vm_exit *e) {
    e->reason = EXIT_EXCEPTION;
    e->exc.vector = (u8)(b->exit_code - SVM_EXIT_EXC);
    e->exc.icebp_len = 0; /* ICEBP has an exit of its own */
    e->exc.has_code = e->exc.vector == EXC_AC;
    e->exc.code = 0;
    if (e->exc.vector == EXC_MC) {
        raise_mc(); /* if the host's handler returns, the guest goes on */
        return;
    }
    svm_end_shadow(b); /* the instruction in the shadow is the one that raised the exception */
}

/* Fills in the bytes of the instruction that caused a nested page fault. A CPU with decode assists
 * tells them, in every mode and also at the end of a page. It tells none if it could not fetch
 * them, and on some CPUs if SMAP is on (erratum 1096). Then they are looked for in memory, as on
 * CPUs without decode assists. */
static void svm_npf_bytes(struct virt_vcpu *v, const struct vmcb *b, struct vm_exit *e) {
    u8 n = 0;

    if (svm_has_decode_assists) n = NR_INSN_BYTES(b->nr_insn_bytes);
    if (!n) {
        npf_bytes(v, e, mode_of(b), b->cr3);
        return;
    }
    e->npf.mode = mode_of(b);
    e->npf.nr_bytes = n;
    __builtin_memcpy(e->npf.bytes, b->insn_bytes, sizeof(e->npf.bytes));
}

/* Decodes an access to memory that the VM's tables do not allow (a nested page fault). `in_walk`
 * says that the CPU came to it while it walked the guest's own page tables. */
static void svm_decode_npf(struct virt_vcpu *v, struct vmcb *b, struct vm_exit *e) {
    u64 info = b->exit_info1;

    e->reason = EXIT_NPF;
    e->npf.gpa = b->exit_info2;
    e->npf.present = info & NPF_PRESENT;
    e->npf.write = info & NPF_WRITE;
    e->npf.exec = info & NPF_EXEC;
    e->npf.in_walk = info & NPF_IN_WALK;
    e->npf.in_delivery = false;
    svm_npf_bytes(v, b, e);
    /* an entry of our own tables has a reserved bit */
    if (info & NPF_PRESENT && info & NPF_RESERVED) e->reason = EXIT_NPT_MISCONFIG;
}

/* Decodes an access to a port. */
static void svm_decode_io(struct virt_vcpu *v, struct vmcb *b, struct vm_exit *e) {
    u32 info = (u32)b->exit_info1;

    e->reason = EXIT_IO;
    e->insn_len = (u8)(b->exit_info2 - b->rip); /* exit_info2 is the next RIP: APM2 15.10.2 */
    e->io.port = IOIO_PORT(info);
    e->io.size = IOIO_SIZE(info);
    e->io.in = info & IOIO_IN;
    e->io.string = info & IOIO_STRING;
    e->io.rep = info & IOIO_REP;
}

/* The guest is about to execute the IRET that ends the handler of an NMI. Then the next NMI may
 * come. INT_SHADOW holds it back until the IRET was executed: the CPU takes no interrupt and no NMI
 * before the instruction after which this bit ends. */
static void decode_iret(struct virt_vcpu *v, struct vmcb *b, struct vm_exit *e) {
    struct svm_vcpu *s = v->priv;

    e->reason = EXIT_NMI_WINDOW;
    s->nmi_masked = false;
    s->iret_rip = b->rip;
    b->int_shadow |= INT_SHADOW;
    svm_watch_iret(b, false);
}

/* Decodes CPUID. It has a function of its own because it is a frequent exit. */
static void decode_cpuid(struct virt_vcpu *v, struct vmcb *b, struct vm_exit *e) {
    e->reason = EXIT_CPUID;
    set_length(v, b, e, INSN_CPUID, 2);
}

/* Decodes a hypercall: in which mode the guest's code is, and with which rights. */
static void decode_vmmcall(struct virt_vcpu *v, struct vmcb *b, struct vm_exit *e) {
    e->reason = EXIT_HYPERCALL;
    e->hc.mode = mode_of(b);
    e->hc.cpl = b->cpl;
    e->hc.real = !(b->cr0 & CR0_PE);
    set_length(v, b, e, INSN_VMMCALL, 3);
}

/* Decodes an access to an MSR. RDMSR and WRMSR have the same exit code. */
static void decode_msr(struct virt_vcpu *v, struct vmcb *b, struct vm_exit *e) {
    u32 insn = INSN_RDMSR;

    e->reason = EXIT_RDMSR;
    if (b->exit_info1 & MSR_EXIT_WRITE) {
        e->reason = EXIT_WRMSR;
        insn = INSN_WRMSR;
    }
    set_length(v, b, e, insn, 2);
}

static void decode_plain(struct virt_vcpu *v, struct vmcb *b, struct vm_exit *e);

/* How each exit is decoded. From SVM_EXIT_WORD1 on, the exits in this table are also those that are
 * switched on. decode_plain() uses `reason`, and, if the instruction has to be skipped, the
 * instruction and its length. */
static const struct {
    void (*decode)(struct virt_vcpu *v, struct vmcb *b, struct vm_exit *e);
    u8 reason, len;
    u32 insn; /* an INSN_* */
} exits[] = {
    [SVM_EXIT_CR_READ... SVM_EXIT_CR_WRITE15] = { svm_decode_cr },
    [SVM_EXIT_EXC... SVM_EXIT_EXC31] = { svm_decode_exception },
    [SVM_EXIT_INTR] = { decode_plain, EXIT_INTR },
    [SVM_EXIT_NMI] = { decode_plain, EXIT_NMI },
    [SVM_EXIT_INIT] = { decode_plain, EXIT_INIT },
    [SVM_EXIT_VINTR] = { decode_plain, EXIT_IRQ_WINDOW },
    [SVM_EXIT_CR0_SELECTIVE] = { decode_cr0_selective },
    [SVM_EXIT_RDPMC] = { decode_plain, EXIT_RDPMC, 2, INSN_RDPMC },
    [SVM_EXIT_CPUID] = { decode_cpuid },
    [SVM_EXIT_RSM] = { decode_plain, EXIT_HIDDEN },
    [SVM_EXIT_IRET] = { decode_iret },
    [SVM_EXIT_INVD] = { decode_plain, EXIT_WBINVD, 2, INSN_INVD },
    [SVM_EXIT_PAUSE] = { decode_plain, EXIT_PAUSE, 1, INSN_PAUSE },
    [SVM_EXIT_HLT] = { decode_plain, EXIT_HLT, 1, INSN_HLT },
    [SVM_EXIT_INVLPGA] = { decode_plain, EXIT_HIDDEN },
    [SVM_EXIT_IOIO] = { svm_decode_io },
    [SVM_EXIT_MSR] = { decode_msr },
    [SVM_EXIT_TASK_SWITCH] = { decode_plain, EXIT_TASK_SWITCH },
    [SVM_EXIT_SHUTDOWN] = { decode_plain, EXIT_SHUTDOWN },
    [SVM_EXIT_VMRUN] = { decode_plain, EXIT_HIDDEN }, /* the CPU demands that this one is on */
    [SVM_EXIT_VMMCALL] = { decode_vmmcall },
    [SVM_EXIT_VMLOAD] = { decode_plain, EXIT_HIDDEN },
    [SVM_EXIT_VMSAVE] = { decode_plain, EXIT_HIDDEN },
    [SVM_EXIT_STGI] = { decode_plain, EXIT_HIDDEN },
    [SVM_EXIT_CLGI] = { decode_plain, EXIT_HIDDEN },
    [SVM_EXIT_SKINIT] = { decode_plain, EXIT_HIDDEN },
    [SVM_EXIT_ICEBP] = { decode_plain, EXIT_ICEBP, 1, INSN_ICEBP },
    [SVM_EXIT_WBINVD] = { decode_plain, EXIT_WBINVD, 2, INSN_WBINVD },
    [SVM_EXIT_MONITOR] = { decode_plain, EXIT_HIDDEN },
    [SVM_EXIT_MWAIT] = { decode_plain, EXIT_HIDDEN },
    [SVM_EXIT_MWAIT_ARMED] = { decode_plain, EXIT_HIDDEN },
    [SVM_EXIT_XSETBV] = { decode_plain, EXIT_XSETBV, 3, INSN_XSETBV },
    [SVM_EXIT_RDPRU] = { decode_plain, EXIT_HIDDEN },
    [SVM_EXIT_INVLPGB] = { decode_plain, EXIT_HIDDEN },
    [SVM_EXIT_INVLPGB_ILLEGAL] = { decode_plain, EXIT_HIDDEN },
    [SVM_EXIT_INVPCID] = { decode_plain, EXIT_HIDDEN },
    [SVM_EXIT_MCOMMIT] = { decode_plain, EXIT_HIDDEN },
    [SVM_EXIT_TLBSYNC] = { decode_plain, EXIT_HIDDEN },
};

/* Decodes an exit about which the table tells all. */
static void decode_plain(struct virt_vcpu *v, struct vmcb *b, struct vm_exit *e) {
    u64 code = b->exit_code;

    e->reason = exits[code].reason;
    if (exits[code].len) set_length(v, b, e, exits[code].insn, exits[code].len);
}

/* Switches on the exits of the table, from SVM_EXIT_WORD1 on. The other exits have bits elsewhere
 * in the VMCB. */
void svm_set_intercepts(struct vmcb *b) {
    for (unsigned code = SVM_EXIT_WORD1; code < ARRAY_SIZE(exits); code++)
        if (exits[code].decode) b->intercept[(code - SVM_EXIT_WORD1) / 32] |= SVM_INTERCEPT(code);
}

/* Decodes an exit that is not in the table. Nested page faults have a code so large that the table
 * would be long. Codes that are negative, such as VMEXIT_INVALID, say that the guest was not
 * entered: APM2 appendix C. */
static void decode_rest(struct virt_vcpu *v, struct vmcb *b, struct vm_exit *e) {
    if (b->exit_code == SVM_EXIT_NPF) {
        svm_decode_npf(v, b, e);
        return;
    }
    e->reason = EXIT_UNKNOWN;
    if ((i32)b->exit_code < 0) e->reason = EXIT_ENTRY_FAILED;
    e->info[0] = b->exit_info1;
    e->info[1] = b->exit_info2;
}

/* Fills in *e with what the exit was about. */
static inline void svm_decode(struct virt_vcpu *v, struct vmcb *b, struct vm_exit *e) {
    if (b->exit_code < ARRAY_SIZE(exits) && exits[b->exit_code].decode)
        exits[b->exit_code].decode(v, b, e);
    else
        decode_rest(v, b, e);
}

/* Decodes an exit in the rare cases: it cut the delivery of an event short, or v->armed says that
 * the entry had one of the settings that prepare_windows() makes. */
static __attribute__((noinline)) void decode_carefully(struct virt_vcpu *v, struct vmcb *b,
                                                       struct vm_exit *e) {
    struct svm_vcpu *s = v->priv;

    /* A virtual interrupt is still pending in the VMCB if it was not delivered. If an exit cut its
     * delivery short, a CPU reports that as it does for an injected one. QEMU leaves V_IRQ set
     * instead, and reports an exception. */
    if (s->virq && b->int_ctl & INT_CTL_IRQ) {
        v->pending =
            (struct virt_event){ .type = EVENT_IRQ, .vector = (u8)(b->int_ctl >> INT_CTL_VECTOR) };
    } else if (b->exit_int_info & EVENT_VALID) {
        event_requeue(v, (u32)b->exit_int_info, (u32)(b->exit_int_info >> 32));
        if (v->pending.type == EVENT_NMI) s->nmi_masked = false;
    }
    if (s->cr0_free) {
        /* Another pCPU may have changed the instruction that was let through, so that it was one
         * that has set CD or NW. */
        s->cr0_free = false;
        svm_set_cr0(v, b->cr0 | s->cr0_hidden);
        b->clean = 0;
    }
    if (s->stepping && step_ends(v, s))
        e->reason = EXIT_NMI_WINDOW;
    else
        svm_decode(v, b, e);
    if (b->exit_int_info & EVENT_VALID && e->reason == EXIT_NPF) e->npf.in_delivery = true;
}

/* Copies the guest's registers from the VMCB, and decodes the exit. This function and svm_run() run
 * at every exit. They are written so that the common path keeps few registers across calls, and has
 * to save few. */
static __attribute__((noinline)) void after_exit(struct virt_vcpu *v, struct vm_exit *e) {
    struct vmcb *b = svm_vmcb(v);

    v->regs.gpr[REG_RAX] = b->rax;
    v->regs.gpr[REG_RSP] = b->rsp;
    v->regs.rip = b->rip;
    v->regs.rflags = b->rflags;
    v->cr8 = b->int_ctl & INT_CTL_TPR;
    b->clean = CLEAN_ALL;
    b->tlb_control = 0;
    e->raw = (u32)b->exit_code;
    e->insn_len = 0;
    if (__builtin_expect((b->exit_int_info & EVENT_VALID) | v->wants, 0))
        decode_carefully(v, b, e);
    else
        svm_decode(v, b, e);
}

/* Enters the guest, and returns after the next exit, which is described in *e. What did not change
 * in the VMCB is marked as "clean", so that the CPU need not read it again. If the deadline has
 * passed already, the guest is not entered, and *e says that an interrupt has ended its stay. */
void svm_run(struct virt_vcpu *v, u64 deadline_ns, struct vm_exit *e) {
    struct svm_vcpu *s;
    struct vmcb *b;

    if ((tlb_stale(&v->vm->npt.tlb, &v->tlb) || __builtin_expect(v->wants | v->pending.type, 0)) &&
        !prepare(v, deadline_ns)) {
        *e = (struct vm_exit){ .reason = EXIT_INTR };
        return;
    }
    lapic_timer_arm(deadline_ns);
    s = v->priv;
    b = s->vmcb;
    if ((u8)b->int_ctl != v->cr8) {
        b->int_ctl = INT_CTL_MASKING | v->cr8;
        b->clean &= ~CLEAN_TPR;
    }
    b->rax = v->regs.gpr[REG_RAX];
    b->rsp = v->regs.gpr[REG_RSP];
    b->rip = v->regs.rip;
    b->rflags = v->regs.rflags;
    svm_enter(&v->regs, s->pa, s->host);
    after_exit(v, e);
}

/* Says why an entry failed, in a case that the state of the vCPU does not show. If a guest moves a
 * value to CR3 that is no physical address, CPUs raise #GP (APM2 5.3.2). QEMU instead exits as if
 * an entry had failed (helper_write_crN() in its misc_helper.c), and CR3 still has its old value.
 * So we have to look at the instruction. */
const char *svm_why(struct virt_vcpu *v) {
    unsigned physical_bits = PHYSICAL_BITS(cpuid_or_zero(CPUID_ADDRESSES, 0).eax), length;
    struct insn_regs regs;
    u8 bytes[15];

    length = insn_length(bytes, guest_fetch(v, bytes, sizeof(bytes)), guest_mode(v), INSN_MOV_TO_CR,
                         &regs);
    if (!length || regs.reg != 3) return NULL;
    if (!(v->regs.gpr[regs.rm] >> physical_bits)) return NULL;
    return "CR3 is beyond the physical addresses";
}
