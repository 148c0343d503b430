/* The checks that VMRUN makes: see entry_check.h. Where APM2 and KVM differ, the stricter one
 * counts. */
#include "entry_check.h"
#include "virt/vendor.h"

#define RULE(holds, text)                                                                          \
    do {                                                                                           \
        if (!(holds)) return text;                                                                 \
    } while (0)

/* Intercepts, as bits of vmcb.intercept[]. */
#define ONE_VMRUN     BIT(0)
#define ZERO_INTR     BIT(0)
#define ZERO_NMI      BIT(1)
#define ZERO_IO       BIT(27)
#define ZERO_MSR      BIT(28)
#define ZERO_SHUTDOWN BIT(31)

static const char *controls(const struct vmcb *b) {
    RULE(b->intercept[1] & ONE_VMRUN, "VMRUN is not intercepted");
    RULE(b->asid, "ASID 0, which is the host's");
    RULE(b->asid < cpuid(0x8000000a, 0).ebx, "an ASID that this CPU does not have");
    RULE(b->np_enable == 1, "no nested paging, or more than that");
    RULE(b->n_cr3 && !(b->n_cr3 & 0xfff) && !(b->n_cr3 >> entry_physbits()),
         "the address of the nested tables");
    RULE(b->msrpm && !(b->msrpm & 0xfff) && !((b->msrpm + 8191) >> entry_physbits()),
         "the MSR bitmap");
    RULE(b->iopm && !(b->iopm & 0xfff) && !((b->iopm + 12287) >> entry_physbits()),
         "the I/O bitmap");
    RULE(b->tlb_control <= TLB_CTL_ALL, "a way of flushing the TLB that KVM does not offer");
    RULE((b->intercept[0] & (ZERO_INTR | ZERO_NMI)) == (ZERO_INTR | ZERO_NMI),
         "interrupts or NMIs are the guest's");
    RULE(b->intercept[0] & ZERO_IO && b->intercept[0] & ZERO_MSR, "ports or MSRs are the guest's");
    RULE(b->intercept[0] & ZERO_SHUTDOWN, "a triple fault of a guest is the machine's");
    RULE(b->intercept_exc & BIT(EXC_MC), "machine checks are the guest's");
    RULE(b->int_ctl & INT_CTL_MASKING,
         "V_INTR_MASKING is off: RFLAGS.IF of the guest masks the host's");
    return NULL;
}

/* Vectors that are exceptions: APM2 table 8-1. Left out are the NMI, 9 and 15, which no CPU with
 * AMD-V raises, those of shadow stacks and of encrypted guests, which no guest of Takt has, and
 * reserved ones. */
#define EXCEPTIONS 0x400f7dfbu

static const char *event(const struct vmcb *b) {
    u32 e = (u32)b->event_inj, type = e >> 8 & 7, vector = e & 0xff;

    if (!(e & EVENT_VALID)) return NULL;
    RULE(type != 1 && type <= EVENT_TYPE_SOFT, "an injected event of a reserved type");
    RULE(type != EVENT_TYPE_EXC || (vector < 32 && EXCEPTIONS >> vector & 1),
         "the vector of an injected exception");
    RULE(!(e & 0x7ffff000), "reserved bits of an injected event");
    return NULL;
}

/* APM2 3.1.3: some bits of CR4 come with a feature that CPUID shows. */
static u64 cr4_known(void) {
    u64 known = 0x7ff; /* VME to OSXMMEXCPT: all CPUs with AMD-V have these */
    u32 leaf7 = cpuid_or_zero(7, 0).ebx;

    if (cpuid(1, 0).ecx & BIT(26)) known |= CR4_OSXSAVE;
    if (leaf7 & BIT(0)) known |= CR4_FSGSBASE;
    if (leaf7 & BIT(7)) known |= CR4_SMEP;
    if (leaf7 & BIT(20)) known |= CR4_SMAP;
    if (cpuid_or_zero(7, 0).ecx & BIT(2)) known |= CR4_UMIP;
    return known;
}

/* APM2 7.8.2: UC, WC, WT, WP, WB, UC- */
static bool pat_valid(u64 pat) {
    for (unsigned i = 0; i < 8; i++, pat >>= 8)
        if ((pat & 0xff) > 7 || (pat & 0xff) == 2 || (pat & 0xff) == 3) return false;
    return true;
}

static const char *save(const struct vmcb *b) {
    u64 long_mode = b->efer & EFER_LME && b->cr0 & CR0_PG;

    RULE(b->efer & EFER_SVME, "EFER.SVME is clear");
    RULE(!(b->efer & ~(EFER_SCE | EFER_LME | EFER_LMA | EFER_NXE | EFER_SVME)),
         "reserved bits of EFER");
    RULE(b->cr0 & CR0_CD || !(b->cr0 & CR0_NW), "CR0.NW without CR0.CD");
    RULE(!(b->cr0 >> 32), "the upper half of CR0");
    RULE(!(b->cr0 & (CR0_CD | CR0_NW)), "CR0.CD or NW: a guest that runs the core uncached");
    RULE(!(b->cr3 >> entry_physbits()) || !long_mode, "CR3 beyond the physical addresses");
    RULE(b->cr4 & CR4_MCE, "CR4.MCE, without which a machine check is a shutdown");
    RULE(!(b->cr4 & ~cr4_known()), "bits of CR4 that this CPU does not have");
    RULE(pat_valid(b->pat), "the guest's PAT");
    RULE(!(b->dr6 >> 32) && !(b->dr7 >> 32), "the upper half of DR6 or DR7");
    RULE(!long_mode || b->cr4 & CR4_PAE, "long mode without PAE");
    RULE(!long_mode || b->cr0 & CR0_PE, "long mode without protected mode");
    RULE(!long_mode || !(b->cs.attr & ATTR_LONG) || !(b->cs.attr & ATTR_BIG),
         "CS with both L and D");
    RULE(b->cpl == (b->ss.attr >> 5 & 3), "CPL is not SS.DPL");
    return NULL;
}

const char *svm_broken_rule(const struct vmcb *b) {
    const char *rule = controls(b);

    if (!rule) rule = event(b);
    return rule ? rule : save(b);
}
