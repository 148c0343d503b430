/* A network card as a port of the bridge: the way out of the machine. */
#ifndef DRIVERS_PORT_E1000_H
#define DRIVERS_PORT_E1000_H

#include "drivers/bridge.h"
#include "drivers/e1000.h"

#define PORT_E1000_BATCH 64 /* frames before others have their turn */

struct port_e1000 {
    struct bridge_port port; /* first: deliver() knows */
    struct bridge *bridge;
    struct e1000 nic;
    void *memory;
    bool put; /* something waits for the card to be told */
};

/* `regs`: BAR 0; dma_addr as e1000_init() has it. -ENOMEM, -ENODEV, -ENOSPC. */
int port_e1000_init(struct port_e1000 *p, struct bridge *b, volatile void *regs,
                    u64 (*dma_addr)(const void *p));
/* What the card has received goes to the bridge. True: there may be more, come again at once. */
bool port_e1000_serve(struct port_e1000 *p, u64 now);
/* The end of a round: the card sends what it was given. */
void port_e1000_flush(struct port_e1000 *p);

#endif
