/* What the models of Intel's network cards have in common, from the 8254x to the 82576:
 * registers in memory, two rings of descriptors of 16 bytes, and a wire. Drivers that are
 * included after this reach the registers by model_read() and model_write(), which the test
 * defines. */
#ifndef TESTS_NIC_RIG_H
#define TESTS_NIC_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <takt/io.h>
#include <takt/types.h>
#include "drivers/nic_ring.h"

static u32 model_read(const volatile u8 *p);
static void model_write(volatile u8 *p, u32 v);

#define mmio_read32  model_read
#define mmio_write32 model_write

#define OFFSET       0x70000000ull /* a device's address of what is at p */

static u8 regs[0x20000];
static u8 *memory;       /* for the driver */
static u32 in_reset;     /* so many reads of STATUS more */
static bool dead, stuck; /* nobody answers; a reset never ends */

static inline u64 dma_addr(const void *p) { return (u64)p + OFFSET; }

static inline u32 peek(u32 at) { return *(u32 *)(regs + at); }

static inline void poke(u32 at, u32 v) { *(u32 *)(regs + at) = v; }

/* Of the ring whose registers begin at `base`: address, size, head at 0x10 and tail at 0x18. */
static inline bool ring_empty(u32 base) { return peek(base + 0x10) == peek(base + 0x18); }

static inline void *ring_at(u32 base, u32 i) {
    u64 addr = peek(base) | (u64)peek(base + 4) << 32;

    assert_int_equal(peek(base + 8), NIC_RING * 16);
    assert_true(i < NIC_RING);
    assert_int_equal(addr % 128, OFFSET % 128);
    return (u8 *)(addr - OFFSET) + 16 * i;
}

/* Where the card is; it goes on to the next. */
static inline void *ring_head(u32 base) { return ring_at(base, peek(base + 0x10)); }

static inline void ring_next(u32 base) { poke(base + 0x10, (peek(base + 0x10) + 1) % NIC_RING); }

/* The last frames that were sent: number n is wire[n % WIRE]. */
#define WIRE 300

static u8 wire[WIRE][2048];
static u32 wire_len[WIRE], on_wire;

static inline void onto_wire(u64 addr, u32 len) {
    memcpy(wire[on_wire % WIRE], (u8 *)(addr - OFFSET), len);
    wire_len[on_wire++ % WIRE] = len;
}

/* Its address is 52:54:00:12:34:56. */
static inline void rig_reset(void) {
    memset(regs, 0, sizeof(regs));
    memset(wire, 0, sizeof(wire));
    on_wire = in_reset = 0;
    dead = stuck = false;
    if (!memory) memory = aligned_alloc(4096, NIC_RING_MEMORY);
    memset(memory, 0, NIC_RING_MEMORY);
    poke(0x5400, 0x12005452);
    poke(0x5404, 0x80005634);
}

/* ---- frames that tell their number by their first bytes and their length ---- */

static inline u32 rig_len(u32 number) { return 60 + number % 1400; }

/* False: the ring is full. */
static inline bool rig_send(struct nic_ring *r, u32 number) {
    u32 *p = nic_send_buffer(r);

    if (!p) return false;
    p[0] = number;
    nic_send_put(r, rig_len(number));
    return true;
}

static inline void rig_expect_sent(u32 from, u32 to) {
    for (u32 i = from; i < to; i++) {
        assert_int_equal(*(u32 *)wire[i % WIRE], i);
        assert_int_equal(wire_len[i % WIRE], rig_len(i));
    }
}

/* 10,000 frames in bursts, taken by and by; `comes` is false if the card has no room. */
static inline void rig_receive(struct nic_ring *r, bool (*comes)(const void *frame, u32 len)) {
    static u8 frame[2048];
    const void *got;
    u32 came = 0, taken = 0, len;

    srand(5);
    while (taken < 10000) {
        for (u32 burst = (u32)rand() % 200; burst; burst--, came++) {
            memcpy(frame, &came, sizeof(came));
            if (!comes(frame, rig_len(came))) break;
        }
        for (u32 n = (u32)rand() % 200; n && (len = nic_receive(r, &got)); n--) {
            assert_int_equal(len, rig_len(taken));
            assert_int_equal(*(const u32 *)got, taken);
            assert_int_equal(nic_receive(r, &got), len); /* it stays until `next` */
            nic_receive_next(r);
            taken++;
        }
        if (rand() & 1) nic_receive_refill(r);
    }
    assert_int_equal(r->received, taken);
    assert_int_equal(r->bad, 0);
}

#endif
