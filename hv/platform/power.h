/* Ending the machine. Neither returns; both send out what the console has queued first, within a bounded
 * time. */
#ifndef HV_PLATFORM_POWER_H
#define HV_PLATFORM_POWER_H

#include <takt/types.h>

void platform_reboot(void) __attribute__((noreturn));
/* ACPI soft-off; failing that what the emulators have (isa-debug-exit at 0xf4, Bochs' port 0x8900); else
 * halts. */
void platform_poweroff(void) __attribute__((noreturn));

/* Says `why` and ends: reboots or powers off an emulator, or halts here with noreboot. For what makes it impossible to
 * go on and is no bug of ours. */
void stop_machine(const char *why) __attribute__((noreturn));

extern bool noreboot; /* stop_machine() and panic() halt */

#endif
