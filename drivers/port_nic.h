/* A network card, whichever it is, as a port of the bridge: the way out of the machine. */
#ifndef DRIVERS_PORT_NIC_H
#define DRIVERS_PORT_NIC_H

#include "drivers/bridge.h"
#include "drivers/e1000.h"
#include "drivers/igb.h"
#include "drivers/igb_vfs.h"

#define PORT_NIC_BATCH 64 /* frames before others have their turn */

struct port_nic {
    struct bridge_port port; /* first: deliver() knows */
    struct bridge *bridge;
    const struct port_nic_kind *kind;
    struct nic_ring *ring; /* the card's */
    union {
        struct e1000 e1000;
        struct {
            struct igb igb;
            struct igb_vfs vfs;
        };
    } card;
    void *memory;
    u64 now;    /* of this turn */
    bool again; /* the card may have received more */
    bool put;   /* something waits for the card to be told */
    u64 due;    /* when there is something to do without an interrupt; ~0: never */
    bool link;  /* is there somebody at the other end of the cable? Only of cards that tell of a change */
};

/* Is there a driver for a card with this PCI id (vendor | device << 16)? */
bool port_nic_known(u32 id);
/* `regs`, `size`: BAR 0; dma_addr as nic_ring_init() has it. -ENOMEM, -ENODEV, -ENOSPC. */
int port_nic_init(struct port_nic *p, struct bridge *b, u32 id, volatile void *regs, u64 size,
                  u64 (*dma_addr)(const void *p));
/* The card has interrupted: takes that back. True: `link` has changed. */
bool port_nic_interrupt(struct port_nic *p, u64 now);
/* Frames for which the card had no buffer. */
u64 port_nic_missed(struct port_nic *p);
/* A turn: what the card has received goes to the bridge. When the next one is due: 0 at once, ~0 after an
 * interrupt. */
u64 port_nic_serve(struct port_nic *p, u64 now);
/* The end of a round: the card sends what it was given. */
void port_nic_flush(struct port_nic *p);

#endif
