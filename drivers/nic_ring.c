/* The rings of Intel's network cards. A ring is an array of descriptors in memory, each of which
 * names a buffer. The driver fills descriptors and moves the *tail* register behind them; the card
 * works from the *head* up to the tail, and writes back to each descriptor that it is done.
 * nic_ring.h has the contracts, and names the manuals. */
#include "drivers/nic_ring.h"
#include <takt/io.h>

/* Offsets from the first register of a queue: 317453 13.2, 82576 8.10 and 8.12. */
enum { BASE_LOW = 0x00, BASE_HIGH = 0x04, LENGTH = 0x08, HEAD = 0x10, TAIL = 0x18 };

/* Status that the device writes back. */
#define DONE          0x00000001u /* DD, in both kinds of descriptors, both ways */
#define LAST          0x00000002u /* EOP, in a receiver's descriptor: the end of the frame */
#define LEGACY_ERRORS 0x0000ff00u
/* RXE: 7.1.5.2; errors of checksums are left to the network stack */
#define ERRORS 0x80000000u

/* The command in a transmitter's descriptor. */
#define COMMAND_LAST   0x01000000u /* EOP */
#define COMMAND_SUM    0x02000000u
#define COMMAND_REPORT 0x08000000u
#define COMMAND_DATA   0x20300000u /* an advanced descriptor, of data */
#define PAYLOAD_SHIFT  14

/* A descriptor. What the device writes back to a receive descriptor depends on its kind. In the
 * legacy kind, `low` has the length and a sum, and `high` status and errors. In the advanced kind,
 * `low` has status and errors, and `high` the length and a VLAN. Before that, `low` and `high` of
 * the advanced kind are the address of a buffer for headers, which we do not use; and the device
 * overwrites `addr` as well. A transmit descriptor has the command and the length in `low`, in both
 * kinds. */
struct nic_desc {
    u64 addr;
    u32 low, high;
};

/* Returns the index of the descriptor after `i`; after the last one comes the first. */
static u32 desc_after(u32 i) { return (i + 1) % NIC_RING; }

/* Descriptors and buffers have to be written before the device is told of them, and may be read
 * only after its "done" bit was seen. On x86 it is enough that the compiler keeps that order. */
static void ring_order(void) { __atomic_thread_fence(__ATOMIC_ACQ_REL); }

/* ---- set-up ---- */

/* Tells the card where one ring is. With head and tail equal the ring is empty. */
static void set_ring(volatile u8 *regs, u64 addr) {
    mmio_write32(regs + BASE_LOW, (u32)addr);
    mmio_write32(regs + BASE_HIGH, (u32)(addr >> 32));
    mmio_write32(regs + LENGTH, NIC_RING * sizeof(struct nic_desc));
    mmio_write32(regs + HEAD, 0);
    mmio_write32(regs + TAIL, 0);
}

/* Prepares descriptor `i` for the device to receive another frame. */
static void rx_prepare(struct nic_ring *r, u32 i) {
    volatile struct nic_desc *d = &r->rx[i];

    d->addr = r->rx_addr + i * NIC_BUFFER;
    d->low = d->high = 0;
}

/* Tells the device where its receive ring and its send ring are; both are empty. The descriptors
 * are filled in before the device is told of the rings, because it may read them at once. */
void nic_ring_init(struct nic_ring *r, const struct nic_ring_kind *kind, volatile u8 *rx_regs,
                   volatile u8 *tx_regs, void *memory, u64 (*dma_addr)(const void *p)) {
    *r = (struct nic_ring){ .kind = *kind, .rx_regs = rx_regs, .tx_regs = tx_regs, .rx = memory };
    r->tx = r->rx + NIC_RING;
    r->rx_buffer = (u8 *)memory + 2 * NIC_RING * sizeof(struct nic_desc);
    r->tx_buffer = r->rx_buffer + NIC_RING * NIC_BUFFER;
    r->rx_addr = dma_addr(r->rx_buffer);
    r->tx_addr = dma_addr(r->tx_buffer);
    for (u32 i = 0; i < NIC_RING; i++) rx_prepare(r, i);
    ring_order();
    set_ring(rx_regs, dma_addr((const void *)r->rx));
    set_ring(tx_regs, dma_addr((const void *)r->tx));
}

/* ---- sending ---- */

/* Frees the buffers of frames that were sent. The device reports only on the last one of each group
 * of kind.report frames. It sends in order, so it has sent the whole group then. */
static void reclaim(struct nic_ring *r) {
    for (;;) {
        u32 last = r->tx_oldest | (r->kind.report - 1), n = last - r->tx_oldest + 1;
        u32 held = (r->tx_told + NIC_RING - r->tx_oldest) % NIC_RING;

        if (n > held || !(r->tx[last].high & DONE)) return;
        r->tx_oldest = desc_after(last);
        r->sent += n;
    }
}

void *nic_send_buffer(struct nic_ring *r) {
    reclaim(r);
    ring_order();
    if (desc_after(r->tx_at) == r->tx_oldest) return NULL;
    return r->tx_buffer + r->tx_at * NIC_BUFFER;
}

/* Queues the frame of `len` bytes that the caller has written to the next send buffer. The device
 * reports only on the last frame of each group of kind.report frames. Each report is a write to
 * memory, and reclaim() needs only one for a group. */
void nic_send_put(struct nic_ring *r, u32 len) {
    volatile struct nic_desc *d = &r->tx[r->tx_at];
    u32 command = COMMAND_LAST | COMMAND_SUM, high = 0;

    len = MIN(len, NIC_FRAME);
    if ((r->tx_at & (r->kind.report - 1)) == r->kind.report - 1) command |= COMMAND_REPORT;
    if (r->kind.advanced) {
        command |= COMMAND_DATA;
        high = len << PAYLOAD_SHIFT;
    }
    d->addr = r->tx_addr + r->tx_at * NIC_BUFFER;
    d->low = len | command;
    d->high = high;
    r->tx_at = desc_after(r->tx_at);
}

void nic_send_kick(struct nic_ring *r) {
    if (r->tx_told == r->tx_at) return;
    r->tx_told = r->tx_at;
    ring_order();
    mmio_write32(r->tx_regs + TAIL, r->tx_at);
}

/* ---- receiving ---- */

/* Makes the descriptor of the frame at rx_at ready for another frame, because the caller has
 * finished with it. The card gets it by the next
 * nic_receive_refill(). */
static void rx_release(struct nic_ring *r) {
    rx_prepare(r, r->rx_at);
    r->rx_at = desc_after(r->rx_at);
}

/* Returns the length of the oldest frame received and points *frame to it, or returns 0 if there is
 * none. A frame that fills more than one buffer, or that has an error, is skipped: its buffers go
 * back to the device, and r->bad counts the frame once. No good frame is lost by that, because one
 * buffer holds the longest frame that we accept. */
u32 nic_receive(struct nic_ring *r, const void **frame) {
    for (;; rx_release(r)) {
        volatile struct nic_desc *d = &r->rx[r->rx_at];
        volatile u32 *status_at = &d->high, *len_at = &d->low;
        u32 error_bits = LEGACY_ERRORS, status, errors, len;
        bool last, bad;

        if (r->rx_at == r->rx_given) return 0;
        if (r->kind.advanced) {
            status_at = &d->low;
            len_at = &d->high;
            error_bits = ERRORS;
        }
        status = *status_at;
        if (!(status & DONE)) return 0;
        ring_order(); /* the rest may be read only after DONE was seen */
        len = *len_at & 0xffff;
        errors = status & error_bits;
        last = status & LAST;
        bad = r->skip || !last || errors || len == 0 || len > NIC_FRAME;
        r->skip = !last;
        if (!bad) {
            *frame = r->rx_buffer + r->rx_at * NIC_BUFFER;
            return len;
        }
        r->bad += last;
    }
}

/* Counts the frame, and moves on to the next one. */
void nic_receive_next(struct nic_ring *r) {
    r->received++;
    rx_release(r);
}

/* Gives the device the buffers of the frames that the caller has finished with. The tail that the
 * device gets is one place behind the next frame to be read. If tail and head were equal, the
 * device would take the full ring for an empty one. */
void nic_receive_refill(struct nic_ring *r) {
    u32 tail = (r->rx_at + NIC_RING - 1) % NIC_RING;

    if (tail == r->rx_given) return;
    r->rx_given = tail;
    ring_order();
    mmio_write32(r->rx_regs + TAIL, tail);
}
