/* The local APIC of each CPU, by MMIO or (x2APIC) by MSR; the 8259s, which stay masked. SDM 3A
 * 11. */
#ifndef HV_PLATFORM_APIC_H
#define HV_PLATFORM_APIC_H

#include "platform/firmware.h"

extern bool apic_x2, apic_tsc_deadline;

/* Chooses the mode of the APIC and of its timer (the two variables above) by CPUID alone.
 * -ENODEV without an APIC. */
int apic_probe(void);
/* On the boot CPU: apic_probe(), finds the registers, silences 8259s and IOAPICs (irq.h). -ENODEV
 * without an APIC. */
int apic_init(const struct acpi_info *a);
void apic_init_cpu(void); /* on each CPU */
u32 apic_id(void);

enum apic_delivery { APIC_FIXED = 0, APIC_NMI = 4, APIC_INIT = 5, APIC_STARTUP = 6 };
/* `vector` is the page number for APIC_STARTUP, and ignored for APIC_NMI and APIC_INIT. */
void apic_send(u32 apic_id, enum apic_delivery how, u8 vector);

void apic_timer_count(u32 ticks); /* one-shot, undivided; 0 stops it */
u32 apic_timer_left(void);

#endif
