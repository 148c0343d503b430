/* The checks of VM entries: see entry_check.h. The CPU also consults fields that it does not check,
 * so these are read here, too. A new VMCS may hold anything (SDM 3C 25.11.3), and the model of a
 * CPU refuses to read a field that was never written. */
#include "entry_check.h"
#include "virt/hw.h"
#include "virt/vendor.h"
#include "virt/vmcs.h"

/* SDM 3D A.1 to A.10 */
#define MSR_MISC       0x485
#define MSR_CR0_FIXED0 0x486 /* CR0_FIXED1 and CR4_FIXED1 follow these */
#define MSR_CR0_FIXED1 0x487
#define MSR_CR4_FIXED0 0x488
#define MSR_CR4_FIXED1 0x489
#define MSR_EPT_VPID   0x48c
#define MSR_PIN        0x48d
#define MSR_PRIMARY    0x48e
#define MSR_SECONDARY  0x48b
#define MSR_EXIT       0x48f
#define MSR_ENTRY      0x490

/* Software interrupts may be injected although their instructions have no bytes. */
#define MISC_ZERO_LENGTH BIT(30)
/* Accessed and dirty flags, which bit 6 of the EPT pointer turns on. */
#define EPT_DIRTY  BIT(21)
#define EPTP_DIRTY BIT(6)
/* Two registers of a LAPIC in x2APIC mode, and where the bitmap of MSRs is about writes. */
#define X2APIC_TPR    0x808
#define X2APIC_EOI    0x80b
#define BITMAP_WRITES 2048

static u64 get(u32 field) { return vmread(field); }

#define RULE(holds, text)                                                                          \
    do {                                                                                           \
        if (!(holds)) return text;                                                                 \
    } while (0)

/* The lower half of such an MSR has the bits that must be 1, the upper half those that may be 1. */
static bool within(u32 msr, u64 value) {
    u64 offer = rdmsr(msr);

    return !((u32)offer & ~value) && !(value & ~(offer >> 32));
}

static bool page(u64 pa) { return !(pa & 0xfff) && !(pa >> entry_physbits()); }

/* UC, WC, WT, WP, WB, UC- */
static bool pat_valid(u64 pat) {
    for (unsigned i = 0; i < 8; i++, pat >>= 8)
        if ((pat & 0xff) > 7 || (pat & 0xff) == 2 || (pat & 0xff) == 3) return false;
    return true;
}

/* The highest bit of the eight registers of a LAPIC's page that begin at this offset; 0: none. */
static u64 highest_bit(const u8 *vapic, u32 offset) {
    for (u32 vector = 256; vector-- > 0;)
        if (vapic[offset + vector / 32 * 16 + vector % 32 / 8] >> vector % 8 & 1) return vector;
    return 0;
}

/* ---- 27.2.1: controls ---- */

/* APIC virtualization. The CPU does not check the rules from the bitmap on. An access to an x2APIC
 * MSR that does not exit is one to the machine's own LAPIC, unless the mode is virtualized (30.5).
 * And of the interrupts in the virtual-APIC page the CPU delivers what the guest interrupt status
 * says (30.1.1, 30.2.1), so the two have to agree. */
static const char *apic(u64 pin, u64 primary, u64 secondary) {
    const u8 *vapic, *bitmap;
    bool tpr, eoi;

    RULE(primary & PRI_TPR_SHADOW || !(secondary & (SEC_X2APIC | SEC_APIC_REGS | SEC_VIRQ)),
         "APIC virtualization without a TPR shadow");
    RULE(!(secondary & SEC_X2APIC) || !(secondary & SEC_APIC_PAGE),
         "both the page of a LAPIC and its MSRs are virtualized");
    RULE(!(secondary & SEC_VIRQ) || pin & PIN_INTR,
         "virtual-interrupt delivery without exits by interrupts");
    RULE(!(secondary & SEC_APIC_PAGE) || page(get(VMCS_APIC_ACCESS)),
         "the address of the APIC-access page");
    bitmap = hpa_to_va(get(VMCS_MSR_BITMAP));
    tpr = bitmap[X2APIC_TPR / 8] >> X2APIC_TPR % 8 & 1;
    eoi = bitmap[BITMAP_WRITES + X2APIC_EOI / 8] >> X2APIC_EOI % 8 & 1;
    RULE(secondary & SEC_X2APIC || (tpr && eoi), "MSRs of the machine's own LAPIC");
    if (!(secondary & SEC_VIRQ)) return NULL;
    for (u32 i = 0; i < 4; i++) get(VMCS_EOI_EXITS + 2 * i);
    vapic = hpa_to_va(get(VMCS_VAPIC));
    RULE((get(VMCS_GUEST_APIC) & 0xff) == highest_bit(vapic, 0x200),
         "RVI is not the highest vector of IRR");
    RULE(get(VMCS_GUEST_APIC) >> 8 == highest_bit(vapic, 0x100),
         "SVI is not the highest vector of ISR");
    return NULL;
}

static const char *execution(void) {
    u64 pin = get(VMCS_PIN), primary = get(VMCS_PRIMARY), secondary = get(VMCS_SECONDARY), eptp;
    const char *rule;

    RULE(within(MSR_PIN, pin), "pin-based controls that are not offered");
    RULE(within(MSR_PRIMARY, primary), "primary controls that are not offered");
    RULE(within(MSR_SECONDARY, secondary), "secondary controls that are not offered");
    RULE(get(VMCS_CR3_TARGETS) <= (rdmsr(MSR_MISC) >> 16 & 0x1ff),
         "more CR3 targets than are offered");
    RULE(!(primary & PRI_MSR_BITMAP) || page(get(VMCS_MSR_BITMAP)),
         "the address of the MSR bitmap");
    RULE(!(primary & PRI_TPR_SHADOW) || page(get(VMCS_VAPIC)),
         "the address of the virtual-APIC page");
    if (primary & PRI_TPR_SHADOW) {
        const u8 *vapic = hpa_to_va(get(VMCS_VAPIC));

        RULE(secondary & SEC_VIRQ || !(get(VMCS_TPR_THRESHOLD) >> 4), "a TPR threshold above 15");
        RULE(secondary & (SEC_VIRQ | SEC_APIC_PAGE) || get(VMCS_TPR_THRESHOLD) <= vapic[0x80] >> 4,
             "a TPR threshold above the virtual TPR");
    }
    rule = apic(pin, primary, secondary);
    if (rule) return rule;
    RULE(pin & PIN_NMI || !(pin & PIN_VIRTUAL_NMIS), "virtual NMIs without exits by NMIs");
    RULE(pin & PIN_VIRTUAL_NMIS || !(primary & PRI_NMI_WINDOW),
         "an NMI window without virtual NMIs");
    RULE(!(secondary & SEC_VPID) || get(VMCS_VPID), "VPID 0");
    RULE(!(secondary & SEC_UNRESTRICTED) || secondary & SEC_EPT,
         "an unrestricted guest without EPT");
    if (secondary & SEC_EPT) {
        eptp = get(VMCS_EPTP);
        RULE((eptp & 7) == 6 && (eptp >> 3 & 7) == 3,
             "the memory type or the levels of the EPT pointer");
        RULE(!(eptp & EPTP_DIRTY) || rdmsr(MSR_EPT_VPID) & EPT_DIRTY,
             "dirty flags that are not offered");
        RULE(!(eptp & 0xf80) && !(eptp >> entry_physbits()), "reserved bits of the EPT pointer");
    }
    /* The CPU does not check these, but reads them. */
    get(VMCS_EXCEPTIONS);
    get(VMCS_PF_MASK);
    get(VMCS_PF_MATCH);
    get(VMCS_TSC_OFFSET);
    get(VMCS_CR0_MASK);
    get(VMCS_CR0_SHADOW);
    get(VMCS_CR4_MASK);
    get(VMCS_CR4_SHADOW);
    if (secondary & SEC_PLE) get(VMCS_PLE_GAP);
    if (secondary & SEC_PLE) get(VMCS_PLE_WINDOW);
    if (secondary & SEC_ENCLS) get(VMCS_ENCLS_BITMAP);
    if (pin & PIN_PREEMPTION_TIMER) get(VMCS_PREEMPTION_TIMER);
    return NULL;
}

/* SDM 3A table 6-1 */
static bool vector_has_code(u64 vector) { return BIT(vector & 31) & 0x00227d00; }

static const char *event(bool protected_mode) {
    u64 e = get(VMCS_ENTRY_EVENT), type = e >> 8 & 7, vector = e & 0xff;
    bool code = e & EVENT_HAS_CODE;

    if (!(e & EVENT_VALID)) return NULL;
    RULE(type != 1 && type != 7, "an injected event of a reserved type");
    RULE(type != EVENT_TYPE_NMI || vector == 2, "an injected NMI with another vector than 2");
    RULE(type != EVENT_TYPE_EXC || vector < 32, "an injected exception with a vector above 31");
    RULE(code == (type == EVENT_TYPE_EXC && protected_mode && vector_has_code(vector)),
         "an error code where there is none, or none where there is one");
    RULE(!code || !(get(VMCS_ENTRY_CODE) >> 16), "an error code of more than 16 bits");
    RULE(!(e & 0x7ffff000), "reserved bits of an injected event");
    if (type >= EVENT_TYPE_SOFT && type <= 6) {
        u64 length = get(VMCS_ENTRY_INSN_LEN);

        RULE(length <= 15, "the length of an instruction that causes an injected event");
        RULE(length || rdmsr(MSR_MISC) & MISC_ZERO_LENGTH,
             "an injected event of an instruction without bytes");
    }
    return NULL;
}

static const char *exit_and_entry(void) {
    RULE(within(MSR_EXIT, get(VMCS_EXIT_CTL)), "exit controls that are not offered");
    RULE(within(MSR_ENTRY, get(VMCS_ENTRY_CTL)), "entry controls that are not offered");
    RULE(get(VMCS_EXIT_CTL) & EXIT_HOST_64, "a host without 64 bits");
    RULE(!get(VMCS_EXIT_MSR_STORES) && !get(VMCS_EXIT_MSR_LOADS) && !get(VMCS_ENTRY_MSR_LOADS),
         "lists of MSRs, which Takt does not have");
    return event(get(VMCS_GUEST_CR0) & CR0_PE);
}

/* Bits that VT-x keeps set, and bits that it keeps clear, in the MSR that follows: SDM 3D A.7,
 * A.8. */
static bool cr_fits(u64 value, u32 fixed0) {
    return !(rdmsr(fixed0) & ~value) && !(value & ~rdmsr(fixed0 + 1));
}

/* ---- 27.2.2 to 27.2.4: the host ---- */

static const char *host(void) {
    static const u16 selectors[] = { VMCS_HOST_ES, VMCS_HOST_CS, VMCS_HOST_SS, VMCS_HOST_DS,
                                     VMCS_HOST_FS, VMCS_HOST_GS, VMCS_HOST_TR };
    static const u16 addresses[] = { VMCS_HOST_SYSENTER_ESP, VMCS_HOST_SYSENTER_EIP,
                                     VMCS_HOST_FS_BASE,      VMCS_HOST_GS_BASE,
                                     VMCS_HOST_GDTR,         VMCS_HOST_IDTR,
                                     VMCS_HOST_TR_BASE };
    u64 efer;

    RULE(cr_fits(get(VMCS_HOST_CR0), MSR_CR0_FIXED0), "the host's CR0");
    RULE(cr_fits(get(VMCS_HOST_CR4), MSR_CR4_FIXED0) && get(VMCS_HOST_CR4) & CR4_PAE,
         "the host's CR4");
    RULE(!(get(VMCS_HOST_CR3) >> entry_physbits()), "the host's CR3");
    RULE(pat_valid(get(VMCS_HOST_PAT)), "the host's PAT");
    efer = get(VMCS_HOST_EFER);
    RULE((efer & (EFER_LMA | EFER_LME)) == (EFER_LMA | EFER_LME), "the host's EFER");
    for (unsigned i = 0; i < ARRAY_SIZE(selectors); i++)
        RULE(!(get(selectors[i]) & 7), "a selector of the host with RPL or TI");
    RULE(get(VMCS_HOST_CS) && get(VMCS_HOST_TR), "the host's CS or TR is null");
    for (unsigned i = 0; i < ARRAY_SIZE(addresses); i++)
        RULE(is_canonical(get(addresses[i])), "an address of the host that is not canonical");
    get(VMCS_HOST_RIP); /* the host build lies anywhere */
    get(VMCS_HOST_RSP);
    get(VMCS_HOST_SYSENTER_CS);
    return NULL;
}

/* ---- 27.3.1: the guest ---- */

static const char *guest_registers(void) {
    u64 cr0 = get(VMCS_GUEST_CR0), cr3 = get(VMCS_GUEST_CR3), cr4 = get(VMCS_GUEST_CR4);
    u64 efer = get(VMCS_GUEST_EFER);
    bool ia32e = get(VMCS_ENTRY_CTL) & ENTRY_IA32E;

    RULE(cr0 & CR0_NE, "CR0.NE, which VT-x keeps set");
    RULE(cr0 & CR0_PE || !(cr0 & CR0_PG), "CR0.PG without CR0.PE");
    RULE(!(cr0 >> 32), "the upper half of CR0");
    RULE(!(cr0 & (CR0_CD | CR0_NW)), "CR0.CD or NW: a guest that runs the core uncached");
    RULE(!(cr0 & ~rdmsr(MSR_CR0_FIXED1)), "bits of CR0 that VT-x keeps clear");
    RULE(cr_fits(cr4, MSR_CR4_FIXED0), "bits of CR4 that VT-x keeps set, or clear");
    RULE(cr4 & CR4_MCE, "CR4.MCE, without which a machine check is a shutdown");
    RULE(!ia32e || (cr0 & CR0_PG && cr4 & CR4_PAE), "IA-32e mode without paging or PAE");
    RULE(ia32e || !(cr4 & BIT(17)), "CR4.PCIDE outside IA-32e mode");
    RULE(!(cr3 >> entry_physbits()), "CR3 beyond the physical addresses");
    RULE(!(get(VMCS_GUEST_DR7) >> 32), "the upper half of DR7");
    RULE(!get(VMCS_GUEST_DEBUGCTL), "DEBUGCTL, which guests do not have");
    get(VMCS_GUEST_SYSENTER_CS);
    RULE(is_canonical(get(VMCS_GUEST_SYSENTER_ESP)) && is_canonical(get(VMCS_GUEST_SYSENTER_EIP)),
         "SYSENTER_ESP or SYSENTER_EIP is not canonical");
    RULE(pat_valid(get(VMCS_GUEST_PAT)), "the guest's PAT");
    RULE(!(efer & ~(EFER_SCE | EFER_LME | EFER_LMA | EFER_NXE)), "reserved bits of EFER");
    RULE(ia32e == !!(efer & EFER_LMA), "EFER.LMA is not what the entry control says");
    RULE(!(cr0 & CR0_PG) || !(efer & EFER_LMA) == !(efer & EFER_LME),
         "EFER.LMA is not EFER.LME under paging");
    return NULL;
}

static u64 ar(unsigned seg) { return get(VMCS_GUEST_AR + 2 * seg); }
static u64 sel(unsigned seg) { return get(VMCS_GUEST_SEL + 2 * seg); }
static u64 base(unsigned seg) { return get(VMCS_GUEST_BASE + 2 * seg); }
static u64 limit(unsigned seg) { return get(VMCS_GUEST_LIMIT + 2 * seg); }

/* Granularity: a limit whose low bits are not all 1 counts bytes, one with high bits counts
 * pages. */
static bool granular(unsigned seg) {
    bool g = ar(seg) & BIT(15);

    return ((limit(seg) & 0xfff) == 0xfff || !g) && (!(limit(seg) & 0xfff00000) || g);
}

static const char *code_segment(void) {
    u64 type = ar(SEG_CS) & 15, dpl = ar(SEG_CS) >> 5 & 3, ss_dpl = ar(SEG_SS) >> 5 & 3;
    bool ia32e = get(VMCS_ENTRY_CTL) & ENTRY_IA32E;

    RULE(!(base(SEG_CS) >> 32), "the base of CS");
    RULE(!(ar(SEG_CS) & AR_UNUSABLE), "CS is unusable");
    RULE(type == 3 || type == 9 || type == 11 || type == 13 || type == 15, "the type of CS");
    RULE(ar(SEG_CS) & BIT(4), "CS is no code or data segment");
    RULE(type != 3 || dpl == 0, "a data segment as CS with a DPL");
    RULE((type != 9 && type != 11) || dpl == ss_dpl, "the DPLs of CS and SS");
    RULE((type != 13 && type != 15) || dpl <= ss_dpl, "the DPLs of CS and SS");
    RULE(ar(SEG_CS) & BIT(7), "CS is not present");
    RULE(!(ar(SEG_CS) & ~0xf0ffull), "reserved bits of CS");
    RULE(!ia32e || !(ar(SEG_CS) & BIT(13)) || !(ar(SEG_CS) & BIT(14)), "CS with both L and D");
    RULE(granular(SEG_CS), "limit and granularity of CS");
    return NULL;
}

static const char *data_segment(unsigned seg) {
    u64 type = ar(seg) & 15;

    RULE(seg > SEG_DS || ar(seg) & AR_UNUSABLE || !(base(seg) >> 32), "the base of a segment");
    RULE(seg < SEG_FS || is_canonical(base(seg)), "the base of FS or GS is not canonical");
    if (ar(seg) & AR_UNUSABLE) return NULL;
    RULE(type & 1 && (!(type & 8) || type & 2), "the type of a data segment");
    RULE(seg != SEG_SS || type == 3 || type == 7, "the type of SS");
    RULE(ar(seg) & BIT(4) && ar(seg) & BIT(7), "a data segment that is none, or is not present");
    RULE(!(ar(seg) & ~0xf0ffull), "reserved bits of a data segment");
    RULE(granular(seg), "limit and granularity of a data segment");
    return NULL;
}

static const char *system_segments(void) {
    bool ia32e = get(VMCS_ENTRY_CTL) & ENTRY_IA32E;
    u64 type = ar(SEG_TR) & 15;

    RULE(type == 11 || (type == 3 && !ia32e), "the type of TR");
    RULE(!(ar(SEG_TR) & BIT(4)) && ar(SEG_TR) & BIT(7) && !(ar(SEG_TR) & AR_UNUSABLE),
         "TR is not usable");
    RULE(!(sel(SEG_TR) & 4) && is_canonical(base(SEG_TR)) && granular(SEG_TR), "TR");
    RULE(!(ar(SEG_TR) & ~0xf0ffull), "reserved bits of TR");
    if (!(ar(SEG_LDTR) & AR_UNUSABLE)) {
        RULE((ar(SEG_LDTR) & 15) == 2 && !(ar(SEG_LDTR) & BIT(4)) && ar(SEG_LDTR) & BIT(7), "LDTR");
        RULE(!(sel(SEG_LDTR) & 4) && is_canonical(base(SEG_LDTR)) && granular(SEG_LDTR), "LDTR");
    }
    for (unsigned seg = SEG_GDTR; seg <= SEG_IDTR; seg++)
        RULE(is_canonical(base(seg)) && !(limit(seg) >> 16), "GDTR or IDTR");
    return NULL;
}

static const char *segments(void) {
    const char *rule = code_segment();

    for (unsigned seg = SEG_ES; seg <= SEG_GS; seg++) {
        get(VMCS_GUEST_SEL + 2 * seg);
        get(VMCS_GUEST_LIMIT + 2 * seg);
        if (seg != SEG_CS && !rule) rule = data_segment(seg);
    }
    return rule ? rule : system_segments();
}

static const char *guest_rest(void) {
    u64 rip = get(VMCS_GUEST_RIP), flags = get(VMCS_GUEST_RFLAGS), shadow = get(VMCS_SHADOW);
    u64 e = get(VMCS_ENTRY_EVENT), type = e >> 8 & 7, pending = get(VMCS_PENDING_DEBUG);
    bool ia32e = get(VMCS_ENTRY_CTL) & ENTRY_IA32E, valid = e & EVENT_VALID;
    bool sti = shadow & SHADOW_STI, mov_ss = shadow & SHADOW_MOV_SS;

    get(VMCS_GUEST_RSP);
    if (ia32e && ar(SEG_CS) & BIT(13))
        RULE(rip >> 48 == 0 || rip >> 48 == 0xffff, "RIP with different upper bits");
    else
        RULE(!(rip >> 32), "RIP above 4 GiB outside 64-bit mode");
    RULE(flags & 2 && !(flags & 0xffffffffffc08028ull), "reserved bits of RFLAGS");
    RULE(!(flags & BIT(17)) || !ia32e, "virtual-8086 mode in IA-32e mode");
    RULE(flags & RFLAGS_IF || !valid || type != EVENT_TYPE_INTR,
         "an interrupt is injected with IF clear");
    RULE(get(VMCS_ACTIVITY) == 0, "the activity state is not active");
    RULE(!(shadow & ~0xfull) && !(shadow & BIT(2)), "reserved bits of the interruptibility state");
    RULE(!sti || !mov_ss, "shadows of both STI and MOV SS");
    RULE(!sti || flags & RFLAGS_IF, "the shadow of STI with IF clear");
    RULE(!valid || type != EVENT_TYPE_INTR || (!sti && !mov_ss),
         "an interrupt is injected in a shadow");
    RULE(!valid || type != EVENT_TYPE_NMI || !mov_ss, "an NMI is injected in the shadow of MOV SS");
    RULE(!valid || type != EVENT_TYPE_NMI || !(shadow & SHADOW_NMI),
         "an NMI is injected while they are blocked");
    RULE(!(pending & ~0x1540full), "reserved bits of the pending debug exceptions");
    if (sti || mov_ss)
        RULE(!(flags & RFLAGS_TF) == !(pending & BIT(14)), "a shadow, and BS is not TF");
    RULE(get(VMCS_LINK) == ~0ull, "the link pointer");
    return NULL;
}

/* 27.3.1.6; PDPTEs are consulted under PAE paging alone. */
static const char *pdptes(void) {
    bool pae = get(VMCS_GUEST_CR0) & CR0_PG && get(VMCS_GUEST_CR4) & CR4_PAE &&
               !(get(VMCS_ENTRY_CTL) & ENTRY_IA32E);

    for (unsigned i = 0; pae && i < 4; i++) {
        u64 e = get(VMCS_GUEST_PDPTE + 2 * i);

        RULE(!(e & 1) || !(e & 0xffffff80000001e6ull), "reserved bits of a PDPTE");
    }
    return NULL;
}

const char *vmx_broken_rule(void) {
    const char *rule = execution();

    if (!rule) rule = exit_and_entry();
    if (!rule) rule = host();
    if (!rule) rule = guest_registers();
    if (!rule) rule = segments();
    if (!rule) rule = guest_rest();
    if (!rule) rule = pdptes();
    return rule;
}
