/* A network card as a port of the bridge: the way out of the machine. The card may be of any kind
 * that there is a driver for. */
#ifndef DRIVERS_PORT_NIC_H
#define DRIVERS_PORT_NIC_H

#include "drivers/bridge.h"
#include "drivers/e1000.h"
#include "drivers/igb.h"
#include "drivers/igb_vfs.h"

/* Frames that are received in one turn, before other devices get theirs. */
#define PORT_NIC_BATCH 64

struct port_nic {
    struct bridge_port port;
    struct bridge *bridge;
    const struct port_nic_kind *kind;
    struct nic_ring *ring; /* the ring within `card` */
    union {
        struct e1000 e1000;
        struct {
            struct igb igb;
            struct igb_vfs vfs;
        };
    } card;
    void *memory;
    u64 now;    /* the time of this turn, ns */
    bool again; /* the card may have received more frames */
    bool put;   /* frames were queued of which the card was not told yet */
    /* The time at which there is something to do even without an interrupt, ns; ~0: never. */
    u64 due;
    bool link; /* the cable has a partner; only for cards that interrupt when that changes */
};

/* Returns whether there is a driver for a card with this PCI id (vendor | device << 16). */
bool port_nic_known(u32 id);
/* Sets the card up and adds it to the bridge. `regs` and `size` are BAR 0; dma_addr is as in
 * nic_ring_init(). Returns 0, or
 *   -ENODEV  there is no driver for the card, or it does not answer
 *   -ENOMEM  there is too little memory
 *   -ENOSPC  the bridge has no port left */
int port_nic_init(struct port_nic *p, struct bridge *b, u32 id, volatile void *regs, u64 size,
                  u64 (*dma_addr)(const void *p));
/* Call this when the card has interrupted. It clears the interrupt. Returns whether `link` has
 * changed. */
bool port_nic_interrupt(struct port_nic *p, u64 now);
/* Returns for how many frames the card had no buffer. */
u64 port_nic_missed(struct port_nic *p);
/* Passes the frames that the card has received to the bridge, up to PORT_NIC_BATCH. Returns the
 * time (ns) at which it wants to be called again: 0 means at once, ~0 means after an interrupt. */
u64 port_nic_serve(struct port_nic *p, u64 now);
/* Tells the card of the frames to be sent. Call it at the end of a round over all devices. */
void port_nic_flush(struct port_nic *p);

#endif
