/* Finding, starting and kicking CPUs. */
#ifndef HV_PLATFORM_SMP_H
#define HV_PLATFORM_SMP_H

#include "mm/frame.h"
#include "platform/firmware.h"

struct cpu;

/* Gives a CPU its stacks: its own, and one for each IST entry, each with an unmapped page below it.
 * Returns 0, or
 *   -ENOMEM  there is no memory */
int cpu_give_stacks(struct cpu *c);
/* Starts the CPUs of a->apic_id by INIT-SIPI-SIPI. The first of them is the CPU that calls this
 * (acpi_boot_cpu), so it is left out. `page` is a free page below 1 MiB, to which the code for the
 * start is copied; if it is 0, there is no such page, and no CPU is started. Each started CPU calls
 * `entry` on its own stack, and `entry` must not return. Without `smt`, only the first thread of
 * each core is started.
 *
 * CPUs are numbered by socket, core and thread, beginning with the caller (x86/place.h). If the
 * machine has more than `most`, which is from 1 to TAKT_MAX_CPUS, the first ones in that order are
 * used. A CPU that does not answer within 1 s, or whose TSC cannot be set right, is reported in the
 * log and not used. Sets nr_cpus and percpu_of. */
void smp_start(const struct acpi_info *a, hpa_t page, bool smt, u32 most, void (*entry)(void));
/* Faults on request, by which tests see that Takt notices them. With the first one, each CPU that
 * is started begins with its TSC behind. With the second one, Takt behaves as if no CPU had
 * IA32_TSC_ADJUST, by which it could mend that. They are set before smp_start(). */
extern bool smp_fault_tsc, smp_fault_no_adjust;
/* If it is true, the next kick is lost, and makes it false. */
extern volatile bool smp_fault_kick;
/* The first C function of a CPU that smp_start() starts; boot.asm calls it. */
void ap_main(void);
/* Called on each CPU once its timers work. From now on this CPU answers kicks, and watches the
 * heartbeat of the next CPU. */
void smp_watch(void);
/* Returns false while some CPU has been silent for so long that its state was dumped: it does not
 * come through its loop any more. */
bool smp_all_alive(void);
/* Makes `cpu` leave its guest or its halt soon and go through its loop. Does nothing if `cpu` is
 * the caller. From any CPU. */
void cpu_kick(unsigned cpu);
/* Makes an interrupt pending on this CPU while interrupts are off. The next guest that this CPU
 * enters then exits before its first instruction, but after an injected event was delivered. */
void cpu_interrupt_self(void);
/* Makes all other CPUs stop for ever, by an NMI. */
void smp_stop_others(void);
/* Takes the pending interrupts of this CPU: switches interrupts on for a moment, and off again. */
void irq_window(void);
/* Halts this CPU until an interrupt comes, and takes it. Interrupts are off again when it
 * returns. */
void cpu_halt(void);

#endif
