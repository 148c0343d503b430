/* MSRs by policy: what is not listed here is #GP. Which of them reach this file at all is the vendor's matter
 * (docs/virt.md): those left to the guest never do. Numbers: SDM 4, table 2-2; APM2 appendix A. */
#include "vm/vm.h"
#include "x86/percpu.h"
#include "x86/tsc.h"

enum msr_kind {
    KIND_REG,   /* a register of the vCPU; bits outside `value` are #GP when written */
    KIND_ADDR,  /* the same, and it has to be canonical */
    KIND_FIXED, /* reads `value`; writing that is harmless, anything else is #GP */
    KIND_DROP,  /* reads `value`; writes are dropped */
    KIND_AMD,   /* as KIND_DROP, on AMD-V only */
    KIND_TSC,   /* its offset is constant, so that it never stops: writes are dropped */
    KIND_PAT,
    KIND_EFER,
    KIND_MTRR,
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
    { 0xfe, 0xfe, KIND_MTRR, 0, 0 },
    { 0x174, 0x174, KIND_REG, VREG_SYSENTER_CS, 0xffffffff },
    { 0x175, 0x175, KIND_ADDR, VREG_SYSENTER_ESP, ~0ull },
    { 0x176, 0x176, KIND_ADDR, VREG_SYSENTER_EIP, ~0ull },
    { 0x179, 0x17a, KIND_FIXED, 0, 0 },     /* MCG_CAP: no banks; MCG_STATUS */
    { 0x1a0, 0x1a0, KIND_DROP, 0, 0x1801 }, /* MISC_ENABLE: fast strings; no BTS, no PEBS */
    { 0x1d9, 0x1d9, KIND_FIXED, 0, 0 },     /* DEBUGCTL */
    { 0x200, 0x20f, KIND_MTRR, 0, 0 },
    { 0x250, 0x250, KIND_MTRR, 0, 0 },
    { 0x258, 0x259, KIND_MTRR, 0, 0 },
    { 0x268, 0x26f, KIND_MTRR, 0, 0 },
    { 0x277, 0x277, KIND_PAT, VREG_PAT, 0 },
    { 0x2ff, 0x2ff, KIND_MTRR, 0, 0 },
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
    { 0xc0010010, 0xc0010010, KIND_AMD, 0, 0 }, /* SYSCFG */
    { 0xc0010015, 0xc0010015, KIND_AMD, 0, 0 }, /* HWCR */
    { 0xc001001f, 0xc001001f, KIND_AMD, 0, 0 }, /* NB_CFG */
    { 0xc0010055, 0xc0010055, KIND_AMD, 0, 0 }, /* interrupt pending */
    { 0xc0011029, 0xc0011029, KIND_AMD, 0, 2 }, /* DE_CFG: LFENCE serializes */
};

#define MSR_X2APIC_COUNT 0x839u
#define MTRR_CAP         0xfeu
#define MTRR_DEF         0x2ffu
#define MTRR_VAR         0x200u
/* fixed ranges, write-combining (SDM 3A 12.11.1) */
#define MTRR_CAP_IS (MTRR_VARIABLE | BIT(8) | BIT(10))
#define EFER_SCE    BIT(0)
#define EFER_LME    BIT(8)
#define EFER_LMA    BIT(10)
#define EFER_NXE    BIT(11)
#define CR0_PG      BIT(31)

/* Where in `rules` an MSR is, plus one: below LOW_END by number, and the first of the 0xc0000000s. */
#define LOW_END  0x900u
#define HIGH     0xc0000000u
#define HIGH_END 0x108u

static u8 low_index[LOW_END], high_index[HIGH_END];

void msr_policy_init(void) {
    for (u32 i = 0; i < ARRAY_SIZE(rules); i++) {
        for (u32 m = rules[i].first; m <= rules[i].last; m++) {
            if (m < LOW_END)
                low_index[m] = (u8)(i + 1);
            else if (m - HIGH < HIGH_END)
                high_index[m - HIGH] = (u8)(i + 1);
        }
    }
}

static const struct msr_rule *find(u32 msr) {
    u32 i = 0;

    if (msr < LOW_END)
        i = low_index[msr];
    else if (msr - HIGH < HIGH_END)
        i = high_index[msr - HIGH];
    else
        for (u32 k = ARRAY_SIZE(rules); k && !i; k--) i = rules[k - 1].first == msr ? k : 0;
    return i ? &rules[i - 1] : NULL;
}

static bool canonical(u64 v) { return (u64)((i64)(v << 16) >> 16) == v; }

/* ---- memory types: kept and checked; second-level tables decide ---- */

/* UC, WC, WT, WP, WB; with `pat` also UC-. */
static bool type_valid(u8 type, bool pat) {
    return type == 0 || type == 1 || (type >= 4 && type <= 6) || (pat && type == 7);
}

static bool types_valid(u64 eight, bool pat) {
    for (unsigned i = 0; i < 8; i++)
        if (!type_valid((u8)(eight >> (8 * i)), pat)) return false;
    return true;
}

static u64 *mtrr_at(struct vcpu *v, u32 msr) {
    if (msr == MTRR_DEF) return &v->mtrr_def;
    if (msr < 0x250) return &v->mtrr_variable[msr - MTRR_VAR];
    return &v->mtrr_fixed[msr == 0x250 ? 0 : msr < 0x268 ? msr - 0x258 + 1 : msr - 0x268 + 3];
}

static bool mtrr_write(struct vcpu *v, u32 msr, u64 value) {
    u64 above = ~(BIT(cpuid_physical_bits()) - 1);

    if (msr == MTRR_CAP) return false;
    if (msr == MTRR_DEF && (value & ~0xcffull || !type_valid((u8)value, false))) return false;
    if (msr >= 0x250 && msr < MTRR_DEF && !types_valid(value, false)) return false;
    if (msr < 0x250 && !(msr & 1) && (value & (above | 0xf00) || !type_valid((u8)value, false))) return false;
    if (msr < 0x250 && msr & 1 && value & (above | 0x7ff)) return false;
    *mtrr_at(v, msr) = value;
    return true;
}

/* SDM 3A 2.2.1. LMA is the CPU's, and LME must not change while paging is on. */
static bool efer_write(struct vcpu *v, u64 value) {
    u64 old = virt->get_reg(&v->virt, VREG_EFER);

    if (value & ~(EFER_SCE | EFER_LME | EFER_LMA | EFER_NXE)) return false;
    if ((value ^ old) & EFER_LME && virt->get_reg(&v->virt, VREG_CR0) & CR0_PG) return false;
    virt->set_reg(&v->virt, VREG_EFER, (value & ~EFER_LMA) | (old & EFER_LMA));
    return true;
}

/* Of all that can be read of a LAPIC only the timer's count depends on the time. */
static inline __attribute__((always_inline)) bool lapic_read(struct vcpu *v, u32 msr, u64 *value) {
    return vlapic_rdmsr(vcpu_lapic(v), msr, value, msr == MSR_X2APIC_COUNT ? now_ns() : 0) == 0;
}

static bool msr_read(struct vcpu *v, u32 msr, u64 *value) {
    const struct msr_rule *r;

    if (msr - MSR_X2APIC < 0x100) return lapic_read(v, msr, value);
    r = find(msr);
    if (!r) return false;
    switch (r->kind) {
    case KIND_REG:
    case KIND_ADDR:
    case KIND_PAT:
    case KIND_EFER: *value = virt->get_reg(&v->virt, (enum virt_reg)r->reg); return true;
    case KIND_FIXED:
    case KIND_DROP: *value = r->value; return true;
    case KIND_AMD: *value = r->value; return cpuid_is_amd();
    case KIND_TSC: *value = rdtsc() + v->virt.tsc_offset; return true;
    case KIND_MTRR: *value = msr == MTRR_CAP ? MTRR_CAP_IS : *mtrr_at(v, msr); return true;
    default: return lapic_read(v, msr, value);
    }
}

static bool msr_write(struct vcpu *v, u32 msr, u64 value) {
    const struct msr_rule *r = find(msr);

    if (!r) return false;
    switch (r->kind) {
    case KIND_REG:
    case KIND_ADDR:
        if (value & ~r->value || (r->kind == KIND_ADDR && !canonical(value))) return false;
        virt->set_reg(&v->virt, (enum virt_reg)r->reg, value);
        return true;
    case KIND_PAT:
        if (!types_valid(value, true)) return false;
        virt->set_reg(&v->virt, VREG_PAT, value);
        return true;
    case KIND_FIXED: return value == r->value;
    case KIND_DROP:
    case KIND_TSC: return true;
    case KIND_AMD: return cpuid_is_amd();
    case KIND_EFER: return efer_write(v, value);
    case KIND_MTRR: return mtrr_write(v, msr, value);
    default:
        if (vlapic_wrmsr(vcpu_lapic(v), msr, value, now_ns())) return false;
        vcpu_lapic_written(v);
        return true;
    }
}

void exit_rdmsr(struct vcpu *v, const struct vm_exit *e) {
    u64 *gpr = v->virt.regs.gpr, value;

    if (!msr_read(v, (u32)gpr[REG_RCX], &value)) return vcpu_gp(v);
    gpr[REG_RAX] = (u32)value;
    gpr[REG_RDX] = value >> 32;
    guest_skip(&v->virt, e);
}

void exit_wrmsr(struct vcpu *v, const struct vm_exit *e) {
    const u64 *gpr = v->virt.regs.gpr;

    if (!msr_write(v, (u32)gpr[REG_RCX], (u64)(u32)gpr[REG_RDX] << 32 | (u32)gpr[REG_RAX])) return vcpu_gp(v);
    guest_skip(&v->virt, e);
}
