/* Finding, starting and kicking CPUs. */
#ifndef HV_PLATFORM_SMP_H
#define HV_PLATFORM_SMP_H

#include <takt/types.h>

/* Starts every enabled CPU of the MADT but this one by INIT-SIPI-SIPI; each calls `entry` on its own stack
 * and never returns. Those that do not answer within 200 ms are reported and done without. Sets nr_cpus and
 * percpu_of. */
void smp_start(void (*entry)(void));
/* Makes `cpu` leave its guest or its halt and pass through its loop, soon. Harmless on itself. */
void cpu_kick(unsigned cpu);
/* As cpu_kick by NMI: for a CPU that does not hear interrupts. */
void cpu_nmi(unsigned cpu);
/* Opens a window in which pending interrupts of this CPU are taken, then closes it again. */
void irq_window(void);
/* Halts until an interrupt; interrupts are taken. Returns with them off. */
void cpu_halt(void);

#endif
