/* The network stack in a guest with the guest library. The bottom half runs in interrupt handlers
 * of one vCPU, threads on any. They call each other by interprocessor interrupts, so that the lock
 * of a semaphore, and that of a vCPU's threads, is taken on the thread's own vCPU only: nobody
 * waits for a lock whose holder does not run.
 */
#ifndef NETSTACK_GUEST_H
#define NETSTACK_GUEST_H

#include <netstack/net.h>

#define VECTOR_NET 0xe0

struct net_guest {
    unsigned vcpu; /* where the bottom half runs and the device interrupts */
    /* The driver gives received frames to net_rx(), and takes back what was sent. May be NULL. */
    void (*poll)(void *arg);
    /* as in struct net_host */
    bool (*tx)(void *arg, const struct net_frag *piece, unsigned n, struct net_open_sum open);
    /* Called after each turn: shows the device what was sent and taken, and lets it interrupt from
     * now on. Returns true if another turn is needed at once. May be NULL. */
    bool (*done)(void *arg);
    void *arg;
};

/* Starts the stack. Call it once, on the vCPU of the bottom half, after all vCPUs have started.
 * Both structures are copied. Returns as net_init(). */
int net_guest_start(const struct net_guest *guest, const struct net_config *config);

/* Runs the bottom half once: poll(), net_poll(), and sets the timer for the next time. Call it in
 * the device's interrupt handler, on the vCPU of the bottom half. */
void net_guest_run(void);

#endif
