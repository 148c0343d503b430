/* The driver of the 82576 network card. A model has the registers, which the driver reaches
 * through the functions below. */
#include <takt/errno.h>
#include "nic_rig.h"

#include "drivers/igb.c"
#include "drivers/nic_ring.c"

/* Of pool 7. */
#define RX 0xc1c0u
#define TX 0xe1c0u

static struct igb nic;

/* ---- the model ---- */

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
    /* The driver must not move the tail of a queue that is off. */
    if (at == RX + 0x18) assert_true(!v || peek(RX + 0x28) & 1u << 25);
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

/* Sends the frames that the model was told to send, at most `most` of them. */
static void model_send(u32 most) {
    for (; !ring_empty(TX) && most--; ring_next(TX)) {
        union model_desc *d = ring_head(TX);
        u32 len = d->command & 0xffff;

        assert_true(peek(0x400) & 2);
        assert_int_equal(d->command & 0xf7ff0000, 0x23300000); /* data, the sum, a whole frame */
        assert_int_equal(d->status, len << 14);
        onto_wire(d->addr, len);
        if (d->command & 1u << 27) {
            d->addr = 0x1234567812345678; /* reserved in what it writes back */
            d->status |= 1;
        }
    }
}

/* A frame arrives. Returns false if there is no room for it. */
static bool model_receive(const void *frame, u32 len, u32 status) {
    union model_desc *d = ring_head(RX);

    if (!(peek(0x100) & 2) || ring_empty(RX)) return false;
    assert_int_equal(d->addr - OFFSET, (u64)nic.ring.rx_buffer + peek(RX + 0x10) * NIC_BUFFER);
    assert_int_equal(d->command | d->status, 0);
    memcpy((u8 *)(d->addr - OFFSET), frame, len < 2048 ? len : 2048);
    d->info[0] = d->info[1] = 0x55aa55aa;
    d->len = (u16)len;
    d->vlan = 0x123;
    d->rx_status = status;
    ring_next(RX);
    return true;
}

static bool good_frame(const void *frame, u32 len) { return model_receive(frame, len, 3); }

static int setup(void **state) {
    rig_reset();
    phy_control = 0;
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
    /* No other pool receives, sends or gets anything yet. */
    assert_int_equal(peek(0xc8c), 0x80);
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
    /* Queue 7 raises vector 0 for frames that arrive, and not for frames that are sent. */
    assert_int_equal(peek(0x171c), 0x80);
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

/* It reports every 32 frames, and what it has sent is had back then. */
static void test_send(void **state) {
    u32 n = 0;

    begin();
    while (n < 1000 && rig_send(&nic.ring, n)) n++;
    assert_int_equal(n, NIC_RING - 1);
    nic_send_kick(&nic.ring);
    assert_null(nic_send_buffer(&nic.ring));
    model_send(31);
    assert_null(nic_send_buffer(&nic.ring));
    model_send(1);
    assert_non_null(nic_send_buffer(&nic.ring));
    assert_int_equal(nic.ring.sent, 32);
    for (; n < NIC_RING - 1 + 32; n++) assert_true(rig_send(&nic.ring, n));
    assert_false(rig_send(&nic.ring, n));
    nic_send_kick(&nic.ring);
    while (n < 5000) {
        model_send((u32)rand() % 100);
        for (u32 burst = (u32)rand() % 150; burst && rig_send(&nic.ring, n); burst--) n++;
        nic_send_kick(&nic.ring);
    }
    model_send(~0u);
    assert_int_equal(on_wire, n);
    rig_expect_sent(n - WIRE, n);
    assert_non_null(nic_send_buffer(&nic.ring));
    assert_int_equal(nic.ring.sent, n / 32 * 32);
}

static void test_receive(void **state) {
    begin();
    rig_receive(&nic.ring, good_frame);
}

/* What is no frame is dropped, whatever the device writes back. A wrong checksum above Ethernet
 * is none of its errors. */
static void test_bad_frames(void **state) {
    static const u8 good[60] = { 1 };
    const void *frame;

    begin();
    assert_true(model_receive(good, 2048, 1)); /* parts of one that is too long */
    assert_true(good_frame(good, 60));
    assert_true(model_receive(good, 60, 0x80000003)); /* a receive error */
    assert_true(good_frame(good, 0));
    assert_true(good_frame(good, 0xffff));
    assert_true(good_frame(good, NIC_FRAME + 1));
    assert_true(model_receive(good, NIC_FRAME, 0x60000063));
    assert_int_equal(nic_receive(&nic.ring, &frame), NIC_FRAME);
    assert_memory_equal(frame, good, 60);
    nic_receive_next(&nic.ring);
    assert_int_equal(nic_receive(&nic.ring, &frame), 0);
    assert_int_equal(nic.ring.bad, 5);
    assert_int_equal(nic.ring.received, 1);
}

/* The device marks every descriptor as done. The driver must look at none that it has not given to
 * the device. */
static void test_all_done(void **state) {
    const void *frame;
    u32 n = 0;

    begin();
    for (u32 i = 0; i < NIC_RING; i++) {
        union model_desc *d = ring_at(RX, i);

        d->rx_status = 3;
        d->len = 60;
        ((union model_desc *)ring_at(TX, i))->status = 1;
    }
    for (; n < 1000 && nic_receive(&nic.ring, &frame); n++) nic_receive_next(&nic.ring);
    assert_int_equal(n, NIC_RING - 1);
    assert_non_null(nic_send_buffer(&nic.ring));
    assert_int_equal(nic.ring.sent, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_absent, setup),
        cmocka_unit_test_setup(test_no_address, setup),
        cmocka_unit_test_setup(test_set_up, setup),
        cmocka_unit_test_setup(test_interrupts, setup),
        cmocka_unit_test_setup(test_send, setup),
        cmocka_unit_test_setup(test_receive, setup),
        cmocka_unit_test_setup(test_bad_frames, setup),
        cmocka_unit_test_setup(test_all_done, setup),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
