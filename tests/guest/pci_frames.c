/* only: tests/system/test_vf.py */
/* VMs that each have a virtual function of one card. role=heir: finds nothing of the VM that had
 * the function before: its rings are off, its mailbox is empty, and no frame comes. role=sink:
 * the same, then frames come, and it ends while they do. role=source: sends to virtual function
 * `to` all the time. role=flood: asks by the mailbox without waiting for answers, and most of it
 * is nonsense. role=storm: makes interrupts without end. */
#include "vf_rig.h"

#define ENOUGH 500u /* frames that have come */

/* ---- who is there ---- */

static void fresh(void) {
    volatile u8 *regs = pci_registers();

    for (u32 ring = VF_RX; ring <= VF_TX; ring += VF_TX - VF_RX)
        CHECK(!(mmio_read32(regs + ring + IGB_DCTL) & IGB_DCTL_ON) && !mmio_read32(regs + ring),
              "the ring at %x is on, at %x", ring, mmio_read32(regs + ring));
    CHECK(!mmio_read32(regs + VF_TX + IGB_TDWBAL) && !mmio_read32(regs + VF_TX + IGB_TDWBAL + 4),
          "its head is written to %x", mmio_read32(regs + VF_TX + IGB_TDWBAL));
    for (u32 i = 0; i < IGB_MSG_WORDS; i++)
        CHECK(!mmio_read32(regs + IGB_VF_MEMORY + 4 * i), "word %u of the mailbox is %x", i,
              mmio_read32(regs + IGB_VF_MEMORY + 4 * i));
}

static void heir(void) {
    u64 end;
    u32 n = 0;

    fresh();
    vf_open();
    for (end = time_ns() + cmdline_u64("ms", 300) * NS_PER_MS; time_ns() < end; sleep_ns(NS_PER_MS))
        n += vf_take();
    CHECK(!n, "%u frames of before", n);
    igbvf_stop(&nic);
}

static void sink(void) {
    u32 n = 0;

    fresh();
    vf_open();
    for (; n < ENOUGH; relax()) n += vf_take();
    for (u32 i = 0; i < IGB_MSG_WORDS; i++)
        mmio_write32(pci_registers() + IGB_VF_MEMORY + 4 * i, 0x5ec4e7 + i);
    mmio_write32(pci_registers() + VF_TX + IGB_TDWBAL, 0x100001);
    mmio_write32(pci_registers() + VF_TX + IGB_TDWBAL + 4, 1);
}

static void source(void) {
    u32 to = (u32)cmdline_u64("to", 0);

    vf_open();
    for (u32 n = 0;; n++) {
        while (!vf_put(to)) relax();
        if (n % 8) continue;
        nic_send_kick(&nic.ring);
        relax();
    }
}

static void flood(void) {
    volatile u8 *regs;

    vf_open();
    regs = pci_registers();
    for (u32 n = 0;; n++) {
        mmio_write32(regs + IGB_VF_MAILBOX, IGB_VF_VFU);
        for (u32 i = 0; i < IGB_MSG_WORDS; i++)
            mmio_write32(regs + IGB_VF_MEMORY + 4 * i, n * 0x9e3779b9u + i);
        if (n % 8) mmio_write32(regs + IGB_VF_MEMORY, n % 8 | n << 16);
        mmio_write32(regs + IGB_VF_MAILBOX, n % 3 ? IGB_VF_REQ : IGB_VF_REQ | IGB_VF_VFU);
        if (n % 16 == 0) relax();
        if (n == 99 || n % 1000 == 999) printf("asked %u times\n", n + 1);
    }
}

static void storm(void) {
    vf_open();
    pci_count();
    igbvf_interrupts(&nic, 0);
    for (;;) {
        mmio_write32(nic.regs + VF_EICS, 1);
        for (volatile u32 i = 0; i < 500;) i++;
    }
}

int main(void) {
    static const struct {
        const char *name;
        void (*play)(void);
    } roles[] = { { "heir", heir },
                  { "sink", sink },
                  { "source", source },
                  { "flood", flood },
                  { "storm", storm } };
    char role[8];

    test_begin();
    test_needs_takt();
    pci_open(IGB_VENDOR | IGB_VF_DEVICE << 16);
    cmdline_str("role", role, sizeof(role));
    for (u32 i = 0; i < ARRAY_SIZE(roles); i++)
        if (!strcmp(role, roles[i].name)) roles[i].play();
    return test_end("it is done");
}
