/* VT-x: SDM 3C chapters 24 to 31. Needs EPT, unrestricted guest, VPID and the "true" control MSRs (2010 and
 * later). */
#include <takt/errno.h>
#include "boot/layout.h"
#include "lib/printf.h"
#include "lib/string.h"
#include "platform/timer.h"
#include "virt/hw.h"
#include "virt/vendor.h"
#include "virt/vmcs.h"
#include "x86/cpu.h"
#include "x86/errata.h"
#include "x86/insn.h"
#include "x86/tsc.h"

#define MSR_VMX_BASIC      0x480
#define MSR_VMX_MISC       0x485
#define MSR_VMX_CR0_FIXED0 0x486
#define MSR_VMX_CR4_FIXED0 0x488
#define MSR_VMX_EPT_VPID   0x48c

#define FC_LOCK            BIT(0)
#define FC_VMXON           BIT(2)

#define BASIC_TRUE_MSRS    BIT(55)
#define EPT_LEVELS_4       BIT(6)
#define EPT_WB             BIT(14)
#define EPT_2M             BIT(16)
#define EPT_INVEPT         BIT(20)
#define EPT_INVEPT_SINGLE  BIT(25)
#define EPT_INVEPT_ALL     BIT(26)
#define EPT_INVVPID        BIT(32)
#define EPT_INVVPID_ALL    BIT(42)
#define EPT_NEEDED                                                                                           \
    (EPT_LEVELS_4 | EPT_WB | EPT_2M | EPT_INVEPT | EPT_INVEPT_ALL | EPT_INVVPID | EPT_INVVPID_ALL)

/* Bits that are not the guest's. CR0: VT-x keeps NE set, and CD and NW of a guest would reach the host. CR4:
 * what VT-x keeps set, and MCE, without which a machine check, which is the host's, would shut the machine
 * down. */
#define CR0_OWNED (CR0_NE | CR0_NW | CR0_CD)
#define CR4_OWNED (rdmsr(MSR_VMX_CR4_FIXED0) | CR4_MCE)

#define VPIDS     65536u

/* struct virt_vcpu's priv. */
struct vmx_vcpu {
    hpa_t vmcs;
    u32 *vapic; /* the page that holds the guest's TPR */
    bool launched;
    u32 host_cpu; /* whose state the host fields hold, plus 1; 0: none's */
    u32 primary;  /* as the VMCS has it, and these */
    u64 rip, rsp, rflags;
    u64 deadline_ns, deadline_tsc;
    u64 error; /* of an entry that failed: VM-instruction error; 0: the guest's state was refused */
};

/* The controls, as chosen once by what this machine's CPUs offer: SDM 3D A.3 to A.5 ("true" MSRs). The
 * bits: SDM 3C 25.6.1 to 25.8.1. */
enum { PIN, PRIMARY, SECONDARY, EXIT, ENTRY, CONTROLS };
static struct {
    u16 field, msr;
    u32 needed, wanted;
    u32 value;
} controls[CONTROLS] = {
    [PIN] = { VMCS_PIN, 0x48d, PIN_INTR | PIN_NMI | PIN_VIRTUAL_NMIS, PIN_PREEMPTION_TIMER, 0 },
    [PRIMARY] = { VMCS_PRIMARY, 0x48e,
                  PRI_TSC_OFFSET | PRI_HLT | PRI_MWAIT | PRI_RDPMC | PRI_TPR_SHADOW | PRI_IO |
                      PRI_MSR_BITMAP | PRI_MONITOR | PRI_SECONDARY,
                  PRI_PAUSE, 0 },
    [SECONDARY] = { VMCS_SECONDARY, 0x48b, SEC_EPT | SEC_UNRESTRICTED | SEC_VPID,
                    SEC_RDTSCP | SEC_WBINVD | SEC_PLE | SEC_ENCLS, 0 },
    [EXIT] = { VMCS_EXIT_CTL, 0x48f,
               EXIT_DEBUG | EXIT_HOST_64 | EXIT_SAVE_PAT | EXIT_LOAD_PAT | EXIT_SAVE_EFER | EXIT_LOAD_EFER, 0,
               0 },
    [ENTRY] = { VMCS_ENTRY_CTL, 0x490, ENTRY_DEBUG | ENTRY_LOAD_PAT | ENTRY_LOAD_EFER, 0, 0 }
};

static unsigned timer_shift;
static bool invept_single; /* the CPU can forget the translations of one VM alone */
static u8 *msr_bitmap;     /* all VMs share it */

/* ---- the CPU ---- */

/* What is wanted and offered, with what the CPU demands. False if something that is needed is not offered. */
static bool choose_controls(void) {
    struct cpu_kind kind = cpu_kind_read();
    bool ok = true;
    u64 ept_vpid;

    if (erratum_preemption_timer(&kind)) controls[PIN].wanted &= ~PIN_PREEMPTION_TIMER;
    for (unsigned i = 0; i < CONTROLS; i++) {
        u64 offer = rdmsr(controls[i].msr);

        controls[i].value = (controls[i].needed | controls[i].wanted | (u32)offer) & (u32)(offer >> 32);
        ok &= !(controls[i].needed & ~controls[i].value);
    }
    /* only spinning is of interest */
    if (controls[SECONDARY].value & SEC_PLE) controls[PRIMARY].value &= ~PRI_PAUSE;
    timer_shift = rdmsr(MSR_VMX_MISC) & 31;
    virt_counts_pauses = controls[SECONDARY].value & SEC_PLE;
    if (!ok || controls[PRIMARY].value & PRI_CR3) return false;
    ept_vpid = rdmsr(MSR_VMX_EPT_VPID); /* there is such an MSR if there is EPT or VPID: SDM 3D A.10 */
    invept_single = ept_vpid & EPT_INVEPT_SINGLE;
    return (ept_vpid & EPT_NEEDED) == EPT_NEEDED;
}

#define NO_EPT "VT-x of this CPU has no EPT, which Takt needs."

/* Of what Takt needs and this CPU's VT-x does not offer, the first that its owner can look up. */
static const char *missing(const struct virt_caps *caps) {
    if (!caps->second_level) return NO_EPT;
    if (!caps->asid) return "VT-x of this CPU has no VPID, which Takt needs.";
    if (!caps->unrestricted)
        return "VT-x of this CPU has no unrestricted guest, which Takt needs: Intel's have it since 2010 "
               "(Westmere).";
    return "VT-x of this CPU lacks a control, or an ability of EPT or VPID, that Takt needs.";
}

static void vmx_probe(struct virt_caps *caps) {
    bool enough;
    u64 fc;

    caps->present = cpuid(1, 0).ecx & BIT(5);
    if (!caps->present) return;
    fc = rdmsr(MSR_FEATURE_CONTROL);
    caps->locked_off = fc & FC_LOCK && !(fc & FC_VMXON);
    if (caps->locked_off) {
        caps->reason = "the firmware has switched VT-x off and locked it: allow it in its set-up.";
        return;
    }
    if (!(rdmsr(MSR_VMX_BASIC) & BASIC_TRUE_MSRS)) { /* Core 2 */
        caps->reason = NO_EPT;
        return;
    }
    enough = choose_controls();
    caps->second_level = controls[SECONDARY].value & SEC_EPT;
    caps->unrestricted = controls[SECONDARY].value & SEC_UNRESTRICTED;
    caps->asid = controls[SECONDARY].value & SEC_VPID;
    caps->preemption_timer = controls[PIN].value & PIN_PREEMPTION_TIMER;
    if (!enough) caps->reason = missing(caps);
}

/* The bitmap has a quarter for reads and one for writes of each range: SDM 3C 25.6.9. */
static int make_msr_bitmap(void) {
    hpa_t pa = frame_alloc(0);

    if (pa == HPA_NONE) return -ENOMEM;
    msr_bitmap = memset(hpa_to_va(pa), 0xff, PAGE_SIZE);
    for (unsigned i = 0; i < FREE_MSRS; i++) {
        u8 *byte = msr_bitmap + (free_msrs[i] >> 31) * 1024 + (free_msrs[i] & 0x1fff) / 8;

        byte[0] &= (u8) ~(1u << free_msrs[i] % 8);
        byte[2048] &= (u8) ~(1u << free_msrs[i] % 8);
    }
    return 0;
}

static int vmx_cpu_enable(u8 *pages) {
    hpa_t pa = va_to_hpa(pages);
    u64 fc = rdmsr(MSR_FEATURE_CONTROL);

    if (!msr_bitmap && make_msr_bitmap()) return -ENOMEM;
    if (!(fc & FC_LOCK)) wrmsr(MSR_FEATURE_CONTROL, fc | FC_LOCK | FC_VMXON);
    if (!(rdmsr(MSR_FEATURE_CONTROL) & FC_VMXON)) return -EPERM;
    write_cr0(read_cr0() | rdmsr(MSR_VMX_CR0_FIXED0));
    write_cr4(read_cr4() | rdmsr(MSR_VMX_CR4_FIXED0));
    *(u32 *)pages = (u32)rdmsr(MSR_VMX_BASIC) & 0x7fffffff;
    return vmxon(pa) ? (int)VPIDS : -ENODEV;
}

/* ---- which VMCS is current: that of the loaded vCPU, but for a moment ---- */

/* Makes that of `v` current; `done` undoes it. */
static void borrow(const struct virt_vcpu *v, bool done) {
    const struct vmx_vcpu *s = v->priv;
    const struct virt_vcpu *own = this_virt()->vcpu;

    if (own == v) return;
    if (!done) return vmptrld(s->vmcs);
    vmclear(s->vmcs);
    if (own) vmptrld(((struct vmx_vcpu *)own->priv)->vmcs);
}

static u64 read_field(const struct virt_vcpu *v, u64 field) {
    u64 value;

    borrow(v, false);
    value = vmread(field);
    borrow(v, true);
    return value;
}

static void write_field(const struct virt_vcpu *v, u64 field, u64 value) {
    borrow(v, false);
    vmwrite(field, value);
    borrow(v, true);
}

/* ---- VMs and vCPUs ---- */

/* Four levels, tables write-back: SDM 3C 25.6.11. */
static u64 eptp(const struct virt_vcpu *v) { return v->vm->npt.root | 3 << 3 | 6; }

/* Writes the fields that stay as they are. A new VMCS holds anything, not zeros (SDM 3C 25.11.3), so every
 * field that the CPU consults with these controls is written: here, by guest_reset(), by set_host_state(), or
 * before each entry. CR4 bits that are not in its mask are the guest's own to change. */
static void set_controls(const struct virt_vcpu *v) {
    const struct vmx_vcpu *s = v->priv;
    const struct {
        u64 field, value;
    } fields[] = {
        /* #AC and #DB: a guest whose handler faults again while it is being entered would otherwise keep the
         * CPU for ever, inside one instruction (CVE-2015-5307, CVE-2015-8104). #MC is the host's. */
        { VMCS_EXCEPTIONS, 1u << EXC_DB | 1u << EXC_AC | 1u << EXC_MC },
        { VMCS_PF_MASK, 0 }, /* whether a #PF exits is up to VMCS_EXCEPTIONS alone: it does not */
        { VMCS_PF_MATCH, 0 },
        { VMCS_CR3_TARGETS, 0 },
        { VMCS_EXIT_MSR_STORES, 0 },
        { VMCS_EXIT_MSR_LOADS, 0 },
        { VMCS_ENTRY_MSR_LOADS, 0 },
        { VMCS_ENTRY_EVENT, 0 },
        { VMCS_TPR_THRESHOLD, 0 }, /* never above the guest's TPR: writes of CR8 exit instead */
        { VMCS_MSR_BITMAP, va_to_hpa(msr_bitmap) },
        { VMCS_TSC_OFFSET, v->tsc_offset },
        { VMCS_VAPIC, va_to_hpa(s->vapic) },
        { VMCS_EPTP, eptp(v) },
        { VMCS_LINK, ~0ull }, /* no shadow VMCS */
        { VMCS_CR0_MASK, CR0_OWNED },
        { VMCS_CR4_MASK, ~v->vm->cr4_guest | CR4_OWNED },
        { VMCS_HOST_ES, SEL_DATA },
        { VMCS_HOST_CS, SEL_CODE },
        { VMCS_HOST_SS, SEL_DATA },
        { VMCS_HOST_DS, SEL_DATA },
        { VMCS_HOST_FS, 0 },
        { VMCS_HOST_GS, 0 },
        { VMCS_HOST_FS_BASE, 0 }, /* the hypervisor uses neither FS nor SYSENTER */
        { VMCS_HOST_SYSENTER_CS, 0 },
        { VMCS_HOST_SYSENTER_ESP, 0 },
        { VMCS_HOST_SYSENTER_EIP, 0 },
        { VMCS_HOST_RIP, (u64)vmx_exit },
        { VMCS_GUEST_DEBUGCTL, 0 },
        { VMCS_ACTIVITY, 0 },  /* active: HLT exits */
        { VMCS_GUEST_CR0, 0 }, /* guest_reset() sets one register after the other, which reads these */
        { VMCS_GUEST_CR3, 0 },
        { VMCS_GUEST_CR4, 0 },
        { VMCS_GUEST_EFER, 0 },
        { VMCS_GUEST_RIP, s->rip }, /* from here on vmx_run() writes what differs from s->rip and so on */
        { VMCS_GUEST_RSP, s->rsp },
        { VMCS_GUEST_RFLAGS, s->rflags },
    };

    for (unsigned i = 0; i < CONTROLS; i++) write_field(v, controls[i].field, controls[i].value);
    for (unsigned i = 0; i < ARRAY_SIZE(fields); i++) write_field(v, fields[i].field, fields[i].value);
    if (controls[SECONDARY].value & SEC_PLE) {
        write_field(v, VMCS_PLE_GAP,
                    128); /* cycles between two PAUSEs of one loop, and how long it may last */
        write_field(v, VMCS_PLE_WINDOW, 4096);
    }
    if (controls[SECONDARY].value & SEC_ENCLS) write_field(v, VMCS_ENCLS_BITMAP, ~0ull); /* all leaves */
}

static int vmx_vcpu_init(struct virt_vcpu *v) {
    u8 *pages = vcpu_pages(v);
    struct vmx_vcpu *s = (struct vmx_vcpu *)(pages + 3 * PAGE_SIZE);

    if (!pages) return -ENOMEM;
    s->vmcs = va_to_hpa(pages);
    s->vapic = (u32 *)(pages + 2 * PAGE_SIZE);
    s->primary = controls[PRIMARY].value;
    v->priv = s;
    *(u32 *)pages = (u32)rdmsr(MSR_VMX_BASIC) & 0x7fffffff;
    vmclear(s->vmcs);
    set_controls(v);
    return 0;
}

static void vmx_reset_events(struct virt_vcpu *v) {
    write_field(v, VMCS_SHADOW, 0);
    write_field(v, VMCS_PENDING_DEBUG, 0);
}

/* What the exits bring this pCPU back to. Its tables and its GS base never change. */
static void set_host_state(void) {
    const struct cpu *c = cpu_of(this_cpu());

    vmwrite(VMCS_HOST_TR, SEL_TSS);
    vmwrite(VMCS_HOST_PAT, rdmsr(MSR_PAT));
    vmwrite(VMCS_HOST_EFER, rdmsr(MSR_EFER));
    vmwrite(VMCS_HOST_CR0, read_cr0());
    vmwrite(VMCS_HOST_CR3, read_cr3());
    vmwrite(VMCS_HOST_CR4, read_cr4());
    vmwrite(VMCS_HOST_GS_BASE, (u64)c);
    vmwrite(VMCS_HOST_TR_BASE, (u64)&c->tss);
    vmwrite(VMCS_HOST_GDTR, (u64)c->gdt);
    vmwrite(VMCS_HOST_IDTR, idt_base());
}

static void vmx_load(struct virt_vcpu *v) {
    struct vmx_vcpu *s = v->priv;
    u32 cpu = this_cpu()->id + 1;

    vmptrld(s->vmcs);
    s->launched = false;
    if (s->host_cpu != cpu) set_host_state();
    s->host_cpu = cpu;
    state_load(v);
}

static void vmx_save(struct virt_vcpu *v) {
    state_save(v);
    vmclear(((struct vmx_vcpu *)v->priv)->vmcs);
}

/* ---- registers ---- */

/* Those that are fields of the VMCS; 0: not so. */
static const u16 reg_field[VREG_NR] = { [VREG_CR0] = VMCS_GUEST_CR0,
                                        [VREG_CR3] = VMCS_GUEST_CR3,
                                        [VREG_CR4] = VMCS_GUEST_CR4,
                                        [VREG_EFER] = VMCS_GUEST_EFER,
                                        [VREG_DR7] = VMCS_GUEST_DR7,
                                        [VREG_PAT] = VMCS_GUEST_PAT,
                                        [VREG_FS_BASE] = VMCS_GUEST_BASE + 2 * SEG_FS,
                                        [VREG_GS_BASE] = VMCS_GUEST_BASE + 2 * SEG_GS,
                                        [VREG_SYSENTER_CS] = VMCS_GUEST_SYSENTER_CS,
                                        [VREG_SYSENTER_ESP] = VMCS_GUEST_SYSENTER_ESP,
                                        [VREG_SYSENTER_EIP] = VMCS_GUEST_SYSENTER_EIP };

/* Access rights as struct guest_seg has them. */
static u16 seg_attr(u64 ar) { return (u16)((ar & 0xff) | (ar >> 4 & 0xf00)); }

/* MOV to CR0, CR3 or CR4 loads them under PAE paging: SDM 3A 4.4.1. */
static void load_pdptes(const struct virt_vcpu *v) {
    u64 pdpte[4] = { 0 };

    if (!(read_field(v, VMCS_GUEST_CR0) & CR0_PG) || !(read_field(v, VMCS_GUEST_CR4) & CR4_PAE) ||
        read_field(v, VMCS_GUEST_EFER) & EFER_LMA)
        return;
    guestmem_read(v->vm->mem, read_field(v, VMCS_GUEST_CR3) & 0xffffffe0, pdpte, sizeof(pdpte));
    for (unsigned i = 0; i < 4; i++) write_field(v, VMCS_GUEST_PDPTE + 2 * i, pdpte[i]);
}

/* Of CR0 and CR4 the guest reads our bits in the shadow. */
static u64 vmx_get_reg(struct virt_vcpu *v, enum virt_reg reg) {
    unsigned cr4 = reg == VREG_CR4 ? VMCS_CR4_MASK - VMCS_CR0_MASK : 0;
    u64 mask, value;

    if (!reg_field[reg]) return state_get(v, reg);
    value = read_field(v, reg_field[reg]);
    if (reg != VREG_CR0 && reg != VREG_CR4) return value;
    mask = read_field(v, VMCS_CR0_MASK + cr4);
    return (value & ~mask) | (read_field(v, VMCS_CR0_SHADOW + cr4) & mask);
}

static void vmx_set_reg(struct virt_vcpu *v, enum virt_reg reg, u64 value) {
    if (!reg_field[reg]) return state_set(v, reg, value);
    if (reg == VREG_CR0) {
        write_field(v, VMCS_CR0_SHADOW, value | CR0_ET);
        value = (value & ~CR0_OWNED) | CR0_NE | CR0_ET;
    } else if (reg == VREG_CR4) {
        write_field(v, VMCS_CR4_SHADOW, value);
        value |= CR4_OWNED;
    } else if (reg == VREG_EFER) {
        write_field(v, VMCS_ENTRY_CTL, controls[ENTRY].value | (value & EFER_LMA ? ENTRY_IA32E : 0));
    }
    write_field(v, reg_field[reg], value);
    if (reg == VREG_CR0 || reg == VREG_CR3 || reg == VREG_CR4) load_pdptes(v);
    tlb_forget(&v->tlb);
}

static void vmx_get_seg(struct virt_vcpu *v, enum seg_name seg, struct guest_seg *out) {
    bool table = seg >= SEG_GDTR; /* base and limit alone */
    u64 ar = table ? 0 : read_field(v, VMCS_GUEST_AR + 2 * seg);

    out->base = read_field(v, VMCS_GUEST_BASE + 2 * seg);
    out->limit = (u32)read_field(v, VMCS_GUEST_LIMIT + 2 * seg);
    out->sel = table ? 0 : (u16)read_field(v, VMCS_GUEST_SEL + 2 * seg);
    out->attr = ar & AR_UNUSABLE ? 0 : seg_attr(ar);
}

static void vmx_set_seg(struct virt_vcpu *v, enum seg_name seg, const struct guest_seg *in) {
    u64 ar = in->attr & ATTR_P ? (in->attr & 0xffu) | (in->attr & 0xf00u) << 4 : AR_UNUSABLE;

    write_field(v, VMCS_GUEST_BASE + 2 * seg, in->base);
    write_field(v, VMCS_GUEST_LIMIT + 2 * seg, in->limit);
    if (seg >= SEG_GDTR) return;
    write_field(v, VMCS_GUEST_SEL + 2 * seg, in->sel);
    write_field(v, VMCS_GUEST_AR + 2 * seg, ar);
}

static unsigned vmx_blocked(struct virt_vcpu *v) {
    u64 shadow = vmread(VMCS_SHADOW);

    return (shadow & (SHADOW_STI | SHADOW_MOV_SS) ? BLOCKED_SHADOW : 0) |
           (shadow & SHADOW_NMI ? BLOCKED_NMI : 0);
}

static void vmx_clear_shadow(struct virt_vcpu *v) {
    u64 shadow = vmread(VMCS_SHADOW);

    if (shadow & (SHADOW_STI | SHADOW_MOV_SS)) vmwrite(VMCS_SHADOW, shadow & ~(SHADOW_STI | SHADOW_MOV_SS));
}

static unsigned vmx_cpl(struct virt_vcpu *v) { return vmread(VMCS_GUEST_AR + 2 * SEG_SS) >> 5 & 3; }

/* ---- entry ---- */

/* A new VPID has no translations yet; but guest-physical ones hang on the EPT pointer alone (SDM 3C 29.4.1),
 * so those of this VM are forgotten, and only those: others would have to walk their tables again. */
static void flush(enum tlb_flush what, void *ctx) {
    if (what == TLB_FLUSH_VM && invept_single) {
        invept(INVEPT_SINGLE, eptp(ctx));
        return;
    }
    invept(INVEPT_ALL, 0);
    if (what == TLB_FLUSH_ALL) invvpid_all();
}

static void prepare_tlb(struct virt_vcpu *v) {
    tlb_prepare(&v->vm->npt.tlb, &this_virt()->tags, &v->tlb, this_cpu()->id, flush, v);
    vmwrite(VMCS_VPID, v->tlb.tag);
}

/* An NMI window may open in the shadow of STI, where none is delivered. There IF is set, so that the end of
 * the shadow is the next interrupt window. */
static void set_primary(struct virt_vcpu *v, struct vmx_vcpu *s) {
    bool sti = v->want_nmi_window && vmread(VMCS_SHADOW) & SHADOW_STI;
    u32 want = controls[PRIMARY].value | (v->want_irq_window || sti ? PRI_IRQ_WINDOW : 0) |
               (v->want_nmi_window && !sti ? PRI_NMI_WINDOW : 0) | (v->want_cr8_exit ? PRI_CR8_LOAD : 0);

    if (want != s->primary) {
        s->primary = want;
        vmwrite(VMCS_PRIMARY, want);
    }
}

static void inject(struct virt_vcpu *v) {
    u32 event = event_encode(&v->pending, vmread(VMCS_GUEST_CR0) & CR0_PE);

    if (v->pending
            .icebp_len) { /* delivered as the instruction does: RIP moves over it only if all goes well */
        event = (event & ~(7u << 8)) | EVENT_TYPE_ICEBP << 8;
        vmwrite(VMCS_ENTRY_INSN_LEN, v->pending.icebp_len);
    }
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
    if (!(controls[PIN].value & PIN_PREEMPTION_TIMER)) {
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

static u8 mode_now(void) {
    return code_mode(vmread(VMCS_GUEST_EFER), seg_attr(vmread(VMCS_GUEST_AR + 2 * SEG_CS)));
}

static void decode_exception(struct virt_vcpu *v, struct vm_exit *e) {
    u32 event = (u32)vmread(VMCS_EXIT_EVENT), type = event >> 8 & 7;

    if (type == EVENT_TYPE_NMI) {
        raise_nmi();
        e->reason = EXIT_NMI;
        return;
    }
    e->reason = EXIT_EXCEPTION;
    e->exc.vector = (u8)event;
    e->exc.icebp_len = 0;
    e->exc.has_code = event & EVENT_HAS_CODE;
    e->exc.code = e->exc.has_code ? (u32)vmread(VMCS_EXIT_CODE) : 0;
    if (e->exc.vector == EXC_MC) {
        raise_mc();
        return;
    }
    block_nmi_again(event);
    if (e->exc.vector == EXC_DB) { /* neither DR6 nor DR7 have changed yet: SDM 3C 28.1 */
        vmx_set_reg(v, VREG_DR6,
                    (vmx_get_reg(v, VREG_DR6) & ~0xfull) | (vmread(VMCS_QUALIFICATION) & 0xe00f));
        if (type == EVENT_TYPE_ICEBP) e->exc.icebp_len = e->insn_len;
    }
    vmx_clear_shadow(v); /* the instruction that it shielded is the one that raised it */
}

static void decode_cr(struct virt_vcpu *v, struct vm_exit *e) {
    u64 q = vmread(VMCS_QUALIFICATION);

    /* CLTS and LMSW do not reach the bits that we own */
    e->reason = (q >> 4 & 3) > 1 ? EXIT_UNKNOWN : EXIT_CR;
    e->cr.cr = q & 15;
    e->cr.write = (q >> 4 & 3) == 0;
    e->cr.gpr = q >> 8 & 15;
    e->cr.value = v->regs.gpr[e->cr.gpr];
    if (mode_now() != 64) e->cr.value = (u32)e->cr.value;
}

static void decode_npf(struct virt_vcpu *v, struct vm_exit *e) {
    u64 q = vmread(VMCS_QUALIFICATION); /* SDM 3C table 28-7 */

    block_nmi_again(q);
    e->reason = EXIT_NPF;
    e->npf.gpa = vmread(VMCS_GPA);
    e->npf.write = q & 2;
    e->npf.exec = q & 4;
    e->npf.present = q & 0x38;
    e->npf.in_walk = q & BIT(7) && !(q & BIT(8));
    e->npf.in_delivery = false;
    npf_bytes(v, e, mode_now(), vmread(VMCS_GUEST_CR3));
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

static void decode_vmcall(struct virt_vcpu *v, struct vm_exit *e) {
    e->reason = EXIT_HYPERCALL;
    e->hc.mode = mode_now();
    e->hc.cpl = (u8)vmx_cpl(v);
    e->hc.real = !(vmread(VMCS_GUEST_CR0) & CR0_PE);
}

/* Exits that are told apart by their basic reason alone: SDM 3D appendix C. Hidden are GETSEC, RSM, the
 * instructions of VMX (19 to 27, 50, 53, 59), MWAIT, MONITOR, INVPCID, ENCLS, XSAVES, XRSTORS, PCONFIG,
 * UMWAIT and TPAUSE. */
static const u8 simple_exits[] = { [1] = EXIT_INTR,           [2] = EXIT_SHUTDOWN,
                                   [3] = EXIT_INIT,           [7] = EXIT_IRQ_WINDOW,
                                   [8] = EXIT_NMI_WINDOW,     [9] = EXIT_TASK_SWITCH,
                                   [10] = EXIT_CPUID,         [11] = EXIT_HIDDEN,
                                   [12] = EXIT_HLT,           [13] = EXIT_WBINVD,
                                   [15] = EXIT_RDPMC,         [17] = EXIT_HIDDEN,
                                   [19 ... 27] = EXIT_HIDDEN, [31] = EXIT_RDMSR,
                                   [32] = EXIT_WRMSR,         [33 ... 34] = EXIT_ENTRY_FAILED,
                                   [36] = EXIT_HIDDEN,        [39] = EXIT_HIDDEN,
                                   [40] = EXIT_PAUSE,         [49] = EXIT_NPT_MISCONFIG,
                                   [50] = EXIT_HIDDEN,        [52] = EXIT_TIMER,
                                   [53] = EXIT_HIDDEN,        [54] = EXIT_WBINVD,
                                   [55] = EXIT_XSETBV,        [58 ... 60] = EXIT_HIDDEN,
                                   [63 ... 65] = EXIT_HIDDEN, [67 ... 68] = EXIT_HIDDEN };

static void decode(struct virt_vcpu *v, struct vm_exit *e) {
    u32 reason = (u16)vmread(VMCS_REASON);

    e->raw = reason;
    e->insn_len = (u8)vmread(VMCS_INSN_LEN);
    switch (reason) {
    case VMX_EXCEPTION: return decode_exception(v, e);
    case VMX_VMCALL: return decode_vmcall(v, e);
    case VMX_CR: return decode_cr(v, e);
    case VMX_IO: return decode_io(e);
    case VMX_EPT_VIOLATION: return decode_npf(v, e);
    case VMX_MC_ENTRY: raise_mc(); break;
    }
    e->reason = reason < ARRAY_SIZE(simple_exits) ? simple_exits[reason] : EXIT_UNKNOWN;
    if (e->reason != EXIT_UNKNOWN) return;
    e->info[0] = vmread(VMCS_QUALIFICATION);
    e->info[1] = 0;
}

/* An exit cut the delivery of an event short. */
static void requeue(struct virt_vcpu *v, u32 event) {
    event_requeue(v, event, (u32)vmread(VMCS_IDT_CODE));
    if (v->pending.type == EVENT_NMI) vmwrite(VMCS_SHADOW, vmread(VMCS_SHADOW) & ~SHADOW_NMI);
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
        s->error = vmread(VMCS_ERROR);
        *e = (struct vm_exit){ .reason = EXIT_ENTRY_FAILED, .raw = (u32)s->error };
        return;
    }

    s->launched = true;
    v->cr8 = (u8)(s->vapic[0x80 / 4] >> 4);
    v->regs.rip = s->rip = vmread(VMCS_GUEST_RIP);
    v->regs.gpr[REG_RSP] = s->rsp = vmread(VMCS_GUEST_RSP);
    v->regs.rflags = s->rflags = vmread(VMCS_GUEST_RFLAGS);
    event = (u32)vmread(VMCS_IDT_EVENT);
    if (__builtin_expect(event & EVENT_VALID, 0)) requeue(v, event);
    decode(v, e);
    if (__builtin_expect(event & EVENT_VALID, 0) && e->reason == EXIT_NPF) e->npf.in_delivery = true;
}

static const char *vmx_why(struct virt_vcpu *v) { /* SDM 3C 31.4 */
    switch (((struct vmx_vcpu *)v->priv)->error) {
    case 0: return NULL; /* the guest's state */
    case 7: return "invalid control fields";
    case 8: return "invalid host state";
    case 26: return "events blocked by MOV SS";
    default: return "VMLAUNCH or VMRESUME at the wrong time";
    }
}

const struct virt_ops vmx_ops = { VIRT_OPS(vmx), .npt_format = &npt_format_ept, .reads_pdptes = true,
                                  .save = vmx_save, .why = vmx_why };
