/* What CPUID says about the rate of the TSC, the CPU's counter of time. That number is exact where
 * it is right, but it is wrong on some machines and in some emulators. So clock.c measures the rate
 * too, and believes CPUID only if both agree. */
#include "platform/tscrate.h"

#include "common/insn.h"

/* SDM 2A CPUID: the crystal runs at ECX Hz, and the TSC EBX / EAX times as fast. */
#define LEAF_TSC 0x15u
/* Leaf 1, ECX: a hypervisor is present. Without it the leaves from 40000000h on may hold
 * anything. */
#define HYPERVISOR_BIT BIT(31)
/* The first leaf of a hypervisor: EAX is its last one. */
#define LEAF_HYPERVISOR      0x40000000u
#define LEAF_HYPERVISOR_LAST 0x400000ffu
/* VMware has defined this leaf, and QEMU with KVM offers it too: EAX is the TSC's rate in kHz. */
#define LEAF_HYPERVISOR_TIMING 0x40000010u

#define TOLERANCE_PPM          1000u

/* Returns the TSC's rate in kHz by CPUID, or 0, and in *leaf the leaf that says so. */
u64 tsc_rate_said(const char **leaf) {
    struct cpuid c = cpuid_or_zero(LEAF_TSC, 0);

    *leaf = "CPUID 15h";
    if (c.eax && c.ebx && c.ecx) return (u64)c.ecx * c.ebx / c.eax / 1000;
    *leaf = "CPUID 40000010h";
    if (!(cpuid(1, 0).ecx & HYPERVISOR_BIT)) return 0;
    c = cpuid(LEAF_HYPERVISOR, 0);
    if (c.eax < LEAF_HYPERVISOR_TIMING || c.eax > LEAF_HYPERVISOR_LAST) return 0;
    return cpuid(LEAF_HYPERVISOR_TIMING, 0).eax;
}

/* Returns whether the measured rate agrees with the one by CPUID. */
bool tsc_rate_confirmed(u64 said_khz, const struct tsc_measured *m) {
    u64 off = MAX(said_khz, m->khz) - MIN(said_khz, m->khz);

    return !m->khz || off * 1000000 <= said_khz * MAX(TOLERANCE_PPM, m->ppm);
}
