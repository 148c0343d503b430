/* The rings of Intel's network cards, from the 8254x to the 82576 and its virtual functions: one to
 * receive, one to send. Descriptors are legacy ones (8254x software developer's manual 317453,
 * 3.2.3 and 3.3.3) or advanced ones, a frame to a buffer (82576 data sheet, 7.1.5 and 7.2.2.3).
 *
 * One caller at a time. Frames are without their check sequence, which the device adds and takes
 * off. Frames to send are written to buffers in the caller's memory, and received frames are read
 * there, so that the device needs to reach no other memory. Of what the device writes back, only
 * its "done" bits and a length are used, and the length is checked.
 */
#ifndef DRIVERS_NIC_RING_H
#define DRIVERS_NIC_RING_H

#include <takt/types.h>

#define NIC_RING   128u  /* descriptors for each direction; one of them is always free */
#define NIC_BUFFER 2048u /* bytes of the buffer of each descriptor */
#define NIC_FRAME  1518u /* the longest, with a VLAN tag */
/* Bytes of both rings: for each descriptor 16 bytes and a buffer. */
#define NIC_RING_MEMORY (2 * NIC_RING * (16 + NIC_BUFFER))

struct nic_desc; /* as the device has it */

struct nic_ring_kind {
    bool advanced;
    u32 report; /* a power of two: the device reports once for so many sent frames */
};

struct nic_ring {
    /* set by nic_ring_init, then constant */
    struct nic_ring_kind kind;
    volatile u8 *rx_regs, *tx_regs;
    volatile struct nic_desc *rx, *tx;
    u8 *rx_buffer, *tx_buffer;
    u64 rx_addr, tx_addr; /* addresses of the buffers, as the device knows them */
    u32 rx_at;            /* where the next frame will come */
    u32 rx_given;         /* up to here, the device may use the descriptors */
    u32 tx_at;            /* where the next frame to be sent goes */
    u32 tx_told;          /* up to here, the device was told of frames */
    u32 tx_oldest;        /* the oldest frame that the device may still read */
    /* The next part belongs to a frame that is too long. The parts are skipped, up to the last one.
     */
    bool skip;
    u64 received, sent;
    u64 bad; /* frames received that were too long or had errors */
};

/* Stores the bytes of an Ethernet address from the two registers in which Intel's cards have it. */
static inline void nic_mac_of(u32 low, u32 high, u8 mac[6]) {
    for (u32 i = 0; i < 4; i++) mac[i] = (u8)(low >> 8 * i);
    mac[4] = (u8)high;
    mac[5] = (u8)(high >> 8);
}

/* Tells the device where its rings are. Both are empty. `rx_regs` and `tx_regs` are the registers
 * of the queue, beginning with the low half of the ring's address. `memory` is NIC_RING_MEMORY
 * bytes, aligned to 4096 and zeroed, which belong to the rings from now on. dma_addr() returns the
 * address at which the device finds what is at `p`; all of `memory` has to be in one piece there.
 */
void nic_ring_init(struct nic_ring *r, const struct nic_ring_kind *kind, volatile u8 *rx_regs,
                   volatile u8 *tx_regs, void *memory, u64 (*dma_addr)(const void *p));

/* Returns the buffer for the next frame to be sent, of NIC_BUFFER bytes, or NULL if all buffers are
 * on their way. */
void *nic_send_buffer(struct nic_ring *r);
/* Queues the frame of `len` bytes (1 to NIC_FRAME) that was written to that buffer. */
void nic_send_put(struct nic_ring *r, u32 len);
/* Tells the device of the frames that were queued, one or many. */
void nic_send_kick(struct nic_ring *r);

/* Returns the length of the oldest frame received, and where it is, or 0 if there is none. The
 * frame stays until nic_receive_next(). */
u32 nic_receive(struct nic_ring *r, const void **frame);
/* Removes that frame; the caller has finished with it. The device gets its buffer back by
 * nic_receive_refill(). */
void nic_receive_next(struct nic_ring *r);
/* Gives the device the buffers of frames that the caller has finished with. Call it after one or
 * many frames, and once at the start, when the queue is on. */
void nic_receive_refill(struct nic_ring *r);

#endif
