/* The PCI functions of this machine, as firmware left them: PCI Local Bus 3.0, chapter 6; PCI
 * Express Base 3.0, chapter 7. All of this is for the boot CPU at boot, and later for the
 * housekeeping pCPU, where nothing else is said. */
#ifndef HV_PCI_PCI_H
#define HV_PCI_PCI_H

#include "mm/frame.h"
#include "platform/firmware.h"

#define PCI_MAX_DEVICES          4096
#define PCI_MAX_VECTORS          16 /* of a device */
#define PCI_BDF(bus, device, fn) ((u32)(bus) << 8 | (u32)(device) << 3 | (u32)(fn))
#define PCI_NO_BUS               (~0u)
#define PCI_NAME                 13 /* characters of "0001:03:00.0" with its end */

/* A function is named by one number, called bdf: segment << 16 | bus << 8 | device << 3 | function.
 * Most machines have segment 0 alone. A bus, with its segment, is bdf >> 8. */

/* Writes "03:00.0", or "0001:03:00.0" if the segment is not 0. Returns `name`. */
char *pci_name(u32 bdf, char name[PCI_NAME]);

/* ---- configuration space: space.c ---- */

/* Read and write a register: `size` is 1, 2 or 4, `offset` a multiple of it. What cannot be reached
 * reads as all ones, and is not written. From any pCPU; they take a leaf lock. */
u32 pci_read(u32 bdf, u32 offset, u32 size);
void pci_write(u32 bdf, u32 offset, u32 size, u32 value);
/* On the boot CPU, before others have left smp_start(). `ram`: all RAM of the machine. Uses the
 * windows of memory (ECAM) that ACPI names and that can be true, and logs which are not used, and
 * why. Returns how configuration space is reached: "ECAM", or "ports" if there is no window. */
const char *pci_space_init(const struct acpi_info *a, const struct memmap *ram);
/* Returns the first bus from `bus` on that can be reached; PCI_NO_BUS if there is none. */
u32 pci_next_bus(u32 bus);

/* Registers that more than one file uses. */
enum pci_reg {
    PCI_ID = 0x00,
    PCI_COMMAND = 0x04,
    PCI_STATUS = 0x06,
    PCI_CLASS_REV = 0x08,
    PCI_CACHE_LINE = 0x0c,
    PCI_HEADER = 0x0e,
    PCI_BAR0 = 0x10,
    PCI_SECONDARY = 0x19, /* of a bridge, as the next two */
    PCI_SUBORDINATE = 0x1a,
    PCI_WINDOW = 0x20,  /* of a bridge: base and limit of the memory that it forwards, 32 bits */
    PCI_CARDBUS = 0x28, /* the first register behind the BARs */
    PCI_CAPABILITIES = 0x34,
    PCI_LINE = 0x3c,
    PCI_PIN = 0x3d,
};
#define PCI_CLASS_DISPLAY   0x03u /* the first byte of a class */
#define PCI_COMMAND_IO      BIT(0)
#define PCI_COMMAND_MEMORY  BIT(1)
#define PCI_COMMAND_MASTER  BIT(2)
#define PCI_COMMAND_NO_INTX BIT(10)
#define PCI_STATUS_LIST     BIT(4) /* there is a list of capabilities */

#define PCI_MSI_CONTROL     2u     /* offset of the control word in both capabilities */
#define PCI_MSI_ENABLE      BIT(0) /* bits of it: PCI 3.0, 6.8.1.3 and 6.8.2.3 */
#define PCI_MSI_WIDE        BIT(7)
#define PCI_MSI_MASKS       BIT(8)
#define PCI_MSIX_ENABLE     BIT(15)
#define PCI_MSIX_MASK       BIT(14)
#define PCI_MSIX_SIZE       0x7ffu /* number of the last entry of the table */

#define PCI_CAP_PM          0x01
#define PCI_CAP_MSI         0x05
#define PCI_CAP_EXPRESS     0x10
#define PCI_CAP_MSIX        0x11
#define PCI_CAP_AF          0x13
#define PCI_EXPRESS_DEVCTL  8  /* offset in that capability: PCI Express 7.8.4 */
#define PCI_MAX_CAPS        64 /* in a list; then it leads in a circle */
#define PCI_EXT_ACS         0x0d
#define PCI_EXT_ARI         0x0e
#define PCI_EXT_SRIOV       0x10

/* ---- devices ---- */

struct pci_bar {
    u64 addr, size; /* size 0: none, or the upper half of the one before, or it was not sized */
    bool io, wide;  /* ports; 64 bits */
};

struct assignment;

/* A function of the machine: what its configuration space says, and where it stands with resets.
 * Who has it is hv/passthrough's to know (passthrough/assign.h). */
struct pci_device {
    /* set by pci_enumerate() and sriov_find(), then constant */
    u32 bdf, class_rev;
    char name[PCI_NAME];
    u16 vendor, device;
    /* 0: an endpoint; 1 and 2: bridges; anything else is not understood */
    u8 header;
    /* INTx pin, 1 to 4, or 0 for none; the IRQ that firmware noted for it */
    u8 pin, line;
    u8 msi, msix, express, pm, af; /* offsets of these capabilities; 0: the device has none */
    u16 acs, ari, sriov;           /* likewise, extended capabilities */
    bool unsized;                  /* no VM can be given it, so its BARs were not sized */
    bool multi;                    /* function 0 of a device with several functions */
    u32 group; /* functions that reach each other past the IOMMU: all have the bdf of one of them */
    struct pci_device *next_bridge;
    struct pci_device *pf; /* of a virtual function: its physical function ... */
    u32 vf;                /* ... and its index there, from 0 */
    /* of a physical function: how many virtual ones are enabled; else 0 */
    u32 nr_vfs;
    /* of a physical function: BARs of virtual function 0; all have this size */
    struct pci_bar vf_bar[6];
    struct pci_bar bar[6];
    u32 saved[16];           /* the header as firmware left it */
    u16 saved_devctl;        /* and device control: PCI Express 7.8.4 */
    volatile u8 *msix_table; /* NULL: it cannot be reached */
    u64 msix_addr;           /* physical address of the MSI-X table */
    u32 msix_size;           /* entries of it that Takt uses, at most PCI_MAX_VECTORS */
    volatile u8 *quiet;      /* registers that stop it; NULL: clearing bits of COMMAND suffices */

    /* set by pci_reset(), on the housekeeping pCPU */
    bool in_reset, was_reset;
    bool lost; /* it did not come back from a reset, or its physical function did not */

    /* a fault put in by tests: it stays away after a reset, and its messages cannot be masked */
    bool mute;
    struct assignment *assignment; /* set and used by hv/passthrough alone */
};

/* Finds all functions, sizes their BARs and walks their capabilities. At boot, before any of them
 * is used. (Tests call it again.) */
void pci_enumerate(void);
/* Adds virtual function number `vf` of `pf`. `id` is its vendor and device, which its configuration
 * space does not tell (SR-IOV 1.1, 3.4.1). Returns NULL if it does not answer, or if there is no
 * memory or no room for one more device. */
struct pci_device *pci_add_vf(struct pci_device *pf, u32 vf, u32 bdf, u32 id);
u32 pci_count(void);
struct pci_device *pci_at(u32 i); /* i < pci_count(); in order of bdf */
/* Is it a part of the machine itself, such as a bridge or a timer? Such a device is never given to
 * a VM. */
bool pci_part_of_machine(const struct pci_device *d);
struct pci_device *pci_find(u32 bdf); /* NULL: there is none */
/* Fills in *b from the register at `at`. To find the size it writes all ones there and reads them
 * back (PCI 3.0, 6.2.5.1: the lowest bit that can be set is the size), so the function must not
 * decode meanwhile. `last` says that no register for an upper half can follow. Returns how many
 * registers the BAR takes, 1 or 2. */
u32 pci_size_bar(const struct pci_device *d, u32 at, bool last, struct pci_bar *b);
/* Returns the bridge whose secondary bus this is, or NULL. */
struct pci_device *pci_bridge_of(u32 bus);

/* Returns what COMMAND is while nobody has the device: it decodes as firmware left it, but it is
 * not master of the bus, and has no INTx. */
u32 pci_idle_command(const struct pci_device *d);

/* In so many phases a device may come back from its reset; that is a second (PCI Express 6.6.1). */
#define PCI_RESET_TRIES  11u
#define PCI_RESET_PHASES (PCI_RESET_TRIES + 4u) /* no reset has more phases than this */

/* Stops the device, whoever used it, and resets it if it can be reset (PCI Express 6.6.2, AF ECN,
 * PCI PM 1.2 5.4.1). The caller calls it for each phase, from 0 on. After the first phase a device
 * that obeys no longer reads or writes memory and no longer interrupts. Returns for how many ns the
 * device must be left alone before the next phase, or 0 after the last phase: then the device is
 * idle, or `lost`. */
u64 pci_reset(struct pci_device *d, u32 phase);

#endif
