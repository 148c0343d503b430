/* A network card, as the network stack of a guest sees it. */
#ifndef NETSTACK_NIC_H
#define NETSTACK_NIC_H

#include <netstack/guest.h>
#include <netstack/start.h>

#define NET_VCPU 0 /* the vCPU of the bottom half */

struct net_nic_info {
    u8 mac[6];
    u16 mtu;    /* 0: 1,500 */
    u32 posted; /* buffers of the stack that the device holds all the time */
};

struct net_nic {
    const char *name;
    bool tx_open;          /* the card can fill in checksums of UDP and TCP */
    bool (*present)(void); /* whether the VM has such a card; NULL: open() finds that out */
    /* Waits for the device. Called by a thread of NET_VCPU. Returns 0, or a negative errno. */
    int (*open)(u32 ring, struct net_nic_info *info);
    /* lets frames and interrupts come; called when the stack is ready for them */
    void (*go)(void);
    /* a thread on NET_VCPU that opens the device again after it was lost */
    void (*watch)(void *arg);
    struct net_guest guest; /* its functions for the stack */
};

extern const struct net_nic net_virtio, net_igbvf;
extern struct net_device_stats net_nic_stats; /* counted by the cards' drivers */

#endif
