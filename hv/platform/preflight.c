#include "platform/preflight.h"

#include "lib/printf.h"
#include "platform/apic.h"
#include "x86/insn.h"

void preflight_row(const char *what, bool found, const char *effect) {
    log_info("  %-22s %-3s  %s", what, found ? "yes" : "no", effect);
}

/* Does the CPU say that it leaks? In one line, since Takt does nothing against it (SDM 4,
 * IA32_ARCH_CAPABILITIES; CPUID 7.EDX; CPUID 80000008h.EBX). */
static void speculation(void) {
    u32 edx = cpuid_or_zero(7, 0).edx, amd = cpuid_or_zero(0x80000008, 0).ebx;
    bool ibpb = edx >> 26 & 1 || amd >> 12 & 1;
    u64 caps = 0;

    if (edx >> 29 & 1) rdmsr_safe(MSR_ARCH_CAPS, &caps);
    preflight_row("speculation: IBPB", ibpb,
                  caps & 1 ? "not used: VMs are not protected from each other's speculation (no Meltdown)"
                           : "not used: VMs are not protected from each other's speculation");
}

void preflight_platform(const struct acpi_info *a) {
    bool invariant = cpuid_or_zero(0x80000007, 0).edx >> 8 & 1;

    preflight_row("x2APIC", apic_x2, apic_x2 ? "used" : "the APIC is reached by MMIO, at most 255 CPUs");
    preflight_row("TSC deadline", apic_tsc_deadline, apic_tsc_deadline ? "used" : "timers by APIC count");
    preflight_row("invariant TSC", invariant,
                  invariant ? "time is right in all power states"
                            : "time is right while the clock rate is fixed");
    preflight_row("IOMMU", a->dmar || a->ivrs,
                  a->dmar   ? "DMAR table; not used yet"
                  : a->ivrs ? "IVRS table; not used"
                            : "no device can be given to a VM");
    speculation();
}
