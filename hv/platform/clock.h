/* Finds out how fast the TSC runs, and whether the TSCs of two CPUs agree. */
#ifndef HV_PLATFORM_CLOCK_H
#define HV_PLATFORM_CLOCK_H

#include "platform/firmware.h"

/* The rate of the local APIC's timer in kHz. It is measured only where the APIC has no TSC deadline
 * mode. */
extern u64 apic_timer_khz;

/* Finds the rate of the TSC, and of this CPU's APIC timer if that has no TSC deadline mode, and
 * logs how it was found. On the boot CPU. Returns 0, or
 *   -ENODEV  no clock counts and CPUID does not give the rate, or the APIC timer does not count */
int clock_calibrate(const struct acpi_info *a);
/* Waits in a loop. To be used only while the machine starts or ends, as guests of this CPU would
 * stand still meanwhile. */
void delay_ns(u64 ns);

/* Compares the TSCs of the boot CPU and of one other CPU. Both CPUs have to call it at the same
 * time, the other one with `mine` set. The other CPU waits until the boot CPU has begun, compares,
 * and then sets *done. The boot CPU compares until *done is set. Neither stays for more than
 * 100 ms. */
void clock_compare(volatile bool *done, bool mine);
/* Returns by how many ticks the other CPU's TSC was seen to be behind the boot CPU's. The number is
 * negative if it was ahead, and 0 if time never went backwards from one CPU to the other. Forgets
 * the result, so that the next comparison starts anew. On the boot CPU. */
i64 clock_lag(void);

#endif
