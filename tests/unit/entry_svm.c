/* The checks that VMRUN makes: see entry_check.h. Where APM2 and KVM differ, the stricter one
 * counts. */
#include "entry_check.h"
#include "common/string.h"
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
    RULE(b->tlb_control <= TLB_CTL_ALL ||
             (b->tlb_control == TLB_CTL_ASID && cpuid(0x8000000a, 0).edx & BIT(6)),
         "a way of flushing the TLB that this CPU does not offer");
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

/* ---- clean bits ---- */

#define CPUS  4
#define VMCBS 16

/* What each CPU has found in the VMCBs that it has left last. A VMCB whose slot another one has
 * taken is not checked. */
static struct {
    const struct vmcb *of;
    struct vmcb left;
} noted[CPUS][VMCBS];

/* The four pages of a vCPU follow each other, and the first one is the VMCB. */
#define SLOT(b) ((uintptr_t)(b) / (4 * PAGE_SIZE) % VMCBS)

#define FIELDS(bit, first, last, name)                                                             \
    {                                                                                              \
        bit, offsetof(struct vmcb, first),                                                         \
            offsetof(struct vmcb, last) + sizeof(((struct vmcb *)0)->last), name                   \
    }

/* Which bit of `clean` belongs to which fields: APM2 table 15-9. */
static const struct {
    u16 bit, from, to;
    const char *name;
} groups[] = {
    FIELDS(0, intercept_cr, pause_count, "changed although marked clean: the intercepts"),
    FIELDS(0, tsc_offset, tsc_offset, "changed although marked clean: the TSC offset"),
    FIELDS(1, iopm, msrpm, "changed although marked clean: the bitmaps"),
    FIELDS(2, asid, asid, "changed although marked clean: the ASID"),
    FIELDS(3, int_ctl, int_ctl, "changed although marked clean: TPR or virtual interrupt"),
    FIELDS(4, np_enable, np_enable, "changed although marked clean: nested paging"),
    FIELDS(4, n_cr3, n_cr3, "changed although marked clean: the nested tables"),
    FIELDS(4, pat, pat, "changed although marked clean: the PAT"),
    FIELDS(5, efer, efer, "changed although marked clean: EFER"),
    FIELDS(5, cr4, cr0, "changed although marked clean: CR0, CR3 or CR4"),
    FIELDS(6, dr7, dr6, "changed although marked clean: DR6 or DR7"),
    FIELDS(7, gdtr, gdtr, "changed although marked clean: GDTR"),
    FIELDS(7, idtr, idtr, "changed although marked clean: IDTR"),
    FIELDS(8, es, ds, "changed although marked clean: CS, SS, DS or ES"),
    FIELDS(8, cpl, cpl, "changed although marked clean: CPL"),
    FIELDS(9, cr2, cr2, "changed although marked clean: CR2"),
};

/* Returns the CPU that has left this guest last, or CPUS if that is not known. */
static u32 left_on(const struct vmcb *b) {
    for (u32 cpu = 0; cpu < CPUS; cpu++)
        if (noted[cpu][SLOT(b)].of == b) return cpu;
    return CPUS;
}

void svm_note_exit(const struct vmcb *b) {
    u32 cpu = this_cpu()->id, before = left_on(b);

    if (before < CPUS) noted[before][SLOT(b)].of = NULL;
    if (cpu >= CPUS) return;
    memcpy(&noted[cpu][SLOT(b)].left, b, sizeof(*b));
    noted[cpu][SLOT(b)].of = b;
}

const char *svm_broken_clean_bit(const struct vmcb *b) {
    u32 cpu = left_on(b);
    const struct vmcb *left;

    RULE(!(b->clean & ~CLEAN_ALL), "clean bits of what Takt does not use");
    if (cpu == CPUS) return NULL;
    RULE(!b->clean || cpu == this_cpu()->id, "marked clean although it was on another CPU");
    left = &noted[cpu][SLOT(b)].left;
    for (unsigned i = 0; i < ARRAY_SIZE(groups); i++)
        if (b->clean >> groups[i].bit & 1 &&
            memcmp((const u8 *)b + groups[i].from, (const u8 *)left + groups[i].from,
                   groups[i].to - groups[i].from) != 0)
            return groups[i].name;
    return NULL;
}

void svm_forget_exits(void) { memset(noted, 0, sizeof(noted)); }
