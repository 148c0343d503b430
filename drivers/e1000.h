/* Intel's 8254x, which QEMU and Bochs have as 82540EM (8086:100e). PCI/PCI-X Family of Gigabit Ethernet
 * Controllers, software developer's manual 317453.
 *
 * One caller at a time. Frames are without their checksum, which the device adds and takes off. All memory is
 * the caller's, E1000_MEMORY bytes, and all buffers lie in it: what is to be sent is written there, what came
 * is read there, so that only this memory has to be told to the device.
 */
#ifndef DRIVERS_E1000_H
#define DRIVERS_E1000_H

#include <takt/types.h>

#define E1000_VENDOR 0x8086
#define E1000_DEVICE 0x100e

#define E1000_RING   128u  /* descriptors each way; one of them always is free */
#define E1000_BUFFER 2048u /* bytes of each */
#define E1000_FRAME  1514u /* the longest */
#define E1000_MEMORY (2 * E1000_RING * (16 + E1000_BUFFER))

struct e1000_desc; /* as the device has it */

struct e1000 {
    /* set by e1000_init, then constant */
    volatile u8 *regs;
    volatile struct e1000_desc *rx, *tx;
    u8 *rx_buffer, *tx_buffer;
    u8 mac[6];
    /* where the next frame comes, and up to where the device has been given room (receiver); where the
     * next goes, up to where the device was told, and the oldest that it may still hold (transmitter) */
    u32 rx_at, rx_given, tx_at, tx_told, tx_oldest;
    bool skip; /* parts of a frame that is too long, until its last */
    u64 received, sent, bad,
        overruns; /* frames; too long or with errors; interrupts that told of lost ones */
};

/* Causes of interrupts. */
#define E1000_IRQ_SENT 0x01u
#define E1000_IRQ_LINK 0x04u
#define E1000_IRQ_RX   0xd0u /* a frame; few buffers left; none left */

/* Resets the device and sets it up, its receiver still off, no interrupt enabled. `regs`: BAR 0. `memory`:
 * aligned to 4096, zeroed. dma_addr says at which address the device finds what is at p, in one piece. 0;
 * -ENODEV: it does not answer, or tells no address of its own. */
int e1000_init(struct e1000 *n, volatile void *regs, void *memory, u64 (*dma_addr)(const void *p));
/* Receiver on: frames for this address and broadcasts, or all frames. */
void e1000_start(struct e1000 *n, bool all);
void e1000_stop(struct e1000 *n); /* neither receives nor sends nor interrupts any more */

/* Which interrupts come (E1000_IRQ_*), and at most how many a second (0: at once). Bochs knows no limit. */
void e1000_interrupts(struct e1000 *n, u32 causes, u32 a_second);
/* Why it interrupted; takes them back, and so the line falls. */
u32 e1000_causes(struct e1000 *n);
bool e1000_link(struct e1000 *n); /* is there somebody at the other end of the cable? */

/* Where the next frame may be written, E1000_BUFFER bytes; NULL: all are on their way (E1000_IRQ_SENT).
 * Then put it; after one or many, kick. */
void *e1000_send_buffer(struct e1000 *n);
void e1000_send_put(struct e1000 *n, u32 len); /* 1 to E1000_FRAME */
void e1000_send_kick(struct e1000 *n);

/* The frame that came first, which stays until `next`; returns its length, 0 if there is none. After one
 * or many, refill. */
u32 e1000_receive(struct e1000 *n, const void **frame);
void e1000_receive_next(struct e1000 *n);
void e1000_receive_refill(struct e1000 *n);

#endif
