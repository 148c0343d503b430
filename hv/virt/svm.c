/* AMD-V: APM2 chapter 15. */
#include <takt/errno.h>
#include "lib/printf.h"
#include "lib/string.h"
#include "platform/timer.h"
#include "virt/insn.h"
#include "virt/state.h"
#include "virt/vendor.h"
#include "virt/vmcb.h"
#include "x86/insn.h"
#include "x86/percpu.h"
#include "x86/tsc.h"

#define DR6_BS          BIT(14)
#define MSR_VM_HSAVE_PA 0xc0010117u
#define VM_CR_LOCK      BIT(3)
#define VM_CR_SVMDIS    BIT(4)

#define FEAT_NP         BIT(0) /* CPUID 8000000A EDX */
#define FEAT_NEXT_RIP   BIT(3)
#define FEAT_CLEAN      BIT(5)
#define FEAT_DECODE     BIT(7)
#define FEAT_PAUSE      BIT(10)
#define FEAT_THRESHOLD  BIT(12)

/* struct percpu's virt. */
struct svm_cpu {
    hpa_t host;             /* what VMRUN does not switch: FS, GS, TR ... by VMSAVE at start */
    struct virt_vcpu *vcpu; /* loaded, or NULL */
    struct tlb_tags tags;
};

/* struct virt_vcpu's priv. */
struct svm_vcpu {
    struct vmcb *vmcb;
    hpa_t pa, host;         /* of this VMCB, and of the pCPU's that it is loaded on */
    bool nmi_masked;        /* one was delivered, and no IRET came yet */
    bool stepping;          /* over one instruction, in whose shadow an NMI waits: TF is ours */
    u64 step_rip, iret_rip; /* where that was; and where the last IRET was that exited */
    struct guest_state state;
};

void svm_enter(struct guest_regs *regs, u64 vmcb_pa, u64 host_pa);
_Static_assert(offsetof(struct virt_vcpu, regs) == 0 && offsetof(struct guest_regs, gpr) == 0, "svm_asm.asm");

static u32 features;
static void *io_bitmap, *msr_bitmap; /* all VMs share them */

static struct svm_cpu *this_svm(void) { return this_cpu()->virt; }

static bool is_loaded(const struct virt_vcpu *v) { return this_svm()->vcpu == v; }

/* ---- the CPU ---- */

static void svm_probe(struct virt_caps *caps) {
    u64 vm_cr;

    *caps = (struct virt_caps){ .present = cpuid_or_zero(0x80000001, 0).ecx & BIT(2), .unrestricted = true };
    if (!caps->present) {
        caps->reason = "this CPU has no AMD-V.";
        return;
    }
    features = cpuid_or_zero(0x8000000a, 0).edx;
    rdmsr_safe(MSR_VM_CR, &vm_cr);
    caps->locked_off =
        vm_cr & VM_CR_SVMDIS && (vm_cr & VM_CR_LOCK || !wrmsr_safe(MSR_VM_CR, vm_cr & ~VM_CR_SVMDIS));
    caps->second_level = features & FEAT_NP;
    caps->nr_asids = cpuid_or_zero(0x8000000a, 0).ebx;
    caps->asid = caps->nr_asids > 1;
    caps->next_rip = features & FEAT_NEXT_RIP;
    caps->tsc_deadline = cpuid(1, 0).ecx & BIT(24);
    if (caps->locked_off)
        caps->reason = "the firmware has switched AMD-V off and locked it: allow SVM in its set-up.";
    else if (!caps->second_level)
        caps->reason = "this CPU has AMD-V without nested paging, which Takt needs.";
    else if (!caps->asid)
        caps->reason = "this CPU has AMD-V without address space identifiers.";
}

/* The bitmap's bit pair of an MSR: APM2 15.11. */
static void let_through(u32 msr) {
    u32 base = msr >= 0xc0000000u ? 0x800 : 0, n = msr & 0x1fff;

    ((u8 *)msr_bitmap)[base + n / 4] &= (u8) ~(3u << n % 4 * 2);
}

static int make_bitmaps(void) {
    static const u32 free_msrs[] = { MSR_SYSENTER_CS, MSR_SYSENTER_ESP,  MSR_SYSENTER_EIP, MSR_STAR,
                                     MSR_LSTAR,       MSR_CSTAR,         MSR_FMASK,        MSR_FS_BASE,
                                     MSR_GS_BASE,     MSR_KERNEL_GS_BASE };
    hpa_t io = frame_alloc(2), msr = frame_alloc(1);

    if (io == HPA_NONE || msr == HPA_NONE) return -ENOMEM;
    io_bitmap = hpa_to_va(io);
    msr_bitmap = hpa_to_va(msr);
    memset(io_bitmap, 0xff, 4 * PAGE_SIZE);
    memset(msr_bitmap, 0xff, 2 * PAGE_SIZE);
    for (unsigned i = 0; i < ARRAY_SIZE(free_msrs); i++) let_through(free_msrs[i]);
    return 0;
}

static int svm_cpu_enable(void) {
    struct svm_cpu *c = heap_alloc(sizeof(*c));
    hpa_t hsave = frame_alloc_zeroed(0), host = frame_alloc_zeroed(0);
    int err = c && hsave != HPA_NONE && host != HPA_NONE ? 0 : -ENOMEM;

    if (!err && !msr_bitmap) err = make_bitmaps();
    if (!err) err = state_cpu_enable();
    if (err) goto fail;
    wrmsr(MSR_EFER, rdmsr(MSR_EFER) | EFER_SVME | EFER_NXE);
    wrmsr(MSR_VM_HSAVE_PA, hsave);
    __asm__ volatile("vmsave %0" : : "a"(host) : "memory");
    c->host = host;
    tlb_tags_init(&c->tags, cpuid(0x8000000a, 0).ebx);
    this_cpu()->virt = c;
    return 0;

fail:
    log_err("AMD-V cannot be enabled on CPU %u", this_cpu()->id);
    heap_free(c);
    if (hsave != HPA_NONE) frame_free(hsave, 0);
    if (host != HPA_NONE) frame_free(host, 0);
    return err;
}

/* ---- VMs and vCPUs ---- */

static int svm_vm_init(struct virt_vm *vm) { return npt_init(&vm->npt, &npt_format_amd); }

static void svm_vm_fini(struct virt_vm *vm) { npt_fini(&vm->npt); }

static void set_controls(struct virt_vcpu *v) {
    struct vmcb *b = ((struct svm_vcpu *)v->priv)->vmcb;

    /* #AC and #DB: a guest whose handler faults again while it is being entered would otherwise keep the CPU
     * for ever, inside one instruction (CVE-2015-5307, CVE-2015-8104). #MC is the host's. */
    b->intercept_exc = 1u << EXC_DB | 1u << EXC_AC | 1u << EXC_MC;
    b->intercept_cr = 1u << (16 + 4); /* writes of CR4: what guests do not see must fault */
    b->intercept_1 =
        (u32)(I1_INTR | I1_NMI | I1_INIT | I1_VINTR | I1_RDPMC | I1_CPUID | I1_RSM | I1_INVD | I1_PAUSE |
              I1_HLT | I1_INVLPGA | I1_IO | I1_MSR | I1_TASK_SWITCH | I1_FERR_FREEZE | I1_SHUTDOWN);
    b->intercept_2 = I2_ALL;
    b->intercept_3 = I3_ALL;
    if (features & FEAT_PAUSE) {
        b->pause_count = 3000; /* a spin that is longer than most critical sections */
        b->pause_threshold = features & FEAT_THRESHOLD ? 128 : 0;
    }
    b->iopm = va_to_hpa(io_bitmap);
    b->msrpm = va_to_hpa(msr_bitmap);
    b->int_ctl = INT_CTL_MASKING;
    b->np_enable = 1;
    b->n_cr3 = v->vm->npt.root;
}

static struct guest_seg *seg_of(struct virt_vcpu *v, enum seg_name seg) {
    static const u8 at[SEG_NR] = { [SEG_LDTR] = 7, [SEG_TR] = 9, [SEG_GDTR] = 6, [SEG_IDTR] = 8, [SEG_CS] = 1,
                                   [SEG_SS] = 2,   [SEG_DS] = 3, [SEG_FS] = 4,   [SEG_GS] = 5 };

    return &((struct svm_vcpu *)v->priv)->vmcb->es + at[seg];
}

static void svm_vcpu_reset(struct virt_vcpu *v) {
    struct svm_vcpu *s = v->priv;
    struct vmcb *b = s->vmcb;

    for (unsigned i = 0; i < SEG_NR; i++) *seg_of(v, reset_segs[i].name) = reset_segs[i].seg;
    b->cpl = 0;
    b->cr0 = CR0_ET | CR0_NW | CR0_CD;
    b->cr2 = b->cr3 = b->cr4 = 0;
    b->efer = EFER_SVME; /* VMRUN demands it; guests do not see it */
    b->dr6 = DR6_RESET;
    b->dr7 = DR7_RESET;
    b->pat = PAT_RESET;
    b->star = b->lstar = b->cstar = b->fmask = b->kernel_gs_base = 0;
    b->sysenter_cs = b->sysenter_esp = b->sysenter_eip = 0;
    b->int_shadow = 0;
    b->clean = 0;
    s->nmi_masked = s->stepping = false;
    state_reset(&s->state);
    memset(&v->regs, 0, sizeof(v->regs));
    v->regs.gpr[REG_RDX] = 0x600; /* family 6 */
    v->regs.rip = 0xfff0;
    v->regs.rflags = RFLAGS_ONE;
    v->cr8 = 0;
    v->pending.type = EVENT_NONE;
    v->want_irq_window = v->want_nmi_window = v->want_cr8_exit = false;
    tlb_forget(&v->tlb);
}

static int svm_vcpu_init(struct virt_vcpu *v) {
    struct svm_vcpu *s = heap_alloc(sizeof(*s));

    if (!s) return -ENOMEM;
    s->pa = frame_alloc_zeroed(0);
    if (s->pa == HPA_NONE || state_init(&s->state)) {
        if (s->pa != HPA_NONE) frame_free(s->pa, 0);
        heap_free(s);
        return -ENOMEM;
    }
    s->vmcb = hpa_to_va(s->pa);
    v->priv = s;
    insn_forget(v);
    set_controls(v);
    svm_vcpu_reset(v);
    return 0;
}

static void svm_vcpu_fini(struct virt_vcpu *v) {
    struct svm_vcpu *s = v->priv;

    if (!s) return;
    state_fini(&s->state);
    frame_free(s->pa, 0);
    heap_free(s);
    v->priv = NULL;
}

static void svm_load(struct virt_vcpu *v) {
    struct svm_vcpu *s = v->priv;
    struct svm_cpu *c = this_svm();

    c->vcpu = v;
    s->host = c->host;
    tlb_load(&v->vm->npt.tlb, &c->tags, &v->tlb, this_cpu()->id);
    s->vmcb->tsc_offset = v->tsc_offset;
    s->vmcb->clean = 0;
    state_load(&s->state);
}

static void svm_save(struct virt_vcpu *v) {
    struct svm_vcpu *s = v->priv;

    state_save(&s->state);
    tlb_save(&v->vm->npt.tlb, this_cpu()->id);
    this_svm()->vcpu = NULL;
}

/* ---- registers ---- */

/* Those that are plain fields of the VMCB; 0: not so. */
static const u16 reg_at[VREG_NR] = {
    [VREG_CR0] = offsetof(struct vmcb, cr0),
    [VREG_CR2] = offsetof(struct vmcb, cr2),
    [VREG_CR3] = offsetof(struct vmcb, cr3),
    [VREG_CR4] = offsetof(struct vmcb, cr4),
    [VREG_EFER] = offsetof(struct vmcb, efer),
    [VREG_DR6] = offsetof(struct vmcb, dr6),
    [VREG_DR7] = offsetof(struct vmcb, dr7),
    [VREG_PAT] = offsetof(struct vmcb, pat),
    [VREG_STAR] = offsetof(struct vmcb, star),
    [VREG_LSTAR] = offsetof(struct vmcb, lstar),
    [VREG_CSTAR] = offsetof(struct vmcb, cstar),
    [VREG_FMASK] = offsetof(struct vmcb, fmask),
    [VREG_KERNEL_GS_BASE] = offsetof(struct vmcb, kernel_gs_base),
    [VREG_SYSENTER_CS] = offsetof(struct vmcb, sysenter_cs),
    [VREG_SYSENTER_ESP] = offsetof(struct vmcb, sysenter_esp),
    [VREG_SYSENTER_EIP] = offsetof(struct vmcb, sysenter_eip),
    [VREG_FS_BASE] = offsetof(struct vmcb, fs.base),
    [VREG_GS_BASE] = offsetof(struct vmcb, gs.base),
};

static u64 *reg_of(struct virt_vcpu *v, enum virt_reg reg) {
    struct svm_vcpu *s = v->priv;

    if (reg_at[reg]) return (u64 *)((u8 *)s->vmcb + reg_at[reg]);
    return reg == VREG_XCR0 ? &s->state.xcr0 : &s->state.tsc_aux;
}

static u64 svm_get_reg(struct virt_vcpu *v, enum virt_reg reg) {
    if (reg == VREG_EFER) return ((struct svm_vcpu *)v->priv)->vmcb->efer & ~EFER_SVME;
    return reg == VREG_CR8 ? v->cr8 : *reg_of(v, reg);
}

static void svm_set_reg(struct virt_vcpu *v, enum virt_reg reg, u64 value) {
    struct svm_vcpu *s = v->priv;
    struct vmcb *b = s->vmcb;

    b->clean = 0;
    switch (reg) {
    case VREG_CR8: v->cr8 = value & 15; return;
    case VREG_XCR0: state_set_xcr0(&s->state, value, is_loaded(v)); return;
    case VREG_TSC_AUX: state_set_tsc_aux(&s->state, value, is_loaded(v)); return;
    case VREG_EFER:
        b->efer = value | EFER_SVME;
        tlb_forget(&v->tlb);
        return;
    case VREG_CR0:
        b->cr0 = value | CR0_ET;
        b->efer = value & CR0_PG && b->efer & EFER_LME ? b->efer | EFER_LMA : b->efer & ~EFER_LMA;
        tlb_forget(&v->tlb);
        return;
    case VREG_CR3:
    case VREG_CR4:
        tlb_forget(&v->tlb);
        /* fall through */
    default: *reg_of(v, reg) = value;
    }
}

static void svm_get_seg(struct virt_vcpu *v, enum seg_name seg, struct guest_seg *out) {
    *out = *seg_of(v, seg);
}

static void svm_set_seg(struct virt_vcpu *v, enum seg_name seg, const struct guest_seg *in) {
    struct vmcb *b = ((struct svm_vcpu *)v->priv)->vmcb;

    b->clean = 0;
    *seg_of(v, seg) = *in;
    if (seg == SEG_SS) b->cpl = in->attr >> 5 & 3;
}

static bool svm_can_take_irq(struct virt_vcpu *v) {
    return v->regs.rflags & RFLAGS_IF && !(((struct svm_vcpu *)v->priv)->vmcb->int_shadow & INT_SHADOW) &&
           v->pending.type == EVENT_NONE;
}

static bool svm_can_take_nmi(struct virt_vcpu *v) {
    struct svm_vcpu *s = v->priv;

    return !s->nmi_masked && !(s->vmcb->int_shadow & INT_SHADOW) && v->pending.type == EVENT_NONE;
}

static void svm_clear_shadow(struct virt_vcpu *v) { ((struct svm_vcpu *)v->priv)->vmcb->int_shadow = 0; }

static unsigned svm_cpl(struct virt_vcpu *v) { return ((struct svm_vcpu *)v->priv)->vmcb->cpl; }

/* ---- entry ---- */

static void flush(enum tlb_flush what, void *ctx) {
    /* All that is cached of a guest hangs on its ASID, and that is a new one: APM2 15.16. */
    if (what == TLB_FLUSH_ALL) ((struct vmcb *)ctx)->tlb_control = TLB_CTL_ALL;
}

static void prepare_tlb(struct virt_vcpu *v, struct svm_vcpu *s) {
    tlb_prepare(&v->vm->npt.tlb, &this_svm()->tags, &v->tlb, this_cpu()->id, flush, s->vmcb);
    s->vmcb->asid = v->tlb.tag;
    s->vmcb->clean = 0;
}

static void set_intercept(struct vmcb *b, u32 *word, u32 bits, bool on) {
    u32 new = on ? *word | bits : *word & ~bits;

    if (new != *word) {
        *word = new;
        b->clean &= ~CLEAN_INTERCEPTS;
    }
}

/* There is no window for the end of a shadow, which is all that keeps an NMI off now: so a single step ends
 * this stay. */
static void step(struct virt_vcpu *v, struct svm_vcpu *s) {
    s->stepping = true;
    s->step_rip = v->regs.rip;
    s->vmcb->clean = 0;
    s->vmcb->dr6 &= ~DR6_BS;
    v->regs.rflags |= RFLAGS_TF;
}

/* After any exit. True if it was for the step alone. */
static __attribute__((noinline)) bool step_done(struct virt_vcpu *v, struct svm_vcpu *s) {
    struct vmcb *b = s->vmcb;
    bool stepped = b->exit_code == SVM_EXIT_EXC + EXC_DB && b->dr6 & DR6_BS;

    s->stepping = false;
    if (v->regs.rip == s->step_rip || s->step_rip != s->iret_rip)
        v->regs.rflags &= ~RFLAGS_TF; /* an IRET has loaded its own */
    if (!stepped) return false;
    svm_clear_shadow(v);
    b->dr6 &= ~DR6_BS;
    b->clean = 0;
    return !(b->dr6 & 0xf); /* else a breakpoint was hit as well */
}

/* Windows are wanted or were wanted last time, or an event is to be delivered. */
static void prepare_events(struct virt_vcpu *v, struct svm_vcpu *s) {
    struct vmcb *b = s->vmcb;
    bool event = v->pending.type != EVENT_NONE; /* which would take the step's TF to the guest's stack */

    if (event) {
        b->event_inj = (u64)v->pending.code << 32 | event_encode(&v->pending, b->cr0 & CR0_PE);
        s->nmi_masked |= v->pending.type == EVENT_NMI;
        v->pending.type = EVENT_NONE;
    }
    set_intercept(b, &b->intercept_1, I1_IRET, s->nmi_masked);
    if (v->want_nmi_window && !s->nmi_masked && !event && !(v->regs.rflags & RFLAGS_TF)) step(v, s);
    set_intercept(b, &b->intercept_cr, 1u << (16 + 8), v->want_cr8_exit);
    b->int_ctl = INT_CTL_MASKING | v->cr8 | (v->want_irq_window ? INT_CTL_IRQ | INT_CTL_IGN_TPR : 0);
    b->clean &= ~CLEAN_TPR;
    v->armed = v->want_irq_window | v->want_nmi_window | v->want_cr8_exit;
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

static unsigned code_mode(const struct vmcb *b) {
    if (b->efer & EFER_LMA && b->cs.attr & ATTR_LONG) return 64;
    return b->cs.attr & ATTR_BIG ? 32 : 16;
}

/* 64-bit mode with 4 levels of page tables. */
static inline bool is_plain_64(const struct vmcb *b) {
    return b->efer & EFER_LMA && b->cs.attr & ATTR_LONG && !(b->cr4 & CR4_LA57);
}

static u8 length_walk(struct virt_vcpu *v, const struct vmcb *b, enum insn insn, u8 *modrm, u8 *rex) {
    u8 bytes[15];
    unsigned n = guest_fetch(v, bytes, sizeof(bytes));

    return (u8)insn_length(bytes, n, code_mode(b), insn, modrm, rex);
}

static __attribute__((noinline)) void set_length_slowly(struct virt_vcpu *v, const struct vmcb *b,
                                                        enum insn insn, struct vm_exit *e) {
    if (is_plain_64(b)) insn_find(v, b->cr3, b->rip); /* for the next time */
    if (features & FEAT_NEXT_RIP)
        e->insn_len = (u8)(b->next_rip - b->rip);
    else
        e->insn_len = length_walk(v, b, insn, NULL, NULL);
}

/* The length of the instruction that exited; 0 if it is not there any more. The common case without next-
 * RIP (64-bit mode, 4 levels, no prefixes) is short. */
static inline __attribute__((always_inline)) void set_length(struct virt_vcpu *v, const struct vmcb *b,
                                                             enum insn insn, struct vm_exit *e) {
    u32 len = insn > 0xffff ? 3 : insn > 0xff ? 2 : 1;
    const u8 *p;

    if (!(features & FEAT_NEXT_RIP) && is_plain_64(b) && insn != INSN_PAUSE) {
        p = insn_cached(v, b->cr3, b->rip);
        if (__builtin_expect(p && (*(const u32 *)p & (BIT(8 * len) - 1)) == insn, 1)) {
            e->insn_len = (u8)len;
            return;
        }
    }
    set_length_slowly(v, b, insn, e);
}

static void decode_cr(struct virt_vcpu *v, const struct vmcb *b, struct vm_exit *e) {
    bool write = b->exit_code >= SVM_EXIT_CR_WRITE;
    u8 modrm = 0, rex = 0;

    e->reason = EXIT_CR;
    e->cr.cr = b->exit_code & 15;
    e->cr.write = write;
    if (features & FEAT_DECODE && features & FEAT_NEXT_RIP) {
        e->insn_len = (u8)(b->next_rip - b->rip);
        e->cr.gpr = b->exit_info1 & 15; /* APM2 15.8.1; of the CRs that we intercept only MOV is there */
    } else {
        e->insn_len = length_walk(v, b, write ? INSN_MOV_TO_CR : INSN_MOV_FROM_CR, &modrm, &rex);
        e->cr.gpr = (u8)((modrm & 7) | (rex & 1) << 3);
    }
    e->cr.value = v->regs.gpr[e->cr.gpr];
    if (code_mode(b) != 64) e->cr.value = (u32)e->cr.value;
}

static void decode_exception(struct virt_vcpu *v, const struct vmcb *b, struct vm_exit *e) {
    e->reason = EXIT_EXCEPTION;
    e->exc.vector = (u8)(b->exit_code - SVM_EXIT_EXC);
    e->exc.has_code = e->exc.vector == EXC_AC;
    e->exc.code = 0;
    e->exc.addr = e->exc.vector == EXC_DB ? b->dr6 : 0;
    if (e->exc.vector == EXC_MC)
        __asm__ volatile("int $18"); /* the host's handler; the guest goes on if it returns */
    else
        svm_clear_shadow(v); /* the instruction that it shielded is the one that raised it */
}

/* The bytes of an instruction that may have to be emulated. */
static void fetch_npf(struct virt_vcpu *v, const struct vmcb *b, struct vm_exit *e) {
    const u8 *p = is_plain_64(b) ? insn_bytes(v, b->cr3, b->rip) : NULL;

    e->npf.mode = (u8)code_mode(b);
    e->npf.nr_bytes = p ? sizeof(e->npf.bytes) : 0;
    if (p) memcpy(e->npf.bytes, p, sizeof(e->npf.bytes));
}

static void decode_npf(struct virt_vcpu *v, const struct vmcb *b, struct vm_exit *e) {
    u64 info = b->exit_info1;

    e->reason = EXIT_NPF;
    e->npf.gpa = b->exit_info2;
    e->npf.gva_valid = false;
    e->npf.present = info & BIT(0);
    e->npf.write = info & BIT(1);
    e->npf.exec = info & BIT(4);
    e->npf.read = !e->npf.write && !e->npf.exec;
    e->npf.in_walk = info & BIT(33);
    fetch_npf(v, b, e);
    if (info & BIT(0) && info & BIT(3)) /* reserved bits in our own tables */
        e->reason = EXIT_NPT_MISCONFIG;
}

static void decode_io(struct virt_vcpu *v, const struct vmcb *b, struct vm_exit *e) {
    u32 info = (u32)b->exit_info1; /* APM2 15.10.2 */

    e->reason = EXIT_IO;
    e->insn_len = (u8)(b->exit_info2 - b->rip);
    e->io.port = (u16)(info >> 16);
    e->io.size = info >> 4 & 7;
    e->io.in = info & 1;
    e->io.string = info & 4;
    e->io.rep = info & 8;
}

static void decode_iret(struct virt_vcpu *v, const struct vmcb *b, struct vm_exit *e) {
    struct svm_vcpu *s = v->priv;

    /* It has not been executed yet. The shadow keeps the next NMI off until it has. */
    s->nmi_masked = false;
    s->iret_rip = b->rip;
    s->vmcb->int_shadow |= INT_SHADOW;
    set_intercept(s->vmcb, &s->vmcb->intercept_1, I1_IRET, false);
    e->reason = EXIT_NMI_WINDOW;
}

static void exit_cpuid(struct virt_vcpu *v, const struct vmcb *b, struct vm_exit *e) {
    e->reason = EXIT_CPUID;
    set_length(v, b, INSN_CPUID, e);
}

static void exit_vmmcall(struct virt_vcpu *v, const struct vmcb *b, struct vm_exit *e) {
    e->reason = EXIT_HYPERCALL;
    e->hc.mode = (u8)code_mode(b);
    e->hc.cpl = b->cpl;
    e->hc.real = !(b->cr0 & CR0_PE);
    set_length(v, b, INSN_VMMCALL, e);
}

static void exit_msr(struct virt_vcpu *v, const struct vmcb *b, struct vm_exit *e) {
    bool write = b->exit_info1 & 1;

    e->reason = write ? EXIT_WRMSR : EXIT_RDMSR;
    set_length(v, b, write ? INSN_WRMSR : INSN_RDMSR, e);
}

/* Exits that are told apart by their code alone, with the instruction to check for. */
static const struct {
    u8 reason;
    u32 insn;
} simple_exits[] = {
    [SVM_EXIT_INTR] = { EXIT_INTR, 0 },
    [SVM_EXIT_NMI] = { EXIT_NMI, 0 },
    [SVM_EXIT_INIT] = { EXIT_INIT, 0 },
    [SVM_EXIT_VINTR] = { EXIT_IRQ_WINDOW, 0 },
    [SVM_EXIT_RDPMC] = { EXIT_RDPMC, INSN_RDPMC },
    [SVM_EXIT_INVD] = { EXIT_WBINVD, INSN_INVD },
    [SVM_EXIT_PAUSE] = { EXIT_PAUSE, INSN_PAUSE },
    [SVM_EXIT_HLT] = { EXIT_HLT, INSN_HLT },
    [SVM_EXIT_TASK_SWITCH] = { EXIT_TASK_SWITCH, 0 },
    [SVM_EXIT_SHUTDOWN] = { EXIT_SHUTDOWN, 0 },
    [SVM_EXIT_WBINVD] = { EXIT_WBINVD, INSN_WBINVD },
    [SVM_EXIT_MONITOR] = { EXIT_MONITOR, 0 },
    [SVM_EXIT_MWAIT] = { EXIT_MONITOR, 0 },
    [SVM_EXIT_MWAIT_ARMED] = { EXIT_MONITOR, 0 },
    [SVM_EXIT_XSETBV] = { EXIT_XSETBV, INSN_XSETBV },
};

static void exit_simple(struct virt_vcpu *v, const struct vmcb *b, struct vm_exit *e) {
    u32 insn = simple_exits[b->exit_code].insn;

    e->reason = simple_exits[b->exit_code].reason;
    if (insn) set_length(v, b, insn, e);
}

static void exit_hidden(struct virt_vcpu *v, const struct vmcb *b, struct vm_exit *e) {
    e->reason = EXIT_HIDDEN;
}

static void (*const decoders[])(struct virt_vcpu *, const struct vmcb *, struct vm_exit *) = {
    [SVM_EXIT_CR_READ... SVM_EXIT_DR_READ - 1] = decode_cr,
    [SVM_EXIT_EXC... SVM_EXIT_INTR - 1] = decode_exception,
    [SVM_EXIT_INTR... SVM_EXIT_NMI] = exit_simple,
    [SVM_EXIT_INIT... SVM_EXIT_VINTR] = exit_simple,
    [SVM_EXIT_RDPMC] = exit_simple,
    [SVM_EXIT_CPUID] = exit_cpuid,
    [SVM_EXIT_RSM] = exit_hidden,
    [SVM_EXIT_IRET] = decode_iret,
    [SVM_EXIT_INVD... SVM_EXIT_HLT] = exit_simple,
    [SVM_EXIT_INVLPGA] = exit_hidden,
    [SVM_EXIT_IO] = decode_io,
    [SVM_EXIT_MSR] = exit_msr,
    [SVM_EXIT_TASK_SWITCH] = exit_simple,
    [SVM_EXIT_SHUTDOWN] = exit_simple,
    [SVM_EXIT_VMRUN] = exit_hidden,
    [SVM_EXIT_VMMCALL] = exit_vmmcall,
    [SVM_EXIT_VMLOAD... SVM_EXIT_SKINIT] = exit_hidden,
    [SVM_EXIT_WBINVD... SVM_EXIT_XSETBV] = exit_simple,
    [SVM_EXIT_RDPRU] = exit_hidden,
    [SVM_EXIT_INVLPGB... SVM_EXIT_TLBSYNC] = exit_hidden,
};

static void decode_rest(struct virt_vcpu *v, const struct vmcb *b, struct vm_exit *e) {
    if (b->exit_code == SVM_EXIT_NPF) return decode_npf(v, b, e);
    e->reason = (i32)b->exit_code < 0 ? EXIT_ENTRY_FAILED : EXIT_UNKNOWN;
    e->info[0] = b->exit_info1;
    e->info[1] = b->exit_info2;
}

static inline __attribute__((always_inline)) void decode(struct virt_vcpu *v, const struct vmcb *b,
                                                         struct vm_exit *e) {
    if (b->exit_code < ARRAY_SIZE(decoders) && decoders[b->exit_code])
        decoders[b->exit_code](v, b, e);
    else
        decode_rest(v, b, e);
}

static __attribute__((noinline)) void requeue(struct virt_vcpu *v, const struct vmcb *b, struct vm_exit *e) {
    event_requeue(v, (u32)b->exit_int_info, (u32)(b->exit_int_info >> 32));
    if (v->pending.type == EVENT_NMI) ((struct svm_vcpu *)v->priv)->nmi_masked = false;
    decode(v, b, e);
}

/* This and svm_run are written so that the common path keeps few registers across calls: it runs at every
 * exit. */
static __attribute__((noinline)) void after_exit(struct virt_vcpu *v, struct vm_exit *e) {
    struct svm_vcpu *s = v->priv;
    struct vmcb *b = s->vmcb;

    v->regs.gpr[REG_RAX] = b->rax;
    v->regs.gpr[REG_RSP] = b->rsp;
    v->regs.rip = b->rip;
    v->regs.rflags = b->rflags;
    v->cr8 = b->int_ctl & INT_CTL_TPR;
    b->clean = CLEAN_ALL;
    b->tlb_control = 0;
    e->raw = (u32)b->exit_code;
    e->insn_len = 0;
    if (__builtin_expect(v->wants, 0) && s->stepping && step_done(v, s))
        e->reason = EXIT_NMI_WINDOW;
    else if (__builtin_expect(b->exit_int_info & EVENT_VALID, 0))
        requeue(v, b, e);
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

/* ---- why an entry failed: the checks of APM2 15.5.1 that are ours to keep ---- */

static const char *svm_why(struct virt_vcpu *v) {
    const struct vmcb *b = ((struct svm_vcpu *)v->priv)->vmcb;
    bool long_mode = b->efer & EFER_LME && b->cr0 & CR0_PG;

    if (!(b->efer & EFER_SVME)) return "EFER.SVME is clear";
    if (b->cr0 & CR0_NW && !(b->cr0 & CR0_CD)) return "CR0.NW is set without CR0.CD";
    if (b->cr0 >> 32) return "CR0 has a bit above 31";
    if (b->cr0 & CR0_PG && !(b->cr0 & CR0_PE)) return "CR0.PG is set without CR0.PE";
    if (b->dr6 >> 32 || b->dr7 >> 32) return "DR6 or DR7 has a bit above 31";
    if (long_mode && !(b->cr4 & CR4_PAE)) return "long mode with paging but without CR4.PAE";
    if (long_mode && b->cs.attr & ATTR_LONG && b->cs.attr & ATTR_BIG) return "CS.L and CS.D are both set";
    if (b->asid == 0) return "ASID 0";
    if (!(b->intercept_2 & 1)) return "VMRUN is not intercepted";
    if (b->event_inj & EVENT_VALID)
        return "the injected event is not legal, or a reserved bit of EFER, CR3 or CR4 is set";
    return "a reserved bit of EFER, CR3 or CR4 is set";
}

const struct virt_ops svm_ops = {
    .name = "svm",
    .probe = svm_probe,
    .cpu_enable = svm_cpu_enable,
    .vm_init = svm_vm_init,
    .vm_fini = svm_vm_fini,
    .vcpu_init = svm_vcpu_init,
    .vcpu_fini = svm_vcpu_fini,
    .vcpu_reset = svm_vcpu_reset,
    .load = svm_load,
    .save = svm_save,
    .run = svm_run,
    .get_reg = svm_get_reg,
    .set_reg = svm_set_reg,
    .get_seg = svm_get_seg,
    .set_seg = svm_set_seg,
    .can_take_irq = svm_can_take_irq,
    .can_take_nmi = svm_can_take_nmi,
    .clear_shadow = svm_clear_shadow,
    .cpl = svm_cpl,
    .why = svm_why,
};
