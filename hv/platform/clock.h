/* Learning how fast the TSC runs. */
#ifndef HV_PLATFORM_CLOCK_H
#define HV_PLATFORM_CLOCK_H

#include "platform/firmware.h"

extern u64 apic_timer_khz; /* measured where there is no TSC deadline */

/* Calibrates the TSC (and, without TSC deadline, this CPU's APIC timer) against the best known
 * clock, and says in the log which. -ENODEV if there is none. */
int clock_calibrate(const struct acpi_info *a);
/* Waits; for the start of other CPUs only. */
void delay_ns(u64 ns);

/* Looks whether two CPUs' TSCs are the same. Both call it: the other CPU (`mine`) waits until
 * the boot CPU has begun, and the boot CPU goes on until *done, which the other one sets;
 * neither for more than 100 ms. */
void clock_compare(volatile bool *done, bool mine);
/* By how many ticks the other CPU's TSC was seen behind the boot CPU's; negative if it was
 * ahead, 0 if time never went back from one to the other. Starts anew. */
i64 clock_lag(void);

#endif
