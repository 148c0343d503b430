/* CPUID by policy: what is not listed here reads 0, so nothing of the host leaks. A feature is shown only if
 * its
 * instructions work in a guest. Leaves: SDM 2A CPUID; APM3 appendix E. */
#include "lib/string.h"
#include "vm/vm.h"
#include "x86/insn.h"
#include "x86/percpu.h"
#include "x86/tsc.h"

#define BASIC_MAX      0xdu
#define EXT_BASE       0x80000000u
#define EXT_MAX        8u
#define TAKT_MAX       3u
#define XSTATES        8 /* components of XCR0 that are known here */

#define F1C_X2APIC     BIT(21)
#define F1C_DEADLINE   BIT(24)
#define F1C_OSXSAVE    BIT(27)
#define F1C_HYPERVISOR BIT(31)
#define F1D_APIC       BIT(9)
#define F1D_HTT        BIT(28)
#define CR4_OSXSAVE    BIT(18)

#define XCR0_LEGACY    0x3u
#define XCR0_AVX       0x4u
#define XCR0_AVX512    0xe0u
#define XSAVE_FIXED    576u /* legacy region and header */

/* Bits that are the host's, by leaf. Left out of leaf 1: MONITOR, VMX, SMX, EIST, TM, PDCM, PCID, DCA, PSN,
 * DS,
 * ACPI, PBE; of leaf 7: TSC_ADJUST, HLE, RTM, INVPCID, MPX, PKU, LA57, WAITPKG, CET, all of speculation
 * control. */
static const struct policy {
    u32 leaf, sub;
    struct cpuid mask;
} policies[] = {
    { 0x1, 0, { 0x0fff3fff, 0x0000ff00, 0x76d83203, 0x078bfbff } },
    { 0x7, 0, { 0, 0xf1bf23e9, 0x1a405f46, 0x00004110 } },
    { 0x7, 1, { 0x00001c30, 0, 0, 0 } },
    { 0xd, 1, { 0x00000007, 0, 0, 0 } }, /* XSAVEOPT, XSAVEC, XGETBV with ECX = 1 */
    { 0x80000001, 0, { 0, 0, 0x000001e1, 0x2dd3fbff } },
    { 0x80000007, 0, { 0, 0, 0, 0x00000100 } }, /* invariant TSC */
    { 0x80000008, 0, { 0x0000ffff, 0x00000001, 0, 0 } },
};

/* Fixed shape: L1d and L1i 32 KiB, L2 1 MiB, lines of 64 bytes, each vCPU's own. */
static const struct cpuid caches[] = {
    { 0x00000121, 0x01c0003f, 63, 0 },
    { 0x00000122, 0x01c0003f, 63, 0 },
    { 0x00000143, 0x03c0003f, 1023, 0 },
};

static struct cpuid basic[BASIC_MAX + 1], ext[EXT_MAX + 1], leaf7_1, leafd_1;
static struct { u32 size, offset, flags; } xstate[XSTATES];
static u32 xcr0_allowed;
static bool amd;

static struct cpuid masked(u32 leaf, u32 sub) {
    for (unsigned i = 0; i < ARRAY_SIZE(policies); i++) {
        const struct policy *p = &policies[i];
        struct cpuid h;

        if (p->leaf != leaf || p->sub != sub) continue;
        h = cpuid_or_zero(leaf, sub);
        return (struct cpuid){ h.eax & p->mask.eax, h.ebx & p->mask.ebx, h.ecx & p->mask.ecx,
                               h.edx & p->mask.edx };
    }
    return (struct cpuid){ 0 };
}

static void brand(void) {
    static const char name[48] = "Takt virtual CPU";

    memcpy(&ext[2], name, sizeof(name));
}

static void xstate_init(void) {
    xcr0_allowed = cpuid_or_zero(0xd, 0).eax & (XCR0_LEGACY | XCR0_AVX | XCR0_AVX512) & (u32)virt_xcr0_mask;
    if ((xcr0_allowed & XCR0_AVX512) != XCR0_AVX512 || !(xcr0_allowed & XCR0_AVX))
        xcr0_allowed &= ~XCR0_AVX512;
    for (u32 i = 2; i < XSTATES; i++) {
        struct cpuid h = cpuid_or_zero(0xd, i);

        if (!(xcr0_allowed >> i & 1)) continue;
        xstate[i].size = h.eax;
        xstate[i].offset = h.ebx;
        xstate[i].flags = h.ecx & 2; /* 64-byte aligned when compacted */
    }
}

void cpuid_policy_init(void) {
    struct cpuid host = cpuid(0, 0);

    amd = host.ebx == 0x68747541u || host.ebx == 0x6f677948u; /* "Auth", "Hygo" */
    for (u32 i = 1; i <= BASIC_MAX; i++) basic[i] = masked(i, 0);
    for (u32 i = 1; i <= EXT_MAX; i++) ext[i] = masked(EXT_BASE + i, 0);
    leaf7_1 = masked(7, 1);
    leafd_1 = masked(0xd, 1);
    basic[0] = (struct cpuid){ MIN(host.eax, BASIC_MAX), host.ebx, host.ecx, host.edx };
    basic[7].eax = 1;
    ext[0] = (struct cpuid){ EXT_BASE + EXT_MAX, amd ? host.ebx : 0, amd ? host.ecx : 0, amd ? host.edx : 0 };
    brand();
    xstate_init();
    basic[1].ecx |= F1C_X2APIC | F1C_DEADLINE | F1C_HYPERVISOR; /* emulated, whatever the host has */
    basic[1].edx |= F1D_APIC;
    ext[8].eax = MIN(ext[8].eax & 0xff, 48u) | 48u << 8;
    if (amd) ext[6].ecx = 1024u << 16 | 6u << 12 | 1u << 8 | 64; /* L2 as in `caches` */
}

bool cpuid_guest_has(u32 leaf, unsigned reg, unsigned bit) {
    const struct cpuid *c = leaf >= EXT_BASE ? &ext[leaf - EXT_BASE] : &basic[leaf];
    const u32 r[] = { c->eax, c->ebx, c->ecx, c->edx };

    return r[reg] >> bit & 1;
}

u64 cpuid_xcr0_allowed(void) { return xcr0_allowed; }

unsigned cpuid_physical_bits(void) { return ext[8].eax & 0xff; }

bool cpuid_is_amd(void) { return amd; }

/* log2 of the number of APIC ids that the vCPUs take. */
static u32 id_bits(u32 nr_vcpus) { return nr_vcpus > 1 ? 32 - (u32)__builtin_clz(nr_vcpus - 1) : 0; }

static struct cpuid topology(const struct vcpu *v, u32 sub) {
    u32 n = v->vm->nr_vcpus;

    if (sub == 0) /* threads: one a core */
        return (struct cpuid){ 0, 1, 0x100, v->id };
    if (sub == 1) return (struct cpuid){ id_bits(n), n, 0x201, v->id };
    return (struct cpuid){ 0, 0, sub & 0xff, v->id };
}

static struct cpuid xsave(struct vcpu *v, u32 sub) {
    struct cpuid r = { 0 };
    u64 xcr0;

    if (!xcr0_allowed) return r;
    if (sub >= 2)
        return sub < XSTATES ? (struct cpuid){ xstate[sub].size, xstate[sub].offset, xstate[sub].flags, 0 }
                             : r;
    xcr0 = virt->get_reg(&v->virt, VREG_XCR0);
    r = sub ? leafd_1 : (struct cpuid){ xcr0_allowed, XSAVE_FIXED, XSAVE_FIXED, 0 };
    if (sub && r.eax & 2) r.ebx = XSAVE_FIXED;
    for (u32 i = 2; i < XSTATES; i++) {
        u32 end = xstate[i].offset + xstate[i].size;

        if (!sub && end > r.ecx) r.ecx = end;
        if (!(xcr0 >> i & 1)) continue;
        if (!sub && end > r.ebx) r.ebx = end;
        if (sub && r.eax & 2) r.ebx = (xstate[i].flags & 2 ? ALIGN_UP(r.ebx, 64u) : r.ebx) + xstate[i].size;
    }
    return r;
}

static struct cpuid basic_leaf(struct vcpu *v, u32 leaf, u32 sub) {
    u32 n = v->vm->nr_vcpus;
    struct cpuid r = basic[leaf];

    switch (leaf) {
    case 0x1:
        r.ebx |= v->id << 24 | 1u << (16 + id_bits(n));
        if (n > 1) r.edx |= F1D_HTT;
        if (virt->get_reg(&v->virt, VREG_CR4) & CR4_OSXSAVE) r.ecx |= F1C_OSXSAVE;
        return r;
    case 0x4:
        if (amd || sub >= ARRAY_SIZE(caches)) return (struct cpuid){ 0 };
        r = caches[sub];
        r.eax |= ((1u << id_bits(n)) - 1) << 26;
        return r;
    case 0x7: return sub == 0 ? r : sub == 1 ? leaf7_1 : (struct cpuid){ 0 };
    case 0xb: return topology(v, sub);
    case 0xd: return xsave(v, sub);
    default: return r;
    }
}

static struct cpuid takt_leaf(const struct vcpu *v, u32 n) {
    struct cpuid r = { 0 };

    switch (n) {
    case 0:
        r.eax = TAKT_CPUID_BASE + TAKT_MAX;
        memcpy(&r.ebx, TAKT_SIGNATURE, 12);
        return r;
    case 1: return (struct cpuid){ TAKT_ABI_VERSION, amd ? TAKT_FEAT_VMMCALL : 0, v->vm->id, v->id };
    case 2: return (struct cpuid){ (u32)tsc_khz, VLAPIC_TIMER_KHZ, 0, 0 };
    default: return (struct cpuid){ (u32)TAKT_SHARED_GPA, (u32)TAKT_INFO_GPA, v->vm->nr_vcpus, 0 };
    }
}

static struct cpuid ext_leaf(const struct vcpu *v, u32 n) {
    struct cpuid r = ext[n];

    if (n == 8 && amd && v->vm->nr_vcpus > 1) r.ecx = id_bits(v->vm->nr_vcpus) << 12 | (v->vm->nr_vcpus - 1);
    if (n == 1 && amd && v->vm->nr_vcpus > 1) r.ecx |= 2; /* the logical CPUs are cores */
    return r;
}

void exit_cpuid(struct vcpu *v, const struct vm_exit *e) {
    u64 *gpr = v->virt.regs.gpr;
    u32 leaf = (u32)gpr[REG_RAX];
    struct cpuid r = { 0 };

    if (leaf <= BASIC_MAX)
        r = basic_leaf(v, leaf, (u32)gpr[REG_RCX]);
    else if (leaf - EXT_BASE <= EXT_MAX)
        r = ext_leaf(v, leaf - EXT_BASE);
    else if (leaf - TAKT_CPUID_BASE <= TAKT_MAX)
        r = takt_leaf(v, leaf - TAKT_CPUID_BASE);
    gpr[REG_RAX] = r.eax;
    gpr[REG_RBX] = r.ebx;
    gpr[REG_RCX] = r.ecx;
    gpr[REG_RDX] = r.edx;
    guest_skip(&v->virt, e);
}
