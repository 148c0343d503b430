/* Switching the machine off and resetting it by ACPI's registers. What these are is read by
 * acpi.c. */
#ifndef HV_PLATFORM_ACPI_POWER_H
#define HV_PLATFORM_ACPI_POWER_H

#include "platform/firmware.h"

/* Copies `p`, and maps the reset register if it lies in memory: a CPU that panics must not need a
 * new mapping. On the boot CPU, once frames exist. Before it, the functions below do nothing. */
void acpi_power_init(const struct acpi_power *p);
/* Enters state S5 (ACPI 6.5, 7.4.2 and 16.1.7). Does not return if that works. Returns after about
 * a second (four, if the firmware does not hand ACPI over) where it does not, and at once where the
 * tables do not say how. The methods _PTS and _GTS of the firmware are not called, as there is no
 * interpreter. */
void acpi_off(void);
/* Writes the reset register (ACPI 6.5, 4.8.3.6). Returns after 0.1 s if nothing came of it, and at
 * once where there is no such register. */
void acpi_reset(void);

#endif
