/* The driver of Intel's 8254x network cards. QEMU and Bochs emulate one of them, the 82540EM
 * (8086:100e). Numbers of sections in e1000.c are those of "PCI/PCI-X Family of Gigabit Ethernet
 * Controllers", software developer's manual 317453.
 *
 * One caller at a time. Frames are sent and received through `ring`: nic_ring.h. */
#ifndef DRIVERS_E1000_H
#define DRIVERS_E1000_H

#include "drivers/nic_ring.h"

#define E1000_VENDOR 0x8086
#define E1000_DEVICE 0x100e
#define E1000_BYTES  0x20000u /* size of BAR 0 */

struct e1000 {
    volatile u8 *regs;
    u8 mac[6];
    struct nic_ring ring;
    u64 overruns; /* interrupts that reported lost frames */
};

/* Causes of interrupts. */
#define E1000_IRQ_SENT 0x01u
#define E1000_IRQ_LINK 0x04u
#define E1000_IRQ_RX   0xd0u /* a frame came; few buffers are left; none is left */

/* Resets the device and sets it up, with its receiver off and all interrupts disabled. `regs` is
 * BAR 0; `memory` and dma_addr are as in nic_ring_init(). Returns 0, or -ENODEV if the device does
 * not answer or has no address of its own. */
int e1000_init(struct e1000 *n, volatile void *regs, void *memory, u64 (*dma_addr)(const void *p));
/* Switches the receiver on, for all frames, or for frames to this address and broadcasts. */
void e1000_start(struct e1000 *n, bool all);
/* Stops the device: it does not receive, send or interrupt any more. */
void e1000_stop(struct e1000 *n);

/* Enables interrupts for these causes (E1000_IRQ_*), at most `a_second` of them; 0 means no limit,
 * which Bochs never has. */
void e1000_interrupts(struct e1000 *n, u32 causes, u32 a_second);
/* Returns the causes of the interrupt and clears them. The interrupt line falls. */
u32 e1000_causes(struct e1000 *n);
/* Returns whether there is a partner at the other end of the cable. */
bool e1000_link(struct e1000 *n);

#endif
