/* Resets a PCI device between two users, and before that stops its interrupts and its accesses to
 * memory. Otherwise a device would go on with what its last VM told it to do: write into memory
 * that belongs to another VM by now. FLR is function-level reset, by which a device resets
 * itself. */
#include <takt/io.h>
#include "lib/printf.h"
#include "pci/pci.h"
#include "pci/sriov.h"

/* Offsets in the PCI Express capability and bits there: PCI Express 7.8.3 to 7.8.5. */
#define EXPRESS_DEVCAP       4
#define EXPRESS_STATUS       10
#define DEVCAP_FLR           BIT(28)
#define DEVCTL_FLR           BIT(15)
#define TRANSACTIONS_PENDING BIT(5)

/* Advanced features: AF ECN of 2006. */
#define AF_CAP             3
#define AF_CAP_TRANSACTION BIT(0) /* it tells whether transactions are pending */
#define AF_CAP_FLR         BIT(1)
#define AF_CONTROL         4
#define AF_CONTROL_FLR     1u

/* Power management: PCI PM 1.2, 3.2.4. */
#define PM_CONTROL  4
#define PM_STATE    3u /* the bits of the power state: 0 is D0, 3 is D3 */
#define PM_D0       0u
#define PM_D3       3u
#define PM_NO_RESET BIT(3) /* going from D3 to D0 does not reset it */

#define RESET_NS    (100 * NS_PER_MS) /* after FLR: PCI Express 6.6.2; more than D3 needs */
#define POWER_UP_NS (10 * NS_PER_MS)  /* from D3 to D0: PCI PM 1.2, 5.4 */

/* Registers of the 8254x (software developer's manual 317453, 13.4). */
#define E1000_IMC  0x0d8 /* a bit that is set masks its interrupt */
#define E1000_RCTL 0x100 /* 0: the receiver is off */
#define E1000_TCTL 0x400 /* 0: the transmitter is off */

/* Stops messages, so that none of the previous user's interrupts arrives later: PCI 3.0, 6.8.1.3
 * (MSI) and 6.8.2.3 (MSI-X). */
static void messages_off(const struct pci_device *d) {
    u32 control;

    if (d->msi) {
        control = pci_read(d->bdf, d->msi + PCI_MSI_CONTROL, 2);
        pci_write(d->bdf, d->msi + PCI_MSI_CONTROL, 2, control & ~(u32)PCI_MSI_ENABLE);
    }
    if (d->msix) {
        control = pci_read(d->bdf, d->msix + PCI_MSI_CONTROL, 2);
        pci_write(d->bdf, d->msix + PCI_MSI_CONTROL, 2, control & ~(u32)PCI_MSIX_ENABLE);
    }
}

/* Stops a device that goes on reading and writing memory without the right to be master of the
 * bus. */
static void keep_quiet(const struct pci_device *d) {
    if (!d->quiet) return;
    mmio_write32(d->quiet + E1000_IMC, ~0u);
    mmio_write32(d->quiet + E1000_RCTL, 0);
    mmio_write32(d->quiet + E1000_TCTL, 0);
}

/* Starts the reset by the first of these ways that the device offers: function-level reset by PCI
 * Express, the same by its advanced features, power off and on. Returns false if it offers none. */
static bool begin_reset(const struct pci_device *d) {
    const u32 af_needed = AF_CAP_TRANSACTION | AF_CAP_FLR;
    u32 af = 0, pm = (u32)PM_NO_RESET; /* what a device says that cannot do it */

    if (d->af) af = pci_read(d->bdf, d->af + (u32)AF_CAP, 1);
    if (d->pm) pm = pci_read(d->bdf, d->pm + (u32)PM_CONTROL, 2);
    if (d->express && pci_read(d->bdf, d->express + (u32)EXPRESS_DEVCAP, 4) & DEVCAP_FLR)
        pci_write(d->bdf, d->express + (u32)PCI_EXPRESS_DEVCTL, 2,
                  d->saved_devctl | (u32)DEVCTL_FLR);
    else if ((af & af_needed) == af_needed)
        pci_write(d->bdf, d->af + (u32)AF_CONTROL, 1, AF_CONTROL_FLR);
    else if (!(pm & PM_NO_RESET))
        pci_write(d->bdf, d->pm + (u32)PM_CONTROL, 2, pm | PM_D3);
    else
        return false;
    return true;
}

/* Writes back what firmware had set up and the reset has cleared: BARs, line, device control. */
static void restore_registers(const struct pci_device *d) {
    for (u32 i = PCI_BAR0 / 4; i < PCI_CARDBUS / 4; i++) pci_write(d->bdf, 4 * i, 4, d->saved[i]);
    pci_write(d->bdf, PCI_CACHE_LINE, 2, d->saved[PCI_CACHE_LINE / 4] & 0xffff);
    pci_write(d->bdf, PCI_LINE, 1, d->line);
    if (d->express)
        pci_write(d->bdf, d->express + (u32)PCI_EXPRESS_DEVCTL, 2,
                  d->saved_devctl & ~(u32)DEVCTL_FLR);
    pci_write(d->bdf, PCI_COMMAND, 2, pci_idle_command(d));
}

/* Returns the value of COMMAND for a device that nobody uses: it answers at its BARs as firmware
 * has left it, but neither reads nor writes memory nor interrupts by its wire. */
u32 pci_idle_command(const struct pci_device *d) {
    return (d->saved[PCI_COMMAND / 4] & (PCI_COMMAND_IO | PCI_COMMAND_MEMORY)) |
           PCI_COMMAND_NO_INTX;
}

/* Does the device answer, with none of its own requests pending? A virtual function does not answer
 * while its physical one is reset. That resets it too, and nobody gets it before the end of it, so
 * this is no reason to give it up. */
static bool device_answers(const struct pci_device *d) {
    bool present;

    if (d->mute) return false; /* a test wants it to stay away */
    if (d->pf && d->pf->in_reset) return true;
    if (d->pf) /* its id reads as ones: SR-IOV 1.1, 3.4.1.1 */
        present = pci_read(d->bdf, d->express, 1) == PCI_CAP_EXPRESS;
    else
        present = pci_read(d->bdf, PCI_ID, 4) == d->saved[0];
    if (!present) return false;
    return !d->express ||
           !(pci_read(d->bdf, d->express + (u32)EXPRESS_STATUS, 2) & TRANSACTIONS_PENDING);
}

/* Does phase 0: stops the device, and starts its reset. Returns in how many ns the next phase may
 * come. */
static u64 first_phase(struct pci_device *d) {
    keep_quiet(d);
    pci_write(d->bdf, PCI_COMMAND, 2, pci_idle_command(d));
    messages_off(d);
    d->in_reset = d->was_reset = begin_reset(d);
    if (!d->in_reset) return 0;
    return RESET_NS;
}

/* Does phase number `phase` of the reset of a device. Returns in how many ns the next phase may
 * come, or 0 at the end. Phase 0 stops the device and starts its reset. If that is done by power,
 * phase 1 switches the power on again (D0). The next phases wait until the device answers again,
 * and give it up as lost if it does not; then its registers are restored. The last phase waits for
 * the virtual functions of a card. */
u64 pci_reset(struct pci_device *d, u32 phase) {
    u32 pm = (u32)PM_CONTROL + d->pm;

    if (phase == 0) return first_phase(d);
    if (!d->in_reset) return 0;
    if (phase == 1 && d->pm && (pci_read(d->bdf, pm, 2) & PM_STATE) == PM_D3) {
        pci_write(d->bdf, pm, 2, PM_D0);
        return POWER_UP_NS;
    }
    if (!device_answers(d) && phase < PCI_RESET_TRIES) return RESET_NS;
    d->in_reset = false;
    d->lost = !device_answers(d);
    if (d->lost)
        log_err("PCI device %s did not come back from its reset; nobody gets it any more", d->name);
    else
        restore_registers(d);
    if (phase + 1 >= PCI_RESET_PHASES || !sriov_restore(d)) return 0;
    d->in_reset = true;
    return SRIOV_SETTLE_NS;
}
