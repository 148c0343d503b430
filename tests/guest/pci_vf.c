/* devices: igb */
/* only: qemu */
/* keys: vf = igb0/any; unsafe_dma = yes */
/* vms: 2 */
/* time: 1500 */
/* Two VMs that each have a virtual function of one card: its ids are there, and its registers
 * are those of no other VM. No driver has the physical function, so nothing can be sent. */
#include "pci_rig.h"

/* Intel 82576 virtual function, register set of VF drivers: free-running timer, mailbox memory. */
#define VTFRTIMER 0x1048
#define VMBMEM    0x800
#define WORDS     16

int main(void) {
    volatile u8 *regs;
    u32 mine, timer;

    test_begin();
    test_needs_takt();
    pci_open(0x10ca8086);
    CHECK(pci.bdf >> 8 == 1 && pci.bdf & 0x80, "it is %x", pci.bdf);
    CHECK(pci.class_rev >> 8 == 0x020000, "class %x", pci.class_rev >> 8);
    CHECK(pci.bar[0].size == 16384 && pci.bar[3].size == 16384, "BARs of %lu and %lu bytes",
          pci.bar[0].size, pci.bar[3].size);
    CHECK((pci.bar[0].addr | pci.bar[3].addr) >> 32 == 0, "BARs at %lx, %lx", pci.bar[0].addr,
          pci.bar[3].addr);
    CHECK(hypercall3(TAKT_HC_PCI_READ, 0, 0, 4) == (i64)pci.id,
          "configuration space has another id");
    CHECK((hypercall3(TAKT_HC_PCI_READ, 0, 4, 2) & 6) == 6, "neither memory nor master");
    CHECK(hypercall2(TAKT_HC_PCI_INFO, 1, (u64)&pci) == -ENOENT, "there is another device");

    mine = pci.bdf << 16;
    regs = pci_registers();
    for (u32 i = 0; i < WORDS; i++) mmio_write32(regs + VMBMEM + 4 * i, mine + i);
    timer = mmio_read32(regs + VTFRTIMER);
    sleep_ns(400 * NS_PER_MS); /* the other does the same */
    for (u32 i = 0; i < WORDS; i++)
        CHECK(mmio_read32(regs + VMBMEM + 4 * i) == mine + i, "word %u is %x", i,
              mmio_read32(regs + VMBMEM + 4 * i));
    printf("virtual function %x, registers at %lx, timer %x, then %x\n", pci.bdf, pci.bar[0].addr,
           timer, mmio_read32(regs + VTFRTIMER));
    return test_end("a virtual function of its own");
}
