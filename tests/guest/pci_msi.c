/* devices: edu */
/* only: qemu */
/* keys: pci = 00:04.0; unsafe_dma = yes */
/* time: 600 */
/* A device that interrupts by messages, QEMU's for exercises: each comes, and once. */
#include <guest/event.h>
#include <guest/test.h>
#include <guest/thread.h>
#include <guest/time.h>
#include <takt/device.h>
#include <takt/io.h>

#define EDU_RAISE 0x60
#define EDU_ACK   0x64

static struct takt_pci pci;
static volatile u32 events;

static void on_event(u32 port, void *arg) { events++; }

static bool wait_for(u32 n) {
    for (u64 end = time_ns() + NS_PER_S; events < n && time_ns() < end;) nap_until(time_ns() + NS_PER_MS);
    return events >= n;
}

int main(void) {
    volatile u8 *edu;

    test_begin();
    test_needs_takt();
    if (hypercall2(TAKT_HC_PCI_INFO, 0, (u64)&pci)) test_fatal("there is no PCI device");
    edu = (volatile u8 *)pci.bar[0].addr;
    CHECK(pci.id == 0x11e81234, "id %x", pci.id);
    CHECK(hypercall3(TAKT_HC_PCI_READ, 0, 4, 2) & 0x400, "INTx is on beside MSI");
    event_set_handler(pci.port, 0, on_event, NULL);
    for (u32 i = 1; i <= 50; i++) {
        mmio_write32(edu + EDU_RAISE, 1);
        mmio_write32(edu + EDU_ACK, 1);
        CHECK(wait_for(i), "message %u did not come", i);
        sleep_ns(NS_PER_MS);
        CHECK(events == i, "%u events of %u messages", events, i);
    }
    return test_end("messages come");
}
