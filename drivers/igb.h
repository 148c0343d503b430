/* The driver of the physical function of Intel's 82576 (8086:10c9). Numbers of sections are those
 * of the "82576 Gigabit Ethernet Controller" data sheet, revision 2.63.
 *
 * The card is always in VMDq mode, in which queues belong to pools and a frame goes to the pool
 * that has its address. Pool n belongs to virtual function n; the last pool is ours and gets all
 * other frames. So nothing has to be stopped when virtual functions appear.
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
#define IGB_BYTES 0x20000u        /* size of BAR 0 */

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

/* Resets the device and sets it up, with its receiver off and all interrupts disabled; it then
 * needs some time until its link is up. `regs` is BAR 0; `memory` and dma_addr are as in
 * nic_ring_init(). Returns 0, or -ENODEV if the device does not answer or has no address of its
 * own. */
int igb_init(struct igb *n, volatile void *regs, void *memory, u64 (*dma_addr)(const void *p));
/* Switches the receiver on, for all frames that no other pool gets. */
void igb_start(struct igb *n);
/* Stops the device: it does not receive, send or interrupt any more. */
void igb_stop(struct igb *n);

/* Enables interrupts for received frames and for IGB_IRQ_*, by the first entry of the MSI-X table,
 * at most `a_second` of them; 0 means no limit. */
void igb_interrupts(struct igb *n, u32 a_second);
/* Returns which of IGB_IRQ_* have happened since the last call. If none has, the interrupt was for
 * received frames. */
u32 igb_causes(struct igb *n);
/* Returns whether there is a partner at the other end of the cable. */
bool igb_link(struct igb *n);
/* Updates n->missed from the card's counter. */
void igb_count(struct igb *n);

#endif
