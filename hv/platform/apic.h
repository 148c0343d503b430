/* The local APIC of each CPU, which is used by MMIO, or by MSRs in x2APIC mode; and the 8259s,
 * which stay masked. SDM 3A chapter 11. */
#ifndef HV_PLATFORM_APIC_H
#define HV_PLATFORM_APIC_H

#include "platform/firmware.h"

/* x2APIC mode is used; the timer is used in TSC deadline mode. Set by apic_probe(), then
 * constant. */
extern bool apic_x2, apic_tsc_deadline;

/* Chooses the mode of the APIC and of its timer (the two variables above) by CPUID alone.
 * -ENODEV without an APIC. */
int apic_probe(void);
/* Calls apic_probe(), finds the registers, and masks all interrupts of 8259s and IOAPICs (irq.h).
 * On the boot CPU. -ENODEV without an APIC. */
int apic_init(const struct acpi_info *a);
/* Sets up the local APIC of this CPU. To be called once on each CPU. */
void apic_init_cpu(void);
/* Returns the APIC id of this CPU. */
u32 apic_id(void);

enum apic_delivery { APIC_FIXED = 0, APIC_NMI = 4, APIC_INIT = 5, APIC_STARTUP = 6 };
/* Sends an IPI to the CPU with this APIC id. `vector` is a vector for APIC_FIXED and the number of
 * a page for APIC_STARTUP; for APIC_NMI and APIC_INIT it is ignored. */
void apic_send(u32 apic_id, enum apic_delivery how, u8 vector);

/* Makes this CPU's APIC timer count down once from `ticks`, without a divider; 0 stops it. */
void apic_timer_count(u32 ticks);
/* Returns the ticks that are left. */
u32 apic_timer_left(void);

#endif
