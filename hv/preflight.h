/* What this machine has, told before anything runs on it. */
#ifndef HV_PREFLIGHT_H
#define HV_PREFLIGHT_H

/* Asks the boot CPU what it offers, chooses VT-x or AMD-V (`virt`), and logs a table: a line for
 * each feature, whether it was found, and what follows. Call it after apic_init() and
 * iommu_init().
 *
 * `no_iommu` says why devices are not confined, in the words of iommu_init(); NULL if they are.
 * Returns NULL if guests can run here, else the sentence that tells the operator why they
 * cannot. Reads CPUID and MSRs and switches nothing on, so the host runs it over the dumps of
 * real machines (tests/machines/). */
const char *preflight(const char *no_iommu);

#endif
