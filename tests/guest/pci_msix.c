/* devices: e1000e */
/* only: qemu */
/* keys: pci = 00:05.0; unsafe_dma = yes */
/* time: 800 */
/* A device that interrupts by MSI-X and can be reset: each message comes; its table is the hypervisor's. */
#include "pci_rig.h"

/* 82574 data sheet, 10.2.4: software sets causes; "other" ones go to vector 0. */
#define ICR    0xc0
#define ICS    0xc8
#define IMS    0xd0
#define EIAC   0xdc
#define IVAR   0xe4
#define IVAR_0 0x80000u
#define LSC    0x04u
#define OTHER  0x1000000u

int main(void) {
    volatile u8 *regs, *table;
    u32 capability, where;

    test_begin();
    test_needs_takt();
    pci_open(0x10d38086);
    for (capability = 0x34;; capability++) {
        capability = (u32)hypercall3(TAKT_HC_PCI_READ, 0, capability, 1);
        if (!capability) test_fatal("it has no MSI-X");
        if (hypercall3(TAKT_HC_PCI_READ, 0, capability, 1) == 0x11) break;
    }
    where = (u32)hypercall3(TAKT_HC_PCI_READ, 0, capability + 4, 4);
    table = (volatile u8 *)(pci.bar[where & 7].addr + (where & ~7u));
    CHECK(mmio_read32(table) >> 20 == 0xfee && mmio_read32(table + 12) == 0,
          "the first entry is %x, control %x", mmio_read32(table), mmio_read32(table + 12));
    CHECK(mmio_read32(table + 16 + 12) == 1, "the second entry is not masked");

    pci_count();
    regs = pci_registers();
    mmio_write32(regs + IVAR, IVAR_0);
    mmio_write32(regs + EIAC, OTHER);
    for (u32 i = 1; i <= 50; i++) {
        u32 before = pci_interrupts;

        mmio_read32(regs + ICR);
        mmio_write32(regs + IMS, OTHER | LSC);
        mmio_write32(regs + ICS, OTHER | LSC);
        CHECK(pci_await(before + 1), "message %u did not come", i);
        sleep_ns(NS_PER_MS);
    }
    CHECK(pci_interrupts < 150, "%u events of 50 messages",
          pci_interrupts); /* it has causes of its own, but few */
    return test_end("messages come");
}
