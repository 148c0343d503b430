/* AMD-V: APM2 chapter 15. */
#include <takt/errno.h>
#include "lib/printf.h"
#include "lib/string.h"
#include "platform/timer.h"
#include "virt/hw.h"
#include "virt/vendor.h"
#include "virt/vmcb.h"
#include "x86/insn.h"
#include "x86/tsc.h"

#define MSR_VM_HSAVE_PA 0xc0010117u
#define VM_CR_LOCK      BIT(3)
#define VM_CR_SVMDIS    BIT(4)

#define CR4_ACCESS      (CR_READ(4) | CR_WRITE(4)) /* what guests do not see must fault, or is not theirs */
#define CR0_ACCESS      (CR_READ(0) | CR_WRITE(0))

/* Bits of CR0 that never reach the CPU: with them a guest would run its core uncached, with all that shares
 * its caches (APM2 7.6.2). */
#define CR0_OWNED      (CR0_CD | CR0_NW)

#define FEAT_NP        BIT(0) /* CPUID 8000000A EDX */
#define FEAT_PAUSE     BIT(10)
#define FEAT_THRESHOLD BIT(12)

/* struct virt_vcpu's priv. */
struct svm_vcpu {
    struct vmcb *vmcb;
    hpa_t pa, host;         /* of this VMCB, and of the pCPU's that it is loaded on */
    bool nmi_masked;        /* one was delivered, and no IRET came yet */
    bool stepping;          /* over one instruction, in whose shadow an NMI waits: TF is ours */
    u64 step_rip, iret_rip; /* where that was; and where the last IRET was that exited */
    u64 cr0_hidden;         /* of CR0_OWNED: what the guest has set and reads back */
    bool virq;              /* the interrupt of the last entry is a virtual one */
    bool cr0_free;          /* LMSW, SMSW or CLTS is let through: accesses to CR0 do not exit */
};

static u32 features;
static bool virtual_irqs;          /* as svm_use_virtual_irqs() was told */
static u8 *io_bitmap, *msr_bitmap; /* all VMs share them */

static struct vmcb *vmcb_of(const struct virt_vcpu *v) { return ((struct svm_vcpu *)v->priv)->vmcb; }

/* ---- the CPU ---- */

/* Each CPU has a VM_CR of its own, and firmware may have left them different. False: SVM is off here, and
 * stays so up to the next reset. APM2 15.30.1 */
static bool allow_svm(void) {
    u64 vm_cr = rdmsr(MSR_VM_CR);

    if (!(vm_cr & VM_CR_SVMDIS)) return true;
    if (vm_cr & VM_CR_LOCK) return false;
    wrmsr(MSR_VM_CR, vm_cr & ~VM_CR_SVMDIS);
    return true;
}

static void svm_probe(struct virt_caps *caps) {
    struct cpuid svm = cpuid_or_zero(0x8000000a, 0);

    caps->present = cpuid_or_zero(0x80000001, 0).ecx & BIT(2);
    if (!caps->present) return;
    features = svm.edx;
    caps->locked_off = !allow_svm();
    caps->second_level = features & FEAT_NP;
    caps->unrestricted = true;
    caps->asid = svm.ebx > 1;
    virt_counts_pauses = features & FEAT_PAUSE;
    if (caps->locked_off)
        caps->reason = "the firmware has switched AMD-V off and locked it: allow SVM in its set-up.";
    else if (!caps->second_level)
        caps->reason = "this CPU has AMD-V without nested paging, which Takt needs.";
    else if (!caps->asid)
        caps->reason = "this CPU has AMD-V without address space identifiers.";
}

/* Two bits for each MSR: APM2 15.11. */
static int make_bitmaps(void) {
    hpa_t io = frame_alloc(2), msr = frame_alloc(1);

    if (io == HPA_NONE || msr == HPA_NONE) return -ENOMEM;
    io_bitmap = memset(hpa_to_va(io), 0xff, 4 * PAGE_SIZE);
    msr_bitmap = memset(hpa_to_va(msr), 0xff, 2 * PAGE_SIZE);
    for (unsigned i = 0; i < FREE_MSRS; i++) {
        u32 n = free_msrs[i] & 0x1fff;

        msr_bitmap[(free_msrs[i] >> 31) * 0x800 + n / 4] &= (u8) ~(3u << n % 4 * 2);
    }
    return 0;
}

/* The host's save area, and what VMRUN does not switch: FS, GS, TR ... */
static int svm_cpu_enable(u8 *pages) {
    if (!msr_bitmap && make_bitmaps()) return -ENOMEM;
    if (!allow_svm()) return -EPERM;
    wrmsr(MSR_EFER, rdmsr(MSR_EFER) | EFER_SVME);
    wrmsr(MSR_VM_HSAVE_PA, va_to_hpa(pages));
    vmsave(va_to_hpa(pages + PAGE_SIZE));
    return (int)cpuid(0x8000000a, 0).ebx;
}

/* ---- VMs and vCPUs ---- */

static void svm_load(struct virt_vcpu *v) {
    struct svm_vcpu *s = v->priv;

    state_load(v);
    s->host = va_to_hpa(this_virt()->pages + PAGE_SIZE);
    s->vmcb->clean = 0;
}

/* ---- registers ---- */

/* NULL: it is no field of the VMCB. */
static u64 *field_of(struct virt_vcpu *v, enum virt_reg reg) {
    struct vmcb *b = vmcb_of(v);

    switch (reg) {
    case VREG_CR4: return &v->reg[reg]; /* as the guest sees it */
    case VREG_CR3 ... VREG_DR6: return &b->cr3 + (reg - VREG_CR3);
    case VREG_STAR ... VREG_CR2: return &b->star + (reg - VREG_STAR);
    case VREG_EFER: return &b->efer;
    case VREG_PAT: return &b->pat;
    case VREG_FS_BASE: return &b->fs.base;
    case VREG_GS_BASE: return &b->gs.base;
    default: return NULL;
    }
}

static u64 svm_get_reg(struct virt_vcpu *v, enum virt_reg reg) {
    const u64 *field = field_of(v, reg);

    if (!field) return state_get(v, reg);
    if (reg == VREG_EFER) return *field & ~EFER_SVME;
    if (reg == VREG_CR0) return *field | ((struct svm_vcpu *)v->priv)->cr0_hidden;
    return *field;
}

/* Which accesses to control registers exit, as the vCPU's state demands. Of CR0 those that change more than
 * TS and MP (the selective intercept, APM2 15.9); all of them while the guest has to read what the CPU does
 * not have. */
static void set_cr_intercepts(struct virt_vcpu *v) {
    const struct svm_vcpu *s = v->priv;
    struct vmcb *b = s->vmcb;
    u32 selective = 1u << (SVM_EXIT_CR0_SELECTIVE - SVM_EXIT_WORD1);

    b->intercept_cr = CR4_ACCESS;
    if (s->cr0_hidden && !s->cr0_free) b->intercept_cr |= CR0_ACCESS;
    /* With V_IRQ set too: there QEMU (up to 10.0 at least) ends by an assertion when the guest writes CR8. */
    if (v->want_cr8_exit || v->want_irq_window) b->intercept_cr |= CR_WRITE(8);
    if (s->virq) b->intercept_cr |= CR_WRITE(8);
    b->intercept[0] |= selective;
    if (s->cr0_free) b->intercept[0] &= ~selective;
    b->clean &= ~CLEAN_INTERCEPTS;
}

static void svm_reset_events(struct virt_vcpu *v) {
    struct svm_vcpu *s = v->priv;

    s->vmcb->int_shadow = 0;
    s->nmi_masked = s->stepping = s->cr0_free = false;
    set_cr_intercepts(v);
}

static void set_cr0(struct virt_vcpu *v, u64 value) {
    struct svm_vcpu *s = v->priv;

    s->vmcb->cr0 = (value & ~CR0_OWNED) | CR0_ET;
    s->cr0_hidden = value & CR0_OWNED;
    set_cr_intercepts(v);
}

/* VMRUN demands EFER.SVME; guests do not see it. Nor that CR4.MCE is always set: a machine check, which is
 * the host's, would shut the machine down without it. */
static void svm_set_reg(struct virt_vcpu *v, enum virt_reg reg, u64 value) {
    u64 *field = field_of(v, reg);

    if (!field)
        state_set(v, reg, value);
    else if (reg == VREG_CR0)
        set_cr0(v, value);
    else
        *field = value | (reg == VREG_EFER ? EFER_SVME : 0);
    if (reg == VREG_CR4) vmcb_of(v)->cr4 = value | CR4_MCE;
    vmcb_of(v)->clean = 0;
    tlb_forget(&v->tlb);
}

static struct guest_seg *seg_of(const struct virt_vcpu *v, enum seg_name seg) {
    static const u8 at[SEG_NR] = { [SEG_LDTR] = 7, [SEG_TR] = 9, [SEG_GDTR] = 6, [SEG_IDTR] = 8, [SEG_CS] = 1,
                                   [SEG_SS] = 2,   [SEG_DS] = 3, [SEG_FS] = 4,   [SEG_GS] = 5 };

    return &vmcb_of(v)->es + at[seg];
}

static void svm_get_seg(struct virt_vcpu *v, enum seg_name seg, struct guest_seg *out) {
    *out = *seg_of(v, seg);
}

static void svm_set_seg(struct virt_vcpu *v, enum seg_name seg, const struct guest_seg *in) {
    vmcb_of(v)->clean = 0;
    *seg_of(v, seg) = *in;
    if (seg == SEG_SS) vmcb_of(v)->cpl = in->attr >> 5 & 3;
}

static unsigned svm_blocked(struct virt_vcpu *v) {
    const struct svm_vcpu *s = v->priv;

    return (s->vmcb->int_shadow & INT_SHADOW ? BLOCKED_SHADOW : 0) | (s->nmi_masked ? BLOCKED_NMI : 0);
}

static void svm_clear_shadow(struct virt_vcpu *v) { vmcb_of(v)->int_shadow = 0; }

static unsigned svm_cpl(struct virt_vcpu *v) { return vmcb_of(v)->cpl; }

/* ---- entry ---- */

static void flush(enum tlb_flush what, void *ctx) {
    /* All that is cached of a guest hangs on its ASID, and that is a new one: APM2 15.16. */
    if (what == TLB_FLUSH_ALL) ((struct vmcb *)ctx)->tlb_control = TLB_CTL_ALL;
}

static void prepare_tlb(struct virt_vcpu *v, struct svm_vcpu *s) {
    tlb_prepare(&v->vm->npt.tlb, &this_virt()->tags, &v->tlb, this_cpu()->id, flush, s->vmcb);
    s->vmcb->asid = v->tlb.tag;
    s->vmcb->clean = 0;
}

static void watch_iret(struct vmcb *b, bool on) {
    u32 bit = 1u << (SVM_EXIT_IRET - SVM_EXIT_WORD1);

    b->intercept[0] = on ? b->intercept[0] | bit : b->intercept[0] & ~bit;
    b->clean &= ~CLEAN_INTERCEPTS;
}

/* Lets the guest execute one instruction, with a trap of our own behind it: there is no window for the end of
 * a shadow, which is all that keeps an NMI off now; or accesses to CR0 do not exit meanwhile. */
static void step(struct virt_vcpu *v, struct svm_vcpu *s) {
    s->stepping = true;
    s->step_rip = v->regs.rip;
    s->vmcb->clean = 0;
    s->vmcb->dr6 &= ~DR6_BS;
    v->regs.rflags |= RFLAGS_TF;
}

/* After any exit. True if it was for the step alone. */
static bool step_done(struct virt_vcpu *v, struct svm_vcpu *s) {
    struct vmcb *b = s->vmcb;
    bool stepped = b->exit_code == SVM_EXIT_EXC + EXC_DB && b->dr6 & DR6_BS;

    s->stepping = false;
    /* else an IRET has loaded its own */
    if (v->regs.rip == s->step_rip || s->step_rip != s->iret_rip) v->regs.rflags &= ~RFLAGS_TF;
    if (!stepped) return false;
    svm_clear_shadow(v);
    b->dr6 &= ~DR6_BS;
    b->clean = 0;
    return !(b->dr6 & 0xf); /* else a breakpoint was hit as well */
}

void svm_use_virtual_irqs(bool on) { virtual_irqs = on; }

/* The pending interrupt as a virtual one, for the VMCB, if the guest can take it at once. 0: it is
 * injected. A window is made by a virtual interrupt as well, and there is only one. */
static u64 virtual_irq(const struct virt_vcpu *v, const struct vmcb *b) {
    if (!virtual_irqs || v->pending.type != EVENT_IRQ || v->want_irq_window) return 0;
    if (!(v->regs.rflags & RFLAGS_IF) || b->int_shadow & INT_SHADOW) return 0;
    return INT_CTL_IRQ | INT_CTL_IGN_TPR | (u64)v->pending.vector << INT_CTL_VECTOR;
}

/* Windows are wanted or were wanted last time, or an event is to be delivered. */
static void prepare_events(struct virt_vcpu *v, struct svm_vcpu *s) {
    struct vmcb *b = s->vmcb;
    bool event = v->pending.type != EVENT_NONE; /* which would take the step's TF to the guest's stack */
    u64 irq = virtual_irq(v, b);
    u32 vintr = 1u << (SVM_EXIT_VINTR - SVM_EXIT_WORD1);

    s->virq = irq != 0;
    b->intercept[0] |= vintr;
    if (v->want_irq_window) irq = INT_CTL_IRQ | INT_CTL_IGN_TPR;
    if (s->virq) {
        s->cr0_free = false;
        b->intercept[0] &= ~vintr;
        v->pending.type = EVENT_NONE;
    } else if (event) {
        s->cr0_free = false; /* it comes first; afterwards the instruction exits once more */
        b->event_inj = (u64)v->pending.code << 32 | event_encode(&v->pending, b->cr0 & CR0_PE);
        s->nmi_masked |= v->pending.type == EVENT_NMI;
        v->pending.type = EVENT_NONE;
    }
    watch_iret(b, s->nmi_masked);
    if (((v->want_nmi_window && !s->nmi_masked) || s->cr0_free) && !event && !(v->regs.rflags & RFLAGS_TF))
        step(v, s);
    set_cr_intercepts(v);
    b->int_ctl = INT_CTL_MASKING | v->cr8 | irq;
    b->clean &= ~CLEAN_TPR;
    v->armed = v->want_irq_window | v->want_nmi_window | v->want_cr8_exit | s->cr0_free | s->virq;
}

/* The rare part of an entry. False if it is not to happen: a guest whose exceptions never end, each
 * delivery causing the next, exits for each of them before the pending interrupt of the timer is
 * recognised. */
static __attribute__((noinline)) bool prepare(struct virt_vcpu *v, u64 deadline_ns) {
    struct svm_vcpu *s = v->priv;

    if (v->pending.type == EVENT_EXCEPTION && now_ns() >= deadline_ns) return false;
    if (tlb_stale(&v->vm->npt.tlb, &v->tlb)) prepare_tlb(v, s);
    prepare_events(v, s);
    return true;
}

/* ---- exit ---- */

static u8 mode_of(const struct vmcb *b) { return code_mode(b->efer, b->cs.attr); }

static inline bool is_64bit(const struct vmcb *b) { return b->efer & EFER_LMA && b->cs.attr & ATTR_LONG; }

static unsigned length_walk(struct virt_vcpu *v, const struct vmcb *b, u32 insn, u8 *gpr) {
    u8 bytes[15];

    return insn_length(bytes, guest_fetch(v, bytes, sizeof(bytes)), mode_of(b), insn, gpr);
}

static __attribute__((noinline)) void set_length_slowly(struct virt_vcpu *v, const struct vmcb *b,
                                                        struct vm_exit *e, u32 insn) {
    if (is_64bit(b)) insn_find(v, b->cr3, b->rip); /* for the next time */
    e->insn_len = (u8)length_walk(v, b, insn, NULL);
}

/* The length of the instruction that exited; 0 if it is not there any more. The next RIP, which not all
 * CPUs give, is not needed for that. The common case (64-bit mode, no prefixes) is short. */
static inline __attribute__((always_inline)) void set_length(struct virt_vcpu *v, const struct vmcb *b,
                                                             struct vm_exit *e, u32 insn, u32 len) {
    const u8 *p = is_64bit(b) ? insn_cached(v, b->cr3, b->rip) : NULL;

    e->insn_len = (u8)len;
    if (__builtin_expect(!p || (*(const u32 *)p ^ insn) << (32 - 8 * len), 0))
        set_length_slowly(v, b, e, insn);
}

/* LMSW, SMSW and CLTS reach neither CD nor NW. They exit where MOV does, and may have operands in memory; so
 * they are executed by the CPU, one step without these intercepts, rather than here. */
static void let_through(struct virt_vcpu *v, struct vm_exit *e) {
    ((struct svm_vcpu *)v->priv)->cr0_free = true;
    v->armed = true;
    e->reason = EXIT_TIMER; /* nothing to do */
}

/* 0F 22 and 0F 20 as they stand in memory. ModRM.reg, which follows, is the control register's number. */
#define MOV_TO_CR        0x220fu
#define MOV_FROM_CR      0x200fu
#define MODRM_REG(modrm) ((modrm) >> 3 & 7)

static void decode_mov_cr(struct virt_vcpu *v, struct vmcb *b, struct vm_exit *e, u8 cr, bool write) {
    e->reason = EXIT_CR;
    e->cr.cr = cr;
    e->cr.write = write;
    e->cr.gpr = 0;
    e->insn_len = (u8)length_walk(v, b, write ? MOV_TO_CR : MOV_FROM_CR, &e->cr.gpr);
    e->cr.value = v->regs.gpr[e->cr.gpr];
    if (mode_of(b) != 64) e->cr.value = (u32)e->cr.value;
    if (!e->insn_len && cr == 0) let_through(v, e);
}

static void decode_cr(struct virt_vcpu *v, struct vmcb *b, struct vm_exit *e) {
    decode_mov_cr(v, b, e, b->exit_code & 15, b->exit_code >= SVM_EXIT_CR_WRITE);
}

static void decode_cr0_selective(struct virt_vcpu *v, struct vmcb *b, struct vm_exit *e) {
    decode_mov_cr(v, b, e, 0, true);
}

static void decode_exception(struct virt_vcpu *v, struct vmcb *b, struct vm_exit *e) {
    e->reason = EXIT_EXCEPTION;
    e->exc.vector = (u8)(b->exit_code - SVM_EXIT_EXC);
    e->exc.icebp_len = 0; /* RIP is behind an ICEBP: it exits as the trap that it is (APM2 15.12.2) */
    e->exc.has_code = e->exc.vector == EXC_AC;
    e->exc.code = 0;
    if (e->exc.vector == EXC_MC)
        raise_mc(); /* the guest goes on if it returns */
    else
        svm_clear_shadow(v); /* the instruction that it shielded is the one that raised it */
}

static void decode_npf(struct virt_vcpu *v, struct vmcb *b, struct vm_exit *e) {
    u64 info = b->exit_info1; /* APM2 15.25.6 */

    e->reason = EXIT_NPF;
    e->npf.gpa = b->exit_info2;
    e->npf.present = info & BIT(0);
    e->npf.write = info & BIT(1);
    e->npf.exec = info & BIT(4);
    e->npf.in_walk = info & BIT(33);
    e->npf.in_delivery = false;
    npf_bytes(v, e, mode_of(b), b->cr3);
    /* reserved bits in our own tables */
    if (info & BIT(0) && info & BIT(3)) e->reason = EXIT_NPT_MISCONFIG;
}

static void decode_io(struct virt_vcpu *v, struct vmcb *b, struct vm_exit *e) {
    u32 info = (u32)b->exit_info1; /* APM2 15.10.2 */

    e->reason = EXIT_IO;
    e->insn_len = (u8)(b->exit_info2 - b->rip);
    e->io.port = (u16)(info >> 16);
    e->io.size = info >> 4 & 7;
    e->io.in = info & 1;
    e->io.string = info & 4;
    e->io.rep = info & 8;
}

/* It has not been executed yet. The shadow keeps the next NMI off until it has. */
static void decode_iret(struct virt_vcpu *v, struct vmcb *b, struct vm_exit *e) {
    struct svm_vcpu *s = v->priv;

    e->reason = EXIT_NMI_WINDOW;
    s->nmi_masked = false;
    s->iret_rip = b->rip;
    b->int_shadow |= INT_SHADOW;
    watch_iret(b, false);
}

static void decode_cpuid(struct virt_vcpu *v, struct vmcb *b, struct vm_exit *e) {
    e->reason = EXIT_CPUID;
    set_length(v, b, e, 0xa20f, 2);
}

static void decode_vmmcall(struct virt_vcpu *v, struct vmcb *b, struct vm_exit *e) {
    e->reason = EXIT_HYPERCALL;
    e->hc.mode = mode_of(b);
    e->hc.cpl = b->cpl;
    e->hc.real = !(b->cr0 & CR0_PE);
    set_length(v, b, e, 0xd9010f, 3);
}

static void decode_msr(struct virt_vcpu *v, struct vmcb *b, struct vm_exit *e) {
    bool write = b->exit_info1 & 1;

    e->reason = write ? EXIT_WRMSR : EXIT_RDMSR;
    set_length(v, b, e, write ? 0x300f : 0x320f, 2);
}

static void decode_plain(struct virt_vcpu *v, struct vmcb *b, struct vm_exit *e);

/* What is in this table is intercepted: from 0x60 on each code has a bit. */
static const struct {
    void (*decode)(struct virt_vcpu *v, struct vmcb *b, struct vm_exit *e);
    u8 reason, len;
    u32 insn; /* its bytes without prefixes, first in the lowest */
} exits[] = {
    [0x00 ... 0x1f] = { decode_cr },
    [0x40 ... 0x5f] = { decode_exception },
    [0x60] = { decode_plain, EXIT_INTR },
    [0x61] = { decode_plain, EXIT_NMI },
    [0x63] = { decode_plain, EXIT_INIT },
    [SVM_EXIT_VINTR] = { decode_plain, EXIT_IRQ_WINDOW },
    [SVM_EXIT_CR0_SELECTIVE] = { decode_cr0_selective },
    [0x6f] = { decode_plain, EXIT_RDPMC, 2, 0x330f },
    [0x72] = { decode_cpuid },
    [0x73] = { decode_plain, EXIT_HIDDEN }, /* RSM */
    [SVM_EXIT_IRET] = { decode_iret },
    [0x76] = { decode_plain, EXIT_WBINVD, 2, 0x080f },
    [0x77] = { decode_plain, EXIT_PAUSE, 1, 0x90 }, /* with F3; without, it may be skipped as well */
    [0x78] = { decode_plain, EXIT_HLT, 1, 0xf4 },
    [0x7a] = { decode_plain, EXIT_HIDDEN }, /* INVLPGA */
    [0x7b] = { decode_io },
    [0x7c] = { decode_msr },
    [0x7d] = { decode_plain, EXIT_TASK_SWITCH },
    [0x7f] = { decode_plain, EXIT_SHUTDOWN },
    [0x80] = { decode_plain, EXIT_HIDDEN }, /* VMRUN, whose intercept VMRUN demands */
    [0x81] = { decode_vmmcall },
    [0x82 ... 0x86] = { decode_plain, EXIT_HIDDEN }, /* VMLOAD VMSAVE STGI CLGI SKINIT */
    [0x89] = { decode_plain, EXIT_WBINVD, 2, 0x090f },
    [0x8a ... 0x8c] = { decode_plain, EXIT_HIDDEN }, /* MONITOR, MWAIT, and MWAIT when armed */
    [0x8d] = { decode_plain, EXIT_XSETBV, 3, 0xd1010f },
    [0x8e] = { decode_plain, EXIT_HIDDEN },          /* RDPRU */
    [0xa0 ... 0xa4] = { decode_plain, EXIT_HIDDEN }, /* INVLPGB (also illegal), INVPCID MCOMMIT TLBSYNC */
};

static void decode_plain(struct virt_vcpu *v, struct vmcb *b, struct vm_exit *e) {
    u64 code = b->exit_code;

    e->reason = exits[code].reason;
    if (exits[code].len) set_length(v, b, e, exits[code].insn, exits[code].len);
}

static int svm_vcpu_init(struct virt_vcpu *v) {
    u8 *pages = vcpu_pages(v);
    struct svm_vcpu *s = (struct svm_vcpu *)(pages + 2 * PAGE_SIZE);
    struct vmcb *b = (struct vmcb *)pages;

    if (!pages) return -ENOMEM;
    v->priv = s;
    s->vmcb = b;
    s->pa = va_to_hpa(pages);
    /* #AC and #DB: a guest whose handler faults again while it is being entered would otherwise keep the CPU
     * for ever, inside one instruction (CVE-2015-5307, CVE-2015-8104). #MC is the host's. */
    b->intercept_exc = 1u << EXC_DB | 1u << EXC_AC | 1u << EXC_MC;
    for (unsigned code = SVM_EXIT_WORD1; code < ARRAY_SIZE(exits); code++)
        if (exits[code].decode) b->intercept[(code - SVM_EXIT_WORD1) / 32] |= 1u << code % 32;
    watch_iret(b, false);
    if (features & FEAT_PAUSE) {
        b->pause_count = 3000; /* a spin that is longer than most critical sections */
        b->pause_threshold = features & FEAT_THRESHOLD ? 128 : 0;
    }
    b->iopm = va_to_hpa(io_bitmap);
    b->msrpm = va_to_hpa(msr_bitmap);
    b->int_ctl = INT_CTL_MASKING;
    b->tsc_offset = v->tsc_offset;
    b->np_enable = 1;
    b->n_cr3 = v->vm->npt.root;
    return 0;
}

static void decode_rest(struct virt_vcpu *v, struct vmcb *b, struct vm_exit *e) {
    if (b->exit_code == SVM_EXIT_NPF) return decode_npf(v, b, e);
    e->reason = (i32)b->exit_code < 0 ? EXIT_ENTRY_FAILED : EXIT_UNKNOWN;
    e->info[0] = b->exit_info1;
    e->info[1] = b->exit_info2;
}

static inline void decode(struct virt_vcpu *v, struct vmcb *b, struct vm_exit *e) {
    if (b->exit_code < ARRAY_SIZE(exits) && exits[b->exit_code].decode)
        exits[b->exit_code].decode(v, b, e);
    else
        decode_rest(v, b, e);
}

/* An event was on its way into the guest, or a window was wanted. */
static __attribute__((noinline)) void decode_carefully(struct virt_vcpu *v, struct vmcb *b,
                                                       struct vm_exit *e) {
    struct svm_vcpu *s = v->priv;

    /* A virtual interrupt that was not delivered. If an exit cuts its delivery short a CPU reports
     * that as it does for an injected one; QEMU leaves V_IRQ set, and reports an exception. */
    if (s->virq && b->int_ctl & INT_CTL_IRQ) {
        v->pending = (struct virt_event){ .type = EVENT_IRQ, .vector = (u8)(b->int_ctl >> INT_CTL_VECTOR) };
    } else if (b->exit_int_info & EVENT_VALID) {
        event_requeue(v, (u32)b->exit_int_info, (u32)(b->exit_int_info >> 32));
        if (v->pending.type == EVENT_NMI) s->nmi_masked = false;
    }
    if (s->cr0_free) { /* what it ran may have become another instruction meanwhile */
        s->cr0_free = false;
        set_cr0(v, b->cr0 | s->cr0_hidden);
        b->clean = 0;
    }
    if (s->stepping && step_done(v, s))
        e->reason = EXIT_NMI_WINDOW;
    else
        decode(v, b, e);
    if (b->exit_int_info & EVENT_VALID && e->reason == EXIT_NPF) e->npf.in_delivery = true;
}

/* This and svm_run are written so that the common path keeps few registers across calls: it runs at every
 * exit. */
static __attribute__((noinline)) void after_exit(struct virt_vcpu *v, struct vm_exit *e) {
    struct vmcb *b = vmcb_of(v);

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
        decode(v, b, e);
}

static void svm_run(struct virt_vcpu *v, u64 deadline_ns, struct vm_exit *e) {
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

/* A MOV of a value beyond the physical addresses to CR3 is a #GP on CPUs (APM2 5.3.2). QEMU ends the guest
 * there as if an entry had failed (helper_write_crN() in its misc_helper.c), and CR3 still has its old value:
 * only the instruction can say why. */
static const char *svm_why(struct virt_vcpu *v) {
    unsigned physical_bits = cpuid_or_zero(0x80000008, 0).eax & 0xff, length;
    u8 bytes[15], gpr;

    length = insn_length(bytes, guest_fetch(v, bytes, sizeof(bytes)), guest_mode(v), MOV_TO_CR, &gpr);
    if (!length || MODRM_REG(bytes[length - 1]) != 3) return NULL;
    return v->regs.gpr[gpr] >> physical_bits ? "CR3 is beyond the physical addresses" : NULL;
}

const struct virt_ops svm_ops = { VIRT_OPS(svm), .npt_format = &npt_format_amd, .save = state_save,
                                  .why = svm_why };
