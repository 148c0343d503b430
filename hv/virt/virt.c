/* Chooses the vendor (VT-x or AMD-V) at boot, and switches those registers of a vCPU that the
 * hardware does not. An entry loads most of a guest's state from the VMCS (VT-x) or VMCB (AMD-V),
 * the structure that describes a vCPU to the CPU. FPU, debug addresses and a few more registers are
 * in neither. They keep the guest's values while the hypervisor runs, which uses none of them. So
 * they have to be switched only when another vCPU is loaded: state_load() and state_save() do that.
 *
 * The FPU is switched by XSAVE, or by FXSAVE where a CPU has no XSAVE (Westmere, K10). Guests then
 * have x87 and SSE alone, neither XSAVE nor AVX: virt_xcr0_mask is 0, and cpuid.c shows none of
 * them. Both instructions agree about the first 512 bytes of the area (SDM 1 10.5.1, 13.4.1). */
#include <takt/errno.h>
#include "lib/printf.h"
#include "virt/hw.h"
#include "virt/vendor.h"
#include "common/insn.h"

#define CR0_MP      BIT(1)
#define CR0_EM      BIT(2)
#define CR0_TS      BIT(3)
#define CPUID_XSAVE BIT(26) /* leaf 1, ECX */
/* leaf: EAX of XCR0 can be set, EBX is the size that the area has now */
#define CPUID_STATE    0xdu
#define CPUID_EXTENDED 0x80000001u
#define CPUID_RDTSCP   BIT(27) /* of that leaf, EDX */
#define CR4_OSFXSR     BIT(9)
#define CR4_OSXMMEXCPT BIT(10)

/* SDM 1 13.1. MPX and AMX stay hidden. */
#define XCR0_PKRU  BIT(9)
#define XCR0_KNOWN (XCR0_X87 | XCR0_SSE | XCR0_AVX | XCR0_AVX512 | XCR0_PKRU)

/* Offsets in the area (SDM 1 table 10-2), and what they hold after a reset. XRSTOR loads MXCSR from
 * there even for a state that is marked as initial; FXRSTOR loads both. */
#define FXSAVE_FCW   0
#define FXSAVE_MXCSR 24
#define FXSAVE_ST0   32
#define FXSAVE_XMM0  160
#define XSTATE_BV    512 /* of XSAVE alone: which components are not in their initial state */
#define FCW_INITIAL  0x037f
#define MXCSR_RESET  0x1f80

/* MSRs that a VMCB holds and a VMCS does not. */
static const struct {
    enum virt_reg reg;
    u32 msr;
} syscall_msrs[] = {
    { VREG_STAR, MSR_STAR },
    { VREG_LSTAR, MSR_LSTAR },
    { VREG_CSTAR, MSR_CSTAR },
    { VREG_FMASK, MSR_FMASK },
    { VREG_KERNEL_GS_BASE, MSR_KERNEL_GS_BASE },
};

_Static_assert(VREG_DR3 == VREG_DR0 + 3, "read_debug_addresses() writes four in a row");

static bool has_rdtscp;
static bool switch_all; /* VT-x: also what a VMCB would hold */
static bool no_xsave;   /* on a CPU that was enabled before: then none may have it */

/* Chooses VT-x or AMD-V and sets `virt`. Returns 0, or -ENODEV with the reason in caps->reason.
 * Both vendors' code is asked. The first one whose extension this CPU has is chosen, even if it
 * cannot be used: then caps->reason says why, which helps the operator more than "not present". */
int virt_probe(struct virt_caps *caps) {
    static const struct virt_ops *const all[] = { &vmx_ops, &svm_ops };

    virt_flushes_tags = false;
    for (unsigned i = 0; i < ARRAY_SIZE(all); i++) {
        *caps = (struct virt_caps){ 0 };
        all[i]->probe(caps);
        if (!caps->present) continue;
        virt = all[i];
        if (caps->reason) return -ENODEV;
        return 0;
    }
    caps->reason = "this CPU has neither VT-x nor AMD-V.";
    return -ENODEV;
}

/* XCR0 says which parts of the FPU's state are switched on. Writing it is slow, so it is written
 * only if it changes. While the hypervisor runs, it has all that guests may have, so that XSAVE
 * sees all. */
static void set_xcr0(u64 v) {
    if (xgetbv() != v) xsetbv(v);
}

/* Sets CR0, CR4 and XCR0 of this pCPU as the functions below need them. Returns NULL, or a sentence
 * that says what is wrong. All CPUs must have the same parts of FPU state: a vCPU may move between
 * them, and its state would not fit the other one. */
static const char *state_cpu_enable(void) {
    bool has_xsave = cpuid(1, 0).ecx & CPUID_XSAVE;
    u64 mask = 0;

    if (has_xsave) mask = cpuid_or_zero(CPUID_STATE, 0).eax & XCR0_KNOWN;
    if ((has_xsave && no_xsave) || (!has_xsave && virt_xcr0_mask))
        return "it differs from the first CPU in whether it has XSAVE";
    no_xsave = !has_xsave;
    switch_all = virt == &vmx_ops;
    has_rdtscp = cpuid_or_zero(CPUID_EXTENDED, 0).edx & CPUID_RDTSCP;
    write_cr0((read_cr0() & ~(CR0_EM | CR0_TS)) | CR0_MP);
    write_cr4(read_cr4() | CR4_OSFXSR | CR4_OSXMMEXCPT);
    if (!has_xsave) return NULL;
    write_cr4(read_cr4() | CR4_OSXSAVE);
    if (virt_xcr0_mask && virt_xcr0_mask != mask) return "its XCR0 differs from the first CPU's";
    virt_xcr0_mask = mask;
    set_xcr0(mask);
    virt_xsave_size = MAX(virt_xsave_size, cpuid(CPUID_STATE, 0).ebx); /* for all that is in XCR0 */
    if (virt_xsave_size > PAGE_SIZE) return "its XSAVE area is larger than a page";
    return NULL;
}

/* Enables virtualisation on this pCPU. Returns 0 or a negative errno. A pCPU on which this fails
 * cannot run guests. The reason is logged, because on a machine where only some CPUs fail it is
 * hard to find. */
int virt_cpu_enable(void) {
    struct virt_cpu *c = heap_alloc(sizeof(*c));
    hpa_t pages = frame_alloc_zeroed(1);
    const char *why = state_cpu_enable();
    int tags = -ENODEV;

    if (!c || pages == HPA_NONE) return -ENOMEM;
    c->pages = hpa_to_va(pages);
    if (!why) {
        why = "the CPU refuses";
        tags = virt->cpu_enable(c->pages);
    }
    if (tags == -EPERM) why = "the firmware has switched it off on this CPU alone, and locked that";
    if (tags < 0) {
        log_err("%s cannot be enabled on CPU %u: %s", virt->name, this_cpu()->id, why);
        return tags;
    }
    tlb_tags_init(&c->tags, (u32)tags);
    c->tags.flushes_one = virt_flushes_tags;
    this_cpu()->virt = c;
    return 0;
}

/* Allocates the pages and the vendor's data of a vCPU. Returns the first page, or NULL if there is
 * no memory. XRSTOR and FXRSTOR load the control words from the area even at the first time. So
 * these get the values that they have after a reset. With 0 instead, every floating-point exception
 * would be on. */
u8 *vcpu_pages(struct virt_vcpu *v, unsigned order, size_t size) {
    hpa_t pa = frame_alloc_zeroed(order);

    if (pa == HPA_NONE) return NULL;
    v->priv = heap_alloc(size);
    if (!v->priv) {
        frame_free(pa, order);
        return NULL;
    }
    *(u16 *)((u8 *)v->xsave + FXSAVE_FCW) = FCW_INITIAL;
    *(u32 *)((u8 *)v->xsave + FXSAVE_MXCSR) = MXCSR_RESET;
    code_forget(v);
    return hpa_to_va(pa);
}

/* Frees what vcpu_pages() has allocated. */
void vcpu_free_pages(struct virt_vcpu *v, void *pages, unsigned order) {
    frame_free(va_to_hpa(pages), order);
    heap_free(v->priv);
    v->priv = NULL;
}

/* Copies registers from the CPU to v->reg. TSC_AUX and XCR0 are there already, as the guest sets
 * them only by an exit. On AMD-V (switch_all is false) the VMCB has the rest. */
static void read_regs(struct virt_vcpu *v) {
    u64 *r = v->reg;

    read_debug_addresses(&r[VREG_DR0]);
    if (!switch_all) return;
    for (unsigned i = 0; i < ARRAY_SIZE(syscall_msrs); i++)
        r[syscall_msrs[i].reg] = rdmsr(syscall_msrs[i].msr);
    r[VREG_CR2] = read_cr2();
    r[VREG_DR6] = read_dr6();
}

/* Copies v->reg to the CPU; the inverse of read_regs(). On AMD-V the rest is in the VMCB. */
static void write_regs(const struct virt_vcpu *v) {
    const u64 *r = v->reg;

    if (virt_xcr0_mask) set_xcr0(r[VREG_XCR0]);
    write_debug_addresses(&r[VREG_DR0]);
    if (has_rdtscp) wrmsr(MSR_TSC_AUX, r[VREG_TSC_AUX]);
    if (!switch_all) return;
    for (unsigned i = 0; i < ARRAY_SIZE(syscall_msrs); i++)
        wrmsr(syscall_msrs[i].msr, r[syscall_msrs[i].reg]);
    write_cr2(r[VREG_CR2]);
    write_dr6(r[VREG_DR6]);
}

/* Loads a vCPU's state that no VMCS or VMCB holds into this pCPU. The generation of the TLB goes
 * along: tlb_load() finds out whether this pCPU may still hold old translations of the VM, which
 * then have to be flushed. */
void state_load(struct virt_vcpu *v) {
    /* If no x87 exception is pending, AMD's CPUs do not restore the opcode and addresses of the
     * last x87 instruction. So a guest would see those of another VM (CVE-2006-1056,
     * CVE-2013-2076). Overwrite them. */
    if (!switch_all) x87_forget_pointers();
    if (virt_xcr0_mask)
        xrstor(v->xsave, virt_xcr0_mask);
    else
        fxrstor(v->xsave);
    write_regs(v);
    this_virt()->vcpu = v;
    tlb_load(&v->vm->npt.tlb, &this_virt()->tags, &v->tlb, this_cpu()->id);
}

/* Does the x87 unit have its initial state (SDM 1 13.6), by its part of `area`, which FXSAVE and
 * XSAVE lay out alike (SDM 1 13.4.1)? The first 24 bytes are FCW, FSW, the tags, the last opcode
 * and its addresses. Initially FCW is FCW_INITIAL, and all else, with the registers, is 0. If so,
 * the caller may clear the x87 bit of XSTATE_BV: where a bit is clear, XRSTOR does not read the
 * area, but gives that part of the state its initial values. */
static bool x87_is_initial(const void *area) {
    const u64 *word = area;
    u64 others = word[1] | word[2];

    for (unsigned i = FXSAVE_ST0 / 8; i < FXSAVE_XMM0 / 8; i++) others |= word[i];
    return word[0] == FCW_INITIAL && !others;
}

/* Makes XRSTOR load x87 only for guests that use it. A CPU that does not keep track of x87 says in
 * XSAVE that it is in use even if it is not. QEMU's CPUs are such, and there each load of x87
 * changes flags of the first CPU without a lock, which may crash what runs there (docs/virt.md). */
static void mark_x87_unused(void *area) {
    u64 *in_use = (u64 *)((u8 *)area + XSTATE_BV);

    if (x87_is_initial(area)) *in_use &= ~XCR0_X87;
}

/* Saves the state that state_load() has loaded. XCR0 is set to all that guests may have before
 * XSAVE. Otherwise a guest that has switched a part off would leave that part's registers in the
 * CPU, for the next VM to read. */
void state_save(struct virt_vcpu *v) {
    read_regs(v);
    if (virt_xcr0_mask) {
        set_xcr0(virt_xcr0_mask);
        xsave(v->xsave, virt_xcr0_mask);
        mark_x87_unused(v->xsave);
    } else {
        fxsave(v->xsave);
    }
    tlb_save(&v->vm->npt.tlb, this_cpu()->id);
    this_virt()->vcpu = NULL;
}

/* Returns a register of a vCPU. If the vCPU is loaded, the CPU has newer values than v->reg, so
 * they are read first. */
u64 state_get(struct virt_vcpu *v, enum virt_reg reg) {
    if (is_loaded(v)) read_regs(v);
    return v->reg[reg];
}

/* Changes a register of a vCPU. write_regs() writes all registers. So the others are read first;
 * otherwise old values would overwrite what the guest has put there. */
void state_set(struct virt_vcpu *v, enum virt_reg reg, u64 value) {
    state_get(v, reg);
    v->reg[reg] = value;
    if (is_loaded(v)) write_regs(v);
}
