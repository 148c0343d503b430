/* A virtual IOAPIC (Intel 82093AA data sheet, 3.1 and 3.2, with the EOI register of later IOAPICs).
 * A VM that is a PC has one: by it an operating system gets the interrupts of its UART and its
 * virtio devices. Lines can be level triggered or edge triggered. */
#ifndef HV_VDEV_VIOAPIC_H
#define HV_VDEV_VIOAPIC_H

#include "lib/spinlock.h"
#include "vdev/bus.h"
#include "vdev/vlapic.h"

#define VIOAPIC_PINS 24

struct vioapic {
    struct spinlock lock;
    struct vlapic *any; /* one of the VM's LAPICs, by which all of them are found. Constant */
    u32 select;         /* IOREGSEL: the register behind IOWIN */
    u32 id;             /* as in its register */
    u32 lines;          /* a bit for each pin that is asserted */
    u64 entry[VIOAPIC_PINS];
};

/* Initialises an IOAPIC with all pins masked. `any` is one of the VM's LAPICs, and must exist as
 * long as the IOAPIC. */
void vioapic_init(struct vioapic *io, struct vlapic *any);
/* Sets the level of a pin: asserted if *cause is not 0. *cause is read under the lock, so that of
 * two calls at the same time the one that comes last sees the newest value. From any pCPU. Takes
 * the lock, and while it is held, locks of the scheduler. */
void vioapic_line(struct vioapic *io, u32 pin, const u32 *cause);
/* Lets an edge-triggered pin rise and fall, which sends one interrupt. Returns false, and nothing
 * is sent, if the guest has masked the pin, as all pins are at first: then it has no handler for
 * it. From any pCPU. Takes the same locks. */
bool vioapic_pulse(struct vioapic *io, u32 pin);
/* To be called when a guest has made an EOI for `vector` on one of the VM's LAPICs. From any pCPU.
 * Takes the same locks. */
void vioapic_eoi(struct vioapic *io, u8 vector);
/* The bus_fn (vdev/bus.h) of the IOAPIC's page at TAKT_IOAPIC_GPA; `dev` is the struct vioapic.
 * Takes the same locks. */
void vioapic_access(void *dev, const struct bus_access *a, u64 *value);

#endif
