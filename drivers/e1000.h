/* Intel's 8254x, which QEMU and Bochs have as 82540EM (8086:100e). PCI/PCI-X Family of Gigabit Ethernet
 * Controllers, software developer's manual 317453.
 *
 * One caller at a time. Frames go through `ring`: nic_ring.h.
 */
#ifndef DRIVERS_E1000_H
#define DRIVERS_E1000_H

#include "drivers/nic_ring.h"

#define E1000_VENDOR 0x8086
#define E1000_DEVICE 0x100e
#define E1000_BYTES  0x20000u /* of BAR 0 */

struct e1000 {
    volatile u8 *regs;
    u8 mac[6];
    struct nic_ring ring;
    u64 overruns; /* interrupts that told of lost frames */
};

/* Causes of interrupts. */
#define E1000_IRQ_SENT 0x01u
#define E1000_IRQ_LINK 0x04u
#define E1000_IRQ_RX   0xd0u /* a frame; few buffers left; none left */

/* Resets the device and sets it up, its receiver still off, no interrupt enabled. `regs`: BAR 0. `memory` and
 * dma_addr as nic_ring_init() has them. 0; -ENODEV: it does not answer, or tells no address of its own. */
int e1000_init(struct e1000 *n, volatile void *regs, void *memory, u64 (*dma_addr)(const void *p));
/* Receiver on: frames for this address and broadcasts, or all frames. */
void e1000_start(struct e1000 *n, bool all);
void e1000_stop(struct e1000 *n); /* neither receives nor sends nor interrupts any more */

/* Which interrupts come (E1000_IRQ_*), and at most how many a second (0: at once). Bochs knows no limit. */
void e1000_interrupts(struct e1000 *n, u32 causes, u32 a_second);
/* Why it interrupted; takes them back, and so the line falls. */
u32 e1000_causes(struct e1000 *n);
bool e1000_link(struct e1000 *n); /* is there somebody at the other end of the cable? */

#endif
