/* Errata: features that a CPU claims to have but that do not work. Each function here compares the
 * CPU's "signature" (family, model and stepping: which product it is, and which version of it) with
 * a list of those that have the defect. */
#include "x86/errata.h"

#include "common/insn.h"

#define CPUID_RESERVED        (3u << 14 | 15u << 28) /* SDM 2A, CPUID leaf 1: EAX */
#define CPUID_HYPERVISOR      BIT(31)                /* leaf 1: ECX */
#define CPUID_ARCH_CAPS       BIT(29)                /* leaf 7: EDX */

#define MSR_BIOS_SIGN_ID      0x08b
#define MSR_ARCH_CAPABILITIES 0x10a
#define PSCHANGE_MC_NO        BIT(6) /* no machine check by a change of a page's size */

/* The signature of a CPU of family 6 (SDM 2A, figure 3-6). */
#define FAMILY_6(model, stepping) (((model) >> 4) << 16 | 6u << 8 | ((model)&15u) << 4 | (stepping))
#define STEPPING                  15u

/* The models whose timer is broken, with the first microcode that repairs it. It is the list
 * that Linux's driver of the APIC checks, from Intel's specification updates. ANY stands for all
 * steppings of a model. */
#define ANY 16u
static const struct {
    u32 model, stepping, microcode;
} deadline_mended[] = {
    { 0x3f, 2, 0x3a },
    { 0x3f, 4, 0x0f }, /* Haswell, servers */
    { 0x3c, ANY, 0x22 },
    { 0x45, ANY, 0x20 },       /* Haswell */
    { 0x46, ANY, 0x17 },       /* Haswell with large graphics */
    { 0x4f, ANY, 0x0b000020 }, /* Broadwell, servers */
    { 0x56, 2, 0x00000011 },
    { 0x56, 3, 0x0700000e }, /* Broadwell, Xeon D */
    { 0x56, 4, 0x0f00000c },
    { 0x56, 5, 0x0e000003 },
    { 0x3d, ANY, 0x25 },
    { 0x47, ANY, 0x17 }, /* Broadwell */
    /* Skylake, servers; later steppings are good */
    { 0x55, 3, 0x01000136 },
    { 0x55, 4, 0x02000014 },
    { 0x4e, ANY, 0xb2 },
    { 0x5e, ANY, 0xb2 }, /* Skylake */
    { 0x8e, ANY, 0x52 },
    { 0x9e, ANY, 0x52 }, /* Kaby Lake */
};

/* Returns the first microcode with which this CPU's timer works, or 0 if it works with any. */
static u32 deadline_microcode(const struct cpu_kind *k) {
    if (!k->intel || k->emulated) return 0;
    for (u32 i = 0; i < ARRAY_SIZE(deadline_mended); i++) {
        u32 stepping = deadline_mended[i].stepping;

        if (stepping == ANY) stepping = k->signature & STEPPING;
        if (k->signature == FAMILY_6(deadline_mended[i].model, stepping))
            return deadline_mended[i].microcode;
    }
    return 0;
}

/* Returns what kind of CPU this is. Reading the revision of the microcode means writing an MSR,
 * which another hypervisor may not allow. So it is read only where it matters. */
struct cpu_kind cpu_kind_read(void) {
    struct cpuid id = cpuid(1, 0);
    struct cpu_kind k = { .intel = cpuid(0, 0).ebx == CPUID_GENU,
                          .emulated = id.ecx & CPUID_HYPERVISOR,
                          .signature = id.eax & ~CPUID_RESERVED };

    if (deadline_microcode(&k)) {
        /* CPUID puts the revision into the MSR's upper half, if that half was 0. */
        wrmsr(MSR_BIOS_SIGN_ID, 0);
        cpuid(1, 0);
        k.microcode = (u32)(rdmsr(MSR_BIOS_SIGN_ID) >> 32);
    }
    return k;
}

/* Returns the MSR in which a CPU says which defects it does not have; 0 if it has no such MSR. */
u64 cpu_arch_capabilities(void) {
    if (!(cpuid_or_zero(7, 0).edx & CPUID_ARCH_CAPS)) return 0;
    return rdmsr(MSR_ARCH_CAPABILITIES);
}

/* Returns whether this CPU's TSC-deadline timer may never fire; *microcode becomes the first
 * revision that mends it. A CPU that is not in the list has `mended` 0, which every revision
 * reaches. */
bool erratum_tsc_deadline(const struct cpu_kind *k, u32 *microcode) {
    u32 mended = deadline_microcode(k);

    *microcode = 0;
    if (k->microcode >= mended) return false;
    *microcode = mended;
    return true;
}

/* Returns whether this CPU's VMX preemption timer cannot be trusted. The list is from Intel's
 * specification updates 323344 (BA86), 323056 (AAX65), 322814 (AAT59), 322911 (AAU65), 322373
 * (AAO95), 322166 (AAN92), 320767 (AAP86), 321333 (AAM126), 320836 (AAJ124), 321324 (AAK139). */
bool erratum_preemption_timer(const struct cpu_kind *k) {
    static const u32 broken[] = {
        FAMILY_6(0x2e, 6), /* Nehalem-EX */
        /* Westmere, clients */
        FAMILY_6(0x25, 2), FAMILY_6(0x25, 5), FAMILY_6(0x1e, 5),                    /* Lynnfield */
        FAMILY_6(0x1a, 0), FAMILY_6(0x1a, 1), FAMILY_6(0x1a, 4), FAMILY_6(0x1a, 5), /* Nehalem */
        FAMILY_6(0x3a, 8), /* Ivy Bridge, Xeon E3 v2, early */
    };

    if (!k->intel || k->emulated) return false;
    for (u32 i = 0; i < ARRAY_SIZE(broken); i++)
        if (k->signature == broken[i]) return true;
    return false;
}

/* Returns whether a guest could stop this CPU by changing the size of a page from which it
 * executes. Intel, "Machine Check Error Avoidance on Page Size Change": the Core line is affected
 * up to the models that set PSCHANGE_MC_NO; Atom's and Xeon Phi's cores are not. */
bool erratum_itlb_multihit(const struct cpu_kind *k, u64 arch_capabilities) {
    static const u8 unaffected[] = {
        0x1c, 0x26, 0x27, 0x35, 0x36,       /* Atom: Bonnell, Saltwell */
        0x37, 0x4a, 0x4c, 0x4d, 0x5a, 0x5d, /* Silvermont, Airmont */
        0x5c, 0x5f, 0x7a,                   /* Goldmont, Goldmont Plus */
        0x86, 0x96, 0x9c,                   /* Tremont */
        0x57, 0x85,                         /* Xeon Phi */
    };
    u32 family = k->signature >> 8 & 15,
        model = (k->signature >> 4 & 15) | (k->signature >> 12 & 0xf0);

    if (!k->intel || family != 6 || arch_capabilities & PSCHANGE_MC_NO) return false;
    for (u32 i = 0; i < ARRAY_SIZE(unaffected); i++)
        if (model == unaffected[i]) return false;
    return true;
}
