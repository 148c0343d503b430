/* The stack in a guest of the guest library. The bottom half runs in interrupt handlers of one vCPU, threads
 * on the others (or on the same). Threads and bottom half call each other by interprocessor interrupts: a
 * semaphore's lock, and that of a vCPU's threads, is taken on the thread's own vCPU only.
 */
#ifndef NETSTACK_GUEST_H
#define NETSTACK_GUEST_H

#include <netstack/net.h>

#define VECTOR_NET 0xe0

struct net_guest {
    unsigned vcpu; /* of the bottom half: where the device's interrupts go */
    void (*poll)(
        void *arg); /* the driver hands in what came, by net_rx(), and takes back what was sent; or NULL */
    /* as in struct net_host */
    bool (*tx)(void *arg, const struct net_frag *piece, unsigned n, struct net_open_sum open);
    /* After each turn: what was sent and taken is shown to the device, which may interrupt from here on.
     * True: another turn is wanted at once. Or NULL. */
    bool (*done)(void *arg);
    void *arg;
};

/* Once, on the vCPU of the bottom half, when all vCPUs have started. The structures need not stay. As
 * net_init(). */
int net_guest_start(const struct net_guest *guest, const struct net_config *config);

/* The bottom half once: poll(), net_poll(), and the timer for the next time. From the device's interrupt
 * handler, on that vCPU. */
void net_guest_run(void);

#endif
