/* A network card that was given to this VM, for tests: the first PCI device, an 8254x. */
#ifndef TESTS_GUEST_NET_RIG_H
#define TESTS_GUEST_NET_RIG_H

#include <drivers/e1000.h>
#include <guest/mem.h>
#include <guest/string.h>
#include "pci_rig.h"

static struct e1000 nic;

static u64 nic_dma_addr(const void *p) { return (u64)p + pci.dma_offset; }

/* The user-mode networks of the emulators: the gateway's address, and ours there. */
struct net {
    u8 us[4], gateway[4];
};

static const struct net *net(void) {
    static const struct net qemu = { { 10, 0, 2, 15 }, { 10, 0, 2, 2 } };
    static const struct net bochs = { { 192, 168, 10, 15 }, { 192, 168, 10, 1 } };

    return test_on("bochs") ? &bochs : &qemu;
}

static void nic_open(void) {
    void *memory = page_alloc(NIC_RING_MEMORY / PAGE_SIZE);

    pci_open(E1000_VENDOR | E1000_DEVICE << 16);
    if (!memory) test_error("no memory");
    memset(memory, 0, NIC_RING_MEMORY);
    if (e1000_init(&nic, pci_registers(), memory, nic_dma_addr))
        test_fatal("the network card does not answer");
    e1000_start(&nic, false);
}

/* Sends a request for the gateway's hardware address (RFC 826). */
static void send_arp(void) {
    static const u8 head[] = { 8, 6, 0, 1, 8, 0, 6, 4, 0, 1 };
    u8 *f = nic_send_buffer(&nic.ring);

    if (!f) test_fatal("no buffer is left");
    memset(f, 0, 60);
    memset(f, 0xff, 6);
    memcpy(f + 6, nic.mac, 6);
    memcpy(f + 12, head, sizeof(head));
    memcpy(f + 22, nic.mac, 6);
    memcpy(f + 28, net()->us, 4);
    memcpy(f + 38, net()->gateway, 4);
    nic_send_put(&nic.ring, 60);
}

/* The gateway's answer to us. */
static bool is_arp_answer(const u8 *f, u32 len) {
    static const u8 head[] = { 8, 6, 0, 1, 8, 0, 6, 4, 0, 2 };

    return len >= 42 && !memcmp(f, nic.mac, 6) && !memcmp(f + 12, head, sizeof(head)) &&
           !memcmp(f + 28, net()->gateway, 4) && !memcmp(f + 32, nic.mac, 6);
}

/* How many answers have come. */
static u32 take_answers(void) {
    const void *f;
    u32 n = 0, len;

    while ((len = nic_receive(&nic.ring, &f))) {
        n += is_arp_answer(f, len);
        nic_receive_next(&nic.ring);
    }
    nic_receive_refill(&nic.ring);
    return n;
}

#endif
