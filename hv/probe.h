/* The description of this machine for tests/machines/: the word `probe` on the command line asks
 * for it. */
#ifndef HV_PROBE_H
#define HV_PROBE_H

#include "platform/firmware.h"

/* On the boot CPU, after preflight(), whose answer `why_not` is. Writes CPUID, the MSRs that
 * Takt's probes read, ACPI's tables and the PCI functions to the console in the form of
 * tests/machines/README.md, between two lines of marks, and ends the machine as platform_halt()
 * does. Changes nothing. */
void probe_run(const struct acpi_info *acpi, const char *why_not) __attribute__((noreturn));

#endif
