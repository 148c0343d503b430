/* Who has a PCI device: what Takt keeps about each device of the machine beyond what hv/pci
 * knows. */
#ifndef HV_PASSTHROUGH_ASSIGN_H
#define HV_PASSTHROUGH_ASSIGN_H

#include "lib/spinlock.h"
#include "pci/pci.h"
#include "platform/timer.h"

#define PCI_NOWHERE (~0ull)

struct vm;
struct iommu_unit;

/* How a device interrupts its VM. */
enum pci_irq { PCI_NO_IRQ, PCI_INTX, PCI_MSI, PCI_MSIX };

/* One for each device, whether a VM has it or not. Where nothing else is said, the housekeeping
 * pCPU alone uses it. */
struct assignment {
    struct pci_device *pci;
    struct assignment *next; /* of the list `assignments` */
    struct vm *owner;        /* NULL: nobody has the device */
    u64 asked;               /* what the VM file or command asked for: config.h */

    /* steps of giving it and of taking it back: give.c */
    u32 part;               /* which BAR is next */
    u64 offset;             /* how far that BAR is done */
    u64 gpa[6];             /* where the VM sees each BAR; PCI_NOWHERE: not (yet) at all */
    u64 msix_gpa;           /* and the MSI-X table */
    bool leaving, released; /* the operator wants it back; the VM has let go of it */

    /* What a VM that is a PC has written to configuration space and reads there again (pcbus.c). Of
     * writes at the same time any one may be lost; that hurts nobody but the VM. */
    u32 command;      /* bits of COMMAND */
    u16 msix_control; /* of MSI-X: whether it is on, and masked as a whole */
    u8 sizing;        /* a bit for each BAR's register that reads as the size, not the address */
    u8 line;          /* interrupt line */

    /* Under `lock`, which any pCPU may take. While it is held, only locks of timers are taken. */
    struct spinlock lock;
    bool off;  /* the VM may not make it master of the bus: not yet, or not any more */
    bool held; /* it is `off` only until the reset of its physical function is over */
    enum pci_irq irq;
    bool shut; /* the VM, a PC, has not switched messages on, or has masked all of them */
    u32 nr_vectors;
    struct pci_vector {
        struct assignment *assignment;
        u32 port; /* of the VM */
        int vector;
        u32 cpu;     /* the pCPU that its messages go to */
        bool masked; /* by the VM, in its MSI-X table */
        /* what the VM wants to be written, and where; used only if the VM is a PC */
        u64 address;
        u32 data;
    } entry[PCI_MAX_VECTORS];
    u32 gsi;     /* of INTx */
    bool masked; /* atomically: until the VM is done, or its millisecond is over */
    struct timer unmask, move;
    u32 burst;      /* interrupts in one millisecond, after which the next have to wait */
    u64 window;     /* start of the millisecond that is being counted, in ns */
    u32 in_window;  /* interrupts in it so far */
    u64 interrupts; /* since the device was given */
    u64 refused;    /* accesses to configuration space since then; atomically */

    /* the IOMMU's: vtd.c */
    bool confined;            /* the device reaches nothing but what its VM has */
    struct iommu_unit *iommu; /* the unit that it is attached to, or NULL */
    u64 faults;               /* accesses that the IOMMU stopped since the device was given */
    u64 fault_said;           /* when the last sentence about them was logged, in ns; 0: never */
};

/* All assignments, in order of bdf; a list. */
extern struct assignment *assignments;
#define FOR_ASSIGNMENTS(a) for (struct assignment *a = assignments; a; a = a->next)

/* Once at boot, when all devices are known. (Tests call it again; then it frees what was there.) */
void assign_init(void);
/* Returns the assignment of `d`, never NULL. If d is NULL, or memory was short at boot, that is one
 * assignment which stands for all such devices: it never has an owner, and its `pci` is NULL. */
struct assignment *assignment_of(const struct pci_device *d);
/* Returns the device that a VM file or command asks for (config.h): a function, a certain virtual
 * function, or any virtual function of a card that nobody has. NULL: there is none. */
struct pci_device *assign_asked(u64 request);

/* Writes one sentence to vm->why and makes it the reason for which the VM's job fails. Returns
 * `error`, so that a caller can return what this returns. */
int assign_refuse(struct vm *vm, int error, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Updates what the store tells the owner about the device; there must be an owner. */
void assign_tell(const struct assignment *a);

/* From now on the VM cannot make the device master of the bus. If the device is master already, it
 * stays so. Takes a->lock. */
void assign_forbid(struct assignment *a);
/* As assign_forbid(), and the device loses bus mastering and INTx at once. If `hold` is set and the
 * device was not off before, interrupt_again() switches it on again later. Takes a->lock. */
void assign_off(struct assignment *a, bool hold);

#endif
