/* only: tests/system/test_iommu.py */
/* A back end (vm=2) whose device, QEMU's for exercises, copies into the RAM of its front end
 * (vm=1). The device goes on at the same address when the front end has ended and another VM
 * (pci_late.c with role=heir) has its frames, and once more after the back end has unmapped the
 * window. The heir must never see that. */
#include "dev_rig.h"
#include "pci_rig.h"

#define MAGIC       0x1a7e1a7e5eed5eedull /* pci_late.c's */
#define EDU_SOURCE  0x80
#define EDU_TO      0x88
#define EDU_COUNT   0x90
#define EDU_COMMAND 0x98
#define EDU_BUFFER  0x40000

static void edu_copy(u64 from, u64 to, u32 command) {
    volatile u8 *edu = pci_registers();

    *(volatile u64 *)(edu + EDU_SOURCE) = from;
    *(volatile u64 *)(edu + EDU_TO) = to;
    *(volatile u64 *)(edu + EDU_COUNT) = PAGE_SIZE;
    *(volatile u64 *)(edu + EDU_COMMAND) = 1 | command;
    while (*(volatile u64 *)(edu + EDU_COMMAND) & 1) sleep_ns(NS_PER_MS);
}

/* What the device has written is its second page. */
static void front(void) {
    struct box *box = page_alloc(2);
    volatile u64 *page = (u64 *)((u8 *)box + PAGE_SIZE);

    memset(box, 0, 2 * PAGE_SIZE);
    dev_await_type(0, VIRTIO_ID_NET);
    dev_start(0, box);
    dev_ask(0, box, 1);
    for (u32 i = 0; i < PAGE_SIZE / 8; i++) CHECK(page[i] == MAGIC, "word %u is %lx", i, page[i]);
}

static void back(void) {
    struct dev_back b = { 0 };
    u64 *page = page_alloc(1), at;

    pci_open(0x11e81234);
    CHECK(pci.dma_offset == 0, "its addresses are others for the device");
    for (u32 i = 0; i < PAGE_SIZE / 8; i++) page[i] = MAGIC;
    edu_copy((u64)page, EDU_BUFFER, 0);
    back_find(&b);
    back_offer(&b);
    back_map(&b);
    back_await(&b, 0);
    at = (u64)b.box + PAGE_SIZE;
    while (!b.box->asked) dev_await(b.port, "a request");
    edu_copy(EDU_BUFFER, at, 2);
    b.box->answered = b.box->asked;
    back_irq(&b);
    while (hypercall2(TAKT_HC_BACK_LIST, 0, (u64)&b.is) == 0) {
        event_poll(b.bell, 10 * NS_PER_MS);
        event_take(b.bell);
    }
    for (u64 end = time_ns() + 3 * NS_PER_S / 2; time_ns() < end;) edu_copy(EDU_BUFFER, at, 2);
    printf("it wrote all the time\n");
    CHECK(hypercall1(TAKT_HC_BACK_UNMAP, b.is.handle) == 0, "it cannot be unmapped");
    edu_copy(EDU_BUFFER, at, 2);
    sleep_ns(NS_PER_S / 2); /* the IOMMU tells on another pCPU */
    printf("it is still here\n");
}

int main(void) { return dev_test(front, back, NULL, "done"); }
