/* devices: edu */
/* only: qemu */
/* keys: pci = 00:04.0; unsafe_dma = yes */
/* time: 600 */
/* A device that interrupts by messages, QEMU's for exercises: each message comes, and comes
 * once. */
#include "pci_rig.h"

#define EDU_RAISE 0x60
#define EDU_ACK   0x64

int main(void) {
    volatile u8 *edu;

    test_begin();
    test_needs_takt();
    pci_open(0x11e81234);
    edu = pci_registers();
    CHECK(hypercall3(TAKT_HC_PCI_READ, 0, 4, 2) & 0x400, "INTx is on beside MSI");
    pci_count();
    for (u32 i = 1; i <= 50; i++) {
        mmio_write32(edu + EDU_RAISE, 1);
        mmio_write32(edu + EDU_ACK, 1);
        CHECK(pci_await(i), "message %u did not come", i);
        sleep_ns(NS_PER_MS);
        CHECK(pci_interrupts == i, "%u events of %u messages", pci_interrupts, i);
    }
    return test_end("messages come");
}
