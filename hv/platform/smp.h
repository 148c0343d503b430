/* Finding, starting and kicking CPUs. */
#ifndef HV_PLATFORM_SMP_H
#define HV_PLATFORM_SMP_H

#include "mm/frame.h"
#include "platform/firmware.h"

struct cpu;

int cpu_give_stacks(struct cpu *c); /* its own, and one for each IST entry, guarded; -ENOMEM */
/* Starts every CPU of a->apic_id but the first, which is this one (acpi_boot_cpu), by
 * INIT-SIPI-SIPI through the free page `page` below 1 MiB (0: there is none, and none is
 * started); each calls `entry` on its own stack and never returns. Without `smt` the first
 * thread of each core alone is started. CPUs are numbered by socket, core and thread, from this
 * one on (x86/place.h); of a machine with more than TAKT_MAX_CPUS the first ones in that order
 * are used. A CPU that does not answer within 1 s, or whose TSC cannot be set right, is reported
 * and done without. Sets nr_cpus and percpu_of. */
void smp_start(const struct acpi_info *a, hpa_t page, bool smt, void (*entry)(void));
/* Faults on request, to see that they are noticed: every CPU but the first starts with its TSC
 * behind; and none has IA32_TSC_ADJUST to mend it by. Set before smp_start(). */
extern bool smp_fault_tsc, smp_fault_no_adjust;
void ap_main(void); /* where boot.asm brings them to */
/* On each CPU once its timers work: kicks and heartbeats are watched from now on. */
void smp_watch(void);
/* False while a CPU is silent that had to be dumped: it does not pass through its loop. */
bool smp_all_alive(void);
/* Makes `cpu` leave its guest or its halt and pass through its loop, soon. Harmless on itself. */
void cpu_kick(unsigned cpu);
/* Makes an interrupt pending on this CPU, on which interrupts are off. So the next guest that it
 * enters exits before its first instruction, but after the injected event was delivered. */
void cpu_interrupt_self(void);
/* Halts all other CPUs, for ever. */
void smp_stop_others(void);
/* Opens a window in which pending interrupts of this CPU are taken, then closes it again. */
void irq_window(void);
/* Halts until an interrupt; interrupts are taken. Returns with them off. */
void cpu_halt(void);

#endif
