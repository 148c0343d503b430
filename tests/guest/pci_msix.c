/* devices: e1000e */
/* only: qemu */
/* keys: pci = 00:05.0; unsafe_dma = yes */
/* time: 800 */
/* A device that interrupts by MSI-X and can be reset. Each message comes, and the table belongs
 * to the hypervisor. */
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

static u32 seconds;

static void on_second(u32 port, void *arg) { __atomic_fetch_add(&seconds, 1, __ATOMIC_SEQ_CST); }

static bool await_second(u32 n) {
    u64 end = time_ns() + NS_PER_S;

    while (__atomic_load_n(&seconds, __ATOMIC_SEQ_CST) < n && time_ns() < end)
        nap_until(time_ns() + NS_PER_MS);
    /* The card has causes of its own, but few of them. */
    return seconds >= n && seconds < n + 4;
}

static void interrupt(volatile u8 *regs) {
    mmio_read32(regs + ICR);
    mmio_write32(regs + IMS, OTHER | LSC);
    mmio_write32(regs + ICS, OTHER | LSC);
}

int main(void) {
    volatile u8 *regs, *table;
    u32 capability, where, second, before;

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
    CHECK(mmio_read32(table) == 0 && mmio_read32(table + 8) == pci.port &&
              mmio_read32(table + 12) == 0,
          "the first entry is %x, data %x, control %x", mmio_read32(table), mmio_read32(table + 8),
          mmio_read32(table + 12));
    CHECK(mmio_read32(table + 16 + 12) == 1, "the second entry is not masked");
    second = mmio_read32(table + 16 + 8);
    CHECK(second && second != pci.port, "its event is %u", second);
    for (u32 at = 0; at < 12; at += 4) {
        u32 before = mmio_read32(table + at);

        mmio_write32(table + at, 0xfee01000);
        CHECK(mmio_read32(table + at) == before, "word %u of the table can be written", at / 4);
    }

    pci_count();
    event_set_handler(second, 0, on_second, NULL);
    regs = pci_registers();
    mmio_write32(regs + IVAR, IVAR_0);
    mmio_write32(regs + EIAC, OTHER);
    for (u32 i = 1; i <= 50; i++) {
        before = pci_interrupts;
        interrupt(regs);
        CHECK(pci_await(before + 1), "message %u did not come", i);
        sleep_ns(NS_PER_MS);
    }
    CHECK(pci_interrupts < 150, "%u events of 50 messages",
          pci_interrupts); /* it has causes of its own, but few */

    /* All causes by the second entry: nothing comes while that is masked, and afterwards what
     * was held back. */
    mmio_write32(regs + IVAR, IVAR_0 | 1 << 16);
    before = pci_interrupts;
    interrupt(regs);
    sleep_ns(20 * NS_PER_MS);
    CHECK(seconds == 0, "%u events of a masked entry", seconds);
    mmio_write32(table + 16 + 12, 0);
    CHECK(await_second(1), "%u events when it was unmasked", seconds);
    interrupt(regs);
    CHECK(await_second(2), "%u events of two messages", seconds);
    mmio_write32(table + 16 + 12, 1);
    CHECK(pci_interrupts == before, "%u events of the first entry", pci_interrupts - before);
    return test_end("messages come");
}
