/* The rings of Intel's network cards, from the 8254x to the 82576 and its virtual functions: one to receive,
 * one to send. Descriptors are legacy ones (8254x software developer's manual 317453, 3.2.3 and 3.3.3) or
 * advanced ones, a frame to a buffer (82576 data sheet, 7.1.5 and 7.2.2.3).
 *
 * One caller at a time. Frames are without their check sequence, which the device adds and takes off. All
 * memory is the caller's, NIC_RING_MEMORY bytes, and all buffers lie in it: what is to be sent is written
 * there, what came is read there, so that only this memory has to be told to the device. Of what the device
 * writes back only the bits that it has done and a length are used, and the latter is checked.
 */
#ifndef DRIVERS_NIC_RING_H
#define DRIVERS_NIC_RING_H

#include <takt/types.h>

#define NIC_RING        128u  /* descriptors each way; one of them always is free */
#define NIC_BUFFER      2048u /* bytes of each */
#define NIC_FRAME       1518u /* the longest, with a VLAN tag */
#define NIC_RING_MEMORY (2 * NIC_RING * (16 + NIC_BUFFER))

struct nic_desc; /* as the device has it */

struct nic_ring_kind {
    bool advanced;
    u32 report; /* the device reports, and may interrupt, at every so many frames that it has sent: a power of
                   two */
};

struct nic_ring {
    /* set by nic_ring_init, then constant */
    struct nic_ring_kind kind;
    volatile u8 *rx_regs, *tx_regs;
    volatile struct nic_desc *rx, *tx;
    u8 *rx_buffer, *tx_buffer;
    u64 rx_addr, tx_addr; /* of the buffers, for the device */
    /* where the next frame comes, and up to where the device has been given room (receiver); where the
     * next goes, up to where the device was told, and the oldest that it may still hold (transmitter) */
    u32 rx_at, rx_given, tx_at, tx_told, tx_oldest;
    bool skip;               /* parts of a frame that is too long, until its last */
    u64 received, sent, bad; /* frames; too long or with errors */
};

/* Tells the device of its rings, both empty. `rx_regs`, `tx_regs`: the registers of the queue, from the low
 * half of the ring's address on. `memory`: aligned to 4096, zeroed. dma_addr says at which address the device
 * finds what is at p, in one piece. */
void nic_ring_init(struct nic_ring *r, const struct nic_ring_kind *kind, volatile u8 *rx_regs,
                   volatile u8 *tx_regs, void *memory, u64 (*dma_addr)(const void *p));

/* Where the next frame may be written, NIC_BUFFER bytes; NULL: all are on their way. Then put it; after one
 * or many, kick. */
void *nic_send_buffer(struct nic_ring *r);
void nic_send_put(struct nic_ring *r, u32 len); /* 1 to NIC_FRAME */
void nic_send_kick(struct nic_ring *r);

/* The frame that came first, which stays until `next`; returns its length, 0 if there is none. After one
 * or many, refill; once also at the start, when the queue is on. */
u32 nic_receive(struct nic_ring *r, const void **frame);
void nic_receive_next(struct nic_ring *r);
void nic_receive_refill(struct nic_ring *r);

#endif
