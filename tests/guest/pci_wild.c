/* only: tests/system/test_iommu.py */
/* A VM whose device accesses memory that the VM does not have. It is QEMU's device for
 * exercises, which is told so directly (device=edu: write or read at=, or interrupt by a word
 * written to at=), or a network card, by its ring (device=ring) or by a descriptor in that
 * (device=frame). If the VM is not stopped for that, it counts how much of its own memory can
 * still be reached. */
#include "net_rig.h"

#define EDU_SOURCE  0x80
#define EDU_TO      0x88
#define EDU_COUNT   0x90
#define EDU_COMMAND 0x98
#define EDU_BUFFER  0x40000
#define EDU_TO_RAM  2
#define TX_RING     0x3800 /* its address */

static volatile u8 *edu;

static void edu_copy(u64 from, u64 to, u64 bytes, u32 command) {
    *(volatile u64 *)(edu + EDU_SOURCE) = from;
    *(volatile u64 *)(edu + EDU_TO) = to;
    *(volatile u64 *)(edu + EDU_COUNT) = bytes;
    *(volatile u64 *)(edu + EDU_COMMAND) = 1 | command;
    while (*(volatile u64 *)(edu + EDU_COMMAND) & 1) sleep_ns(NS_PER_MS);
}

/* Copies the buffer of the device there and back again. */
static bool edu_reaches(u64 *page, u64 value) {
    *page = value;
    edu_copy((u64)page + pci.dma_offset, EDU_BUFFER, 8, 0);
    *page = 0;
    edu_copy(EDU_BUFFER, (u64)page + pci.dma_offset, 8, EDU_TO_RAM);
    return *page == value;
}

static int edu_wild(void) {
    u64 *page = page_alloc(1), at = cmdline_u64("at", 0), times = cmdline_u64("times", 1);

    pci_open(0x11e81234);
    edu = pci_registers();
    CHECK(pci.dma_offset == 0, "its addresses are others for the device");
    CHECK(edu_reaches(page, 0x600d), "it does not reach this VM's own memory");
    printf("now it goes wild at %lx\n", at);
    while (times--) {
        if (cmdline_has("read"))
            edu_copy(at, EDU_BUFFER, 8, 0);
        else
            edu_copy(EDU_BUFFER, at, cmdline_has("interrupt") ? 4 : 8, EDU_TO_RAM);
    }
    CHECK(edu_reaches(page, 0x600e), "it does not reach this VM's own memory any more");
    return test_end("it is still here");
}

static int nic_wild(bool ring) {
    u64 at = cmdline_u64("at", 0);

    nic_open();
    printf("now it goes wild at %lx\n", at);
    if (ring) {
        mmio_write32(nic.regs + TX_RING, (u32)at);
        mmio_write32(nic.regs + TX_RING + 4, (u32)(at >> 32));
    }
    send_arp();
    if (!ring) *(volatile u64 *)nic.ring.tx = at; /* of its first descriptor */
    nic_send_kick(&nic.ring);
    sleep_ns(100 * NS_PER_MS);
    CHECK(take_answers() == 0, "somebody answers");
    return test_end("it is still here");
}

int main(void) {
    char device[8];

    test_begin();
    test_needs_takt();
    cmdline_str("device", device, sizeof(device));
    if (strcmp(device, "edu") == 0) return edu_wild();
    return nic_wild(strcmp(device, "ring") == 0);
}
