/* The check at boot of what this machine offers. It logs a table, one line for each feature that
 * Takt needs or would like, with what follows for the operator if it is missing. So a machine that
 * cannot run guests, or runs them worse, says why. */
#include "preflight.h"

#include "lib/printf.h"
#include "platform/apic.h"
#include "virt/virt.h"
#include "x86/errata.h"
#include "common/insn.h"

/* Bits that tell what a CPU can do against speculative leaks. Takt uses none of them, and says
 * so. */
#define CPUID_7_EDX_IBPB        BIT(26) /* SDM 2A, CPUID leaf 7: IBRS and IBPB */
#define CPUID_80000008_EBX_IBPB BIT(12) /* APM3 E.4.6 */
#define CPUID_80000007_EDX_ITSC BIT(8)  /* SDM 3B 18.17.1: the TSC runs in all power states */
#define CPUID_1_ECX_XSAVE       BIT(26)
#define CPUID_LEAF_FEATURES     7u
#define CPUID_LEAF_POWER        0x80000007u
#define CPUID_LEAF_CAPACITY     0x80000008u

struct row {
    const char *what;
    bool found;
    const char *yes, *no; /* what it means for the operator if it is there, and if it is not */
};

/* Does the CPU have IBPB, the command by which a hypervisor can keep one VM from learning another
 * one's secrets through branch prediction? Takt does not use it, and says so. */
static bool has_ibpb(void) {
    return cpuid_or_zero(CPUID_LEAF_FEATURES, 0).edx & CPUID_7_EDX_IBPB ||
           cpuid_or_zero(CPUID_LEAF_CAPACITY, 0).ebx & CPUID_80000008_EBX_IBPB;
}

/* Writes to `text` why timers are not set by TSC deadline, for machines on which they are not. */
static void tell_deadline(const struct cpu_kind *kind, char *text, size_t size) {
    u32 mended;

    if (erratum_tsc_deadline(kind, &mended))
        hv_snprintf(text, size, "broken before microcode 0x%x, this is 0x%x; timers by APIC count",
                    mended, kind->microcode);
    else
        hv_snprintf(text, size, "timers by APIC count");
}

/* Returns what ends slices on a machine without a preemption timer that works. That timer is VT-x's
 * own: it makes a guest exit after a given time. */
static const char *no_preemption_timer(const struct cpu_kind *kind) {
    if (erratum_preemption_timer(kind)) return "it is broken: APIC timer ends slices";
    return "the APIC timer ends slices";
}

/* Logs one line of the table. */
static void log_row(const struct row *r) {
    const char *found = "no", *meaning = r->no;

    if (r->found) {
        found = "yes";
        meaning = r->yes;
    }
    log_info("  %-22s %-3s  %s", r->what, found, meaning);
}

/* Finds out what this machine offers, chooses VT-x or AMD-V, and logs a table of it. Returns NULL,
 * or the sentence that says why no guest can run. The table is computed first and logged then, so
 * that each row is one line of source. */
const char *preflight(const char *no_iommu) {
    struct virt_caps v = { 0 };
    int err = virt_probe(&v);
    struct cpu_kind kind = cpu_kind_read();
    char no_deadline[80];
    const struct row rows[] = {
        { "VT-x or AMD-V", v.present, "guests can run", "none can" },
        { "left on by firmware", !v.locked_off, "", "switch it on in the firmware's set-up" },
        { "EPT or nested paging", v.second_level, "needed", "needed" },
        { "unrestricted guest", v.unrestricted, "needed: guests start without paging", "needed" },
        { "XSAVE", cpuid(1, 0).ecx & CPUID_1_ECX_XSAVE, "guests may have AVX",
          "FXSAVE is used: guests have no AVX" },
        { "VPID or ASID", v.asid, "a switch of VMs keeps the TLB", "every switch flushes the TLB" },
        { "preemption timer", v.preemption_timer, "ends slices", no_preemption_timer(&kind) },
        { "APIC virtualization", v.apicv, "used if apicv = on", "interrupts are injected" },
        { "decode assists", v.decode_assists, "used if decode_assists = yes",
          "instructions are read in memory" },
        { "flush by ASID", v.flush_by_asid, "used if flush_by_asid = yes",
          "a flush takes a new ASID or VPID" },
        { "x2APIC", apic_x2, "used", "APIC by MMIO: at most 255 CPUs" },
        { "TSC deadline", apic_tsc_deadline, "used", no_deadline },
        { "invariant TSC", cpuid_or_zero(CPUID_LEAF_POWER, 0).edx & CPUID_80000007_EDX_ITSC,
          "time is right in all power states", "time is right at a fixed clock rate" },
        { "IOMMU", !no_iommu, "confines the devices of VMs", "unsafe_dma alone gives VMs devices" },
        { "speculation: IBPB", has_ibpb(), "not used: VMs can spy on each other",
          "VMs can spy on each other" },
        { "iTLB multihit", erratum_itlb_multihit(&kind, cpu_arch_capabilities()),
          "a guest can stop it: CVE-2018-12207", "guests cannot stop this CPU by it" },
    };

    tell_deadline(&kind, no_deadline, sizeof(no_deadline));
    log_info("What this machine has:");
    for (const struct row *r = rows; r < rows + ARRAY_SIZE(rows); r++) log_row(r);
    if (no_iommu) log_info("Devices are not confined: %s", no_iommu);
    if (err < 0) return v.reason;
    return NULL;
}
