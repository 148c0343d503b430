/* Features that a CPU claims to have and that do not work on it, known by its model and its
 * microcode.
 *
 * The erratum_* functions only compute: they execute no privileged instruction, so the host
 * tests them. */
#ifndef HV_X86_ERRATA_H
#define HV_X86_ERRATA_H

#include <takt/types.h>

struct cpu_kind {
    bool intel;
    /* a hypervisor below shows this CPU: then the errata of the silicon are not ours */
    bool emulated;
    u32 signature; /* CPUID leaf 1, EAX, without its reserved bits: family, model and stepping */
    u32 microcode; /* revision; 0 where it was not asked for (see cpu_kind_read) */
};

/* Reads what this CPU is; the microcode's revision only where an erratum hangs on it, and as SDM
 * 3A 11.11.7.1 (Determining the Signature) has it. */
struct cpu_kind cpu_kind_read(void);

/* IA32_ARCH_CAPABILITIES (SDM 4 table 2-2), 0 where the CPU does not have it. */
u64 cpu_arch_capabilities(void);

/* The TSC-deadline timer may never fire. *microcode becomes the first revision that mends it; 0
 * if the CPU is not affected. */
bool erratum_tsc_deadline(const struct cpu_kind *k, u32 *microcode);
/* The VMX preemption timer counts at a wrong rate or exits early: it must not be used. */
bool erratum_preemption_timer(const struct cpu_kind *k);
/* A guest that changes the size of a page it executes from can stop the machine
 * (CVE-2018-12207), unless it is given no large executable pages. */
bool erratum_itlb_multihit(const struct cpu_kind *k, u64 arch_capabilities);

#endif
