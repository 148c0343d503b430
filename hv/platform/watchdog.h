/* The machine's watchdog: hardware that resets the machine when the hypervisor has not said for
 * a while that all CPUs are alive. The next boot then tells what was said last (crashlog.h). */
#ifndef HV_PLATFORM_WATCHDOG_H
#define HV_PLATFORM_WATCHDOG_H

#include "platform/firmware.h"

/* Starts it, if the machine has one that is known: what the firmware describes in its table
 * WDAT, or the TCO timer of Intel's chipsets ICH6 to ICH10 and of the series 5 to 9. The log
 * says which, or that there is none. After at least `seconds` without a sign of life, at most
 * three times that, the machine is reset. The hardware may allow less than `seconds`; then it is
 * its most. 0: does nothing. On the boot CPU, just before its loop. */
void watchdog_init(const struct acpi_info *a, u32 seconds);
/* Stops it, for a machine that is to stand still. */
void watchdog_stop(void);

#endif
