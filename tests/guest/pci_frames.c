/* only: tests/system/test_vf.py */
/* VMs with a virtual function of one card each. role=heir: nothing of who had it before is there: rings that
 * are off, an empty mailbox, and no frame. role=sink: the same, and then frames come, and it ends in the
 * middle of them. role=source: sends to virtual function `to`, all the time. role=flood: asks by the mailbox
 * without waiting for answers, most of it nonsense. role=storm: interrupts without end. */
#include <drivers/igb_mailbox.h>
#include <drivers/igbvf.h>
#include <guest/mem.h>
#include <guest/string.h>
#include "pci_rig.h"

#define TYPE   0xb588 /* of our frames, 88b5: IEEE 802, for experiments (as it is in memory) */
#define RX     0x2800u
#define TX     0x3800u
#define VTEICS 0x1520u /* sets causes of interrupts */
#define ENOUGH 500u    /* frames that have come */

static struct igbvf nic;

static u64 dma_addr(const void *p) { return (u64)p + pci.dma_offset; }

static void relax(void) { sleep_ns(NS_PER_MS); }

static void open(void) {
    static const struct device_env env = { dma_addr, time_ns, relax };
    void *memory = page_alloc(NIC_RING_MEMORY / PAGE_SIZE);

    if (!memory) test_error("no memory");
    memset(memory, 0, NIC_RING_MEMORY);
    for (u32 i = 0; igbvf_init(&nic, pci_registers(), memory, &env); i++)
        if (i == 10) test_fatal("%s", nic.why);
}

/* Frames of ours that have come by now. */
static u32 take(void) {
    const u8 *f;
    u32 n = 0;

    while (igbvf_receive(&nic, (const void **)&f)) {
        n += *(const u16 *)(f + 12) == TYPE;
        nic_receive_next(&nic.ring);
    }
    nic_receive_refill(&nic.ring);
    return n;
}

/* ---- who is there ---- */

static void fresh(void) {
    volatile u8 *regs = pci_registers();

    for (u32 ring = RX; ring <= TX; ring += TX - RX)
        CHECK(!(mmio_read32(regs + ring + IGB_DCTL) & IGB_DCTL_ON) && !mmio_read32(regs + ring),
              "the ring at %x is on, at %x", ring, mmio_read32(regs + ring));
    for (u32 i = 0; i < IGB_MSG_WORDS; i++)
        CHECK(!mmio_read32(regs + IGB_VF_MEMORY + 4 * i), "word %u of the mailbox is %x", i,
              mmio_read32(regs + IGB_VF_MEMORY + 4 * i));
}

static void heir(void) {
    u64 end;
    u32 n = 0;

    fresh();
    open();
    for (end = time_ns() + cmdline_u64("ms", 300) * NS_PER_MS; time_ns() < end; sleep_ns(NS_PER_MS))
        n += take();
    CHECK(!n, "%u frames of before", n);
    igbvf_stop(&nic);
}

static void sink(void) {
    u32 n = 0;

    fresh();
    open();
    for (; n < ENOUGH; relax()) n += take();
    for (u32 i = 0; i < IGB_MSG_WORDS; i++)
        mmio_write32(pci_registers() + IGB_VF_MEMORY + 4 * i, 0x5ec4e7 + i);
}

static void source(void) {
    u32 to = (u32)cmdline_u64("to", 0), mine;
    u8 *f;

    open();
    mine = nic.mac[3] >> 4 & 7;
    for (u32 n = 0;; n++) {
        while (!(f = nic_send_buffer(&nic.ring))) relax();
        memset(f, 0, 60);
        memcpy(f, nic.mac, 6);
        memcpy(f + 6, nic.mac, 6);
        f[3] ^= (u8)((mine ^ to) << 4);
        *(u16 *)(f + 12) = TYPE;
        nic_send_put(&nic.ring, 60);
        if (n % 8) continue;
        nic_send_kick(&nic.ring);
        relax();
    }
}

static void flood(void) {
    volatile u8 *regs;

    open();
    regs = pci_registers();
    for (u32 n = 0;; n++) {
        mmio_write32(regs + IGB_VF_MAILBOX, IGB_VF_VFU);
        for (u32 i = 0; i < IGB_MSG_WORDS; i++)
            mmio_write32(regs + IGB_VF_MEMORY + 4 * i, n * 0x9e3779b9u + i);
        if (n % 8) mmio_write32(regs + IGB_VF_MEMORY, n % 8 | n << 16);
        mmio_write32(regs + IGB_VF_MAILBOX, n % 3 ? IGB_VF_REQ : IGB_VF_REQ | IGB_VF_VFU);
        if (n % 16 == 0) relax();
        if (n % 1000 == 999) printf("asked %u times\n", n + 1);
    }
}

static void storm(void) {
    open();
    pci_count();
    igbvf_interrupts(&nic, 0);
    for (;;) {
        mmio_write32(nic.regs + VTEICS, 1);
        for (volatile u32 i = 0; i < 500;) i++;
    }
}

int main(void) {
    static const struct {
        const char *name;
        void (*play)(void);
    } roles[] = {
        { "heir", heir }, { "sink", sink }, { "source", source }, { "flood", flood }, { "storm", storm }
    };
    char role[8];

    test_begin();
    test_needs_takt();
    pci_open(IGB_VENDOR | IGB_VF_DEVICE << 16);
    cmdline_str("role", role, sizeof(role));
    for (u32 i = 0; i < ARRAY_SIZE(roles); i++)
        if (!strcmp(role, roles[i].name)) roles[i].play();
    return test_end("it is done");
}
