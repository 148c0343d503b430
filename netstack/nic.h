/* A network card, as the network stack of a guest sees it: what each of the drivers virtio.c and
 * igbvf.c offers to start.c. */
#ifndef NETSTACK_NIC_H
#define NETSTACK_NIC_H

#include <netstack/guest.h>
#include <netstack/start.h>

#define NET_VCPU 0 /* the vCPU of the bottom half */

/* What a driver tells of its card when it is open. */
struct net_nic_info {
    u8 mac[6];
    u16 mtu;    /* bytes; 0: 1,500 */
    u32 posted; /* how many buffers of the stack the device holds all the time */
};

struct net_nic {
    const char *name;
    bool tx_open; /* the card can fill in the checksums of UDP and TCP */
    /* Tells whether the VM has such a card. If this is NULL, open() finds that out. */
    bool (*present)(void);
    /* Waits for the device and opens it. `ring` is how many frames it may hold. Called by a thread
     * of NET_VCPU. Returns 0, or a negative errno. */
    int (*open)(u32 ring, struct net_nic_info *info);
    /* Lets frames and interrupts come, and calls net_join(). Called when the stack is ready for
     * them. */
    void (*go)(void);
    /* Runs as a thread on NET_VCPU. It opens the device again after the device was lost. */
    void (*watch)(void *arg);
    struct net_guest guest; /* the functions of the driver that the stack calls */
};

extern const struct net_nic net_virtio, net_igbvf;
extern struct net_device_stats net_nic_stats; /* the drivers of the cards count here */

#endif
