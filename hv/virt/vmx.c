/* VT-x: SDM 3C chapters 24 to 31. Needs EPT, unrestricted guest, VPID and the "true" control MSRs (2010 and
 * later). */
#include <takt/errno.h>
#include "boot/layout.h"
#include "lib/printf.h"
#include "lib/string.h"
#include "platform/timer.h"
#include "virt/state.h"
#include "virt/vendor.h"
#include "virt/vmcs.h"
#include "x86/insn.h"
#include "x86/percpu.h"
#include "x86/tsc.h"

#define MSR_VMX_BASIC      0x480
#define MSR_VMX_MISC       0x485
#define MSR_VMX_CR0_FIXED0 0x486
#define MSR_VMX_CR4_FIXED0 0x488
#define MSR_VMX_SECONDARY  0x48b
#define MSR_VMX_EPT_VPID   0x48c
#define MSR_VMX_TRUE_PIN   0x48d
#define MSR_VMX_TRUE_PRI   0x48e
#define MSR_VMX_TRUE_EXIT  0x48f
#define MSR_VMX_TRUE_ENTRY 0x490

#define FC_LOCK            BIT(0)
#define FC_VMXON           BIT(2)

#define BASIC_TRUE_MSRS    BIT(55)
#define EPT_LEVELS_4       BIT(6)
#define EPT_WB             BIT(14)
#define EPT_2M             BIT(16)
#define EPT_INVEPT         BIT(20)
#define EPT_INVEPT_SINGLE  BIT(25)
#define EPT_INVVPID        BIT(32)
#define EPT_INVVPID_ALL    BIT(42)
#define EPT_NEEDED         (EPT_LEVELS_4 | EPT_WB | EPT_2M | EPT_INVEPT | EPT_INVVPID | EPT_INVVPID_ALL)

/* CR0 bits that are not the guest's: VT-x keeps NE set, and CD and NW of a guest would reach the host. */
#define CR0_OWNED (CR0_NE | CR0_NW | CR0_CD)

#define VPIDS     65536u

/* struct percpu's virt. */
struct vmx_cpu {
    struct virt_vcpu *vcpu; /* loaded, or NULL */
    struct tlb_tags tags;
};

/* struct virt_vcpu's priv. */
struct vmx_vcpu {
    hpa_t vmcs;
    u32 *vapic; /* the page that holds the guest's TPR */
    struct guest_state state;
    u64 cr2, dr6;
    u64 msr[5]; /* switched_msrs */
    bool launched;
    int host_cpu; /* whose state the host fields hold */
    u32 primary, secondary;
    u64 rip, rsp, rflags; /* as the VMCS has them */
    u64 deadline_ns, deadline_tsc;
    u64 error; /* of an entry that failed: VM-instruction error; 0: the guest's state was refused */
};

int vmx_enter(struct guest_regs *regs, bool launched);
void vmx_exit(void);
_Static_assert(offsetof(struct virt_vcpu, regs) == 0 && offsetof(struct guest_regs, gpr) == 0, "vmx_asm.asm");

static const u32 switched_msrs[] = { MSR_STAR, MSR_LSTAR, MSR_CSTAR, MSR_FMASK, MSR_KERNEL_GS_BASE };

/* The controls that this machine's CPUs offer, chosen once. */
static u32 pin, primary, secondary, exit_ctl, entry_ctl;
static bool has_invept_single;
static unsigned timer_shift;
static void *msr_bitmap; /* all VMs share it */

static struct vmx_cpu *this_vmx(void) { return this_cpu()->virt; }

static bool is_loaded(const struct virt_vcpu *v) { return this_vmx()->vcpu == v; }

/* ---- the CPU ---- */

/* What of `want` the control MSR allows, with what it demands: SDM 3D A.3. */
static u32 controls(u32 msr, u64 want) {
    u64 v = rdmsr(msr);

    return (u32)((want | (u32)v) & v >> 32);
}

static bool choose_controls(void) {
    u64 needed = SEC_EPT | SEC_UNRESTRICTED | SEC_VPID;

    pin = controls(MSR_VMX_TRUE_PIN, PIN_INTR | PIN_NMI | PIN_VIRTUAL_NMI | PIN_PREEMPTION_TIMER);
    primary =
        controls(MSR_VMX_TRUE_PRI, PRI_TSC_OFFSET | PRI_HLT | PRI_MWAIT | PRI_RDPMC | PRI_TPR_SHADOW |
                                       PRI_IO | PRI_MSR_BITMAP | PRI_MONITOR | PRI_PAUSE | PRI_SECONDARY);
    if (!(primary & PRI_SECONDARY)) return false;
    secondary = controls(MSR_VMX_SECONDARY, needed | SEC_RDTSCP | SEC_WBINVD | SEC_PLE | SEC_ENCLS);
    if (secondary & SEC_PLE) primary &= ~(u32)PRI_PAUSE; /* only spinning is of interest */
    exit_ctl = controls(MSR_VMX_TRUE_EXIT, EXIT_SAVE_DEBUG | EXIT_HOST_64 | EXIT_SAVE_PAT | EXIT_LOAD_PAT |
                                               EXIT_SAVE_EFER | EXIT_LOAD_EFER);
    entry_ctl = controls(MSR_VMX_TRUE_ENTRY, ENTRY_DEBUG | ENTRY_PAT | ENTRY_EFER);
    timer_shift = rdmsr(MSR_VMX_MISC) & 31;
    has_invept_single = rdmsr(MSR_VMX_EPT_VPID) & EPT_INVEPT_SINGLE;
    return (secondary & needed) == needed && primary & PRI_TPR_SHADOW && !(primary & PRI_CR3) &&
           exit_ctl & EXIT_LOAD_EFER && entry_ctl & ENTRY_EFER && pin & PIN_VIRTUAL_NMI;
}

static void vmx_probe(struct virt_caps *caps) {
    u64 fc;

    *caps = (struct virt_caps){ .present = cpuid(1, 0).ecx & BIT(5) };
    if (!caps->present) {
        caps->reason = "this CPU has no VT-x.";
        return;
    }
    caps->tsc_deadline = cpuid(1, 0).ecx & BIT(24);
    caps->next_rip = true;
    rdmsr_safe(MSR_FEATURE_CONTROL, &fc);
    caps->locked_off = fc & FC_LOCK && !(fc & FC_VMXON);
    if (caps->locked_off) {
        caps->reason = "the firmware has switched VT-x off and locked it: allow it in its set-up.";
        return;
    }
    if (!(rdmsr(MSR_VMX_BASIC) & BASIC_TRUE_MSRS) || !choose_controls() ||
        (rdmsr(MSR_VMX_EPT_VPID) & EPT_NEEDED) != EPT_NEEDED)
        caps->reason = "VT-x of this CPU lacks EPT, VPID or unrestricted guest, which Takt needs.";
    caps->second_level = secondary & SEC_EPT;
    caps->unrestricted = secondary & SEC_UNRESTRICTED;
    caps->asid = secondary & SEC_VPID;
    caps->nr_asids = caps->asid ? VPIDS : 0;
    caps->preemption_timer = pin & PIN_PREEMPTION_TIMER;
}

/* The bitmap has a quarter for reads and one for writes of each range: SDM 3C 25.6.9. */
static int make_msr_bitmap(void) {
    static const u32 free_msrs[] = { MSR_SYSENTER_CS, MSR_SYSENTER_ESP,  MSR_SYSENTER_EIP, MSR_STAR,
                                     MSR_LSTAR,       MSR_CSTAR,         MSR_FMASK,        MSR_FS_BASE,
                                     MSR_GS_BASE,     MSR_KERNEL_GS_BASE };
    hpa_t pa = frame_alloc(0);

    if (pa == HPA_NONE) return -ENOMEM;
    msr_bitmap = memset(hpa_to_va(pa), 0xff, PAGE_SIZE);
    for (unsigned i = 0; i < ARRAY_SIZE(free_msrs); i++) {
        u8 *byte = (u8 *)msr_bitmap + (free_msrs[i] >> 31) * 1024 + (free_msrs[i] & 0x1fff) / 8;

        byte[0] &= (u8) ~(1u << free_msrs[i] % 8);
        byte[2048] &= (u8) ~(1u << free_msrs[i] % 8);
    }
    return 0;
}

static bool vmxon(hpa_t pa) {
    bool failed;

    __asm__ volatile("vmxon %1" : "=@ccbe"(failed) : "m"(pa) : "memory");
    return !failed;
}

static int vmx_cpu_enable(void) {
    struct vmx_cpu *c = heap_alloc(sizeof(*c));
    hpa_t pa = frame_alloc_zeroed(0);
    u64 fc = rdmsr(MSR_FEATURE_CONTROL);
    int err = c && pa != HPA_NONE ? 0 : -ENOMEM;

    if (!err && !msr_bitmap) err = make_msr_bitmap();
    if (!err) err = state_cpu_enable();
    if (err) goto fail;
    if (!(fc & FC_LOCK)) wrmsr(MSR_FEATURE_CONTROL, fc | FC_LOCK | FC_VMXON);
    err = -ENODEV;
    if (!(rdmsr(MSR_FEATURE_CONTROL) & FC_VMXON)) goto fail;
    write_cr0(read_cr0() | rdmsr(MSR_VMX_CR0_FIXED0));
    write_cr4(read_cr4() | rdmsr(MSR_VMX_CR4_FIXED0));
    wrmsr(MSR_EFER, rdmsr(MSR_EFER) | EFER_NXE);
    *(u32 *)hpa_to_va(pa) = (u32)rdmsr(MSR_VMX_BASIC) & 0x7fffffff;
    if (!vmxon(pa)) goto fail;
    tlb_tags_init(&c->tags, VPIDS);
    this_cpu()->virt = c;
    return 0;

fail:
    log_err("VT-x cannot be enabled on CPU %u", this_cpu()->id);
    heap_free(c);
    if (pa != HPA_NONE) frame_free(pa, 0);
    return err;
}

/* ---- which VMCS is current: that of the loaded vCPU, but for a moment ---- */

static void borrow(struct virt_vcpu *v) {
    if (!is_loaded(v)) vmptrld(((struct vmx_vcpu *)v->priv)->vmcs);
}

static void give_back(struct virt_vcpu *v) {
    struct virt_vcpu *own = this_vmx()->vcpu;

    if (own == v) return;
    vmclear(((struct vmx_vcpu *)v->priv)->vmcs);
    if (own) vmptrld(((struct vmx_vcpu *)own->priv)->vmcs);
}

/* ---- VMs and vCPUs ---- */

static int vmx_vm_init(struct virt_vm *vm) { return npt_init(&vm->npt, &npt_format_ept); }

static void vmx_vm_fini(struct virt_vm *vm) { npt_fini(&vm->npt); }

static u64 eptp(const struct virt_vm *vm) {
    return vm->npt.root | 3 << 3 | 6; /* four levels, tables write-back: SDM 3C 25.6.11 */
}

/* The other CR4 bits are the guest's own to change. */
static u64 cr4_owned(const struct virt_vcpu *v) { return ~v->vm->cr4_guest | rdmsr(MSR_VMX_CR4_FIXED0); }

static void set_controls(struct virt_vcpu *v) {
    struct vmx_vcpu *s = v->priv;

    s->primary = primary;
    s->secondary = secondary;
    vmwrite(VMCS_PIN, pin);
    vmwrite(VMCS_PRIMARY, primary);
    vmwrite(VMCS_SECONDARY, secondary);
    vmwrite(VMCS_EXIT_CTL, exit_ctl);
    vmwrite(VMCS_ENTRY_CTL, entry_ctl);
    /* #AC and #DB: a guest whose handler faults again while it is being entered would otherwise keep the CPU
     * for ever, inside one instruction (CVE-2015-5307, CVE-2015-8104). #MC is the host's. */
    vmwrite(VMCS_EXC_BITMAP, 1u << EXC_DB | 1u << EXC_AC | 1u << EXC_MC);
    if (secondary & SEC_PLE) {
        vmwrite(VMCS_PLE_GAP, 128); /* cycles between two PAUSEs of one loop, and how long it may last */
        vmwrite(VMCS_PLE_WINDOW, 4096);
    }
    if (secondary & SEC_ENCLS) vmwrite(VMCS_ENCLS_BITMAP, ~0ull);
    vmwrite(VMCS_MSR_BITMAP, va_to_hpa(msr_bitmap));
    vmwrite(VMCS_VAPIC, va_to_hpa(s->vapic));
    vmwrite(VMCS_EPTP, eptp(v->vm));
    vmwrite(VMCS_LINK, ~0ull);
    vmwrite(VMCS_GUEST_DEBUGCTL, 0);
    vmwrite(VMCS_CR0_MASK, CR0_OWNED);
    vmwrite(VMCS_CR4_MASK, cr4_owned(v));

    vmwrite(VMCS_HOST_CS, SEL_CODE);
    vmwrite(VMCS_HOST_SS, SEL_DATA);
    vmwrite(VMCS_HOST_DS, SEL_DATA);
    vmwrite(VMCS_HOST_ES, SEL_DATA);
    vmwrite(VMCS_HOST_RIP, (u64)vmx_exit);
}

static void vmx_set_reg(struct virt_vcpu *v, enum virt_reg reg, u64 value);
static void vmx_set_seg(struct virt_vcpu *v, enum seg_name seg, const struct guest_seg *in);

static void vmx_vcpu_reset(struct virt_vcpu *v) {
    static const enum virt_reg zero[] = {
        VREG_EFER,        VREG_CR3,          VREG_CR4,         VREG_STAR,
        VREG_LSTAR,       VREG_CSTAR,        VREG_FMASK,       VREG_KERNEL_GS_BASE,
        VREG_SYSENTER_CS, VREG_SYSENTER_ESP, VREG_SYSENTER_EIP
    };
    struct vmx_vcpu *s = v->priv;

    state_reset(&s->state);
    memset(&v->regs, 0, sizeof(v->regs));
    v->regs.gpr[REG_RDX] = 0x600; /* family 6 */
    v->regs.rip = 0xfff0;
    v->regs.rflags = RFLAGS_ONE;
    v->cr8 = 0;
    v->pending.type = EVENT_NONE;
    v->want_irq_window = v->want_nmi_window = v->want_cr8_exit = false;

    borrow(v);
    for (unsigned i = 0; i < SEG_NR; i++) vmx_set_seg(v, reset_segs[i].name, &reset_segs[i].seg);
    vmx_set_reg(v, VREG_CR0, CR0_ET | CR0_NW | CR0_CD);
    for (unsigned i = 0; i < ARRAY_SIZE(zero); i++) vmx_set_reg(v, zero[i], 0);
    vmx_set_reg(v, VREG_DR6, DR6_RESET);
    vmx_set_reg(v, VREG_DR7, DR7_RESET);
    vmx_set_reg(v, VREG_PAT, PAT_RESET);
    borrow(v);
    vmwrite(VMCS_SHADOW, 0);
    vmwrite(VMCS_PENDING_DEBUG, 0);
    vmwrite(VMCS_ACTIVITY, 0);
    vmwrite(VMCS_ENTRY_EVENT, 0);
    give_back(v);
}

static int vmx_vcpu_init(struct virt_vcpu *v) {
    struct vmx_vcpu *s = heap_alloc(sizeof(*s));
    hpa_t vapic = frame_alloc_zeroed(0);

    if (!s || vapic == HPA_NONE) goto no_vapic;
    s->vapic = hpa_to_va(vapic);
    s->vmcs = frame_alloc_zeroed(0);
    if (s->vmcs == HPA_NONE) goto no_vmcs;
    if (state_init(&s->state)) goto no_state;
    s->host_cpu = -1;
    v->priv = s;
    insn_forget(v);
    *(u32 *)hpa_to_va(s->vmcs) = (u32)rdmsr(MSR_VMX_BASIC) & 0x7fffffff;
    vmclear(s->vmcs);
    borrow(v);
    set_controls(v);
    give_back(v);
    vmx_vcpu_reset(v);
    return 0;

no_state:
    frame_free(s->vmcs, 0);
no_vmcs:
    frame_free(vapic, 0);
    vapic = HPA_NONE;
no_vapic:
    if (vapic != HPA_NONE) frame_free(vapic, 0);
    heap_free(s);
    return -ENOMEM;
}

static void vmx_vcpu_fini(struct virt_vcpu *v) {
    struct vmx_vcpu *s = v->priv;

    if (!s) return;
    state_fini(&s->state);
    frame_free(s->vmcs, 0);
    frame_free(va_to_hpa(s->vapic), 0);
    heap_free(s);
    v->priv = NULL;
}

/* What the exits bring this pCPU back to. Its tables and its GS base never change. */
static void set_host_state(void) {
    struct __attribute__((packed)) {
        u16 limit;
        u64 base;
    } gdt, idt;
    const u32 *tss;
    u16 tr;

    __asm__ volatile("sgdt %0\n\tsidt %1\n\tstr %2" : "=m"(gdt), "=m"(idt), "=r"(tr));
    tss = (const u32 *)(gdt.base + tr); /* a 16-byte descriptor: SDM 3A 8.2.3 */
    vmwrite(VMCS_HOST_CR0, read_cr0());
    vmwrite(VMCS_HOST_CR3, read_cr3());
    vmwrite(VMCS_HOST_CR4, read_cr4());
    vmwrite(VMCS_HOST_TR, tr);
    vmwrite(VMCS_HOST_TR_BASE,
            (tss[0] >> 16) | (tss[1] & 0xff) << 16 | (tss[1] & 0xff000000) | (u64)tss[2] << 32);
    vmwrite(VMCS_HOST_GDTR_BASE, gdt.base);
    vmwrite(VMCS_HOST_IDTR_BASE, idt.base);
    vmwrite(VMCS_HOST_GS_BASE, rdmsr(MSR_GS_BASE));
    vmwrite(VMCS_HOST_EFER, rdmsr(MSR_EFER));
    vmwrite(VMCS_HOST_PAT, rdmsr(MSR_PAT));
}

static void vmx_load(struct virt_vcpu *v) {
    struct vmx_vcpu *s = v->priv;
    struct vmx_cpu *c = this_vmx();
    int cpu = (int)this_cpu()->id;

    vmptrld(s->vmcs);
    c->vcpu = v;
    s->launched = false;
    if (s->host_cpu != cpu) {
        s->host_cpu = cpu;
        set_host_state();
    }
    tlb_load(&v->vm->npt.tlb, &c->tags, &v->tlb, (u32)cpu);
    vmwrite(VMCS_TSC_OFFSET, v->tsc_offset);
    s->rip = vmread(VMCS_GUEST_RIP);
    s->rsp = vmread(VMCS_GUEST_RSP);
    s->rflags = vmread(VMCS_GUEST_RFLAGS);
    for (unsigned i = 0; i < ARRAY_SIZE(switched_msrs); i++) wrmsr(switched_msrs[i], s->msr[i]);
    write_cr2(s->cr2);
    __asm__ volatile("mov %0, %%dr6" : : "r"(s->dr6));
    state_load(&s->state);
}

static void vmx_save(struct virt_vcpu *v) {
    struct vmx_vcpu *s = v->priv;

    state_save(&s->state);
    s->cr2 = read_cr2();
    __asm__ volatile("mov %%dr6, %0" : "=r"(s->dr6));
    for (unsigned i = 0; i < ARRAY_SIZE(switched_msrs); i++) s->msr[i] = rdmsr(switched_msrs[i]);
    tlb_save(&v->vm->npt.tlb, this_cpu()->id);
    vmclear(s->vmcs);
    this_vmx()->vcpu = NULL;
}

/* ---- registers ---- */

/* Those that are plain fields of the VMCS; 0: not so. */
static const u16 reg_field[VREG_NR] = {
    [VREG_CR3] = VMCS_GUEST_CR3,
    [VREG_EFER] = VMCS_GUEST_EFER,
    [VREG_DR7] = VMCS_GUEST_DR7,
    [VREG_PAT] = VMCS_GUEST_PAT,
    [VREG_FS_BASE] = VMCS_GUEST_BASE + 2 * SEG_FS,
    [VREG_GS_BASE] = VMCS_GUEST_BASE + 2 * SEG_GS,
    [VREG_SYSENTER_CS] = VMCS_SYSENTER_CS,
    [VREG_SYSENTER_ESP] = VMCS_SYSENTER_ESP,
    [VREG_SYSENTER_EIP] = VMCS_SYSENTER_EIP,
};

/* Those that load and save switch by hand: the live MSR, or its copy. */
static u64 *switched_msr(struct vmx_vcpu *s, enum virt_reg reg, u32 *msr) {
    unsigned i = reg == VREG_KERNEL_GS_BASE ? 4 : reg - VREG_STAR;

    *msr = switched_msrs[i];
    return &s->msr[i];
}

/* MOV to CR0, CR3 or CR4 loads them under PAE paging: SDM 3A 4.4.1. */
static void load_pdptes(struct virt_vcpu *v) {
    u64 pdpte[4];

    if (!(vmread(VMCS_GUEST_CR0) & CR0_PG) || !(vmread(VMCS_GUEST_CR4) & CR4_PAE) ||
        vmread(VMCS_GUEST_EFER) & EFER_LMA)
        return;
    if (guestmem_read(v->vm->mem, vmread(VMCS_GUEST_CR3) & 0xffffffe0, pdpte, sizeof(pdpte)))
        memset(pdpte, 0, sizeof(pdpte));
    for (unsigned i = 0; i < 4; i++) vmwrite(VMCS_GUEST_PDPTE + 2 * i, pdpte[i]);
}

static u64 read_reg(struct virt_vcpu *v, enum virt_reg reg) {
    struct vmx_vcpu *s = v->priv;
    u64 *copy, value;
    u32 msr;

    if (reg_field[reg]) return vmread(reg_field[reg]);
    switch (reg) {
    case VREG_CR0: return (vmread(VMCS_GUEST_CR0) & ~CR0_OWNED) | (vmread(VMCS_CR0_SHADOW) & CR0_OWNED);
    case VREG_CR4:
        value = vmread(VMCS_CR4_MASK);
        return (vmread(VMCS_GUEST_CR4) & ~value) | (vmread(VMCS_CR4_SHADOW) & value);
    case VREG_CR2: return is_loaded(v) ? read_cr2() : s->cr2;
    case VREG_CR8: return v->cr8;
    case VREG_DR6:
        if (is_loaded(v)) __asm__ volatile("mov %%dr6, %0" : "=r"(s->dr6));
        return s->dr6;
    case VREG_TSC_AUX: return s->state.tsc_aux;
    case VREG_XCR0: return s->state.xcr0;
    default: copy = switched_msr(s, reg, &msr); return is_loaded(v) ? rdmsr(msr) : *copy;
    }
}

static void write_reg(struct virt_vcpu *v, enum virt_reg reg, u64 value) {
    struct vmx_vcpu *s = v->priv;
    u64 *copy, efer;
    u32 msr;

    switch (reg) {
    case VREG_CR0:
        efer = vmread(VMCS_GUEST_EFER) & ~EFER_LMA;
        vmwrite(VMCS_GUEST_CR0, (value & ~CR0_OWNED) | CR0_NE | CR0_ET);
        vmwrite(VMCS_CR0_SHADOW, value | CR0_ET);
        write_reg(v, VREG_EFER, value & CR0_PG && efer & EFER_LME ? efer | EFER_LMA : efer);
        load_pdptes(v);
        break;
    case VREG_CR4:
        vmwrite(VMCS_GUEST_CR4, value | rdmsr(MSR_VMX_CR4_FIXED0));
        vmwrite(VMCS_CR4_SHADOW, value);
        tlb_forget(&v->tlb);
        load_pdptes(v);
        break;
    case VREG_CR3:
        vmwrite(VMCS_GUEST_CR3, value);
        tlb_forget(&v->tlb);
        load_pdptes(v);
        break;
    case VREG_EFER:
        vmwrite(VMCS_GUEST_EFER, value);
        vmwrite(VMCS_ENTRY_CTL, value & EFER_LMA ? entry_ctl | ENTRY_IA32E : entry_ctl);
        tlb_forget(&v->tlb);
        break;
    case VREG_CR2:
        s->cr2 = value;
        if (is_loaded(v)) write_cr2(value);
        break;
    case VREG_CR8: v->cr8 = value & 15; break;
    case VREG_DR6:
        s->dr6 = value;
        if (is_loaded(v)) __asm__ volatile("mov %0, %%dr6" : : "r"(value));
        break;
    case VREG_TSC_AUX: state_set_tsc_aux(&s->state, value, is_loaded(v)); break;
    case VREG_XCR0: state_set_xcr0(&s->state, value, is_loaded(v)); break;
    case VREG_STAR:
    case VREG_LSTAR:
    case VREG_CSTAR:
    case VREG_FMASK:
    case VREG_KERNEL_GS_BASE:
        copy = switched_msr(s, reg, &msr);
        *copy = value;
        if (is_loaded(v)) wrmsr(msr, value);
        break;
    default: vmwrite(reg_field[reg], value);
    }
}

static u64 vmx_get_reg(struct virt_vcpu *v, enum virt_reg reg) {
    u64 value;

    borrow(v);
    value = read_reg(v, reg);
    give_back(v);
    return value;
}

static void vmx_set_reg(struct virt_vcpu *v, enum virt_reg reg, u64 value) {
    borrow(v);
    write_reg(v, reg, value);
    give_back(v);
}

static void vmx_get_seg(struct virt_vcpu *v, enum seg_name seg, struct guest_seg *out) {
    u64 ar;

    borrow(v);
    out->base = vmread(VMCS_GUEST_BASE + 2 * seg);
    out->limit = (u32)vmread(VMCS_GUEST_LIMIT + 2 * seg);
    out->sel = seg < SEG_GDTR ? (u16)vmread(VMCS_GUEST_SEL + 2 * seg) : 0;
    ar = seg < SEG_GDTR ? vmread(VMCS_GUEST_AR + 2 * seg) : 0;
    out->attr = ar & AR_UNUSABLE ? 0 : (u16)((ar & 0xff) | (ar >> 4 & 0xf00));
    give_back(v);
}

static void vmx_set_seg(struct virt_vcpu *v, enum seg_name seg, const struct guest_seg *in) {
    u64 ar = in->attr & ATTR_P ? (in->attr & 0xffu) | (in->attr & 0xf00u) << 4 : AR_UNUSABLE;

    borrow(v);
    vmwrite(VMCS_GUEST_BASE + 2 * seg, in->base);
    vmwrite(VMCS_GUEST_LIMIT + 2 * seg, in->limit);
    if (seg < SEG_GDTR) {
        vmwrite(VMCS_GUEST_SEL + 2 * seg, in->sel);
        vmwrite(VMCS_GUEST_AR + 2 * seg, ar);
    }
    give_back(v);
}

static bool vmx_can_take_irq(struct virt_vcpu *v) {
    return v->regs.rflags & RFLAGS_IF && v->pending.type == EVENT_NONE &&
           !(vmread(VMCS_SHADOW) & (SHADOW_STI | SHADOW_MOV_SS));
}

static bool vmx_can_take_nmi(struct virt_vcpu *v) {
    return v->pending.type == EVENT_NONE &&
           !(vmread(VMCS_SHADOW) & (SHADOW_STI | SHADOW_MOV_SS | SHADOW_NMI));
}

static void vmx_clear_shadow(struct virt_vcpu *v) {
    u64 shadow = vmread(VMCS_SHADOW);

    if (shadow & (SHADOW_STI | SHADOW_MOV_SS)) vmwrite(VMCS_SHADOW, shadow & ~(SHADOW_STI | SHADOW_MOV_SS));
}

static unsigned vmx_cpl(struct virt_vcpu *v) { return vmread(VMCS_GUEST_AR + 2 * SEG_SS) >> 5 & 3; }

/* ---- entry ---- */

static void invept(u64 type, u64 eptp) {
    struct {
        u64 eptp, zero;
    } d = { eptp, 0 };

    __asm__ volatile("invept %0, %1" : : "m"(d), "r"(type) : "cc", "memory");
}

static void invvpid_all(void) {
    static const u64 d[2];

    __asm__ volatile("invvpid %0, %1" : : "m"(d), "r"(2ull) : "cc", "memory");
}

static void flush(enum tlb_flush what, void *ctx) {
    const struct virt_vm *vm = ctx;

    if (what == TLB_FLUSH_VM && has_invept_single)
        invept(1, eptp(vm));
    else
        invept(2, 0);
    if (what == TLB_FLUSH_ALL) invvpid_all();
}

static void prepare_tlb(struct virt_vcpu *v) {
    tlb_prepare(&v->vm->npt.tlb, &this_vmx()->tags, &v->tlb, this_cpu()->id, flush, v->vm);
    vmwrite(VMCS_VPID, v->tlb.tag);
}

/* An NMI window may open in the shadow of STI, where none is delivered. There IF is set, so that the end of
 * the shadow is the next interrupt window. */
static void set_primary(struct virt_vcpu *v, struct vmx_vcpu *s) {
    bool sti = v->want_nmi_window && vmread(VMCS_SHADOW) & SHADOW_STI;
    u32 want = primary | (v->want_irq_window || sti ? (u32)PRI_IRQ_WINDOW : 0) |
               (v->want_nmi_window && !sti ? (u32)PRI_NMI_WINDOW : 0) |
               (v->want_cr8_exit ? (u32)PRI_CR8_LOAD : 0);

    if (want != s->primary) {
        s->primary = want;
        vmwrite(VMCS_PRIMARY, want);
    }
}

static void inject(struct virt_vcpu *v) {
    u32 event = event_encode(&v->pending, vmread(VMCS_GUEST_CR0) & CR0_PE);

    vmwrite(VMCS_ENTRY_EVENT, event);
    if (event & EVENT_HAS_CODE) vmwrite(VMCS_ENTRY_CODE, v->pending.code);
    v->pending.type = EVENT_NONE;
}

/* The preemption timer counts at the TSC's rate, shifted, and fires whatever IF is: SDM 3C 26.5.1. But
 * debug exceptions come before it, and a guest's may never end; so false if the deadline has passed
 * already. */
static bool arm_timer(struct vmx_vcpu *s, u64 deadline_ns) {
    u64 now = rdtsc(), left;

    if (deadline_ns != s->deadline_ns) {
        s->deadline_ns = deadline_ns;
        s->deadline_tsc = tsc_at(deadline_ns);
    }
    if (now >= s->deadline_tsc) return false;
    if (!(pin & PIN_PREEMPTION_TIMER)) {
        lapic_timer_arm(deadline_ns);
        return true;
    }
    left = ((s->deadline_tsc - now) >> timer_shift) + 1;
    vmwrite(VMCS_PREEMPTION_TIMER, MIN(left, 0xffffffffull));
    return true;
}

/* ---- exit ---- */

/* An IRET that had ended the blocking of NMIs is executed again: SDM 3C 28.2.3. */
static void block_nmi_again(u64 info) {
    if (info & BIT(12) && !(vmread(VMCS_IDT_EVENT) & EVENT_VALID))
        vmwrite(VMCS_SHADOW, vmread(VMCS_SHADOW) | SHADOW_NMI);
}

static void decode_exception(struct virt_vcpu *v, struct vm_exit *e) {
    u32 event = (u32)vmread(VMCS_EXIT_EVENT);
    u64 dr6;

    if ((event >> 8 & 7) == EVENT_TYPE_NMI) {
        __asm__ volatile("int $2"); /* the host's handler; its IRET lets the next NMI in */
        e->reason = EXIT_NMI;
        return;
    }
    e->reason = EXIT_EXCEPTION;
    e->exc.vector = (u8)event;
    e->exc.has_code = event & EVENT_HAS_CODE;
    e->exc.code = e->exc.has_code ? (u32)vmread(VMCS_EXIT_CODE) : 0;
    e->exc.addr = vmread(VMCS_QUALIFICATION);
    if (e->exc.vector == EXC_MC) {
        __asm__ volatile("int $18");
        return;
    }
    block_nmi_again(event);
    if (e->exc.vector == EXC_DB) { /* neither DR6 nor DR7 have changed yet: SDM 3C 28.1 */
        dr6 = read_reg(v, VREG_DR6);
        write_reg(v, VREG_DR6, (dr6 & ~0xfull) | (e->exc.addr & 0xe00f));
        if ((event >> 8 & 7) == EVENT_TYPE_ICEBP) v->regs.rip += vmread(VMCS_INSN_LEN);
    }
    vmx_clear_shadow(v); /* the instruction that it shielded is the one that raised it */
}

static void decode_cr(struct virt_vcpu *v, struct vm_exit *e) {
    u64 q = vmread(VMCS_QUALIFICATION);

    e->reason = EXIT_CR;
    e->cr.cr = q & 15;
    e->cr.write = (q >> 4 & 3) == 0;
    e->cr.gpr = q >> 8 & 15;
    e->cr.value = v->regs.gpr[e->cr.gpr];
    if ((q >> 4 & 3) > 1) /* CLTS and LMSW do not reach the bits that we own */
        e->reason = EXIT_UNKNOWN;
    if (!(read_reg(v, VREG_EFER) & EFER_LMA && vmread(VMCS_GUEST_AR + 2 * SEG_CS) & BIT(13)))
        e->cr.value = (u32)e->cr.value;
}

/* The bytes of an instruction that may have to be emulated. */
static void fetch_npf(struct virt_vcpu *v, struct vm_exit *e) {
    u64 ar = vmread(VMCS_GUEST_AR + 2 * SEG_CS);
    bool is_64bit = ar & BIT(13) && vmread(VMCS_GUEST_EFER) & EFER_LMA;
    const u8 *p = NULL;

    if (is_64bit && !(vmread(VMCS_GUEST_CR4) & CR4_LA57))
        p = insn_bytes(v, vmread(VMCS_GUEST_CR3), v->regs.rip);
    e->npf.mode = is_64bit ? 64 : ar & BIT(14) ? 32 : 16;
    e->npf.nr_bytes = p ? sizeof(e->npf.bytes) : 0;
    if (p) memcpy(e->npf.bytes, p, sizeof(e->npf.bytes));
}

static void decode_npf(struct virt_vcpu *v, struct vm_exit *e) {
    u64 q = vmread(VMCS_QUALIFICATION);

    block_nmi_again(q);
    e->reason = EXIT_NPF;
    e->npf.gpa = vmread(VMCS_GPA);
    e->npf.gva_valid = q & BIT(7);
    e->npf.gva = e->npf.gva_valid ? vmread(VMCS_GVA) : 0;
    e->npf.read = q & 1;
    e->npf.write = q & 2;
    e->npf.exec = q & 4;
    e->npf.present = q & 0x38;
    e->npf.in_walk = e->npf.gva_valid && !(q & BIT(8));
    fetch_npf(v, e);
}

static void decode_io(struct vm_exit *e) {
    u64 q = vmread(VMCS_QUALIFICATION);

    e->reason = EXIT_IO;
    e->io.port = (u16)(q >> 16);
    e->io.size = (q & 7) + 1;
    e->io.in = q & 8;
    e->io.string = q & 16;
    e->io.rep = q & 32;
}

/* Exits that are told apart by their reason alone. */
static const struct {
    u8 reason;
    bool insn;
} simple_exits[VMX_NR] = {
    [VMX_INTR] = { EXIT_INTR, false },
    [VMX_TRIPLE_FAULT] = { EXIT_SHUTDOWN, false },
    [VMX_INIT] = { EXIT_INIT, false },
    [VMX_IRQ_WINDOW] = { EXIT_IRQ_WINDOW, false },
    [VMX_NMI_WINDOW] = { EXIT_NMI_WINDOW, false },
    [VMX_TASK_SWITCH] = { EXIT_TASK_SWITCH, false },
    [VMX_CPUID] = { EXIT_CPUID, true },
    [VMX_GETSEC] = { EXIT_HIDDEN, true },
    [VMX_HLT] = { EXIT_HLT, true },
    [VMX_INVD] = { EXIT_WBINVD, true },
    [VMX_RDPMC] = { EXIT_RDPMC, true },
    [VMX_RSM] = { EXIT_HIDDEN, true },
    [VMX_VMCLEAR... VMX_VMXON] = { EXIT_HIDDEN, true },
    [VMX_RDMSR] = { EXIT_RDMSR, true },
    [VMX_WRMSR] = { EXIT_WRMSR, true },
    [VMX_BAD_GUEST] = { EXIT_ENTRY_FAILED, false },
    [VMX_BAD_MSR] = { EXIT_ENTRY_FAILED, false },
    [VMX_MWAIT] = { EXIT_MONITOR, true },
    [VMX_MONITOR] = { EXIT_MONITOR, true },
    [VMX_PAUSE] = { EXIT_PAUSE, true },
    [VMX_EPT_MISCONFIG] = { EXIT_NPT_MISCONFIG, false },
    [VMX_INVEPT] = { EXIT_HIDDEN, true },
    [VMX_PREEMPTION] = { EXIT_TIMER, false },
    [VMX_INVVPID] = { EXIT_HIDDEN, true },
    [VMX_WBINVD] = { EXIT_WBINVD, true },
    [VMX_XSETBV] = { EXIT_XSETBV, true },
    [VMX_INVPCID] = { EXIT_HIDDEN, true },
    [VMX_VMFUNC] = { EXIT_HIDDEN, true },
    [VMX_ENCLS] = { EXIT_HIDDEN, true },
    [VMX_XSAVES] = { EXIT_HIDDEN, true },
    [VMX_XRSTORS] = { EXIT_HIDDEN, true },
    [VMX_PCONFIG] = { EXIT_HIDDEN, true },
    [VMX_UMWAIT] = { EXIT_HIDDEN, true },
    [VMX_TPAUSE] = { EXIT_HIDDEN, true },
};

static void decode_vmcall(struct virt_vcpu *v, struct vm_exit *e) {
    u64 ar = vmread(VMCS_GUEST_AR + 2 * SEG_CS);
    bool is_64bit = ar & BIT(13) && vmread(VMCS_GUEST_EFER) & EFER_LMA;

    e->reason = EXIT_HYPERCALL;
    e->insn_len = (u8)vmread(VMCS_INSN_LEN);
    e->hc.mode = is_64bit ? 64 : ar & BIT(14) ? 32 : 16;
    e->hc.cpl = (u8)vmx_cpl(v);
    e->hc.real = !(read_reg(v, VREG_CR0) & CR0_PE);
}

static void decode_rest(struct virt_vcpu *v, u32 reason, struct vm_exit *e) {
    switch (reason) {
    case VMX_EXCEPTION: decode_exception(v, e); break;
    case VMX_CR:
        e->insn_len = (u8)vmread(VMCS_INSN_LEN);
        decode_cr(v, e);
        break;
    case VMX_IO:
        e->insn_len = (u8)vmread(VMCS_INSN_LEN);
        decode_io(e);
        break;
    case VMX_EPT_VIOLATION: decode_npf(v, e); break;
    case VMX_VMCALL: decode_vmcall(v, e); break;
    case VMX_MC_ENTRY:
        __asm__ volatile("int $18");
        /* fall through */
    default:
        e->reason = EXIT_UNKNOWN;
        e->info[0] = vmread(VMCS_QUALIFICATION);
        e->info[1] = 0;
    }
}

static void decode(struct virt_vcpu *v, struct vm_exit *e) {
    u32 reason = (u16)vmread(VMCS_REASON);

    e->raw = reason;
    e->insn_len = 0;
    if (reason >= VMX_NR || !simple_exits[reason].reason) {
        if (reason != VMX_INTR) /* EXIT_INTR is 0 */
            return decode_rest(v, reason, e);
    }
    e->reason = simple_exits[reason].reason;
    if (simple_exits[reason].insn) e->insn_len = (u8)vmread(VMCS_INSN_LEN);
    if (e->reason == EXIT_ENTRY_FAILED) {
        e->info[0] = vmread(VMCS_QUALIFICATION);
        e->info[1] = 0;
    }
}

/* An exit cut the delivery of an event short. */
static void requeue(struct virt_vcpu *v, u32 event) {
    event_requeue(v, event, (u32)vmread(VMCS_IDT_CODE));
    if (v->pending.type == EVENT_NMI) vmwrite(VMCS_SHADOW, vmread(VMCS_SHADOW) & ~SHADOW_NMI);
}

static void entry_failed(struct vmx_vcpu *s, struct vm_exit *e) {
    s->error = vmread(VMCS_ERROR);
    *e = (struct vm_exit){ .reason = EXIT_ENTRY_FAILED, .raw = (u32)s->error };
}

static void vmx_run(struct virt_vcpu *v, u64 deadline_ns, struct vm_exit *e) {
    struct vmx_vcpu *s = v->priv;
    u32 event;

    if (!arm_timer(s, deadline_ns)) {
        *e = (struct vm_exit){ .reason = EXIT_TIMER };
        return;
    }
    if (tlb_stale(&v->vm->npt.tlb, &v->tlb)) prepare_tlb(v);
    if (v->regs.rip != s->rip) vmwrite(VMCS_GUEST_RIP, v->regs.rip);
    if (v->regs.gpr[REG_RSP] != s->rsp) vmwrite(VMCS_GUEST_RSP, v->regs.gpr[REG_RSP]);
    if (v->regs.rflags != s->rflags) vmwrite(VMCS_GUEST_RFLAGS, v->regs.rflags);
    s->vapic[0x80 / 4] = (u32)v->cr8 << 4;
    set_primary(v, s);
    if (v->pending.type != EVENT_NONE) inject(v);
    if (vmx_enter(&v->regs, s->launched)) {
        entry_failed(s, e);
        return;
    }

    s->launched = true;
    s->error = 0;
    v->cr8 = (u8)(s->vapic[0x80 / 4] >> 4);
    v->regs.rip = s->rip = vmread(VMCS_GUEST_RIP);
    v->regs.gpr[REG_RSP] = s->rsp = vmread(VMCS_GUEST_RSP);
    v->regs.rflags = s->rflags = vmread(VMCS_GUEST_RFLAGS);
    event = (u32)vmread(VMCS_IDT_EVENT);
    if (__builtin_expect(event & EVENT_VALID, 0)) requeue(v, event);
    decode(v, e);
}

static const char *vmx_why(struct virt_vcpu *v) {
    struct vmx_vcpu *s = v->priv;
    const char *why;

    if (s->error) return vmx_error(s->error);
    borrow(v);
    why = vmx_broken_rule();
    give_back(v);
    return why;
}

const struct virt_ops vmx_ops = {
    .name = "vmx",
    .probe = vmx_probe,
    .cpu_enable = vmx_cpu_enable,
    .vm_init = vmx_vm_init,
    .vm_fini = vmx_vm_fini,
    .vcpu_init = vmx_vcpu_init,
    .vcpu_fini = vmx_vcpu_fini,
    .vcpu_reset = vmx_vcpu_reset,
    .load = vmx_load,
    .save = vmx_save,
    .run = vmx_run,
    .get_reg = vmx_get_reg,
    .set_reg = vmx_set_reg,
    .get_seg = vmx_get_seg,
    .set_seg = vmx_set_seg,
    .can_take_irq = vmx_can_take_irq,
    .can_take_nmi = vmx_can_take_nmi,
    .clear_shadow = vmx_clear_shadow,
    .cpl = vmx_cpl,
    .why = vmx_why,
};
