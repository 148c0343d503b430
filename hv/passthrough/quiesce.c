/* Stops devices that the firmware has left running. If the machine was booted over the network, the
 * network card may still write the frames that it receives into buffers of the boot loader. These
 * buffers are free memory by now, so the card would overwrite data of Takt or of a VM. Most
 * firmware stops such devices at the end of its boot services, but not all firmware does. A device
 * can write to memory only while it is "master of the bus", which is a bit in its configuration
 * space. */
#include "passthrough/quiesce.h"

#include <takt/io.h>
#include "lib/printf.h"
#include "pci/pci.h"
#include "passthrough/vtd.h"
#include "platform/hostmap.h"

/* PCI Code and ID Assignment 1.11, 1.2, 1.3, 1.13 */
#define CLASS_STORAGE 0x01u
#define CLASS_NETWORK 0x02u
#define CLASS_USB     0x0c03u
enum { UHCI = 0x00, OHCI = 0x10, EHCI = 0x20, XHCI = 0x30 };

#define UHCI_LEGACY      0xc0   /* register in configuration space: ICH7 data sheet, 13.1.19 */
#define UHCI_LEGACY_SMI  BIT(4) /* its interrupts cause SMIs, which the firmware handles */
#define OHCI_CONTROL     0x04   /* OpenHCI 1.0a, 7.1.2 */
#define OHCI_CONTROL_SMI BIT(8) /* InterruptRouting: likewise */
/* EHCI 1.0, 2.2.4: tells where its list of capabilities is in configuration space */
#define EHCI_PARAMETERS 0x08
/* xHCI 1.2, 5.3.6: tells where its list of capabilities is in its registers, in units of 4 bytes */
#define XHCI_PARAMETERS       0x10
#define LEGACY_SUPPORT        1u /* the id of this capability: EHCI 2.1.7, xHCI 7.1.1 */
#define LEGACY_FIRMWARE_OWNS  BIT(16)

#define EHCI_LIST(parameters) ((parameters) >> 8 & 0xff)
#define XHCI_LIST(parameters) ((parameters) >> 16 << 2)
/* how many bytes behind this capability the next one is; 0: this is the last */
#define XHCI_NEXT(head)  (((head) >> 8 & 0xff) << 2)
#define LEGACY_ID(head)  ((head)&0xff)
#define FIRST_CAPABILITY 0x40u

#define REGISTERS        0x10000u /* bytes that are mapped: enough for the lists above */

/* Does the firmware own this EHCI controller, as its capability for legacy support says? */
static bool ehci_owned(const struct pci_device *d, volatile u8 *regs) {
    u32 at = EHCI_LIST(mmio_read32(regs + EHCI_PARAMETERS)), head = 0;

    if (at >= FIRST_CAPABILITY) head = pci_read(d->bdf, at & ~3u, 4);
    return LEGACY_ID(head) == LEGACY_SUPPORT && head & LEGACY_FIRMWARE_OWNS;
}

/* Does the firmware own this xHCI controller? `size` bytes of its registers are mapped. */
static bool xhci_owned(volatile u8 *regs, u64 size) {
    u64 at = XHCI_LIST(mmio_read32(regs + XHCI_PARAMETERS));

    for (u32 n = 0; n < PCI_MAX_CAPS && at && at + 4 <= size; n++) {
        u32 head = mmio_read32(regs + at);

        if (LEGACY_ID(head) == LEGACY_SUPPORT) return head & LEGACY_FIRMWARE_OWNS;
        if (!XHCI_NEXT(head)) return false;
        at += XHCI_NEXT(head);
    }
    return false;
}

/* Does firmware drive this USB controller in system management mode? It does so to make a USB
 * keyboard look like one at a PS/2 port, and that may be the only keyboard that the operator
 * has. */
static bool keyboard_of_firmware(const struct pci_device *d) {
    u64 size = MIN(d->bar[0].size, (u64)REGISTERS);
    bool decodes = pci_read(d->bdf, PCI_COMMAND, 2) & PCI_COMMAND_MEMORY;
    u32 kind = d->class_rev >> 8 & 0xff;
    volatile u8 *regs = NULL;

    if (kind == UHCI) return pci_read(d->bdf, UHCI_LEGACY, 2) & UHCI_LEGACY_SMI;
    if (decodes && !d->bar[0].io && d->bar[0].addr && size >= 256)
        regs = mmio_map(d->bar[0].addr, size);
    if (!regs) return false;
    switch (kind) {
    case OHCI: return mmio_read32(regs + OHCI_CONTROL) & OHCI_CONTROL_SMI;
    case EHCI: return ehci_owned(d, regs);
    case XHCI: return xhci_owned(regs, size);
    default: return false;
    }
}

/* Switches bus mastering of one device off, if it is of a kind that may still be running and the
 * firmware does not need it. */
static void quiesce_device(struct pci_device *d) {
    u32 class = d->class_rev >> 24, command = pci_read(d->bdf, PCI_COMMAND, 2);
    bool usb = d->class_rev >> 16 == CLASS_USB;
    const char *why = NULL;

    if (d->header || !(command & PCI_COMMAND_MASTER)) return;
    if (class != CLASS_STORAGE && class != CLASS_NETWORK && !usb) return;
    if (usb && keyboard_of_firmware(d)) why = "firmware makes a PS/2 keyboard of a USB one by it";
    if (iommu_firmware_uses(d)) why = "firmware goes on using it (RMRR)";
    if (why) {
        log_info("PCI device %s stays master of the bus: %s", d->name, why);
        return;
    }
    log_info("PCI device %s: firmware left bus mastering on; now it is off", d->name);
    pci_write(d->bdf, PCI_COMMAND, 2, command & ~(u32)PCI_COMMAND_MASTER);
}

/* Stops all devices that may still be running. Once at boot, before memory is given to anybody. */
void pci_quiesce(void) {
    for (u32 i = 0; i < pci_count(); i++) quiesce_device(pci_at(i));
}
