/* The MSRs that guests have ("model-specific registers", read and written by number). A table has a
 * rule for each; an access to any other MSR raises #GP. Guests access some MSRs without an exit,
 * and these accesses never reach this file (docs/virt.md). Numbers: SDM 4, table 2-2; APM2 appendix
 * A. */
#include "vcpu/exits.h"
#include "virt/bits.h"
#include "x86/tsc.h"

enum msr_kind {
    KIND_REG,   /* a register of the vCPU; a write that sets bits outside `value` raises #GP */
    KIND_ADDR,  /* the same, and it has to be a canonical address */
    KIND_FIXED, /* reads as `value`; a write of any other value raises #GP */
    KIND_DROP,  /* reads as `value`; writes are dropped */
    KIND_TSC,   /* writes are dropped, so that the guest's time never jumps */
    KIND_PAT,
    KIND_EFER,
    KIND_LAPIC,
};

static const struct msr_rule {
    u32 first, last; /* inclusive */
    u8 kind;
    u8 reg; /* enum virt_reg */
    u64 value;
} rules[] = {
    { 0x10, 0x10, KIND_TSC, 0, 0 },
    { 0x17, 0x17, KIND_DROP, 0, 0 }, /* PLATFORM_ID */
    { 0x1b, 0x1b, KIND_LAPIC, 0, 0 },
    { 0x3a, 0x3a, KIND_FIXED, 0, 1 }, /* FEATURE_CONTROL: locked, nothing on */
    { 0x79, 0x79, KIND_DROP, 0, 0 },  /* BIOS_UPDT_TRIG: no microcode is ever loaded */
    { 0x8b, 0x8b, KIND_DROP, 0, 0 },  /* BIOS_SIGN_ID */
    { 0x174, 0x174, KIND_REG, VREG_SYSENTER_CS, 0xffffffff },
    { 0x175, 0x175, KIND_ADDR, VREG_SYSENTER_ESP, ~0ull },
    { 0x176, 0x176, KIND_ADDR, VREG_SYSENTER_EIP, ~0ull },
    { 0x179, 0x17a, KIND_FIXED, 0, 0 },     /* MCG_CAP: no banks; MCG_STATUS */
    { 0x1a0, 0x1a0, KIND_DROP, 0, 0x1801 }, /* MISC_ENABLE: fast strings; no BTS, no PEBS */
    { 0x1d9, 0x1d9, KIND_FIXED, 0, 0 },     /* DEBUGCTL */
    { 0x277, 0x277, KIND_PAT, VREG_PAT, 0 },
    { 0x6e0, 0x6e0, KIND_LAPIC, 0, 0 },
    { 0x800, 0x8ff, KIND_LAPIC, 0, 0 },
    { 0xc0000080, 0xc0000080, KIND_EFER, VREG_EFER, 0 },
    { 0xc0000081, 0xc0000081, KIND_REG, VREG_STAR, ~0ull },
    { 0xc0000082, 0xc0000082, KIND_ADDR, VREG_LSTAR, ~0ull },
    { 0xc0000083, 0xc0000083, KIND_ADDR, VREG_CSTAR, ~0ull },
    { 0xc0000084, 0xc0000084, KIND_REG, VREG_FMASK, 0xffffffff },
    { 0xc0000100, 0xc0000100, KIND_ADDR, VREG_FS_BASE, ~0ull },
    { 0xc0000101, 0xc0000101, KIND_ADDR, VREG_GS_BASE, ~0ull },
    { 0xc0000102, 0xc0000102, KIND_ADDR, VREG_KERNEL_GS_BASE, ~0ull },
    { 0xc0000103, 0xc0000103, KIND_REG, VREG_TSC_AUX, 0xffffffff },
};

_Static_assert(ARRAY_SIZE(rules) < 255, "their numbers, plus one, fit into a byte");

#define MSR_X2APIC_END   (MSR_X2APIC + 0x100u)
#define MSR_X2APIC_COUNT 0x839u
#define MSR_K7_EVNTSEL0  0xc0010000u
#define MSR_K7_PERFCTR3  0xc0010007u
#define CPUID_NX_LEAF    0x80000001u
#define CPUID_NX_REG     3 /* EDX */
#define CPUID_NX_BIT     20

/* For each MSR its index in `rules`, plus one; 0 if it has no rule. There are entries for the MSRs
 * below LOW_END, and for the HIGH_NR MSRs from HIGH on. */
#define LOW_END 0x900u
#define HIGH    0xc0000000u
#define HIGH_NR 0x108u
static u8 rule_index[LOW_END + HIGH_NR];

/* Returns the index of an MSR in rule_index; the size of that table if the MSR has no entry. */
static inline u32 msr_slot(u32 msr) {
    if (msr < LOW_END) return msr;
    return msr - HIGH < HIGH_NR ? msr - HIGH + LOW_END : ARRAY_SIZE(rule_index);
}

/* Fills in rule_index[], by which the rule for an MSR is found without a search. */
void msr_policy_init(void) {
    for (u32 i = 0; i < ARRAY_SIZE(rules); i++)
        for (u32 m = rules[i].first; m <= rules[i].last; m++) rule_index[msr_slot(m)] = (u8)(i + 1);
}

/* Returns the rule for an MSR; NULL if guests do not have it. */
static const struct msr_rule *msr_find(u32 msr) {
    u32 slot = msr_slot(msr);

    if (slot == ARRAY_SIZE(rule_index) || !rule_index[slot]) return NULL;
    return &rules[rule_index[slot] - 1];
}

/* Is each byte a memory type that exists: UC, WC, WT, WP, WB or UC-? SDM 3A 12.12.2. */
static bool pat_valid(u64 pat) {
    for (; pat; pat >>= 8)
        if ((pat & 0xff) > 7 || (pat & 0xfe) == 2) return false;
    return true;
}

/* Writes EFER (SDM 3A 2.2.1), the MSR that enables 64-bit mode: LME asks for it, and LMA, which
 * only the CPU changes, says that it is active. Returns false, for #GP, if LME changes while paging
 * is on, or if NXE is set although the guest has no NX. */
static bool efer_write(struct vcpu *v, u64 value) {
    u64 old = vcpu_reg(v, VREG_EFER), known = EFER_SCE | EFER_LME | EFER_LMA;

    if (cpuid_guest_has(CPUID_NX_LEAF, CPUID_NX_REG, CPUID_NX_BIT)) known |= EFER_NXE;
    if (value & ~known) return false;
    if ((value ^ old) & EFER_LME && vcpu_reg(v, VREG_CR0) & CR0_PG) return false;
    vcpu_set_reg(v, VREG_EFER, (value & ~EFER_LMA) | (old & EFER_LMA));
    return true;
}

/* The four control registers and four counters that each AMD CPU has had since the K7. No bit of
 * CPUID announces them (APM2 13.2.1), so kernels use them without asking. They count nothing here:
 * they read 0, and writes are dropped. */
static bool is_amd_counter(u32 msr) {
    return cpuid_is_amd() && msr >= MSR_K7_EVNTSEL0 && msr <= MSR_K7_PERFCTR3;
}

/* Reads an MSR of the vCPU, as its rule in the table says. Returns false if the guest has to get
 * #GP. The registers of the LAPIC in x2APIC mode need no look into the table. */
static bool msr_read(struct vcpu *v, u32 msr, u64 *value) {
    const struct msr_rule *r;

    if (msr >= MSR_X2APIC && msr < MSR_X2APIC_END) {
        u64 now = 0;

        if (msr == MSR_X2APIC_COUNT) now = now_ns(); /* nothing else there depends on the time */
        return vlapic_rdmsr(vcpu_lapic(v), msr, value, now) == 0;
    }
    r = msr_find(msr);
    if (!r && is_amd_counter(msr)) {
        *value = 0;
        return true;
    }
    if (!r) return kvmclock_read(v, msr, value);
    switch (r->kind) {
    case KIND_FIXED:
    case KIND_DROP: *value = r->value; return true;
    case KIND_TSC: *value = rdtsc() + v->virt.tsc_offset; return true;
    case KIND_LAPIC: return vlapic_rdmsr(vcpu_lapic(v), msr, value, 0) == 0;
    default: *value = vcpu_reg(v, (enum virt_reg)r->reg); return true;
    }
}

/* Writes an MSR of the vCPU, as its rule in the table says. Returns false if the guest has to get
 * #GP: there is no such MSR, or it cannot have this value. */
static bool msr_write(struct vcpu *v, u32 msr, u64 value) {
    const struct msr_rule *r = msr_find(msr);
    bool ok;

    if (!r) return is_amd_counter(msr) || kvmclock_write(v, msr, value);
    switch (r->kind) {
    case KIND_FIXED: return value == r->value;
    case KIND_DROP:
    case KIND_TSC: return true;
    case KIND_EFER: return efer_write(v, value);
    case KIND_LAPIC:
        if (vlapic_wrmsr(vcpu_lapic(v), msr, value, now_ns())) return false;
        vcpu_lapic_written(v);
        return true;
    case KIND_PAT: ok = pat_valid(value); break;
    case KIND_ADDR: ok = is_canonical(value); break;
    default: ok = !(value & ~r->value);
    }
    if (ok) vcpu_set_reg(v, (enum virt_reg)r->reg, value);
    return ok;
}

/* The handler of the exit of RDMSR: the number is in ECX, the value goes to EDX:EAX. */
void exit_rdmsr(struct vcpu *v, const struct vm_exit *e) {
    u64 *gpr = v->virt.regs.gpr, value;

    if (!msr_read(v, (u32)gpr[REG_RCX], &value)) return vcpu_gp(v);
    gpr[REG_RAX] = (u32)value;
    gpr[REG_RDX] = value >> 32;
    guest_skip(&v->virt, e);
}

/* The handler of the exit of WRMSR: the number is in ECX, the value in EDX:EAX. */
void exit_wrmsr(struct vcpu *v, const struct vm_exit *e) {
    const u64 *gpr = v->virt.regs.gpr;

    if (!msr_write(v, (u32)gpr[REG_RCX], (u64)(u32)gpr[REG_RDX] << 32 | (u32)gpr[REG_RAX]))
        return vcpu_gp(v);
    guest_skip(&v->virt, e);
}
