/* Ending the machine. None of the first four returns: they halt the other CPUs and send out what
 * the console has queued, within a bounded time. */
#ifndef HV_PLATFORM_POWER_H
#define HV_PLATFORM_POWER_H

#include <takt/types.h>

/* By the register that ACPI's tables name, else by what a PC has. */
void platform_reboot(void) __attribute__((noreturn));
/* Ends an emulator by its own port, if it has one (Bochs' 0x8900; QEMU's isa-debug-exit at 0xf4,
 * with code 0): then its exit code tells a power-off from a reset. Else puts the machine into
 * ACPI's state S5. Where neither works, says so and halts. */
void platform_poweroff(void) __attribute__((noreturn));
/* Ends an emulator as platform_poweroff() does; a real machine halts, and what is on its screen
 * can be read. */
void platform_halt(void) __attribute__((noreturn));
/* Says `why` and halts; ends an emulator (isa-debug-exit: code 1) unless noreboot is set. For
 * what makes it impossible to go on and is no bug of ours. */
void stop_machine(const char *why) __attribute__((noreturn));

extern bool noreboot; /* panic() halts; otherwise it starts the machine again after 5 s */

/* Makes a fault of the hypervisor on this CPU, to see that it is reported as it should be. `what`:
 *   pf gp ud df stack mc assert   it does not return: the hypervisor panics;
 *   triple freeze                 it does not return: the machine is reset, or this CPU hangs
 *                                 for ever;
 *   nmi stray storm hang sleep    it returns, after some seconds at most;
 *   kick                          it returns at once, and the next kick of a CPU is lost.
 * -EINVAL for another word. */
int fault_inject(const char *what);
extern const char fault_words[]; /* "pf|gp|..." */

#endif
