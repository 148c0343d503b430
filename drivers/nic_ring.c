#include "drivers/nic_ring.h"
#include <takt/io.h>

/* From the first register of a queue: 317453 13.2, 82576 8.10 and 8.12. */
enum { BASE_LOW = 0x00, BASE_HIGH = 0x04, LENGTH = 0x08, HEAD = 0x10, TAIL = 0x18 };

#define DONE           0x00000001u /* DD, of both kinds, both ways */
#define LAST           0x00000002u /* EOP, of a receiver's */
#define LEGACY_ERRORS  0x0000ff00u
#define ERRORS         0x80000000u /* RXE: 7.1.5.2; checksums are for the stack to judge */

#define COMMAND_LAST   0x01000000u /* EOP, of a transmitter's */
#define COMMAND_SUM    0x02000000u
#define COMMAND_REPORT 0x08000000u
#define COMMAND_DATA   0x20300000u /* an advanced descriptor, of data */
#define PAYLOAD_SHIFT  14

/* A receiver's, legacy: `low` length and sum, `high` status and errors. Advanced: `high` length and VLAN,
 * `low` status and errors; as the device reads it, the two are the address of a buffer for heads, of which
 * there is none, and it writes over `addr` too. A transmitter's is the same but for bits of the command. */
struct nic_desc {
    u64 addr;
    u32 low, high;
};

static u32 next(u32 i) { return (i + 1) % NIC_RING; }

/* What was written to descriptors and buffers is there before the device is told, and nothing is read
 * before the device said so. On x86 it is enough that the compiler keeps the order. */
static void order(void) { __atomic_thread_fence(__ATOMIC_ACQ_REL); }

/* ---- set-up ---- */

static void set_ring(volatile u8 *regs, u64 addr) {
    mmio_write32(regs + BASE_LOW, (u32)addr);
    mmio_write32(regs + BASE_HIGH, (u32)(addr >> 32));
    mmio_write32(regs + LENGTH, NIC_RING * sizeof(struct nic_desc));
    mmio_write32(regs + HEAD, 0);
    mmio_write32(regs + TAIL, 0);
}

/* The device may have it again. */
static void clear(struct nic_ring *r, u32 i) {
    volatile struct nic_desc *d = &r->rx[i];

    d->addr = r->rx_addr + i * NIC_BUFFER;
    d->low = d->high = 0;
}

void nic_ring_init(struct nic_ring *r, const struct nic_ring_kind *kind, volatile u8 *rx_regs,
                   volatile u8 *tx_regs, void *memory, u64 (*dma_addr)(const void *p)) {
    *r = (struct nic_ring){ .kind = *kind, .rx_regs = rx_regs, .tx_regs = tx_regs, .rx = memory };
    r->tx = r->rx + NIC_RING;
    r->rx_buffer = (u8 *)memory + 2 * NIC_RING * sizeof(struct nic_desc);
    r->tx_buffer = r->rx_buffer + NIC_RING * NIC_BUFFER;
    r->rx_addr = dma_addr(r->rx_buffer);
    r->tx_addr = dma_addr(r->tx_buffer);
    for (u32 i = 0; i < NIC_RING; i++) clear(r, i);
    order();
    set_ring(rx_regs, dma_addr((const void *)r->rx));
    set_ring(tx_regs, dma_addr((const void *)r->tx));
}

/* ---- sending ---- */

/* The device reports with the last of so many, and then it has sent those before. */
static void reclaim(struct nic_ring *r) {
    for (;;) {
        u32 last = r->tx_oldest | (r->kind.report - 1), n = last - r->tx_oldest + 1;
        u32 held = (r->tx_told + NIC_RING - r->tx_oldest) % NIC_RING;

        if (n > held || !(r->tx[last].high & DONE)) return;
        r->tx_oldest = next(last);
        r->sent += n;
    }
}

void *nic_send_buffer(struct nic_ring *r) {
    reclaim(r);
    order();
    return next(r->tx_at) == r->tx_oldest ? NULL : r->tx_buffer + r->tx_at * NIC_BUFFER;
}

void nic_send_put(struct nic_ring *r, u32 len) {
    volatile struct nic_desc *d = &r->tx[r->tx_at];
    bool report = (r->tx_at & (r->kind.report - 1)) == r->kind.report - 1;

    len = MIN(len, NIC_FRAME);
    d->addr = r->tx_addr + r->tx_at * NIC_BUFFER;
    d->low = len | COMMAND_LAST | COMMAND_SUM | (report ? COMMAND_REPORT : 0) |
             (r->kind.advanced ? COMMAND_DATA : 0);
    d->high = r->kind.advanced ? len << PAYLOAD_SHIFT : 0;
    r->tx_at = next(r->tx_at);
}

void nic_send_kick(struct nic_ring *r) {
    if (r->tx_told == r->tx_at) return;
    r->tx_told = r->tx_at;
    order();
    mmio_write32(r->tx_regs + TAIL, r->tx_at);
}

/* ---- receiving ---- */

static void release(struct nic_ring *r) {
    clear(r, r->rx_at);
    r->rx_at = next(r->rx_at);
}

u32 nic_receive(struct nic_ring *r, const void **frame) {
    for (;; release(r)) {
        volatile struct nic_desc *d = &r->rx[r->rx_at];
        u32 status, errors, len;
        bool last, bad;

        if (r->rx_at == r->rx_given) return 0;
        status = r->kind.advanced ? d->low : d->high;
        if (!(status & DONE)) return 0;
        order();
        len = (r->kind.advanced ? d->high : d->low) & 0xffff;
        errors = status & (r->kind.advanced ? ERRORS : LEGACY_ERRORS);
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

void nic_receive_next(struct nic_ring *r) {
    r->received++;
    release(r);
}

void nic_receive_refill(struct nic_ring *r) {
    u32 tail = (r->rx_at + NIC_RING - 1) % NIC_RING;

    if (tail == r->rx_given) return;
    r->rx_given = tail;
    order();
    mmio_write32(r->rx_regs + TAIL, tail);
}
