/* A virtual function of an 82576 that was given to this VM, for tests: the first PCI device, and
 * frames of a type of our own. */
#ifndef TESTS_GUEST_VF_RIG_H
#define TESTS_GUEST_VF_RIG_H

#include <drivers/igb_mailbox.h>
#include <drivers/igbvf.h>
#include <guest/mem.h>
#include <guest/string.h>
#include "pci_rig.h"

#define VF_TYPE 0xb588 /* of our frames, 88b5: IEEE 802, for experiments (as it is in memory) */

#define VF_RX   0x2800u
#define VF_TX   0x3800u
#define VF_EICS 0x1520u /* sets causes of interrupts */

static struct igbvf nic;

static inline u64 vf_dma_addr(const void *p) { return (u64)p + pci.dma_offset; }

static inline void relax(void) { sleep_ns(NS_PER_MS); }

/* Sets the function's driver up, or does so again. */
static inline void vf_open(void) {
    static const struct device_env env = { vf_dma_addr, time_ns, relax };
    static void *memory;

    if (!memory) memory = page_alloc(NIC_RING_MEMORY / PAGE_SIZE);
    if (!memory) test_error("no memory");
    memset(memory, 0, NIC_RING_MEMORY);
    for (u32 i = 0; igbvf_init(&nic, pci_registers(), memory, &env); i++)
        if (i == 10) test_fatal("%s", nic.why);
}

/* How many frames of ours have come by now. */
static inline u32 vf_take(void) {
    const u8 *f;
    u32 n = 0;

    while (igbvf_receive(&nic, (const void **)&f)) {
        n += *(const u16 *)(f + 12) == VF_TYPE;
        nic_receive_next(&nic.ring);
    }
    nic_receive_refill(&nic.ring);
    return n;
}

/* Puts a frame of ours to virtual function `to` into the ring, and does not start sending.
 * Returns false if there is no room. */
static inline bool vf_put(u32 to) {
    u8 *f = nic_send_buffer(&nic.ring);
    u32 mine = nic.mac[3] >> 4 & 7;

    if (!f) return false;
    memset(f, 0, 60);
    memcpy(f, nic.mac, 6);
    memcpy(f + 6, nic.mac, 6);
    f[3] ^= (u8)((mine ^ to) << 4);
    *(u16 *)(f + 12) = VF_TYPE;
    nic_send_put(&nic.ring, 60);
    return true;
}

#endif
