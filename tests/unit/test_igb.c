/* The driver of the 82576 against a made-up one, whose registers it reaches through the functions below. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <takt/errno.h>
#include <takt/io.h>

static u32 model_read(const volatile u8 *p);
static void model_write(volatile u8 *p, u32 v);

#define mmio_read32  model_read
#define mmio_write32 model_write
#include "drivers/igb.c"
#include "drivers/nic_ring.c"

#define OFFSET 0x70000000ull /* a device's address of what is at p */

/* Of pool 7. */
#define RX 0xc1c0u
#define TX 0xe1c0u

static u8 regs[0x20000];
static u8 *memory;
static struct igb nic;

static u64 dma_addr(const void *p) { return (u64)p + OFFSET; }

static u32 peek(u32 at) { return *(u32 *)(regs + at); }

static void poke(u32 at, u32 v) { *(u32 *)(regs + at) = v; }

/* ---- the model ---- */

static u32 in_reset;     /* so many reads of STATUS more */
static bool dead, stuck; /* nobody answers; a reset never ends */
static u32 phy_control;

static u32 model_read(const volatile u8 *p) {
    u32 at = (u32)(p - regs), v = peek(at);

    if (dead) return ~0u;
    if (at == 0x08 && in_reset && --in_reset == 0) poke(0, peek(0) & ~(1u << 26));
    if (at == 0xc0 || at == RX + 0x30) poke(at, 0);
    return v;
}

static void model_write(volatile u8 *p, u32 v) {
    u32 at = (u32)(p - regs);

    if (dead) return;
    assert_true(!in_reset || at == 0);
    if (at == 0xd0 || at == 0x1524) v |= peek(at);
    if (at == 0xd8) poke(0xd0, peek(0xd0) & ~v);
    if (at == 0x1528) poke(0x1524, peek(0x1524) & ~v);
    if (at == 0 && v & 1u << 26) in_reset = stuck ? ~0u : 10;
    if (at == RX + 0x18) assert_true(!v || peek(RX + 0x28) & 1u << 25); /* a tail for a queue that is off */
    if (at == 0x20) {
        assert_int_equal(v >> 21 & 31, 1); /* the address of its PHY */
        if ((v >> 26 & 3) == 1 && (v >> 16 & 31) == 0) phy_control = v & 0xffff;
        v |= 1u << 28;
    }
    poke(at, v);
}

/* As a driver writes them; written back, the receiver's has other fields. */
union model_desc {
    struct {
        u64 addr;
        u32 command, status;
    };
    struct {
        u32 info[2];
        u32 rx_status;
        u16 len, vlan;
    };
};

static union model_desc *ring(u32 base, u32 i) {
    u64 addr = peek(base) | (u64)peek(base + 4) << 32;

    assert_int_equal(peek(base + 8), NIC_RING * 16);
    assert_true(i < NIC_RING);
    assert_int_equal(addr % 128, OFFSET % 128);
    return (union model_desc *)(addr - OFFSET) + i;
}

static u8 wire[300][2048];
static u32 wire_len[300], on_wire;

/* Sends what it was told to, at most `most` frames. */
static void model_send(u32 most) {
    while (peek(TX + 0x10) != peek(TX + 0x18) && most--) {
        union model_desc *d = ring(TX, peek(TX + 0x10));
        u32 len = d->command & 0xffff;

        assert_true(peek(0x400) & 2);
        assert_int_equal(d->command & 0xf7ff0000, 0x23300000); /* data, the sum, a whole frame */
        assert_int_equal(d->status, len << 14);
        memcpy(wire[on_wire % 300], (u8 *)(d->addr - OFFSET), len);
        wire_len[on_wire++ % 300] = len;
        if (d->command & 1u << 27) {
            d->addr = 0x1234567812345678; /* reserved in what it writes back */
            d->status |= 1;
        }
        poke(TX + 0x10, (peek(TX + 0x10) + 1) % NIC_RING);
    }
}

/* A frame comes: false if there is no room. */
static bool model_receive(const void *frame, u32 len, u32 status) {
    union model_desc *d = ring(RX, peek(RX + 0x10));

    if (!(peek(0x100) & 2) || peek(RX + 0x10) == peek(RX + 0x18)) return false;
    assert_int_equal(d->addr - OFFSET, (u64)nic.ring.rx_buffer + peek(RX + 0x10) * NIC_BUFFER);
    assert_int_equal(d->command | d->status, 0);
    memcpy((u8 *)(d->addr - OFFSET), frame, len < 2048 ? len : 2048);
    d->info[0] = d->info[1] = 0x55aa55aa;
    d->len = (u16)len;
    d->vlan = 0x123;
    d->rx_status = status;
    poke(RX + 0x10, (peek(RX + 0x10) + 1) % NIC_RING);
    return true;
}

static int setup(void **state) {
    memset(regs, 0, sizeof(regs));
    memset(wire, 0, sizeof(wire));
    on_wire = in_reset = phy_control = 0;
    dead = stuck = false;
    if (!memory) memory = aligned_alloc(4096, NIC_RING_MEMORY);
    memset(memory, 0, NIC_RING_MEMORY);
    poke(0x5400, 0x12005452);
    poke(0x5404, 0x80005634);
    for (u32 i = 0; i < 8; i++) poke(0x5ad0 + 4 * i, 0xffffffff); /* what somebody before left */
    for (u32 i = 0; i < 128; i++) poke(0xa000 + 4 * i, 0xffffffff);
    poke(0xc8c, 0xff);
    poke(0xc90, 0xff);
    return 0;
}

static int open_nic(void) { return igb_init(&nic, regs, memory, dma_addr); }

static void begin(void) {
    assert_int_equal(open_nic(), 0);
    igb_start(&nic);
}

static void test_absent(void **state) {
    dead = true;
    assert_int_equal(open_nic(), -ENODEV);
    dead = false;
    stuck = true;
    assert_int_equal(open_nic(), -ENODEV);
    stuck = false;
}

static void test_no_address(void **state) {
    poke(0x5404, 0x00005634); /* not valid */
    assert_int_equal(open_nic(), -ENODEV);
    poke(0x5400, 0x12005401); /* that of a group */
    poke(0x5404, 0x80005634);
    assert_int_equal(open_nic(), -ENODEV);
    poke(0x5400, 0);
    poke(0x5404, 0x80000000);
    assert_int_equal(open_nic(), -ENODEV);
}

static void test_set_up(void **state) {
    static const u8 mac[6] = { 0x52, 0x54, 0, 0x12, 0x34, 0x56 };

    begin();
    assert_memory_equal(nic.mac, mac, 6);
    assert_int_equal(peek(0x5404), 0x82005634); /* of pool 7 */
    assert_int_equal(peek(0x5818) & 7, 3);      /* VMDq */
    assert_int_equal(peek(0x581c) & (7 << 7 | 1u << 29), 7 << 7);
    assert_int_equal(peek(0xc8c), 0x80); /* nobody else receives or sends yet, or gets anything */
    assert_int_equal(peek(0xc90), 0x80);
    for (u32 i = 0; i < 7; i++) assert_int_equal(peek(0x5ad0 + 4 * i), 0);
    for (u32 i = 0; i < 128; i++) assert_int_equal(peek(0xa000 + 4 * i), 0);
    assert_int_equal(peek(0x2408), 0xffff);
    assert_int_equal(peek(RX + 0x0c), 0x82000002); /* drops; advanced, 2 KiB */
    assert_int_equal(peek(RX + 0x18), NIC_RING - 1);
    assert_int_equal(peek(TX + 0x18), 0);
    assert_true(peek(TX + 0x28) & 1u << 25);
    assert_true(peek(0x18) & 1u << 14); /* virtual functions may go on */
    assert_int_equal(phy_control & 0x1200, 0x1200);
    assert_true(peek(0x100) & 2);
    assert_int_equal(peek(0xd0) | peek(0x1524), 0); /* no interrupts */
    assert_ptr_equal(nic.ring.tx_buffer + NIC_RING * NIC_BUFFER, memory + NIC_RING_MEMORY);
}

static void test_interrupts(void **state) {
    begin();
    igb_interrupts(&nic, 8000);
    assert_int_equal(peek(0x1680), 125 << 2); /* us */
    assert_int_equal(peek(0x171c), 0x80);     /* of queue 7: what comes, by vector 0, and not what is sent */
    assert_int_equal(peek(0x1740), 0x8000);
    assert_int_equal(peek(0x1514) & 0x11, 0x11);
    assert_int_equal(peek(0x152c) & peek(0x1524), 1);
    assert_int_equal(peek(0xd0), 0x104);
    igb_interrupts(&nic, 1);
    assert_int_equal(peek(0x1680), 0x7ffc);
    igb_interrupts(&nic, 0);
    assert_int_equal(peek(0x1680), 0);
    poke(0xc0, 0x80000084);
    assert_int_equal(igb_causes(&nic), IGB_IRQ_LINK);
    assert_int_equal(igb_causes(&nic), 0);
    assert_false(igb_link(&nic));
    poke(8, 2);
    assert_true(igb_link(&nic));
    poke(RX + 0x30, 5);
    igb_count(&nic);
    poke(RX + 0x30, 2);
    igb_count(&nic);
    assert_int_equal(nic.missed, 7);
    igb_stop(&nic);
    assert_int_equal(peek(0x100) | peek(0x400) | peek(0xd0) | peek(0x1524), 0);
}

static bool put(u32 number) {
    u32 *p = nic_send_buffer(&nic.ring);

    if (!p) return false;
    p[0] = number;
    nic_send_put(&nic.ring, 60 + number % 1400);
    return true;
}

/* It reports every 32 frames, and what it has sent is had back then. */
static void test_send(void **state) {
    u32 n = 0;

    begin();
    while (n < 1000 && put(n)) n++;
    assert_int_equal(n, NIC_RING - 1);
    nic_send_kick(&nic.ring);
    assert_null(nic_send_buffer(&nic.ring));
    model_send(31);
    assert_null(nic_send_buffer(&nic.ring));
    model_send(1);
    assert_non_null(nic_send_buffer(&nic.ring));
    assert_int_equal(nic.ring.sent, 32);
    for (; n < NIC_RING - 1 + 32; n++) assert_true(put(n));
    assert_false(put(n));
    nic_send_kick(&nic.ring);
    while (n < 5000) {
        model_send((u32)rand() % 100);
        for (u32 burst = (u32)rand() % 150; burst && put(n); burst--) n++;
        nic_send_kick(&nic.ring);
    }
    model_send(~0u);
    assert_int_equal(on_wire, n);
    for (u32 i = n - 300; i < n; i++) {
        assert_int_equal(*(u32 *)wire[i % 300], i);
        assert_int_equal(wire_len[i % 300], 60 + i % 1400);
    }
    assert_non_null(nic_send_buffer(&nic.ring));
    assert_int_equal(nic.ring.sent, n / 32 * 32);
}

static void test_receive(void **state) {
    const void *frame;
    u32 came = 0, taken = 0, len;

    begin();
    srand(5);
    while (taken < 10000) {
        for (u32 burst = (u32)rand() % 200; burst; burst--) {
            len = 60 + came % 1400;
            if (!model_receive(&came, 4, 3)) break;
            ring(RX, (peek(RX + 0x10) + NIC_RING - 1) % NIC_RING)->len = (u16)len;
            came++;
        }
        for (u32 n = (u32)rand() % 200; n && (len = nic_receive(&nic.ring, &frame)); n--) {
            assert_int_equal(len, 60 + taken % 1400);
            assert_int_equal(*(const u32 *)frame, taken);
            nic_receive_next(&nic.ring);
            taken++;
        }
        if (rand() & 1) nic_receive_refill(&nic.ring);
    }
    assert_int_equal(nic.ring.received, taken);
    assert_int_equal(nic.ring.bad, 0);
}

/* What is no frame is dropped, whatever the device writes back. A wrong checksum above Ethernet is none of
 * its errors. */
static void test_bad_frames(void **state) {
    static const u8 good[60] = { 1 };
    const void *frame;

    begin();
    assert_true(model_receive(good, 2048, 1)); /* parts of one that is too long */
    assert_true(model_receive(good, 60, 3));
    assert_true(model_receive(good, 60, 0x80000003)); /* a receive error */
    assert_true(model_receive(good, 0, 3));
    assert_true(model_receive(good, 0xffff, 3));
    assert_true(model_receive(good, NIC_FRAME + 1, 3));
    assert_true(model_receive(good, NIC_FRAME, 0x60000063));
    assert_int_equal(nic_receive(&nic.ring, &frame), NIC_FRAME);
    assert_memory_equal(frame, good, 60);
    nic_receive_next(&nic.ring);
    assert_int_equal(nic_receive(&nic.ring, &frame), 0);
    assert_int_equal(nic.ring.bad, 5);
    assert_int_equal(nic.ring.received, 1);
}

/* A device that marks every descriptor done: none is looked at that it was not given. */
static void test_all_done(void **state) {
    const void *frame;
    u32 n = 0;

    begin();
    for (u32 i = 0; i < NIC_RING; i++) {
        ring(RX, i)->rx_status = 3;
        ring(RX, i)->len = 60;
        ring(TX, i)->status = 1;
    }
    for (; n < 1000 && nic_receive(&nic.ring, &frame); n++) nic_receive_next(&nic.ring);
    assert_int_equal(n, NIC_RING - 1);
    assert_non_null(nic_send_buffer(&nic.ring));
    assert_int_equal(nic.ring.sent, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_absent, setup),     cmocka_unit_test_setup(test_no_address, setup),
        cmocka_unit_test_setup(test_set_up, setup),     cmocka_unit_test_setup(test_interrupts, setup),
        cmocka_unit_test_setup(test_send, setup),       cmocka_unit_test_setup(test_receive, setup),
        cmocka_unit_test_setup(test_bad_frames, setup), cmocka_unit_test_setup(test_all_done, setup),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
