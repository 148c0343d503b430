/* Interrupts of devices, by pins of the IOAPICs or by messages: each has a vector of its own,
 * the same on all pCPUs. Pins come to the housekeeping pCPU. 82093AA data sheet; SDM 3A 11.11. */
#ifndef HV_PLATFORM_IRQ_H
#define HV_PLATFORM_IRQ_H

#include "platform/firmware.h"

/* On the boot CPU: finds the IOAPICs and masks all their pins. */
void irq_init(const struct acpi_info *a);

/* A vector on which fn(arg) is called, as irq_register() has it; -ENOSPC, -ENODEV. Both on the
 * housekeeping pCPU. What is still on its way when it is freed is dropped, and no call of fn is
 * under way any more. */
int irq_alloc(void (*fn)(void *arg), void *arg);
void irq_free(int vector);

enum { IRQ_LOW = 1, IRQ_LEVEL = 2 }; /* else active high, edge */
/* Connects the pin, by its number among all (ACPI's GSI), with `vector`; it is masked. -ENODEV:
 * there is no such pin. */
int irq_pin_connect(u32 gsi, int vector, u32 flags);
/* Set by who remaps interrupts (hv/passthrough/vtd.c), before pins are connected: makes what the
 * IOAPIC with this id sends by entry `vector` come to the housekeeping pCPU as `vector`. 1: that
 * IOAPIC's are not remapped; -ENODEV. NULL: nobody's are. A leaf, with a leaf lock held. */
extern int (*irq_remap_pin)(u32 id, u32 vector, bool level);
void irq_pin_mask(u32 gsi, bool masked); /* from any pCPU; a leaf lock */

/* What a device has to write where, to interrupt. */
struct irq_message {
    u64 addr;
    u32 data;
};
/* To interrupt `cpu` on `vector`. -ENODEV: messages cannot reach it. */
int irq_message(int vector, u32 cpu, struct irq_message *m);

#endif
