/* only: tests/system/test_passthrough.py, test_abuse.py */
/* A VM that ends while its device still has something to write to its RAM (role=leaves), and one
 * after it, of the same size, so that it gets the same RAM (role=heir). The device is a network
 * card to which answers are under way, and the heir gets it. With `edu` it is a device of QEMU
 * for exercises, which writes 0.1 s after it was told to. That one cannot be reset and would go
 * on with what it was told before, so no other VM may get it. */
#include "net_rig.h"

#define MAGIC       0x1a7e1a7e5eed5eedull
#define GPRC        0x4074 /* good frames received, since it was read last */

#define EDU_LIVE    0x04
#define EDU_SOURCE  0x80
#define EDU_TO      0x88
#define EDU_COUNT   0x90
#define EDU_COMMAND 0x98
#define EDU_BUFFER  0x40000
#define EDU_TO_RAM  3

static volatile u8 *edu;

static void edu_open(void) {
    pci_open(0x11e81234);
    edu = pci_registers();
    mmio_write32(edu + EDU_LIVE, 5);
    if (mmio_read32(edu + EDU_LIVE) != ~5u) test_fatal("edu does not answer");
    printf("its registers are at %lx\n", pci.bar[0].addr);
}

static void edu_copy(u64 from, u64 to, u32 command) {
    *(volatile u64 *)(edu + EDU_SOURCE) = from;
    *(volatile u64 *)(edu + EDU_TO) = to;
    *(volatile u64 *)(edu + EDU_COUNT) = PAGE_SIZE;
    *(volatile u64 *)(edu + EDU_COMMAND) = command;
}

static void edu_wait(void) {
    while (*(volatile u64 *)(edu + EDU_COMMAND) & 1) sleep_ns(NS_PER_MS);
}

/* Fills the buffer of the device, checks that the device writes it where it was told to, and has
 * it written once more. */
static int edu_leaves(void) {
    u64 *page = page_alloc(1);

    for (u32 i = 0; i < PAGE_SIZE / 8; i++) page[i] = MAGIC;
    edu_copy((u64)page + pci.dma_offset, EDU_BUFFER, 1);
    edu_wait();
    memset(page, 0, PAGE_SIZE);
    edu_copy(EDU_BUFFER, (u64)page + pci.dma_offset, EDU_TO_RAM);
    edu_wait();
    CHECK(page[17] == MAGIC, "the device wrote %lx", page[17]);
    memset(page, 0, PAGE_SIZE);
    edu_copy(EDU_BUFFER, (u64)page + pci.dma_offset, EDU_TO_RAM);
    return test_end("it is under way");
}

/* Finds a page that is full of the number. The number itself may lie on our own stack. */
static bool written(u64 at) {
    volatile u64 *page = (volatile u64 *)at;

    for (u32 i = 0; i < PAGE_SIZE / 8; i++)
        if (page[i] != MAGIC) return false;
    return true;
}

static int edu_heir(void) {
    u64 end = time_ns() + cmdline_u64("ms", 500) * NS_PER_MS;
    u64 from = ALIGN_UP(mem_image_end(), PAGE_SIZE);

    /* All pages are looked at, also those that guard stacks and are not mapped. */
    for (u64 at = from; at < mem_ram(); at += PAGE_SIZE)
        CHECK(!page_map(at, at, PTE_P | PTE_W), "no memory");
    for (u32 n = 1; time_ns() < end; sleep_ns(10 * NS_PER_MS), n++) {
        for (u64 at = from; at < mem_ram(); at += PAGE_SIZE)
            if (written(at)) test_fatal("the device wrote to %lx, after its VM had ended", at);
        if (n % 16 == 0) printf("nothing so far\n");
    }
    return test_end("nothing came");
}

static int nic_leaves(void) {
    nic_open();
    for (u64 end = time_ns() + 2 * NS_PER_S; !take_answers() && time_ns() < end;
         sleep_ns(20 * NS_PER_MS)) {
        send_arp(); /* until it receives */
        nic_send_kick(&nic.ring);
    }
    for (u32 i = 0; i < 100; i++) send_arp();
    nic_send_kick(&nic.ring);
    printf("received %u\n", mmio_read32(nic.regs + GPRC));
    return test_end("answers are under way");
}

/* Before it is set up again. */
static int nic_heir(void) {
    u32 frames;

    pci_open(E1000_VENDOR | E1000_DEVICE << 16);
    sleep_ns(30 * NS_PER_MS);
    frames = mmio_read32(pci_registers() + GPRC);
    /* Some came after that VM had ended and before its device lost its rights. */
    CHECK(frames <= 10, "it received %u frames after its VM had ended", frames);
    return test_end("nothing came");
}

int main(void) {
    char role[8];
    bool heir;

    test_begin();
    test_needs_takt();
    cmdline_str("role", role, sizeof(role));
    heir = !strcmp(role, "heir");
    if (!cmdline_has("edu") && heir) return nic_heir();
    if (!cmdline_has("edu")) return nic_leaves();
    if (heir) return edu_heir();
    edu_open();
    return edu_leaves();
}
