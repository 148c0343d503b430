/* Errata: features that a CPU claims to have but that do not work, as its model and microcode tell.
 *
 * The erratum_* functions only compute: they execute no privileged instruction, so the host
 * tests them. */
#ifndef HV_X86_ERRATA_H
#define HV_X86_ERRATA_H

#include <takt/types.h>

struct cpu_kind {
    bool intel;
    /* Takt runs in a guest of another hypervisor, so errata of the hardware do not count */
    bool emulated;
    u32 signature; /* CPUID leaf 1, EAX, without its reserved bits: family, model and stepping */
    u32 microcode; /* revision; 0 where it was not asked for (see cpu_kind_read) */
};

/* Reads what this CPU is. The revision of the microcode is read, as SDM 3A 11.11.7.1 describes,
 * only if an erratum of this CPU depends on it. */
struct cpu_kind cpu_kind_read(void);

/* Returns IA32_ARCH_CAPABILITIES (SDM 4 table 2-2); 0 if the CPU does not have it. */
u64 cpu_arch_capabilities(void);

/* The next three return whether the CPU has the erratum that is described.
 *
 * The TSC-deadline timer may never fire. *microcode becomes the first revision of the microcode
 * that repairs it, or 0 if the CPU is not affected. */
bool erratum_tsc_deadline(const struct cpu_kind *k, u32 *microcode);
/* The VMX preemption timer counts at a wrong rate or exits early, so it must not be used. */
bool erratum_preemption_timer(const struct cpu_kind *k);
/* A guest that changes the size of a page from which it executes can stop the machine
 * (CVE-2018-12207). Guests must not get large executable pages then. */
bool erratum_itlb_multihit(const struct cpu_kind *k, u64 arch_capabilities);

#endif
