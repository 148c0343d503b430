/* The operations of VT-x, except for those that enter a guest, which are in vmx_run.c: SDM 3C
 * chapters 24 to 31. They need EPT, unrestricted guests, VPID and the "true" MSRs of controls,
 * which CPUs have had since 2010. The VMCS is the structure that describes a vCPU to the CPU; it is
 * read and written by VMREAD and VMWRITE, one field at a time. Its "controls" say what makes the
 * guest exit. A "shadow" is the one instruction after STI or MOV SS during which nothing is
 * delivered. The shadow of a control register, which is something else, holds the value that the
 * guest has written and reads back. */
#include <takt/errno.h>
#include "boot/layout.h"
#include "lib/printf.h"
#include "common/string.h"
#include "virt/hw.h"
#include "virt/vendor.h"
#include "virt/vmcs.h"
#include "virt/vmx.h"
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

/* The controls, which are chosen once, by what this machine's CPUs offer: SDM 3D A.3 to A.5. Takt
 * cannot run guests without the `needed` ones. The `wanted` ones are used where the CPU has
 * them. */
struct vmx_control vmx_control[VMX_CONTROLS] = {
    [VMX_PIN] = { VMCS_PIN, MSR_VMX_TRUE_PIN, PIN_INTR | PIN_NMI | PIN_VIRTUAL_NMIS,
                  PIN_PREEMPTION_TIMER, 0 },
    [VMX_PRIMARY] = { VMCS_PRIMARY, MSR_VMX_TRUE_PRIMARY,
                      PRI_TSC_OFFSET | PRI_HLT | PRI_MWAIT | PRI_RDPMC | PRI_TPR_SHADOW | PRI_IO |
                          PRI_MSR_BITMAP | PRI_MONITOR | PRI_SECONDARY,
                      PRI_PAUSE, 0 },
    [VMX_SECONDARY] = { VMCS_SECONDARY, MSR_VMX_SECONDARY, SEC_EPT | SEC_UNRESTRICTED | SEC_VPID,
                        SEC_RDTSCP | SEC_WBINVD | SEC_PLE | SEC_ENCLS, 0 },
    [VMX_EXIT] = { VMCS_EXIT_CTL, MSR_VMX_TRUE_EXIT,
                   EXIT_DEBUG | EXIT_HOST_64 | EXIT_SAVE_PAT | EXIT_LOAD_PAT | EXIT_SAVE_EFER |
                       EXIT_LOAD_EFER,
                   0, 0 },
    [VMX_ENTRY] = { VMCS_ENTRY_CTL, MSR_VMX_TRUE_ENTRY,
                    ENTRY_DEBUG | ENTRY_LOAD_PAT | ENTRY_LOAD_EFER, 0, 0 }
};

unsigned vmx_timer_shift;
bool vmx_invept_single;
u8 *vmx_msr_bitmap;

/* ---- the CPU ---- */

/* Chooses the values of all controls. The lower half of a control's MSR has the bits that must be
 * set, and the upper half those that may be set. Returns false if the CPU lacks something that Takt
 * needs. */
static bool choose_controls(void) {
    struct cpu_kind kind = cpu_kind_read();
    bool ok = true;
    u64 ept_vpid;

    if (erratum_preemption_timer(&kind)) vmx_control[VMX_PIN].wanted &= ~PIN_PREEMPTION_TIMER;
    for (unsigned i = 0; i < VMX_CONTROLS; i++) {
        u64 offer = rdmsr(vmx_control[i].msr);

        vmx_control[i].value =
            (vmx_control[i].needed | vmx_control[i].wanted | (u32)offer) & (u32)(offer >> 32);
        ok &= !(vmx_control[i].needed & ~vmx_control[i].value);
    }
    /* If the CPU itself notices loops of PAUSEs, a single PAUSE need not exit. */
    if (vmx_control[VMX_SECONDARY].value & SEC_PLE) vmx_control[VMX_PRIMARY].value &= ~PRI_PAUSE;
    vmx_timer_shift = MISC_TIMER_SHIFT(rdmsr(MSR_VMX_MISC));
    virt_counts_pauses = vmx_control[VMX_SECONDARY].value & SEC_PLE;
    if (!ok || vmx_control[VMX_PRIMARY].value & PRI_CR3) return false;
    /* This MSR exists only if there is EPT or VPID (SDM 3D A.10), so it is read last. */
    ept_vpid = rdmsr(MSR_VMX_EPT_VPID);
    vmx_invept_single = ept_vpid & EPT_INVEPT_SINGLE;
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
    caps->second_level = vmx_control[VMX_SECONDARY].value & SEC_EPT;
    caps->unrestricted = vmx_control[VMX_SECONDARY].value & SEC_UNRESTRICTED;
    caps->asid = vmx_control[VMX_SECONDARY].value & SEC_VPID;
    caps->preemption_timer = vmx_control[VMX_PIN].value & PIN_PREEMPTION_TIMER;
    caps->apicv = vmx_has_apicv();
    if (!enough) caps->reason = vmx_missing(caps);
}

/* Makes the bitmap by which accesses of guests to all MSRs exit, except to those of free_msrs[],
 * which guests use often and which are switched with the vCPU. Returns 0 or -ENOMEM. */
static int make_msr_bitmap(void) {
    hpa_t pa = frame_alloc(0);

    if (pa == HPA_NONE) return -ENOMEM;
    vmx_msr_bitmap = memset(hpa_to_va(pa), 0xff, PAGE_SIZE);
    for (unsigned i = 0; i < FREE_MSRS; i++) {
        u32 n = MSR_IN_RANGE(free_msrs[i]);
        u8 *range = vmx_msr_bitmap + (free_msrs[i] >> 31) * MSR_RANGE_BYTES;

        range[n / 8] &= (u8) ~(1u << n % 8);
        range[MSR_WRITES + n / 8] &= (u8) ~(1u << n % 8);
    }
    return 0;
}

/* Enables VT-x on this pCPU, and returns how many VPIDs there are: the tags by which the CPU tells
 * the translations of vCPUs apart. A CPU runs no guest before the MSR FEATURE_CONTROL allows it and
 * is locked. Firmware may have left it unlocked; then this function allows VT-x and locks it. The
 * first page becomes the memory that VMXON wants. */
static int vmx_cpu_enable(u8 *pages) {
    hpa_t pa = va_to_hpa(pages);
    u64 fc = rdmsr(MSR_FEATURE_CONTROL);

    if (!vmx_msr_bitmap && make_msr_bitmap()) return -ENOMEM;
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
 * loaded vCPU. Between a call of vmcs_borrow() and one of vmcs_give_back() it is the VMCS of
 * `v`. */

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

/* Reads or writes a field of the VMCS of any vCPU, also of one that is not loaded on this pCPU. For
 * the loaded one this is no more than VMREAD or VMWRITE. */
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
        { VMCS_MSR_BITMAP, va_to_hpa(vmx_msr_bitmap) },
        { VMCS_TSC_OFFSET, v->tsc_offset },
        { VMCS_VAPIC, va_to_hpa(s->vapic) },
        { VMCS_EPTP, vmx_eptp(v) },
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

    for (unsigned i = 0; i < VMX_CONTROLS; i++)
        write_field(v, vmx_control[i].field, vmx_control[i].value);
    for (unsigned i = 0; i < ARRAY_SIZE(fields); i++)
        write_field(v, fields[i].field, fields[i].value);
    if (vmx_control[VMX_SECONDARY].value & SEC_PLE) {
        write_field(v, VMCS_PLE_GAP, PLE_GAP);
        write_field(v, VMCS_PLE_WINDOW, PLE_WINDOW);
    }
    if (v->apic.page) {
        write_field(v, VMCS_APIC_ACCESS, virt_apic_page);
        for (unsigned i = 0; i < ARRAY_SIZE(s->eoi_exits); i++)
            write_field(v, VMCS_EOI_EXITS + 2 * i, s->eoi_exits[i]);
    }
    /* ENCLS exits for each of its leaves. */
    if (vmx_control[VMX_SECONDARY].value & SEC_ENCLS) write_field(v, VMCS_ENCLS_BITMAP, ~0ull);
}

#define VCPU_ORDER 1 /* a vCPU has two pages: its VMCS and the registers of its LAPIC */

/* Makes a VMCS, the memory by which the CPU enters a guest, and writes all that never changes in
 * it. */
static int vmx_vcpu_init(struct virt_vcpu *v) {
    u8 *pages = vcpu_pages(v, VCPU_ORDER, sizeof(struct vmx_vcpu));
    struct vmx_vcpu *s = v->priv;

    if (!pages) return -ENOMEM;
    s->vmcs = va_to_hpa(pages);
    s->vapic = (u32 *)(pages + PAGE_SIZE);
    s->primary = vmx_control[VMX_PRIMARY].value;
    s->secondary = vmx_control[VMX_SECONDARY].value;
    if (virt_apic_page != HPA_NONE) v->apic.page = s->vapic;
    *(u32 *)pages = BASIC_REVISION(rdmsr(MSR_VMX_BASIC));
    vmclear(s->vmcs);
    set_controls(v);
    return 0;
}

/* Frees what vmx_vcpu_init() has allocated. */
static void vmx_vcpu_fini(struct virt_vcpu *v) {
    const struct vmx_vcpu *s = v->priv;

    vcpu_free_pages(v, hpa_to_va(s->vmcs), VCPU_ORDER);
}

/* Forgets what blocks events and which debug exception is pending, as a reset of the vCPU does. */
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

/* Takes the vCPU off this pCPU. VMCLEAR writes the VMCS to memory, without which another pCPU could
 * not load it. */
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

/* Turns attributes of struct guest_seg into access rights of the VMCS. */
static u64 seg_ar(u16 attr) {
    if (!(attr & ATTR_P)) return AR_UNUSABLE;
    return (attr & AR_LOW) | ((u64)attr << AR_GAP & AR_HIGH);
}

/* Copies the four entries of the top table (the PDPTEs) from the guest's memory to the VMCS, if the
 * guest uses PAE paging. A real CPU loads them at a MOV to CR0, CR3 or CR4, and does not look into
 * memory again: SDM 3A 4.4.1. */
static void load_pdptes(const struct virt_vcpu *v) {
    u64 pdpte[4] = { 0 };

    if (!(read_field(v, VMCS_GUEST_CR0) & CR0_PG) || !(read_field(v, VMCS_GUEST_CR4) & CR4_PAE) ||
        read_field(v, VMCS_GUEST_EFER) & EFER_LMA)
        return;
    guestmem_read(v->vm->mem, read_field(v, VMCS_GUEST_CR3) & CR3_PAE_TABLE, pdpte, sizeof(pdpte));
    for (unsigned i = 0; i < 4; i++) write_field(v, VMCS_GUEST_PDPTE + 2 * i, pdpte[i]);
}

/* Returns CR0 or CR4 as the guest sees it. `value` is what the CPU uses. The mask has the bits that
 * the guest does not control. For these the guest reads from the shadow, which holds what it has
 * written there. */
static u64 with_shadow(const struct virt_vcpu *v, u64 value, u64 mask_field, u64 shadow_field) {
    u64 mask = read_field(v, mask_field);

    return (value & ~mask) | (read_field(v, shadow_field) & mask);
}

/* Returns a register as the guest sees it. Most are in the VMCS; the others are in v->reg or in the
 * CPU. */
u64 vmx_get_reg(struct virt_vcpu *v, enum virt_reg reg) {
    u64 value;

    if (!reg_field[reg]) return state_get(v, reg);
    value = read_field(v, reg_field[reg]);
    if (reg == VREG_CR0) return with_shadow(v, value, VMCS_CR0_MASK, VMCS_CR0_SHADOW);
    if (reg == VREG_CR4) return with_shadow(v, value, VMCS_CR4_MASK, VMCS_CR4_SHADOW);
    return value;
}

/* Writes a register, as the guest does. Bits of CR0 and CR4 that the guest does not control stay as
 * the host needs them. What the guest has written there goes to a shadow field, from which the
 * guest reads these bits. EFER.LMA says whether the guest is in long mode, and a control of the
 * entry has to say the same. The registers decide how the guest's addresses are translated, so old
 * translations are forgotten. */
void vmx_set_reg(struct virt_vcpu *v, enum virt_reg reg, u64 value) {
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
        u32 entry = vmx_control[VMX_ENTRY].value;

        if (value & EFER_LMA) entry |= ENTRY_IA32E;
        write_field(v, VMCS_ENTRY_CTL, entry);
    }
    write_field(v, reg_field[reg], value);
    if (reg == VREG_CR0 || reg == VREG_CR3 || reg == VREG_CR4) load_pdptes(v);
    tlb_forget(&v->tlb);
}

/* Reads a segment register into *out. The VMCS holds base, limit, selector and access rights in
 * four fields, whose numbers follow each other from segment to segment. A segment that the CPU
 * calls unusable has the attributes 0 here. */
static void vmx_get_seg(struct virt_vcpu *v, enum seg_name seg, struct guest_seg *out) {
    u64 ar;

    out->base = read_field(v, VMCS_GUEST_BASE + 2 * seg);
    out->limit = (u32)read_field(v, VMCS_GUEST_LIMIT + 2 * seg);
    out->sel = out->attr = 0;
    if (seg >= SEG_GDTR) return; /* GDTR and IDTR have a base and a limit alone */
    out->sel = (u16)read_field(v, VMCS_GUEST_SEL + 2 * seg);
    ar = read_field(v, VMCS_GUEST_AR + 2 * seg);
    if (!(ar & AR_UNUSABLE)) out->attr = vmx_seg_attr(ar);
}

/* Writes a segment register. GDTR and IDTR have a base and a limit alone. */
static void vmx_set_seg(struct virt_vcpu *v, enum seg_name seg, const struct guest_seg *in) {
    write_field(v, VMCS_GUEST_BASE + 2 * seg, in->base);
    write_field(v, VMCS_GUEST_LIMIT + 2 * seg, in->limit);
    if (seg >= SEG_GDTR) return;
    write_field(v, VMCS_GUEST_SEL + 2 * seg, in->sel);
    write_field(v, VMCS_GUEST_AR + 2 * seg, seg_ar(in->attr));
}

/* Returns what keeps the CPU from delivering events (BLOCKED_*), from the VMCS's "interruptibility
 * state". */
static unsigned vmx_blocked(struct virt_vcpu *v) {
    u64 shadow = vmread(VMCS_SHADOW);
    unsigned blocked = 0;

    if (shadow & (SHADOW_STI | SHADOW_MOV_SS)) blocked |= BLOCKED_SHADOW;
    if (shadow & SHADOW_NMI) blocked |= BLOCKED_NMI;
    return blocked;
}

static void vmx_clear_shadow(struct virt_vcpu *v) { vmx_end_shadow(); }

static unsigned vmx_cpl(struct virt_vcpu *v) { return vmx_current_cpl(); }

const struct virt_ops vmx_ops = {
    .name = "vmx",
    .probe = vmx_probe,
    .cpu_enable = vmx_cpu_enable,
    .npt_format = &npt_format_ept,
    .reads_pdptes = true,
    .vcpu_init = vmx_vcpu_init,
    .vcpu_fini = vmx_vcpu_fini,
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
