/* The operations of VT-x: SDM 3C chapters 24 to 31. They need EPT, unrestricted guests, VPID and
 * the "true" MSRs of controls, which CPUs have had since 2010. The VMCS is the structure that
 * describes a vCPU to the CPU; it is read and written by VMREAD and VMWRITE, one field at a time.
 * Its "controls" say what makes the guest exit. A "window" is an exit at the moment at which the
 * guest can take an interrupt or an NMI that waits. */
#include <takt/errno.h>
#include "boot/layout.h"
#include "lib/printf.h"
#include "common/string.h"
#include "platform/timer.h"
#include "virt/hw.h"
#include "virt/vendor.h"
#include "virt/vmcs.h"
#include "x86/cpu.h"
#include "x86/errata.h"
#include "common/insn.h"
#include "x86/tsc.h"

/* MSRs that say what the CPU offers: SDM 3D appendix A. The "true" MSRs allow some controls to be
 * clear which had to be set on the first CPUs with VT-x. */
#define MSR_VMX_BASIC        0x480
#define MSR_VMX_MISC         0x485
#define MSR_VMX_CR0_FIXED0   0x486
#define MSR_VMX_CR4_FIXED0   0x488
#define MSR_VMX_SECONDARY    0x48b
#define MSR_VMX_EPT_VPID     0x48c
#define MSR_VMX_TRUE_PIN     0x48d
#define MSR_VMX_TRUE_PRIMARY 0x48e
#define MSR_VMX_TRUE_EXIT    0x48f
#define MSR_VMX_TRUE_ENTRY   0x490

#define CPUID_VMX            BIT(5) /* leaf 1, ECX */

/* IA32_FEATURE_CONTROL: SDM 3C 24.7 */
#define FC_LOCK           BIT(0)
#define FC_VMXON          BIT(2)

#define BASIC_REVISION(v) ((u32)(v)&0x7fffffffu) /* each VMCS begins with it: SDM 3C 25.2 */
#define BASIC_TRUE_MSRS   BIT(55)
/* the preemption timer counts by this bit of the TSC: SDM 3D A.6 */
#define MISC_TIMER_SHIFT(v) ((v)&31u)

/* IA32_VMX_EPT_VPID_CAP: SDM 3D A.10 */
#define EPT_LEVELS_4      BIT(6)
#define EPT_WB            BIT(14)
#define EPT_2M            BIT(16)
#define EPT_INVEPT        BIT(20)
#define EPT_INVEPT_SINGLE BIT(25)
#define EPT_INVEPT_ALL    BIT(26)
#define EPT_INVVPID       BIT(32)
#define EPT_INVVPID_ALL   BIT(42)
#define EPT_NEEDED                                                                                 \
    (EPT_LEVELS_4 | EPT_WB | EPT_2M | EPT_INVEPT | EPT_INVEPT_ALL | EPT_INVVPID | EPT_INVVPID_ALL)

#define EPTP_WALK_4 (3ull << 3) /* SDM 3C 25.6.11 */
#define EPTP_WB     6ull

/* Bits of CR0 and CR4 that a guest does not control. In CR0, VT-x demands NE; and the hypervisor
 * would run with the guest's CD and NW, which no exit changes. In CR4 these are the bits that VT-x
 * demands, and MCE: without MCE a machine check, which is meant for the host, would shut the
 * machine down. */
#define CR0_OWNED (CR0_NE | CR0_NW | CR0_CD)
#define CR4_OWNED (rdmsr(MSR_VMX_CR4_FIXED0) | CR4_MCE)

#define VPIDS     65536u

/* A loop of PAUSEs exits if it lasts longer than PLE_WINDOW cycles. Two PAUSEs belong to one loop
 * if they are at most PLE_GAP cycles apart. SDM 3C 25.6.13 */
#define PLE_GAP    128
#define PLE_WINDOW 4096

/* The bitmap of MSRs has four quarters: reads of both ranges of MSRs, and then writes of both
 * ranges. SDM 3C 25.6.9. */
#define MSR_RANGE_BYTES 1024u
#define MSR_WRITES      2048u
#define MSR_IN_RANGE(n) ((n)&0x1fffu)

#define TIMER_MOST      0xffffffffull /* the largest value of the preemption timer, of 32 bits */
/* index of the word in the virtual-APIC page: SDM 3A 11.8.3.1 */
#define VAPIC_TPR       (0x80 / sizeof(u32))
#define TPR_CLASS_SHIFT 4 /* CR8 is the upper half of TPR */

/* What vmx.c keeps for a vCPU; priv in struct virt_vcpu points to it. */
struct vmx_vcpu {
    hpa_t vmcs;
    u32 *vapic;    /* the page that holds the guest's TPR */
    bool launched; /* the next entry is a VMRESUME, not a VMLAUNCH */
    u32 host_cpu;  /* the pCPU whose state is in the host fields of the VMCS, plus 1; 0: none */
    u32 primary;   /* the primary controls that the VMCS holds now */
    u64 rip, rsp, rflags;          /* the values of these registers that the VMCS holds now */
    u64 deadline_ns, deadline_tsc; /* the last deadline, and the same in TSC ticks */
    u64 error;                     /* of an entry that failed: VMX_ERROR_* */
};

/* The controls, which are chosen once, by what this machine's CPUs offer: SDM 3D A.3 to A.5. Takt
 * cannot run guests without the `needed` ones. The `wanted` ones are used where the CPU has
 * them. */
enum { PIN, PRIMARY, SECONDARY, EXIT, ENTRY, CONTROLS };
static struct {
    u16 field, msr;
    u32 needed, wanted;
    u32 value;
} controls[CONTROLS] = {
    [PIN] = { VMCS_PIN, MSR_VMX_TRUE_PIN, PIN_INTR | PIN_NMI | PIN_VIRTUAL_NMIS,
              PIN_PREEMPTION_TIMER, 0 },
    [PRIMARY] = { VMCS_PRIMARY, MSR_VMX_TRUE_PRIMARY,
                  PRI_TSC_OFFSET | PRI_HLT | PRI_MWAIT | PRI_RDPMC | PRI_TPR_SHADOW | PRI_IO |
                      PRI_MSR_BITMAP | PRI_MONITOR | PRI_SECONDARY,
                  PRI_PAUSE, 0 },
    [SECONDARY] = { VMCS_SECONDARY, MSR_VMX_SECONDARY, SEC_EPT | SEC_UNRESTRICTED | SEC_VPID,
                    SEC_RDTSCP | SEC_WBINVD | SEC_PLE | SEC_ENCLS, 0 },
    [EXIT] = { VMCS_EXIT_CTL, MSR_VMX_TRUE_EXIT,
               EXIT_DEBUG | EXIT_HOST_64 | EXIT_SAVE_PAT | EXIT_LOAD_PAT | EXIT_SAVE_EFER |
                   EXIT_LOAD_EFER,
               0, 0 },
    [ENTRY] = { VMCS_ENTRY_CTL, MSR_VMX_TRUE_ENTRY, ENTRY_DEBUG | ENTRY_LOAD_PAT | ENTRY_LOAD_EFER,
                0, 0 }
};

static unsigned timer_shift;
static bool invept_single; /* the CPU can forget the translations of one VM alone */
static u8 *msr_bitmap;     /* all VMs share it */

/* ---- the CPU ---- */

/* Chooses the values of all controls. The lower half of a control's MSR has the bits that must be
 * set, and the upper half those that may be set. Returns false if the CPU lacks something that Takt
 * needs. */
static bool choose_controls(void) {
    struct cpu_kind kind = cpu_kind_read();
    bool ok = true;
    u64 ept_vpid;

    if (erratum_preemption_timer(&kind)) controls[PIN].wanted &= ~PIN_PREEMPTION_TIMER;
    for (unsigned i = 0; i < CONTROLS; i++) {
        u64 offer = rdmsr(controls[i].msr);

        controls[i].value =
            (controls[i].needed | controls[i].wanted | (u32)offer) & (u32)(offer >> 32);
        ok &= !(controls[i].needed & ~controls[i].value);
    }
    /* If the CPU itself notices loops of PAUSEs, a single PAUSE need not exit. */
    if (controls[SECONDARY].value & SEC_PLE) controls[PRIMARY].value &= ~PRI_PAUSE;
    timer_shift = MISC_TIMER_SHIFT(rdmsr(MSR_VMX_MISC));
    virt_counts_pauses = controls[SECONDARY].value & SEC_PLE;
    if (!ok || controls[PRIMARY].value & PRI_CR3) return false;
    /* This MSR exists only if there is EPT or VPID (SDM 3D A.10), so it is read last. */
    ept_vpid = rdmsr(MSR_VMX_EPT_VPID);
    invept_single = ept_vpid & EPT_INVEPT_SINGLE;
    return (ept_vpid & EPT_NEEDED) == EPT_NEEDED;
}

#define NO_EPT "VT-x of this CPU has no EPT, which Takt needs."

/* Returns a sentence about what this CPU lacks. Names that its owner can look up come first. */
static const char *vmx_missing(const struct virt_caps *caps) {
    if (!caps->second_level) return NO_EPT;
    if (!caps->asid) return "VT-x of this CPU has no VPID, which Takt needs.";
    if (!caps->unrestricted)
        return "VT-x of this CPU has no unrestricted guest, which Takt needs: Intel's have it "
               "since 2010 "
               "(Westmere).";
    return "VT-x of this CPU lacks a control, or an ability of EPT or VPID, that Takt needs.";
}

/* Notes what VT-x can do on this CPU, and in caps->reason why Takt cannot use it. */
static void vmx_probe(struct virt_caps *caps) {
    bool enough;
    u64 fc;

    caps->present = cpuid(1, 0).ecx & CPUID_VMX;
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
    if (!enough) caps->reason = vmx_missing(caps);
}

/* Makes the bitmap by which accesses of guests to all MSRs exit, except to those of free_msrs[],
 * which guests use often and which are switched with the vCPU. Returns 0 or -ENOMEM. */
static int make_msr_bitmap(void) {
    hpa_t pa = frame_alloc(0);

    if (pa == HPA_NONE) return -ENOMEM;
    msr_bitmap = memset(hpa_to_va(pa), 0xff, PAGE_SIZE);
    for (unsigned i = 0; i < FREE_MSRS; i++) {
        u32 n = MSR_IN_RANGE(free_msrs[i]);
        u8 *range = msr_bitmap + (free_msrs[i] >> 31) * MSR_RANGE_BYTES;

        range[n / 8] &= (u8) ~(1u << n % 8);
        range[MSR_WRITES + n / 8] &= (u8) ~(1u << n % 8);
    }
    return 0;
}

/* Returns how many VPIDs there are. If the firmware has left VT-x open, it is allowed and locked
 * here. */
static int vmx_cpu_enable(u8 *pages) {
    hpa_t pa = va_to_hpa(pages);
    u64 fc = rdmsr(MSR_FEATURE_CONTROL);

    if (!msr_bitmap && make_msr_bitmap()) return -ENOMEM;
    if (!(fc & FC_LOCK)) wrmsr(MSR_FEATURE_CONTROL, fc | FC_LOCK | FC_VMXON);
    if (!(rdmsr(MSR_FEATURE_CONTROL) & FC_VMXON)) return -EPERM;
    write_cr0(read_cr0() | rdmsr(MSR_VMX_CR0_FIXED0));
    write_cr4(read_cr4() | rdmsr(MSR_VMX_CR4_FIXED0));
    *(u32 *)pages = BASIC_REVISION(rdmsr(MSR_VMX_BASIC));
    if (!vmxon(pa)) return -ENODEV;
    return (int)VPIDS;
}

/* ---- which VMCS is current ---- */

/* VMREAD and VMWRITE can reach only the current VMCS of the pCPU. Normally that is the VMCS of the
 * loaded vCPU. Between these two functions it is the VMCS of `v`. */

/* Makes the VMCS of `v` current. */
static void vmcs_borrow(const struct virt_vcpu *v) {
    const struct vmx_vcpu *s = v->priv;

    if (this_virt()->vcpu != v) vmptrld(s->vmcs);
}

/* Writes the VMCS of `v` back to memory, and makes that of the loaded vCPU current again. */
static void vmcs_give_back(const struct virt_vcpu *v) {
    const struct vmx_vcpu *s = v->priv;
    const struct virt_vcpu *own = this_virt()->vcpu;

    if (own == v) return;
    vmclear(s->vmcs);
    if (own) vmptrld(((const struct vmx_vcpu *)own->priv)->vmcs);
}

static u64 read_field(const struct virt_vcpu *v, u64 field) {
    u64 value;

    vmcs_borrow(v);
    value = vmread(field);
    vmcs_give_back(v);
    return value;
}

static void write_field(const struct virt_vcpu *v, u64 field, u64 value) {
    vmcs_borrow(v);
    vmwrite(field, value);
    vmcs_give_back(v);
}

/* ---- VMs and vCPUs ---- */

static u64 eptp(const struct virt_vcpu *v) { return v->vm->npt.root | EPTP_WALK_4 | EPTP_WB; }

/* Writes the fields that never change, and the first values of some others. A new VMCS may hold any
 * values, not zeros (SDM 3C 25.11.3). So each field that the CPU uses with these controls must be
 * written: here, by guest_reset(), by set_host_state(), or before each entry. The guest can change
 * the bits of CR4 that are not in VMCS_CR4_MASK without an exit. */
static void set_controls(const struct virt_vcpu *v) {
    const struct vmx_vcpu *s = v->priv;
    const struct {
        u64 field, value;
    } fields[] = {
        /* #AC and #DB exit. Otherwise a guest whose handler faults again while it is being entered
         * would keep the CPU for ever, inside one instruction (CVE-2015-5307, CVE-2015-8104). #MC
         * is the host's. */
        { VMCS_EXCEPTIONS, 1u << EXC_DB | 1u << EXC_AC | 1u << EXC_MC },
        { VMCS_PF_MASK, 0 }, /* VMCS_EXCEPTIONS alone decides whether a #PF exits: it does not */
        { VMCS_PF_MATCH, 0 },
        { VMCS_CR3_TARGETS, 0 },
        { VMCS_EXIT_MSR_STORES, 0 },
        { VMCS_EXIT_MSR_LOADS, 0 },
        { VMCS_ENTRY_MSR_LOADS, 0 },
        { VMCS_ENTRY_EVENT, 0 },
        { VMCS_TPR_THRESHOLD, 0 }, /* no TPR is below it, so that it causes no exits */
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
        { VMCS_ACTIVITY, 0 }, /* active: HLT exits */
        /* these four are read while guest_reset() sets one after the other */
        { VMCS_GUEST_CR0, 0 },
        { VMCS_GUEST_CR3, 0 },
        { VMCS_GUEST_CR4, 0 },
        { VMCS_GUEST_EFER, 0 },
        { VMCS_GUEST_RIP, s->rip }, /* later, vmx_run() writes these three only if they changed */
        { VMCS_GUEST_RSP, s->rsp },
        { VMCS_GUEST_RFLAGS, s->rflags },
    };

    for (unsigned i = 0; i < CONTROLS; i++) write_field(v, controls[i].field, controls[i].value);
    for (unsigned i = 0; i < ARRAY_SIZE(fields); i++)
        write_field(v, fields[i].field, fields[i].value);
    if (controls[SECONDARY].value & SEC_PLE) {
        write_field(v, VMCS_PLE_GAP, PLE_GAP);
        write_field(v, VMCS_PLE_WINDOW, PLE_WINDOW);
    }
    /* ENCLS exits for each of its leaves. */
    if (controls[SECONDARY].value & SEC_ENCLS) write_field(v, VMCS_ENCLS_BITMAP, ~0ull);
}

/* Makes a VMCS and writes all that never changes in it. */
static int vmx_vcpu_init(struct virt_vcpu *v) {
    u8 *pages = vcpu_pages(v);
    struct vmx_vcpu *s = (struct vmx_vcpu *)(pages + 3 * PAGE_SIZE);

    if (!pages) return -ENOMEM;
    s->vmcs = va_to_hpa(pages);
    s->vapic = (u32 *)(pages + 2 * PAGE_SIZE);
    s->primary = controls[PRIMARY].value;
    v->priv = s;
    *(u32 *)pages = BASIC_REVISION(rdmsr(MSR_VMX_BASIC));
    vmclear(s->vmcs);
    set_controls(v);
    return 0;
}

static void vmx_reset_events(struct virt_vcpu *v) {
    write_field(v, VMCS_SHADOW, 0);
    write_field(v, VMCS_PENDING_DEBUG, 0);
}

/* Writes the host state that an exit on this pCPU loads. set_controls() has written the host state
 * that is the same on all pCPUs. */
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

/* Makes the VMCS of `v` current on this pCPU. The host fields are written again only if the vCPU
 * was on another pCPU before. */
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

/* The field of the VMCS that holds a register; 0: there is none, and state_get() has the
 * register. */
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

/* Turns access rights of the VMCS into attributes of struct guest_seg. */
static u16 seg_attr(u64 ar) { return (u16)((ar & AR_LOW) | (ar & AR_HIGH) >> AR_GAP); }

static u64 seg_ar(u16 attr) {
    if (!(attr & ATTR_P)) return AR_UNUSABLE;
    return (attr & AR_LOW) | ((u64)attr << AR_GAP & AR_HIGH);
}

/* Under PAE paging a MOV to CR0, CR3 or CR4 loads the four entries of the top table into the CPU:
 * SDM 3A 4.4.1. */
static void load_pdptes(const struct virt_vcpu *v) {
    u64 pdpte[4] = { 0 };

    if (!(read_field(v, VMCS_GUEST_CR0) & CR0_PG) || !(read_field(v, VMCS_GUEST_CR4) & CR4_PAE) ||
        read_field(v, VMCS_GUEST_EFER) & EFER_LMA)
        return;
    guestmem_read(v->vm->mem, read_field(v, VMCS_GUEST_CR3) & CR3_PAE_TABLE, pdpte, sizeof(pdpte));
    for (unsigned i = 0; i < 4; i++) write_field(v, VMCS_GUEST_PDPTE + 2 * i, pdpte[i]);
}

/* Returns CR0 or CR4 as the guest sees it. Bits that the guest does not own are in a shadow
 * register, as it has set them. */
static u64 with_shadow(const struct virt_vcpu *v, u64 value, u64 mask_field, u64 shadow_field) {
    u64 mask = read_field(v, mask_field);

    return (value & ~mask) | (read_field(v, shadow_field) & mask);
}

static u64 vmx_get_reg(struct virt_vcpu *v, enum virt_reg reg) {
    u64 value;

    if (!reg_field[reg]) return state_get(v, reg);
    value = read_field(v, reg_field[reg]);
    if (reg == VREG_CR0) return with_shadow(v, value, VMCS_CR0_MASK, VMCS_CR0_SHADOW);
    if (reg == VREG_CR4) return with_shadow(v, value, VMCS_CR4_MASK, VMCS_CR4_SHADOW);
    return value;
}

/* Bits of CR0 and CR4 that the guest does not control stay as the host needs them. What the guest
 * has written there goes to the shadow, where it reads them. */
static void vmx_set_reg(struct virt_vcpu *v, enum virt_reg reg, u64 value) {
    if (!reg_field[reg]) {
        state_set(v, reg, value);
        return;
    }
    if (reg == VREG_CR0) {
        write_field(v, VMCS_CR0_SHADOW, value | CR0_ET);
        value = (value & ~CR0_OWNED) | CR0_NE | CR0_ET;
    } else if (reg == VREG_CR4) {
        write_field(v, VMCS_CR4_SHADOW, value);
        value |= CR4_OWNED;
    } else if (reg == VREG_EFER) {
        u32 entry = controls[ENTRY].value;

        if (value & EFER_LMA) entry |= ENTRY_IA32E;
        write_field(v, VMCS_ENTRY_CTL, entry);
    }
    write_field(v, reg_field[reg], value);
    if (reg == VREG_CR0 || reg == VREG_CR3 || reg == VREG_CR4) load_pdptes(v);
    tlb_forget(&v->tlb);
}

static void vmx_get_seg(struct virt_vcpu *v, enum seg_name seg, struct guest_seg *out) {
    u64 ar;

    out->base = read_field(v, VMCS_GUEST_BASE + 2 * seg);
    out->limit = (u32)read_field(v, VMCS_GUEST_LIMIT + 2 * seg);
    out->sel = out->attr = 0;
    if (seg >= SEG_GDTR) return; /* GDTR and IDTR have a base and a limit alone */
    out->sel = (u16)read_field(v, VMCS_GUEST_SEL + 2 * seg);
    ar = read_field(v, VMCS_GUEST_AR + 2 * seg);
    if (!(ar & AR_UNUSABLE)) out->attr = seg_attr(ar);
}

static void vmx_set_seg(struct virt_vcpu *v, enum seg_name seg, const struct guest_seg *in) {
    write_field(v, VMCS_GUEST_BASE + 2 * seg, in->base);
    write_field(v, VMCS_GUEST_LIMIT + 2 * seg, in->limit);
    if (seg >= SEG_GDTR) return;
    write_field(v, VMCS_GUEST_SEL + 2 * seg, in->sel);
    write_field(v, VMCS_GUEST_AR + 2 * seg, seg_ar(in->attr));
}

static unsigned vmx_blocked(struct virt_vcpu *v) {
    u64 shadow = vmread(VMCS_SHADOW);
    unsigned blocked = 0;

    if (shadow & (SHADOW_STI | SHADOW_MOV_SS)) blocked |= BLOCKED_SHADOW;
    if (shadow & SHADOW_NMI) blocked |= BLOCKED_NMI;
    return blocked;
}

static void vmx_clear_shadow(struct virt_vcpu *v) {
    u64 shadow = vmread(VMCS_SHADOW);

    if (shadow & (SHADOW_STI | SHADOW_MOV_SS))
        vmwrite(VMCS_SHADOW, shadow & ~(SHADOW_STI | SHADOW_MOV_SS));
}

static unsigned vmx_cpl(struct virt_vcpu *v) {
    return ATTR_DPL((u32)vmread(VMCS_GUEST_AR + 2 * SEG_SS));
}

/* ---- entry ---- */

/* Called by tlb_prepare(). The vCPU gets a new VPID, for which the CPU has no translations yet. But
 * translations of guest-physical addresses depend only on the EPT pointer (SDM 3C 29.4.1), so the
 * CPU has to forget those of this VM. If it can, it forgets only those, because other VMs would
 * have to walk their tables again. */
static void vmx_flush(enum tlb_flush what, void *ctx) {
    if (what == TLB_FLUSH_VM && invept_single) {
        invept(INVEPT_SINGLE, eptp(ctx));
        return;
    }
    invept(INVEPT_ALL, 0);
    if (what == TLB_FLUSH_ALL) invvpid_all();
}

static void vmx_prepare_tlb(struct virt_vcpu *v) {
    tlb_prepare(&v->vm->npt.tlb, &this_virt()->tags, &v->tlb, this_cpu()->id, vmx_flush, v);
    vmwrite(VMCS_VPID, v->tlb.tag);
}

/* Sets the controls for the windows that are wanted. In the shadow of STI the CPU may open an NMI
 * window although no NMI can be delivered there. So in that case we ask for an interrupt window,
 * which opens at the end of the shadow, because STI has set IF. */
static void set_primary(struct virt_vcpu *v, struct vmx_vcpu *s) {
    u32 want = controls[PRIMARY].value;

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
 * preemption timer counts down once every 2^timer_shift ticks of the TSC, and causes an exit
 * whatever IF is: SDM 3C 26.5.1. But debug exceptions come before it, and a guest may cause them
 * without end. So this function checks the deadline as well, and returns false if it has passed. */
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

static u8 mode_now(void) {
    return code_mode(vmread(VMCS_GUEST_EFER), seg_attr(vmread(VMCS_GUEST_AR + 2 * SEG_CS)));
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
    vmx_clear_shadow(v); /* the instruction in the shadow is the one that raised the exception */
}

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

static void vmx_decode_io(struct vm_exit *e) {
    u64 q = vmread(VMCS_QUALIFICATION);

    e->reason = EXIT_IO;
    e->io.port = QUAL_IO_PORT(q);
    e->io.size = QUAL_IO_SIZE(q);
    e->io.in = q & QUAL_IO_IN;
    e->io.string = q & QUAL_IO_STRING;
    e->io.rep = q & QUAL_IO_REP;
}

static void decode_vmcall(struct virt_vcpu *v, struct vm_exit *e) {
    e->reason = EXIT_HYPERCALL;
    e->hc.mode = mode_now();
    e->hc.cpl = (u8)vmx_cpl(v);
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

/* Enters the guest until the next exit. VMWRITE is slow, so a field is written only if it
 * changed. */
static void vmx_run(struct virt_vcpu *v, u64 deadline_ns, struct vm_exit *e) {
    struct vmx_vcpu *s = v->priv;
    u32 event;

    if (!arm_timer(s, deadline_ns)) {
        *e = (struct vm_exit){ .reason = EXIT_TIMER };
        return;
    }
    if (tlb_stale(&v->vm->npt.tlb, &v->tlb)) vmx_prepare_tlb(v);
    if (v->regs.rip != s->rip) vmwrite(VMCS_GUEST_RIP, v->regs.rip);
    if (v->regs.gpr[REG_RSP] != s->rsp) vmwrite(VMCS_GUEST_RSP, v->regs.gpr[REG_RSP]);
    if (v->regs.rflags != s->rflags) vmwrite(VMCS_GUEST_RFLAGS, v->regs.rflags);
    s->vapic[VAPIC_TPR] = (u32)v->cr8 << TPR_CLASS_SHIFT;
    set_primary(v, s);
    if (v->pending.type != EVENT_NONE) vmx_inject(v);
    if (vmx_enter(&v->regs, s->launched)) {
        s->error = vmread(VMCS_ERROR);
        *e = (struct vm_exit){ .reason = EXIT_ENTRY_FAILED, .raw = (u32)s->error };
        return;
    }

    s->launched = true;
    v->cr8 = (u8)(s->vapic[VAPIC_TPR] >> TPR_CLASS_SHIFT);
    v->regs.rip = s->rip = vmread(VMCS_GUEST_RIP);
    v->regs.gpr[REG_RSP] = s->rsp = vmread(VMCS_GUEST_RSP);
    v->regs.rflags = s->rflags = vmread(VMCS_GUEST_RFLAGS);
    event = (u32)vmread(VMCS_IDT_EVENT);
    if (__builtin_expect(event & EVENT_VALID, 0)) vmx_requeue(v, event);
    vmx_decode(v, e);
    if (__builtin_expect(event & EVENT_VALID, 0) && e->reason == EXIT_NPF)
        e->npf.in_delivery = true;
}

static const char *vmx_why(struct virt_vcpu *v) {
    const struct vmx_vcpu *s = v->priv;

    switch (s->error) {
    case VMX_ERROR_NONE: return NULL;
    case VMX_ERROR_CONTROLS: return "invalid control fields";
    case VMX_ERROR_HOST: return "invalid host state";
    case VMX_ERROR_MOV_SS: return "events blocked by MOV SS";
    default: return "VMLAUNCH or VMRESUME at the wrong time";
    }
}

const struct virt_ops vmx_ops = {
    .name = "vmx",
    .probe = vmx_probe,
    .cpu_enable = vmx_cpu_enable,
    .npt_format = &npt_format_ept,
    .reads_pdptes = true,
    .vcpu_init = vmx_vcpu_init,
    .vcpu_fini = vcpu_free_pages,
    .reset_events = vmx_reset_events,
    .load = vmx_load,
    .save = vmx_save,
    .run = vmx_run,
    .get_reg = vmx_get_reg,
    .set_reg = vmx_set_reg,
    .get_seg = vmx_get_seg,
    .set_seg = vmx_set_seg,
    .blocked = vmx_blocked,
    .clear_shadow = vmx_clear_shadow,
    .cpl = vmx_cpl,
    .why = vmx_why,
};
