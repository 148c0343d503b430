/* devices: e1000e */
/* only: qemu */
/* keys: pci = 00:05.0; unsafe_dma = yes */
/* time: 800 */
/* A device that interrupts by MSI-X and can be reset: each message comes; its table is the hypervisor's. */
#include <guest/event.h>
#include <guest/test.h>
#include <guest/thread.h>
#include <guest/time.h>
#include <takt/device.h>
#include <takt/io.h>

/* 82574 data sheet, 10.2.4: software sets causes; "other" ones go to vector 0. */
#define ICR    0xc0
#define ICS    0xc8
#define IMS    0xd0
#define EIAC   0xdc
#define IVAR   0xe4
#define IVAR_0 0x80000u
#define LSC    0x04u
#define OTHER  0x1000000u

static struct takt_pci pci;
static volatile u32 events;

static void on_event(u32 port, void *arg) { events++; }

static bool wait_for(u32 n) {
    for (u64 end = time_ns() + NS_PER_S; events < n && time_ns() < end;) nap_until(time_ns() + NS_PER_MS);
    return events >= n;
}

int main(void) {
    volatile u8 *regs, *table;
    u32 capability, where;

    test_begin();
    test_needs_takt();
    if (hypercall2(TAKT_HC_PCI_INFO, 0, (u64)&pci)) test_fatal("there is no PCI device");
    CHECK(pci.id == 0x10d38086, "id %x", pci.id);
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

    event_set_handler(pci.port, 0, on_event, NULL);
    regs = (volatile u8 *)pci.bar[0].addr;
    mmio_write32(regs + IVAR, IVAR_0);
    mmio_write32(regs + EIAC, OTHER);
    for (u32 i = 1; i <= 50; i++) {
        u32 before = events;

        mmio_read32(regs + ICR);
        mmio_write32(regs + IMS, OTHER | LSC);
        mmio_write32(regs + ICS, OTHER | LSC);
        CHECK(wait_for(before + 1), "message %u did not come", i);
        sleep_ns(NS_PER_MS);
    }
    CHECK(events < 150, "%u events of 50 messages", events); /* it has causes of its own, but few */
    return test_end("messages come");
}
