/* The PCI bus of a VM that is a PC. An operating system expects more of configuration space than a
 * guest of ours, which asks by hypercalls (mediate.c): it sizes the BARs, chooses where messages
 * go, and writes bits that it then wants to read back. So this file answers for the registers of a
 * device. Most of what is written only changes what is read again. Two things reach the device
 * itself: whether it may be master of the bus, and whether its messages are switched on.
 *
 * A device appears as function 0 of device n + 1 on bus 0, where n is its number in the VM. It has
 * no interrupt wire. Capabilities that VMs may not use are shown as empty ones (id 0, which PCI
 * calls the null capability), so that the list can still be followed. */
#include "passthrough/pcbus.h"

#include "passthrough/interrupt.h"
#include "passthrough/mediate.h"
#include "pci/rules.h"

/* The address: 3.2.2.3.2. Its function and register are the bits 8 to 10 and 2 to 7. */
#define ADDRESS_ON       BIT(31)
#define ADDRESS_BUS(a)   ((a) >> 16 & 0xff)
#define ADDRESS_SLOT(a)  ((a) >> 11 & 31)
#define ADDRESS_FUN(a)   ((a) >> 8 & 7)
#define ADDRESS_REG(a)   ((a)&0xfc)
#define DATA_PORT        (PCBUS_PORT + 4)

#define REG_ID           0x00u
#define REG_CLASS        0x08u
#define REG_HEADER       0x0cu
#define REG_LINE         0x3cu /* interrupt line, and pin */
#define FIRST_CAPABILITY 0x40u
#define CAP_NEXT         0xff00u /* of a capability's head: where the next one is */

#define ABSENT           0xffffffffu /* what a read gives where there is no device */
#define BRIDGE_ID        0x00081b36u /* a host bridge of QEMU, which no driver claims */
#define BRIDGE_CLASS     0x06000000u
#define MULTI_FUNCTION   BIT(23) /* of REG_HEADER */
#define LINE_BITS        0xffu

/* The bits of COMMAND that the VM may set, but that change nothing in the device: whether it
 * decodes ports and memory, answers parity errors, raises SERR, and uses its wire (6.2.2). */
#define COMMAND_KEPT (PCI_COMMAND_IO | PCI_COMMAND_MEMORY | BIT(6) | BIT(8) | PCI_COMMAND_NO_INTX)

#define PM_SIZE      8u
/* PCI Express 7.8.2 and 7.8.3: the kind of device, and whether it can be reset by itself. An
 * endpoint without a port above it is one that is integrated in the root complex. */
#define EXPRESS_KIND       0x00f00000u
#define EXPRESS_INTEGRATED 0x00900000u
#define EXPRESS_DEVCAP     4u
#define DEVCAP_FLR         BIT(28)

/* ---- a device ---- */

/* Returns what the VM reads in COMMAND, of which `word` is what the device has: the bits that
 * change nothing in the device are as the VM has set them. */
static u32 command_shown(const struct assignment *a, u32 word) {
    return (word & ~(u32)COMMAND_KEPT) | a->command;
}

/* Returns what the VM reads in the first dword of the MSI-X capability. */
static u32 msix_head_shown(const struct assignment *a, u32 word) {
    const u32 both = PCI_MSIX_ENABLE | PCI_MSIX_MASK;

    return (word & ~(both << 16)) | (u32)a->msix_control << 16;
}

/* Returns what the VM reads in a dword behind the header. If a VM must not read it but may read its
 * lower half, a capability begins there that VMs do not see. Of that one it reads only where the
 * next one is, so that it finds the others; the capability's kind reads as 0, which stands for
 * none. */
static u32 capability_shown(struct assignment *a, u32 offset) {
    const struct pci_device *d = a->pci;
    u32 word;

    if (d->pm && offset == d->pm) return (u32)mediate_read(a, offset, 2) & CAP_NEXT;
    if (d->pm && offset > d->pm && offset < d->pm + PM_SIZE) return 0;
    if (pci_rule_of(d, offset, 4) == PCI_RULE_REFUSED) {
        if (pci_rule_of(d, offset, 2) == PCI_RULE_REFUSED) return 0;
        return (u32)mediate_read(a, offset, 2) & CAP_NEXT;
    }
    word = (u32)mediate_read(a, offset, 4);
    if (d->msix && offset == d->msix) return msix_head_shown(a, word);
    if (d->express && offset == d->express) return (word & ~EXPRESS_KIND) | EXPRESS_INTEGRATED;
    if (d->express && offset == d->express + EXPRESS_DEVCAP) return word & ~(u32)DEVCAP_FLR;
    return word;
}

/* Returns what the VM reads in the dword at `offset` of its device's configuration space: what the
 * device says, except that the VM sees it as a device of one function, on an interrupt line of its
 * own, and with the bits of COMMAND that the VM has set without effect. */
static u32 dword_shown(struct assignment *a, u32 offset) {
    u32 word;

    if (offset >= FIRST_CAPABILITY) return capability_shown(a, offset);
    word = (u32)mediate_read(a, offset, 4);
    switch (offset) {
    case PCI_COMMAND: return command_shown(a, word);
    case REG_HEADER: return word & ~(u32)MULTI_FUNCTION;
    case REG_LINE: return a->line;
    default: return word;
    }
}

/* Carries out a VM's write to COMMAND. mediate_write() refuses to make the device master of the bus
 * while it must not be; then the VM reads that it is not. */
static void write_command(struct assignment *a, u32 value) {
    u32 real = pci_read(a->pci->bdf, PCI_COMMAND, 2) & ~(u32)PCI_COMMAND_MASTER;

    a->command = value & COMMAND_KEPT;
    mediate_write(a, PCI_COMMAND, 2, real | (value & PCI_COMMAND_MASTER));
}

/* Carries out a VM's write to the register of BAR i. The BAR stays where it is: all that the VM can
 * do is to ask for its size, by all ones (6.2.5.1). */
static void write_bar(struct assignment *a, u32 i, u32 value) {
    u8 bit = (u8)(1u << i);

    if (value == ~0u)
        a->sizing |= bit;
    else
        a->sizing &= (u8)~bit;
}

/* Carries out a VM's write to the control word of MSI-X. As long as the VM has not switched MSI-X
 * on, or has masked all of it, no entry sends. */
static void write_msix_control(struct assignment *a, u32 value) {
    a->msix_control = (u16)(value & (PCI_MSIX_ENABLE | PCI_MSIX_MASK));
    interrupt_shut(a, a->msix_control != PCI_MSIX_ENABLE);
}

/* Carries out a VM's write to a dword. Registers that are not named here keep what they have. */
static void write_dword(struct assignment *a, u32 offset, u32 value) {
    const struct pci_device *d = a->pci;

    if (offset == PCI_COMMAND) write_command(a, value & 0xffff);
    if (offset >= PCI_BAR0 && offset < PCI_BAR0 + 4 * ARRAY_SIZE(d->bar))
        write_bar(a, (offset - PCI_BAR0) / 4, value);
    if (offset == REG_LINE) a->line = value & LINE_BITS;
    if (d->msix && offset == d->msix) write_msix_control(a, value >> 16);
}

/* ---- the bus ---- */

/* Returns the device that an address selects; NULL if there is none. */
static struct assignment *selected(const struct vm *vm, u32 address) {
    u32 slot = ADDRESS_SLOT(address);

    if (slot == 0 || slot > vm->nr_pci) return NULL;
    return __atomic_load_n(&vm->pci[slot - 1], __ATOMIC_RELAXED);
}

/* Returns what the VM reads in the dword that `address` selects. */
static u32 bus_shown(const struct vm *vm, u32 address) {
    struct assignment *a = selected(vm, address);

    if (!(address & ADDRESS_ON) || ADDRESS_BUS(address) || ADDRESS_FUN(address)) return ABSENT;
    if (a) return dword_shown(a, ADDRESS_REG(address));
    if (ADDRESS_SLOT(address)) return ABSENT;
    switch (ADDRESS_REG(address)) {
    case REG_ID: return BRIDGE_ID;
    case REG_CLASS: return BRIDGE_CLASS;
    default: return 0;
    }
}

/* Writes `size` bytes of the dword that `address` selects, from byte `at` on. */
static void bus_write(struct vm *vm, u32 address, u32 at, u32 size, u32 value) {
    u32 mask = (~0u >> (32 - 8 * size)) << 8 * at;
    struct assignment *a = selected(vm, address);

    if (!a || !(address & ADDRESS_ON) || ADDRESS_BUS(address) || ADDRESS_FUN(address)) return;
    value = (bus_shown(vm, address) & ~mask) | (value << 8 * at & mask);
    write_dword(a, ADDRESS_REG(address), value);
}

/* Carries out a VM's access to the ports of its PCI bus: the function that its I/O bus calls
 * (bus_fn). The VM's vCPUs share the address register, as the CPUs of a PC do. Which of them may
 * use it is for the operating system to settle. */
void pcbus_access(void *dev, const struct bus_access *access, u64 *value) {
    struct vm *vm = dev;
    u32 address = __atomic_load_n(&vm->pci_address, __ATOMIC_RELAXED);
    u32 at = (u32)(access->addr & 3);

    if (access->addr >= DATA_PORT) {
        if (at + access->size > 4) return;
        if (access->write)
            bus_write(vm, address, at, access->size, (u32)*value);
        else
            *value = bus_shown(vm, address) >> 8 * at;
    } else if (access->addr == PCBUS_PORT && access->size == 4) {
        if (access->write)
            __atomic_store_n(&vm->pci_address, (u32)*value, __ATOMIC_RELAXED);
        else
            *value = address;
    }
}

/* Puts the ports of the bus on the VM's I/O bus, if the VM is a PC. */
static int pcbus_make(struct vm *vm) {
    if (vm_is_pc(vm)) bus_add(&vm->ports, PCBUS_PORT, 8, pcbus_access, vm);
    return 0;
}

const struct vm_part pcbus_part = { "PCI bus", pcbus_make, NULL };
