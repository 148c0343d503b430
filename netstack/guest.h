/* The network stack in a guest that uses the guest library (guestlib/). The bottom half runs in
 * interrupt handlers of one vCPU, threads run on any vCPU. They call each other by interprocessor
 * interrupts. So the lock of a semaphore, and the lock of a vCPU's threads, is taken on the
 * thread's own vCPU only, and nobody waits for a lock whose holder does not run. */
#ifndef NETSTACK_GUEST_H
#define NETSTACK_GUEST_H

#include <netstack/net.h>

/* The interrupt vector by which threads and bottom half call each other. */
#define VECTOR_NET 0xe0

/* What the stack needs from the driver of the card. `arg` is passed to each function. */
struct net_guest {
    unsigned vcpu; /* where the bottom half runs; the device interrupts this vCPU */
    /* Gives received frames to net_rx(), and takes back the memory of frames that were sent. May be
     * NULL. */
    void (*poll)(void *arg);
    /* Sends a frame, as in struct net_host. */
    bool (*tx)(void *arg, const struct net_frame *f);
    /* Called after each turn of the bottom half. Tells the device what was sent and which buffers
     * are free, and lets it interrupt from now on. Returns true if there is more to do at once. May
     * be NULL. */
    bool (*done)(void *arg);
    void *arg;
};

/* Starts the stack. Call it once, on the vCPU of the bottom half, after all vCPUs have started.
 * Both structures are copied. Returns what net_init() returns. */
int net_guest_start(const struct net_guest *guest, const struct net_config *config);

/* Runs the bottom half once: poll(), net_poll() and done(); then sets the timer for the next time.
 * Call it in the device's interrupt handler, on the vCPU of the bottom half. */
void net_guest_run(void);

#endif
