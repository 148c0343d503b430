/* Configuration space of devices that a test makes up, and the interrupt controllers behind
 * them. */
#ifndef FAKE_PCI_H
#define FAKE_PCI_H

#include "pci/pci.h"

#define FAKE_DEVICES  4200
#define FAKE_SEGMENTS 4

struct fake_pci {
    u32 bdf;
    u8 space[4096];
    u8 writable[4096];   /* bits that a write changes: BARs, COMMAND, capabilities */
    u16 sriov;           /* where that capability is */
    struct fake_pci *pf; /* of a virtual function, which answers while that has them enabled ... */
    u32 vf;              /* ... and at least so many and one */
    bool moved;          /* a BAR was written while the device decoded */
    u32 touched;         /* how often COMMAND or a BAR was written */
    bool master_once;    /* it was master of the bus at some time */
    u8 express;
    u32 resets;       /* by DEVCTL */
    u64 silent_until; /* after a reset it does not answer for so long, by fake_now */
    u64 silent_ns;
};
extern struct fake_pci fake_device[FAKE_DEVICES];
extern u32 fake_nr_devices;

/* An endpoint with an id and class, INTA, COMMAND as firmware leaves it: memory and ports. */
struct fake_pci *fake_pci_add(u32 bdf, u32 id, u32 class_rev);
/* BAR i at `addr`; `low` are the type bits of its low word. */
void fake_pci_bar(struct fake_pci *f, u32 i, u64 addr, u64 size, u32 low);
/* A capability at the head of the list. Its bytes are zero. */
void fake_pci_cap(struct fake_pci *f, u8 at, u8 id);
/* An extended capability behind the others. Its bytes are zero. */
void fake_pci_extended(struct fake_pci *f, u16 at, u16 id);
/* `total` virtual functions; BARs of 16 KiB, 64 bits, 0 and 3. */
void fake_pci_sriov(struct fake_pci *f, u16 at, u32 total, u32 offset, u32 stride);
u32 fake_get(const struct fake_pci *f, u32 at, u32 size);
void fake_set(struct fake_pci *f, u32 at, u32 size, u32 v);
void fake_pci_reset(void); /* no devices */

/* The memory that mmio_map returns: the n-th mapping is the n-th page. */
extern u8 fake_registers[32 * PAGE_SIZE];
extern u32 fake_mappings;

extern u8 *fake_low_memory; /* 1 MiB for acpi_map; NULL: there is none */

/* Interrupt controllers: the last that was connected. */
extern struct fake_pin {
    u32 gsi, flags;
    int vector;
    bool masked, connected;
} fake_pin;
/* What another pCPU does beside the next change of the pin: before it is masked, after it is
 * unmasked. Once. */
extern void (*fake_pin_race)(void);
extern u32 fake_no_messages;     /* a pCPU that messages cannot reach */
void fake_interrupt(int vector); /* as if it came; nothing if nobody has the vector */
extern u32 fake_vectors_used;
extern u32 fake_reads; /* of configuration space */

#endif
