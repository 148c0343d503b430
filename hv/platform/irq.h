/* Interrupts of devices. They arrive by pins of the IOAPICs (82093AA data sheet) or as messages
 * (SDM 3A 11.11). Each has a vector of its own, which is the same on all pCPUs. Interrupts of pins
 * always go to the housekeeping pCPU; a message goes to the pCPU that irq_message() was told. */
#ifndef HV_PLATFORM_IRQ_H
#define HV_PLATFORM_IRQ_H

#include "platform/firmware.h"

/* On the boot CPU: finds the IOAPICs and masks all their pins. */
void irq_init(const struct acpi_info *a);

/* Reserves a vector. From then on each interrupt with this vector calls fn(arg), in the context
 * that irq_register() describes (x86/trap.h). Returns the vector, or
 *   -ENOSPC  all vectors are in use
 *   -ENODEV  the housekeeping pCPU's APIC id is too large for pins and messages
 * Called on the housekeeping pCPU. */
int irq_alloc(void (*fn)(void *arg), void *arg);
/* Gives the vector back. When it returns, no call of fn is under way, and there will be none: an
 * interrupt that is still on its way is dropped. Called on the housekeeping pCPU. */
void irq_free(int vector);

/* How a pin signals. Without IRQ_LOW it is active high, without IRQ_LEVEL edge triggered. */
enum { IRQ_LOW = 1, IRQ_LEVEL = 2 };
/* Lets a pin raise `vector` on the housekeeping pCPU. `gsi` is the pin's number among the pins of
 * all IOAPICs; `flags` are IRQ_* bits. The pin is masked at first: irq_pin_mask() unmasks it.
 * Returns 0, or
 *   -ENODEV  there is no such pin, or no IOMMU is known to remap this IOAPIC's interrupts
 * Takes a leaf lock. */
int irq_pin_connect(u32 gsi, int vector, u32 flags);
/* A hook for the IOMMU's driver (hv/passthrough/vtd_start.c); NULL if no interrupts are remapped.
 * It has to be set before the pins that it should remap are connected. irq_pin_connect() calls it
 * with a leaf lock held. It writes entry `vector` of the remapping table in such a way that the
 * IOAPIC with this id, if it sends an interrupt by that entry, interrupts the housekeeping pCPU
 * with `vector`. `level` says that the pin is level triggered. Returns 0, or
 *   1        interrupts of this IOAPIC are not remapped, so the pin is connected directly
 *   -ENODEV  no IOMMU has this IOAPIC, or its entry cannot name the housekeeping pCPU */
extern int (*irq_remap_pin)(u32 id, u32 vector, bool level);
/* Masks or unmasks a pin. Does nothing if there is no such pin. From any pCPU; takes a leaf
 * lock. */
void irq_pin_mask(u32 gsi, bool masked);

/* A message-signalled interrupt: the device writes `data` to the physical address `addr`. */
struct irq_message {
    u64 addr;
    u32 data;
};
/* Sets *m to the message that interrupts pCPU `cpu` with `vector`. Returns 0, or
 *   -ENODEV  the pCPU's APIC id is too large for a message */
int irq_message(int vector, u32 cpu, struct irq_message *m);

#endif
