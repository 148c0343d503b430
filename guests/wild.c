/* Plays a driver of a virtual function of the 82576 card that is wrong, or evil. It tells the
 * device to send data from memory that belongs to others. An IOMMU stops that. Command line:
 * at=ADDRESS (0x30000000) is the address that it tells the device; after_ms=T (0) is when, counted
 * from the start. */
#include <guest/device.h>
#include <guest/guest.h>
#include <guest/printf.h>
#include <guest/thread.h>
#include "drivers/igbvf.h"

static struct takt_pci pci;
static u64 wild;

/* The driver asks where its memory is for the device; this guest always answers with the address of
 * others' memory. */
static u64 dma_addr(const void *p) { return wild; }

static void nap(void) { sleep_ns(50 * NS_PER_US); }

static bool wild_find(void) {
    for (u32 i = 0; pci_get(i, &pci) == 0; i++)
        if (pci.id == (IGB_VENDOR | IGB_VF_DEVICE << 16)) return true;
    return false;
}

/* Has the device reach for memory that is not the guest's. If the guest still runs a second later,
 * nobody has stopped the device, and the exit code is 2. */
int main(void) {
    static const struct device_env env = { dma_addr, time_ns, nap };
    static struct igbvf nic;
    void *memory = guest_env.pages(NIC_RING_MEMORY / PAGE_SIZE);

    wild = cmdline_u64("at", 0x30000000);
    if (!memory || !wild_find()) {
        printf("wild: there is no virtual function\n");
        return 1;
    }
    sleep_ns(cmdline_u64("after_ms", 0) * NS_PER_MS);
    while (igbvf_init(&nic, (volatile void *)pci.bar[0].addr, memory, &env))
        sleep_ns(100 * NS_PER_MS);
    printf("wild: sends what is at %lx\n", wild);
    nic_send_buffer(&nic.ring);
    nic_send_put(&nic.ring, 60);
    nic_send_kick(&nic.ring);
    sleep_ns(NS_PER_S);
    printf("wild: nobody minded\n");
    return 2;
}
