/* Intel's 82576 (8086:10c9), its physical function: 82576 Gigabit Ethernet Controller data sheet
 * (2.63).
 *
 * It always is in VMDq mode, in which queues belong to pools and frames go to the pools of their address:
 * pool n is that of virtual function n, and the last one is ours, which gets what nobody else gets. So
 * nothing has to be stopped when virtual functions appear.
 *
 * One caller at a time. Frames go through `ring`: nic_ring.h.
 */
#ifndef DRIVERS_IGB_H
#define DRIVERS_IGB_H

#include <takt/io.h>
#include "drivers/igb_regs.h"
#include "drivers/nic_ring.h"

#define IGB_POOLS 8u
#define IGB_OWN   (IGB_POOLS - 1) /* the pool of the physical function */
#define IGB_BYTES 0x20000u        /* of BAR 0 */

struct igb {
    volatile u8 *regs;
    u8 mac[6];
    struct nic_ring ring;
    u64 missed; /* frames that came while no descriptor was free */
};

static inline u32 igb_read(const struct igb *n, u32 reg) { return mmio_read32(n->regs + reg); }

static inline void igb_write(struct igb *n, u32 reg, u32 v) { mmio_write32(n->regs + reg, v); }

/* Causes of interrupts. */
#define IGB_IRQ_LINK 0x004u
#define IGB_IRQ_VF   0x100u /* a virtual function has written to its mailbox, or was reset */

/* Resets the device and sets it up, its receiver still off, no interrupt enabled; it then needs some time
 * until its link is up. `regs`: BAR 0. `memory` and dma_addr as nic_ring_init() has them. 0; -ENODEV: it does
 * not answer, or tells no address of its own. */
int igb_init(struct igb *n, volatile void *regs, void *memory, u64 (*dma_addr)(const void *p));
void igb_start(struct igb *n); /* receiver on: all frames that are nobody else's */
void igb_stop(struct igb *n);  /* neither receives nor sends nor interrupts any more */

/* Interrupts by the first entry of its MSI-X table for what has come and for IGB_IRQ_*, at most so many a
 * second (0: at once). */
void igb_interrupts(struct igb *n, u32 a_second);
/* Which of IGB_IRQ_* there were since the last time; with none of them it is for frames that have come. */
u32 igb_causes(struct igb *n);
bool igb_link(struct igb *n);  /* is there somebody at the other end of the cable? */
void igb_count(struct igb *n); /* brings `missed` up to date */

#endif
