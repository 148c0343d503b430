/* What CPUID tells guests. All that is not listed here reads as 0, so that guests learn nothing
 * more about the host. A feature is shown only if its instructions work in a guest. A "leaf" is the
 * answer of CPUID to one value of EAX; some leaves have "subleaves", by ECX. XCR0 is the register
 * that says which parts of the FPU's state are switched on; "xstate" is where XSAVE stores each
 * part. Leaves: SDM 2A CPUID; APM3 appendix E. */
#include <takt/seed.h>
#include "common/string.h"
#include "vcpu/exits.h"
#include "virt/bits.h"
#include "common/insn.h"
#include "x86/tsc.h"

/* Leaves */
#define LEAF_FEATURES  0x1u
#define LEAF_POWER     0x6u
#define LEAF_FEATURES7 0x7u
#define LEAF_TOPOLOGY  0xbu
#define LEAF_XSAVE     0xdu
#define BASIC_MAX      LEAF_XSAVE
#define EXT_BASE       0x80000000u
#define EXT_FEATURES   1u /* from EXT_BASE on */
#define EXT_BRAND      2u
#define EXT_POWER      7u
#define EXT_CAPACITY   8u
#define EXT_MAX        EXT_CAPACITY

#define VENDOR_AMD     0x68747541u /* EBX of leaf 0: "Auth" of AuthenticAMD */
#define VENDOR_HYGON   0x6f677948u /* "Hygo" of HygonGenuine */

/* LEAF_FEATURES: C is ECX, D is EDX */
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
#define F1B_CORES      16 /* EBX: the lowest bit of the number of APIC ids */
#define F1B_APIC_ID    24 /* EBX: the lowest bit of the initial APIC id */

/* LEAF_POWER, EAX: the LAPIC's timer never stops. Without it Linux keeps a periodic tick. */
#define F6A_ARAT BIT(2)

/* LEAF_TOPOLOGY: what a level is made of, ECX bits 15 to 8 */
#define LEVEL_THREADS (1u << 8)
#define LEVEL_CORES   (2u << 8)

/* EXT_FEATURES, EXT_CAPACITY (AMD) */
#define F81C_CMP_LEGACY  BIT(1) /* the logical CPUs are cores */
#define F88C_ID_BITS     12     /* ECX: where the number of bits of an APIC id begins */
#define F88A_LINEAR_BITS 8      /* EAX: where the number of bits of a linear address begins */
#define ADDRESS_BITS     48u

/* LEAF_XSAVE: subleaf 1, EAX; subleaves from 2 on, ECX */
#define XSAVE_COMPACT  BIT(1) /* XSAVEC */
#define XSTATE_ALIGNED BIT(1) /* to 64 bytes, when compacted */
#define XSTATE_ALIGN   64u
#define XSTATES        8    /* components of XCR0 that are known here */
#define XSAVE_FIXED    576u /* bytes: legacy region and header */

u64 vm_seed;

/* What guests read, except for the parts that depend on the vCPU. Constant after
 * cpuid_policy_init(). */
static struct cpuid basic[BASIC_MAX + 1], ext[EXT_MAX + 1], leaf7_1, leafd_1;
static struct cpuid xstate[XSTATES]; /* EAX size, EBX offset, ECX XSTATE_ALIGNED */
static u64 xcr0_allowed;
static bool amd;

/* For each leaf the bits that guests read as the host has them. Not shown are, of leaf 1, MONITOR,
 * VMX, SMX, EIST, TM, PDCM, PCID, DCA, PSN, DS, ACPI, PBE and MTRR; and of leaf 7, TSC_ADJUST, HLE,
 * RTM, INVPCID, MPX, PKU, LA57, WAITPKG, CET and all of speculation control. */
static const struct {
    struct cpuid *shown;
    u32 leaf, sub;
    struct cpuid mask;
} policies[] = {
    { &basic[LEAF_FEATURES], LEAF_FEATURES, 0, { 0x0fff3fff, 0x0000ff00, 0x76d83203, 0x078bebff } },
    { &basic[LEAF_FEATURES7], LEAF_FEATURES7, 0, { 0, 0xf1bf23e9, 0x1a405f46, 0x00004110 } },
    { &leaf7_1, LEAF_FEATURES7, 1, { 0x00001c30, 0, 0, 0 } },
    /* XSAVEOPT, XSAVEC, XGETBV with ECX = 1 */
    { &leafd_1, LEAF_XSAVE, 1, { 0x00000007, 0, 0, 0 } },
    { &ext[EXT_FEATURES], EXT_BASE + EXT_FEATURES, 0, { 0, 0, 0x000001e1, 0x2dd3ebff } },
    { &ext[EXT_POWER], EXT_BASE + EXT_POWER, 0, { 0, 0, 0, 0x00000100 } }, /* invariant TSC */
    { &ext[EXT_CAPACITY], EXT_BASE + EXT_CAPACITY, 0, { 0x0000ffff, 0x00000001, 0, 0 } },
};

/* Hides the features that need registers which only XSAVE saves. It is called if the CPU has no
 * XSAVE. Leaf 7 is hidden as a whole: it came later than XSAVE, so only an emulator can show a CPU
 * that has leaf 7 and no XSAVE. */
static void hide_avx(void) {
    basic[LEAF_FEATURES].ecx &= ~(u32)(F1C_FMA | F1C_AVX | F1C_F16C);
    basic[LEAF_FEATURES7] = (struct cpuid){ 0 };
    leaf7_1 = (struct cpuid){ 0 };
    leafd_1 = (struct cpuid){ 0 };
}

/* Finds out which bits of XCR0 guests may set, and where XSAVE stores the state behind each. */
static void xstate_init(void) {
    u64 avx512 = XCR0_AVX512 | XCR0_AVX;

    xcr0_allowed =
        cpuid_or_zero(LEAF_XSAVE, 0).eax & (XCR0_X87 | XCR0_SSE | avx512) & virt_xcr0_mask;
    if ((xcr0_allowed & avx512) != avx512) xcr0_allowed &= ~XCR0_AVX512;
    for (u32 i = 2; i < XSTATES; i++)
        if (xcr0_allowed >> i & 1) xstate[i] = cpuid_or_zero(LEAF_XSAVE, i);
}

/* Do guests see a CPU of AMD or Hygon? */
bool cpuid_is_amd(void) { return amd; }

/* Computes at boot what all guests read, from what the host's CPU has and what the masks let
 * through. */
void cpuid_policy_init(void) {
    struct cpuid host = cpuid(0, 0);

    amd = host.ebx == VENDOR_AMD || host.ebx == VENDOR_HYGON;
    for (unsigned i = 0; i < ARRAY_SIZE(policies); i++) {
        struct cpuid h = cpuid_or_zero(policies[i].leaf, policies[i].sub), m = policies[i].mask;

        *policies[i].shown =
            (struct cpuid){ h.eax & m.eax, h.ebx & m.ebx, h.ecx & m.ecx, h.edx & m.edx };
    }
    basic[0] = (struct cpuid){ MIN(host.eax, BASIC_MAX), host.ebx, host.ecx, host.edx };
    ext[0] = (struct cpuid){ .eax = EXT_BASE + EXT_MAX };
    if (amd) { /* AMD's CPUs have the vendor's name here, too */
        ext[0].ebx = host.ebx;
        ext[0].ecx = host.ecx;
        ext[0].edx = host.edx;
    }
    memcpy(&ext[EXT_BRAND], "Takt virtual CPU", sizeof(ext[EXT_BRAND]));
    basic[LEAF_FEATURES7].eax = 1; /* its last subleaf */
    if (!(basic[LEAF_FEATURES].ecx & F1C_XSAVE)) hide_avx();
    xstate_init();
    /* These are emulated, whatever the host has. */
    basic[LEAF_FEATURES].ecx |= F1C_X2APIC | F1C_DEADLINE | F1C_HYPERVISOR;
    basic[LEAF_FEATURES].edx |= F1D_APIC;
    if (host.eax >= LEAF_POWER) basic[LEAF_POWER].eax = F6A_ARAT;
    ext[EXT_CAPACITY].eax =
        MIN(ext[EXT_CAPACITY].eax & 0xff, ADDRESS_BITS) | ADDRESS_BITS << F88A_LINEAR_BITS;
}

/* Does a guest see a feature: bit `bit` of a leaf, in EAX, EBX, ECX or EDX (`reg` 0 to 3)? */
bool cpuid_guest_has(u32 leaf, unsigned reg, unsigned bit) {
    const struct cpuid *c = leaf >= EXT_BASE ? &ext[leaf - EXT_BASE] : &basic[leaf];
    const u32 r[] = { c->eax, c->ebx, c->ecx, c->edx };

    return r[reg] >> bit & 1;
}

/* Returns the bits of XCR0 that guests may set. */
u64 cpuid_xcr0_allowed(void) { return xcr0_allowed; }

/* Returns how many bits a physical address has for guests. */
unsigned cpuid_physical_bits(void) { return ext[EXT_CAPACITY].eax & 0xff; }

/* Returns how many bits the APIC ids of so many vCPUs need. */
static u32 id_bits(u32 nr_vcpus) {
    if (nr_vcpus <= 1) return 0;
    return 32 - (u32)__builtin_clz(nr_vcpus - 1);
}

/* Returns how many bytes XSAVE's compacted format takes with the components of `xcr0`. */
static u32 compact_size(u64 xcr0) {
    u32 size = XSAVE_FIXED;

    for (u32 i = 2; i < XSTATES; i++) {
        if (!(xcr0 >> i & 1)) continue;
        if (xstate[i].ecx & XSTATE_ALIGNED) size = ALIGN_UP(size, XSTATE_ALIGN);
        size += xstate[i].eax;
    }
    return size;
}

/* Returns how many bytes XSAVE's standard format takes with the components of `xcr0`. */
static u32 standard_size(u64 xcr0) {
    u32 size = XSAVE_FIXED;

    for (u32 i = 2; i < XSTATES; i++)
        if (xcr0 >> i & 1) size = MAX(size, xstate[i].ebx + xstate[i].eax);
    return size;
}

/* Returns leaf Dh: which parts of the FPU's state there are, and how much memory XSAVE needs for
 * those that the guest has switched on now. */
static struct cpuid leaf_xsave(struct vcpu *v, u32 sub) {
    struct cpuid r = leafd_1;

    if (sub >= XSTATES || !xcr0_allowed) return (struct cpuid){ 0 };
    if (sub >= 2)
        return (struct cpuid){ xstate[sub].eax, xstate[sub].ebx, xstate[sub].ecx & XSTATE_ALIGNED,
                               0 };
    if (sub == 0)
        return (struct cpuid){ .eax = (u32)xcr0_allowed,
                               .ebx = standard_size(vcpu_reg(v, VREG_XCR0)),
                               .ecx = standard_size(xcr0_allowed) };
    if (leafd_1.eax & XSAVE_COMPACT) r.ebx = compact_size(vcpu_reg(v, VREG_XCR0));
    return r;
}

/* Returns leaf 1. A few bits depend on the vCPU: its APIC id, how many vCPUs there are, whether the
 * guest has switched its LAPIC on. */
static struct cpuid leaf_features(struct vcpu *v) {
    struct cpuid r = basic[LEAF_FEATURES];
    u32 n = v->vm->nr_vcpus;

    r.ebx |= v->id << F1B_APIC_ID | 1u << (F1B_CORES + id_bits(n));
    if (n > 1) r.edx |= F1D_HTT;
    if (vcpu_reg(v, VREG_CR4) & CR4_OSXSAVE) r.ecx |= F1C_OSXSAVE;
    if (!(v->lapic.base & APIC_BASE_EN)) r.edx &= ~(u32)F1D_APIC; /* SDM 3A 11.4.3 */
    return r;
}

/* Returns leaf Bh, which says how CPUs are arranged: each vCPU is a core with one thread. */
static struct cpuid leaf_topology(const struct vcpu *v, u32 sub) {
    u32 n = v->vm->nr_vcpus;

    if (sub == 0) return (struct cpuid){ 0, 1, LEVEL_THREADS, v->id };
    if (sub == 1) return (struct cpuid){ id_bits(n), n, LEVEL_CORES | sub, v->id };
    return (struct cpuid){ 0, 0, sub & 0xff, v->id };
}

/* Returns Takt's own leaf with the seed of the whole run, and one that follows from it for this VM,
 * so that the random choices of guests can be repeated. */
static struct cpuid leaf_seed(const struct vcpu *v) {
    u64 own = seed_of_vm(vm_seed, v->vm->name);

    return (struct cpuid){ (u32)vm_seed, (u32)(vm_seed >> 32), (u32)own, (u32)(own >> 32) };
}

/* Returns leaf 80000000h + n. On AMD's CPUs some tell how many cores there are. */
static struct cpuid leaf_extended(const struct vcpu *v, u32 n) {
    struct cpuid r = ext[n];
    u32 vcpus = v->vm->nr_vcpus;

    if (!amd || vcpus == 1) return r;
    if (n == EXT_FEATURES) r.ecx |= F81C_CMP_LEGACY;
    if (n == EXT_CAPACITY) r.ecx = id_bits(vcpus) << F88C_ID_BITS | (vcpus - 1);
    return r;
}

/* Leaves that depend on the vCPU or on ECX, and all beyond the basic ones. */
#define VARYING (BIT(LEAF_FEATURES) | BIT(LEAF_FEATURES7) | BIT(LEAF_TOPOLOGY) | BIT(LEAF_XSAVE))

/* Returns a leaf that is not constant. TAKT_CPUID_* are Takt's own leaves, by which a guest finds
 * out that it runs on Takt. A PC finds KVM's in their place, and Takt's behind those. */
static __attribute__((noinline)) struct cpuid varying(struct vcpu *v, u32 leaf, u32 sub) {
    struct cpuid r = { 0 };
    u32 shift = v->vm->ioapic ? TAKT_CPUID_PC : 0;

    if (leaf - EXT_BASE <= EXT_MAX) return leaf_extended(v, leaf - EXT_BASE);
    if (leaf >= TAKT_CPUID_BASE) {
        if (leaf - TAKT_CPUID_BASE < shift) return kvmclock_cpuid(leaf);
        leaf -= shift;
    }
    switch (leaf) {
    case LEAF_FEATURES: return leaf_features(v);
    case LEAF_FEATURES7:
        if (sub == 0) return basic[LEAF_FEATURES7];
        if (sub == 1) return leaf7_1;
        return r;
    case LEAF_TOPOLOGY: return leaf_topology(v, sub);
    case LEAF_XSAVE: return leaf_xsave(v, sub);
    case TAKT_CPUID_BASE:
        r.eax = shift + TAKT_CPUID_SEED;
        memcpy(&r.ebx, TAKT_SIGNATURE, 4);
        memcpy(&r.ecx, &TAKT_SIGNATURE[4], 4);
        memcpy(&r.edx, &TAKT_SIGNATURE[8], 4);
        return r;
    case TAKT_CPUID_ABI:
        return (struct cpuid){ TAKT_ABI_VERSION, amd ? TAKT_FEAT_VMMCALL : 0, v->vm->id, v->id };
    case TAKT_CPUID_TIME: return (struct cpuid){ (u32)tsc_khz, VLAPIC_TIMER_KHZ, 0, 0 };
    case TAKT_CPUID_INFO:
        return (struct cpuid){ (u32)TAKT_SHARED_GPA, (u32)TAKT_INFO_GPA, v->vm->nr_vcpus, 0 };
    case TAKT_CPUID_SEED: return leaf_seed(v);
    default: return r; /* nothing is there */
    }
}

/* Handles the exit of CPUID. Most leaves are constant, so they are read from a table without a
 * further call. */
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
