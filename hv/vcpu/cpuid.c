/* CPUID by policy: what is not listed here reads 0, so nothing of the host leaks. A feature is shown only if
 * its instructions work in a guest. Leaves: SDM 2A CPUID; APM3 appendix E. */
#include <takt/seed.h>
#include "lib/string.h"
#include "virt/bits.h"
#include "vm/vm.h"
#include "x86/insn.h"
#include "x86/tsc.h"

#define BASIC_MAX      0xdu
#define EXT_BASE       0x80000000u
#define EXT_MAX        8u
#define XSTATES        8 /* components of XCR0 that are known here */

#define F1C_FMA        BIT(12)
#define F1C_X2APIC     BIT(21)
#define F1C_DEADLINE   BIT(24)
#define F1C_XSAVE      BIT(26)
#define F1C_OSXSAVE    BIT(27)
#define F1C_AVX        BIT(28)
#define F1C_F16C       BIT(29)
#define F1C_HYPERVISOR BIT(31)
#define F1D_APIC       BIT(9)
#define F1D_HTT        BIT(28)

#define XSAVE_FIXED    576u /* legacy region and header */

u64 vm_seed;

static struct cpuid basic[BASIC_MAX + 1], ext[EXT_MAX + 1], leaf7_1, leafd_1;
static struct cpuid xstate[XSTATES]; /* size, offset, ECX bit 1: 64-byte aligned when compacted */
static u64 xcr0_allowed;
static bool amd;

/* Bits that are the host's, by leaf. Left out of leaf 1: MONITOR, VMX, SMX, EIST, TM, PDCM, PCID, DCA, PSN,
 * DS, ACPI, PBE, MTRR; of leaf 7: TSC_ADJUST, HLE, RTM, INVPCID, MPX, PKU, LA57, WAITPKG, CET, all of
 * speculation control. */
static const struct {
    struct cpuid *shown;
    u32 leaf, sub;
    struct cpuid mask;
} policies[] = {
    { &basic[1], 0x1, 0, { 0x0fff3fff, 0x0000ff00, 0x76d83203, 0x078bebff } },
    { &basic[7], 0x7, 0, { 0, 0xf1bf23e9, 0x1a405f46, 0x00004110 } },
    { &leaf7_1, 0x7, 1, { 0x00001c30, 0, 0, 0 } },
    { &leafd_1, 0xd, 1, { 0x00000007, 0, 0, 0 } }, /* XSAVEOPT, XSAVEC, XGETBV with ECX = 1 */
    { &ext[1], 0x80000001, 0, { 0, 0, 0x000001e1, 0x2dd3ebff } },
    { &ext[7], 0x80000007, 0, { 0, 0, 0, 0x00000100 } }, /* invariant TSC */
    { &ext[8], 0x80000008, 0, { 0x0000ffff, 0x00000001, 0, 0 } },
};

/* Without XSAVE nothing that needs its registers is shown. Leaf 7 has nothing else: it is younger than XSAVE,
 * and a CPU that has it without is an emulator's. */
static void hide_avx(void) {
    basic[1].ecx &= ~(u32)(F1C_FMA | F1C_AVX | F1C_F16C);
    basic[7] = leaf7_1 = leafd_1 = (struct cpuid){ 0 };
}

static void xstate_init(void) {
    u64 avx512 = XCR0_AVX512 | XCR0_AVX;

    xcr0_allowed = cpuid_or_zero(0xd, 0).eax & (XCR0_X87 | XCR0_SSE | avx512) & virt_xcr0_mask;
    if ((xcr0_allowed & avx512) != avx512) xcr0_allowed &= ~XCR0_AVX512;
    for (u32 i = 2; i < XSTATES; i++)
        if (xcr0_allowed >> i & 1) xstate[i] = cpuid_or_zero(0xd, i);
}

void cpuid_policy_init(void) {
    struct cpuid host = cpuid(0, 0);

    amd = host.ebx == 0x68747541u || host.ebx == 0x6f677948u; /* "Auth", "Hygo" */
    for (unsigned i = 0; i < ARRAY_SIZE(policies); i++) {
        struct cpuid h = cpuid_or_zero(policies[i].leaf, policies[i].sub), m = policies[i].mask;

        *policies[i].shown = (struct cpuid){ h.eax & m.eax, h.ebx & m.ebx, h.ecx & m.ecx, h.edx & m.edx };
    }
    basic[0] = (struct cpuid){ MIN(host.eax, BASIC_MAX), host.ebx, host.ecx, host.edx };
    ext[0] = (struct cpuid){ EXT_BASE + EXT_MAX, amd ? host.ebx : 0, amd ? host.ecx : 0, amd ? host.edx : 0 };
    memcpy(&ext[2], "Takt virtual CPU", 16);
    basic[7].eax = 1;
    if (!(basic[1].ecx & F1C_XSAVE)) hide_avx();
    xstate_init();
    basic[1].ecx |= F1C_X2APIC | F1C_DEADLINE | F1C_HYPERVISOR; /* emulated, whatever the host has */
    basic[1].edx |= F1D_APIC;
    ext[8].eax = MIN(ext[8].eax & 0xff, 48u) | 48u << 8;
}

bool cpuid_guest_has(u32 leaf, unsigned reg, unsigned bit) {
    const struct cpuid *c = leaf >= EXT_BASE ? &ext[leaf - EXT_BASE] : &basic[leaf];
    const u32 r[] = { c->eax, c->ebx, c->ecx, c->edx };

    return r[reg] >> bit & 1;
}

u64 cpuid_xcr0_allowed(void) { return xcr0_allowed; }

unsigned cpuid_physical_bits(void) { return ext[8].eax & 0xff; }

/* log2 of the number of APIC ids that the vCPUs take. */
static u32 id_bits(u32 nr_vcpus) { return nr_vcpus > 1 ? 32 - (u32)__builtin_clz(nr_vcpus - 1) : 0; }

static struct cpuid xsave(struct vcpu *v, u32 sub) {
    bool compact = sub == 1 && leafd_1.eax & 2;
    struct cpuid r = leafd_1;
    u64 xcr0;

    if (sub >= XSTATES || !xcr0_allowed) return (struct cpuid){ 0 };
    if (sub >= 2) return (struct cpuid){ xstate[sub].eax, xstate[sub].ebx, xstate[sub].ecx & 2, 0 };
    xcr0 = vcpu_reg(v, VREG_XCR0);
    if (sub == 0) r = (struct cpuid){ (u32)xcr0_allowed, XSAVE_FIXED, XSAVE_FIXED, 0 };
    if (compact) r.ebx = XSAVE_FIXED;
    for (u32 i = 2; i < XSTATES; i++) {
        u32 end = xstate[i].ebx + xstate[i].eax;
        bool on = xcr0 >> i & 1;

        if (sub == 0) r.ecx = MAX(r.ecx, end);
        if (sub == 0 && on) r.ebx = MAX(r.ebx, end);
        if (compact && on) r.ebx = (xstate[i].ecx & 2 ? ALIGN_UP(r.ebx, 64u) : r.ebx) + xstate[i].eax;
    }
    return r;
}

/* Leaves that depend on the vCPU or on ECX, and all beyond the basic ones. */
#define VARYING (BIT(0x1) | BIT(0x7) | BIT(0xb) | BIT(0xd))

static __attribute__((noinline)) struct cpuid varying(struct vcpu *v, u32 leaf, u32 sub) {
    u32 n = v->vm->nr_vcpus;
    struct cpuid r = { 0 };

    if (leaf <= BASIC_MAX) r = basic[leaf];
    if (leaf - EXT_BASE <= EXT_MAX) r = ext[leaf - EXT_BASE];
    switch (leaf) {
    case 0x1:
        r.ebx |= v->id << 24 | 1u << (16 + id_bits(n));
        if (n > 1) r.edx |= F1D_HTT;
        if (vcpu_reg(v, VREG_CR4) & CR4_OSXSAVE) r.ecx |= F1C_OSXSAVE;
        if (!(v->lapic.base & APIC_BASE_EN)) r.edx &= ~F1D_APIC; /* SDM 3A 11.4.3 */
        break;
    case 0x7:
        if (sub == 1) r = leaf7_1;
        return sub < 2 ? r : (struct cpuid){ 0 };
    case 0xb: /* one thread a core */
        if (sub == 0) return (struct cpuid){ 0, 1, 0x100, v->id };
        if (sub == 1) return (struct cpuid){ id_bits(n), n, 0x201, v->id };
        return (struct cpuid){ 0, 0, sub & 0xff, v->id };
    case 0xd: return xsave(v, sub);
    case EXT_BASE + 1:
        if (amd && n > 1) r.ecx |= 2; /* the logical CPUs are cores */
        break;
    case EXT_BASE + 8:
        if (amd && n > 1) r.ecx = id_bits(n) << 12 | (n - 1);
        break;
    case TAKT_CPUID_BASE:
        r.eax = TAKT_CPUID_SEED;
        memcpy(&r.ebx, TAKT_SIGNATURE, 12);
        break;
    case TAKT_CPUID_ABI:
        return (struct cpuid){ TAKT_ABI_VERSION, amd ? TAKT_FEAT_VMMCALL : 0, v->vm->id, v->id };
    case TAKT_CPUID_TIME: return (struct cpuid){ (u32)tsc_khz, VLAPIC_TIMER_KHZ, 0, 0 };
    case TAKT_CPUID_INFO: return (struct cpuid){ (u32)TAKT_SHARED_GPA, (u32)TAKT_INFO_GPA, n, 0 };
    case TAKT_CPUID_SEED: {
        u64 own = seed_of_vm(vm_seed, v->vm->name);

        return (struct cpuid){ (u32)vm_seed, (u32)(vm_seed >> 32), (u32)own, (u32)(own >> 32) };
    }
    }
    return r;
}

void exit_cpuid(struct vcpu *v, const struct vm_exit *e) {
    u64 *gpr = v->virt.regs.gpr;
    u32 leaf = (u32)gpr[REG_RAX];
    struct cpuid r;
    const struct cpuid *c = &r;

    if (leaf <= BASIC_MAX && !(VARYING >> leaf & 1))
        c = &basic[leaf];
    else
        r = varying(v, leaf, (u32)gpr[REG_RCX]);
    gpr[REG_RAX] = c->eax;
    gpr[REG_RBX] = c->ebx;
    gpr[REG_RCX] = c->ecx;
    gpr[REG_RDX] = c->edx;
    guest_skip(&v->virt, e);
}
