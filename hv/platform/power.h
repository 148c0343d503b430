/* Ending the machine. Neither returns; both send out what the console has queued first, within a bounded
 * time. */
#ifndef HV_PLATFORM_POWER_H
#define HV_PLATFORM_POWER_H

void platform_reboot(void) __attribute__((noreturn));
/* ACPI soft-off; failing that what the emulators have (isa-debug-exit at 0xf4, Bochs' port 0x8900); else
 * halts. */
void platform_poweroff(void) __attribute__((noreturn));

#endif
