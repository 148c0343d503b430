/* A network card, as the stack of a guest uses one. */
#ifndef NETSTACK_NIC_H
#define NETSTACK_NIC_H

#include <netstack/guest.h>
#include <netstack/start.h>

#define NET_VCPU 0 /* of the bottom half */

struct net_nic_info {
    u8 mac[6];
    u16 mtu;    /* 0: 1,500 */
    u32 posted; /* buffers of the stack that the device holds all the time */
};

struct net_nic {
    const char *name;
    bool tx_open;          /* it can fill in checksums of UDP and TCP */
    bool (*present)(void); /* the VM has one; NULL: that is found out by open() */
    /* From a thread of NET_VCPU: waits for the device. 0, or a negative errno. */
    int (*open)(u32 ring, struct net_nic_info *info);
    void (*go)(void);         /* the stack is there: frames and interrupts may come */
    void (*watch)(void *arg); /* a thread, on NET_VCPU, which opens the device again when it has to be */
    struct net_guest guest;   /* of NET_VCPU */
};

extern const struct net_nic net_virtio, net_igbvf;
extern struct net_device_stats net_nic_stats; /* theirs to count */

#endif
