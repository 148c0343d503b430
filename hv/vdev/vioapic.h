/* A virtual IOAPIC (Intel 82093AA data sheet, 3.1 and 3.2, with the EOI register of later ones).
 * VMs that are PCs have one: operating systems get the interrupts of UART and virtio devices
 * through it. It takes level-triggered and edge-triggered lines. */
#ifndef HV_VDEV_VIOAPIC_H
#define HV_VDEV_VIOAPIC_H

#include "lib/spinlock.h"
#include "vdev/bus.h"
#include "vdev/vlapic.h"

#define VIOAPIC_PINS 24

struct vioapic {
    struct spinlock lock;
    struct vlapic *any; /* a LAPIC of the VM: messages to all of them go through it. Constant */
    u32 select;         /* IOREGSEL */
    u32 lines;          /* a bit for each pin that is asserted */
    u64 entry[VIOAPIC_PINS];
};

/* `any` is a LAPIC of the VM, and stays as long as the IOAPIC. */
void vioapic_init(struct vioapic *io, struct vlapic *any);
/* The level of a pin has become what *cause says: asserted if it is not 0. *cause is read under the
 * lock, so that of two calls at a time the last one counts. From any pCPU. Takes the lock, and with
 * it those of the scheduler. */
void vioapic_line(struct vioapic *io, u32 pin, const u32 *cause);
/* The handler of `vector` has ended, on one of the VM's LAPICs. */
void vioapic_eoi(struct vioapic *io, u8 vector);
/* bus_fn of a struct vioapic: a->addr is TAKT_IOAPIC_GPA and what follows. */
void vioapic_access(void *dev, const struct bus_access *a, u64 *value);

#endif
