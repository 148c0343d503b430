/* The self test: does this machine do what Takt relies on? The word `selftest` on the command
 * line asks for it. It tries the CPUs, their timers, interrupts and the IOMMU in a few seconds
 * and ends with a verdict, so that an operator knows before an experiment runs for a day. */
#ifndef HV_SELFTEST_SELFTEST_H
#define HV_SELFTEST_SELFTEST_H

#include "platform/firmware.h"

/* On the boot CPU, with virtualisation on and the other CPUs in selftest_serve(), before there
 * are pools and VMs. Logs a line for each check and the verdict, then ends the machine: an
 * emulator with exit code 0 if all that could be checked holds and 1 otherwise; a real machine
 * stands still and can be read. */
void selftest_run(const struct acpi_info *acpi, const char *no_iommu) __attribute__((noreturn));

/* On every other CPU, again and again until the boot is over: does what a check wants of this
 * CPU. */
void selftest_serve(void);

#endif
