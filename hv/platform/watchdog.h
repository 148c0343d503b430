/* The machine's watchdog: hardware that resets the machine if it gets no sign of life for some
 * time. The hypervisor gives a sign of life as long as all CPUs are alive. After such a reset, the
 * next boot shows the last lines of the log (crashlog.h). */
#ifndef HV_PLATFORM_WATCHDOG_H
#define HV_PLATFORM_WATCHDOG_H

#include "platform/firmware.h"

/* Starts the watchdog, if the machine has one that Takt knows: the one that the firmware describes
 * in its table WDAT, or the TCO timer of Intel's chipsets ICH6 to ICH10 and of the series 5 to 9.
 * The log says which one it is, or that there is none.
 *
 * The machine is reset when no sign of life has come for at least `seconds`, and at most three
 * times as long. If the hardware cannot wait for so long, it waits for the longest time that it
 * can. If `seconds` is 0, nothing is done. On the boot CPU, just before its loop. */
void watchdog_init(const struct acpi_info *a, u32 seconds);
/* Stops the watchdog: for a machine that is to halt, or to be switched off, and must not be
 * reset. */
void watchdog_stop(void);

#endif
