/* The operations of AMD-V, except for those that enter a guest, which are in svm_run.c: APM2
 * chapter 15. The VMCB is the structure in memory that describes a vCPU to the CPU; its bits of
 * "intercepts" say what makes the guest exit. A "shadow" is the one instruction after STI or MOV SS
 * during which nothing is delivered. */
#include <takt/errno.h>
#include "common/insn.h"
#include "common/string.h"
#include "virt/hw.h"
#include "virt/svm.h"
#include "virt/vendor.h"
#include "virt/vmcb.h"

#define MSR_VM_HSAVE_PA 0xc0010117u /* where VMRUN saves the host's state: APM2 15.30.4 */
#define VM_CR_LOCK      BIT(3)      /* of VM_CR: APM2 15.30.1 */
#define VM_CR_SVMDIS    BIT(4)

/* Every access to CR4 exits: bits that guests do not see must fault, and CR4.MCE is not theirs. */
#define CR4_ACCESS (CR_READ(4) | CR_WRITE(4))
#define CR0_ACCESS (CR_READ(0) | CR_WRITE(0))

/* Bits of CR0 that the CPU never gets from a guest. With them a guest could switch off the caches
 * of its core, and slow down all others that share them (APM2 7.6.2). */
#define CR0_OWNED (CR0_CD | CR0_NW)

/* CPUID: APM3 E.4. SVM is a bit of leaf 80000001's ECX, the others are of leaf 8000000A's EDX. */
#define CPUID_EXTENDED 0x80000001u
#define CPUID_SVM      0x8000000au
#define EXTENDED_SVM   BIT(2)
#define FEAT_NP        BIT(0)
#define FEAT_NEXT_RIP  BIT(3)
#define FEAT_FLUSH     BIT(6)
#define FEAT_DECODE    BIT(7)
#define FEAT_PAUSE     BIT(10)
#define FEAT_THRESHOLD BIT(12)

/* After PAUSES PAUSEs in one loop, PAUSE exits. Such a loop is longer than most critical sections.
 * Two PAUSEs that are more than PAUSE_THRESHOLD cycles apart do not belong to one loop: APM2
 * 15.14.4. */
#define PAUSES          3000
#define PAUSE_THRESHOLD 128

/* The bitmaps of ports and of MSRs: APM2 15.10.1, 15.11. The bitmap of MSRs has 2 KiB for the MSRs
 * from 0 on, and 2 KiB for those from C0000000h on. Each MSR has two bits, for reading and for
 * writing. */
#define IO_BITMAP_ORDER  2
#define MSR_BITMAP_ORDER 1
#define MSR_RANGE_BYTES  0x800u
#define MSR_IN_RANGE(n)  ((n)&0x1fffu)

static u32 features;
bool svm_has_next_rip, svm_has_decode_assists;
static bool no_decode_assists, no_flush_by_asid; /* as svm_allow() was told */
static u8 *io_bitmap, *msr_bitmap;               /* all VMs share them */

/* ---- the CPU ---- */

/* Allows SVM on this CPU if the firmware has forbidden it. Each CPU has its own VM_CR, and the
 * firmware may have left them different. Returns false if the firmware has also locked that
 * register until the next reset (APM2 15.30.1). */
static bool allow_svm(void) {
    u64 vm_cr = rdmsr(MSR_VM_CR);

    if (!(vm_cr & VM_CR_SVMDIS)) return true;
    if (vm_cr & VM_CR_LOCK) return false;
    wrmsr(MSR_VM_CR, vm_cr & ~VM_CR_SVMDIS);
    return true;
}

void svm_allow(bool decode_assists, bool flush_by_asid) {
    no_decode_assists = !decode_assists;
    no_flush_by_asid = !flush_by_asid;
}

/* Notes what AMD-V can do on this CPU, and in caps->reason why Takt cannot use it. */
static void svm_probe(struct virt_caps *caps) {
    struct cpuid svm = cpuid_or_zero(CPUID_SVM, 0);

    caps->present = cpuid_or_zero(CPUID_EXTENDED, 0).ecx & EXTENDED_SVM;
    if (!caps->present) return;
    features = svm.edx;
    caps->locked_off = !allow_svm();
    caps->second_level = features & FEAT_NP;
    caps->unrestricted = true; /* AMD-V runs guests in real mode on every CPU */
    caps->asid = svm.ebx > 1;
    virt_counts_pauses = features & FEAT_PAUSE;
    svm_has_next_rip = features & FEAT_NEXT_RIP;
    /* Each CPU with decode assists has next-RIP, too. Without it lengths would be missing. */
    caps->decode_assists = svm_has_next_rip && features & FEAT_DECODE;
    svm_has_decode_assists = caps->decode_assists && !no_decode_assists;
    caps->flush_by_asid = features & FEAT_FLUSH;
    virt_flushes_tags = caps->flush_by_asid && !no_flush_by_asid;
    if (caps->locked_off)
        caps->reason =
            "the firmware has switched AMD-V off and locked it: allow SVM in its set-up.";
    else if (!caps->second_level)
        caps->reason = "this CPU has AMD-V without nested paging, which Takt needs.";
    else if (!caps->asid)
        caps->reason = "this CPU has AMD-V without address space identifiers.";
}

/* Makes the bitmaps by which all ports exit, and all MSRs except those of free_msrs[]. */
static int make_bitmaps(void) {
    hpa_t io = frame_alloc(IO_BITMAP_ORDER), msr = frame_alloc(MSR_BITMAP_ORDER);

    if (io == HPA_NONE || msr == HPA_NONE) return -ENOMEM;
    io_bitmap = memset(hpa_to_va(io), 0xff, PAGE_SIZE << IO_BITMAP_ORDER);
    msr_bitmap = memset(hpa_to_va(msr), 0xff, PAGE_SIZE << MSR_BITMAP_ORDER);
    for (unsigned i = 0; i < FREE_MSRS; i++) {
        u32 n = MSR_IN_RANGE(free_msrs[i]);
        u8 *range = msr_bitmap + (free_msrs[i] >> 31) * MSR_RANGE_BYTES;

        range[n / 4] &= (u8) ~(3u << n % 4 * 2);
    }
    return 0;
}

/* Enables AMD-V on this pCPU, and returns how many ASIDs there are: the tags by which the CPU tells
 * the translations of vCPUs apart. VMRUN saves the host's state in the first of the two pages. The
 * second is a VMCB that holds the host's registers which VMRUN does not switch, such as FS, GS and
 * TR; svm_enter() loads them after each exit. */
static int svm_cpu_enable(u8 *pages) {
    if (!msr_bitmap && make_bitmaps()) return -ENOMEM;
    if (!allow_svm()) return -EPERM;
    wrmsr(MSR_EFER, rdmsr(MSR_EFER) | EFER_SVME);
    wrmsr(MSR_VM_HSAVE_PA, va_to_hpa(pages));
    vmsave(va_to_hpa(pages + PAGE_SIZE));
    return (int)cpuid(CPUID_SVM, 0).ebx;
}

/* ---- VMs and vCPUs ---- */

/* Makes what AMD-V needs for a vCPU: the VMCB (the page by which the CPU enters the guest) and our
 * own data. Fills in what is constant there, above all which events of the guest exit. */
static int svm_vcpu_init(struct virt_vcpu *v) {
    struct vmcb *b = (struct vmcb *)vcpu_pages(v, 0, sizeof(struct svm_vcpu));
    struct svm_vcpu *s = v->priv;

    if (!b) return -ENOMEM;
    s->vmcb = b;
    s->pa = va_to_hpa(b);
    /* #AC and #DB exit. Otherwise a guest whose handler faults again while it is being entered
     * would keep the CPU for ever, inside one instruction (CVE-2015-5307, CVE-2015-8104). #MC is
     * the host's. */
    b->intercept_exc = 1u << EXC_DB | 1u << EXC_AC | 1u << EXC_MC;
    svm_set_intercepts(b);
    svm_watch_iret(b, false);
    if (features & FEAT_PAUSE) {
        b->pause_count = PAUSES;
        if (features & FEAT_THRESHOLD) b->pause_threshold = PAUSE_THRESHOLD;
    }
    b->iopm = va_to_hpa(io_bitmap);
    b->msrpm = va_to_hpa(msr_bitmap);
    b->int_ctl = INT_CTL_MASKING;
    b->tsc_offset = v->tsc_offset;
    b->np_enable = NP_ENABLE;
    b->n_cr3 = v->vm->npt.root;
    return 0;
}

/* Frees what svm_vcpu_init() has allocated. */
static void svm_vcpu_fini(struct virt_vcpu *v) {
    const struct svm_vcpu *s = v->priv;

    vcpu_free_pages(v, s->vmcb, 0);
}

/* Makes `v` the current vCPU of this pCPU. The CPU has to read all of the VMCB again (`clean` is
 * 0), as another pCPU may have run the vCPU. */
static void svm_load(struct virt_vcpu *v) {
    struct svm_vcpu *s = v->priv;

    state_load(v);
    s->host = va_to_hpa(this_virt()->pages + PAGE_SIZE);
    s->vmcb->clean = 0;
}

/* ---- registers ---- */

/* The offset of each register in the VMCB; 0: the VMCB does not hold it. */
#define FIELD(name) offsetof(struct vmcb, name)
static const u16 reg_field[VREG_NR] = {
    [VREG_CR3] = FIELD(cr3),
    [VREG_CR0] = FIELD(cr0),
    [VREG_DR7] = FIELD(dr7),
    [VREG_DR6] = FIELD(dr6),
    [VREG_STAR] = FIELD(star),
    [VREG_LSTAR] = FIELD(lstar),
    [VREG_CSTAR] = FIELD(cstar),
    [VREG_FMASK] = FIELD(fmask),
    [VREG_KERNEL_GS_BASE] = FIELD(kernel_gs_base),
    [VREG_SYSENTER_CS] = FIELD(sysenter_cs),
    [VREG_SYSENTER_ESP] = FIELD(sysenter_esp),
    [VREG_SYSENTER_EIP] = FIELD(sysenter_eip),
    [VREG_CR2] = FIELD(cr2),
    [VREG_EFER] = FIELD(efer),
    [VREG_PAT] = FIELD(pat),
    [VREG_FS_BASE] = FIELD(fs.base),
    [VREG_GS_BASE] = FIELD(gs.base),
};

/* Returns where the value of a register is kept as the guest sees it; NULL if state_get() has it.
 * CR4 as the guest sees it is in v->reg, because CR4 in the VMCB always has MCE set. */
static u64 *field_of(struct virt_vcpu *v, enum virt_reg reg) {
    if (reg == VREG_CR4) return &v->reg[VREG_CR4];
    if (!reg_field[reg]) return NULL;
    return (u64 *)((u8 *)svm_vmcb(v) + reg_field[reg]);
}

/* Returns a register as the guest sees it: without the bit of EFER that AMD-V demands, and with the
 * bits of CR0 that the CPU never gets. */
static u64 svm_get_reg(struct virt_vcpu *v, enum virt_reg reg) {
    const u64 *field = field_of(v, reg);

    if (!field) return state_get(v, reg);
    if (reg == VREG_EFER) return *field & ~EFER_SVME;
    if (reg == VREG_CR0) return *field | ((struct svm_vcpu *)v->priv)->cr0_hidden;
    return *field;
}

/* Sets which accesses to control registers exit. This depends on the vCPU's state. A write to CR0
 * exits if it changes other bits than TS and MP (the selective intercept, APM2 15.9). As long as
 * the guest has to read other bits of CR0 than the CPU has, all accesses to CR0 exit. */
void svm_set_cr_intercepts(struct virt_vcpu *v) {
    const struct svm_vcpu *s = v->priv;
    struct vmcb *b = s->vmcb;

    b->intercept_cr = CR4_ACCESS;
    if (s->cr0_hidden && !s->cr0_free) b->intercept_cr |= CR0_ACCESS;
    /* Writes of CR8 also exit while V_IRQ is set, which is the case for a window and for a virtual
     * interrupt. Otherwise QEMU (at least up to 10.0) would end by an assertion there. */
    if (v->want_cr8_exit || v->want_irq_window || s->virq) b->intercept_cr |= CR_WRITE(8);
    if (s->cr0_free)
        b->intercept[0] &= ~SVM_INTERCEPT(SVM_EXIT_CR0_SELECTIVE);
    else
        b->intercept[0] |= SVM_INTERCEPT(SVM_EXIT_CR0_SELECTIVE);
    b->clean &= ~CLEAN_INTERCEPTS;
}

/* Forgets what blocks events, and which moments in the guest's code we wait for, as a reset of the
 * vCPU does. */
static void svm_reset_events(struct virt_vcpu *v) {
    struct svm_vcpu *s = v->priv;

    s->vmcb->int_shadow = 0;
    s->nmi_masked = s->stepping = s->cr0_free = false;
    svm_watch_iret(s->vmcb, false);
    svm_set_cr_intercepts(v);
}

/* Writes CR0. The bits that the CPU must not get are kept aside, and while one of them is set, the
 * guest's accesses to CR0 exit, so that it reads what it has written. */
void svm_set_cr0(struct virt_vcpu *v, u64 value) {
    struct svm_vcpu *s = v->priv;

    s->vmcb->cr0 = (value & ~CR0_OWNED) | CR0_ET;
    s->cr0_hidden = value & CR0_OWNED;
    svm_set_cr_intercepts(v);
}

/* Writes a register, as the guest does. Two bits are always set in the CPU, and guests do not see
 * them. VMRUN demands EFER.SVME. Without CR4.MCE a machine check, which is meant for the host,
 * would shut the machine down. */
static void svm_set_reg(struct virt_vcpu *v, enum virt_reg reg, u64 value) {
    u64 *field = field_of(v, reg);

    if (!field)
        state_set(v, reg, value);
    else if (reg == VREG_CR0)
        svm_set_cr0(v, value);
    else if (reg == VREG_EFER)
        *field = value | EFER_SVME;
    else
        *field = value;
    if (reg == VREG_CR4) svm_vmcb(v)->cr4 = value | CR4_MCE;
    svm_vmcb(v)->clean = 0;
    tlb_forget(&v->tlb);
}

/* Returns where the VMCB has a segment register. It has them in the form of struct guest_seg. */
static struct guest_seg *seg_of(const struct virt_vcpu *v, enum seg_name seg) {
    static const u16 seg_field[SEG_NR] = {
        [SEG_ES] = FIELD(es),     [SEG_CS] = FIELD(cs), [SEG_SS] = FIELD(ss),
        [SEG_DS] = FIELD(ds),     [SEG_FS] = FIELD(fs), [SEG_GS] = FIELD(gs),
        [SEG_LDTR] = FIELD(ldtr), [SEG_TR] = FIELD(tr), [SEG_GDTR] = FIELD(gdtr),
        [SEG_IDTR] = FIELD(idtr)
    };

    return (struct guest_seg *)((u8 *)svm_vmcb(v) + seg_field[seg]);
}

static void svm_get_seg(struct virt_vcpu *v, enum seg_name seg, struct guest_seg *out) {
    *out = *seg_of(v, seg);
}

static void svm_set_seg(struct virt_vcpu *v, enum seg_name seg, const struct guest_seg *in) {
    svm_vmcb(v)->clean = 0;
    *seg_of(v, seg) = *in;
    if (seg == SEG_SS) svm_vmcb(v)->cpl = ATTR_DPL(in->attr);
}

/* Returns what keeps the CPU from delivering events (BLOCKED_*). AMD-V does not tell whether NMIs
 * are blocked, so svm_run.c keeps that itself. */
static unsigned svm_blocked(struct virt_vcpu *v) {
    const struct svm_vcpu *s = v->priv;
    unsigned blocked = 0;

    if (s->nmi_masked) blocked |= BLOCKED_NMI;
    if (s->vmcb->int_shadow & INT_SHADOW) blocked |= BLOCKED_SHADOW;
    return blocked;
}

static void svm_clear_shadow(struct virt_vcpu *v) { svm_vmcb(v)->int_shadow = 0; }

static unsigned svm_cpl(struct virt_vcpu *v) { return svm_vmcb(v)->cpl; }

const struct virt_ops svm_ops = {
    .name = "svm",
    .probe = svm_probe,
    .cpu_enable = svm_cpu_enable,
    .npt_format = &npt_format_amd,
    .vcpu_init = svm_vcpu_init,
    .vcpu_fini = svm_vcpu_fini,
    .reset_events = svm_reset_events,
    .load = svm_load,
    .save = state_save,
    .run = svm_run,
    .get_reg = svm_get_reg,
    .set_reg = svm_set_reg,
    .get_seg = svm_get_seg,
    .set_seg = svm_set_seg,
    .blocked = svm_blocked,
    .clear_shadow = svm_clear_shadow,
    .cpl = svm_cpl,
    .why = svm_why,
};
