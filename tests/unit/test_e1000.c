/* The driver of the 8254x network card. A model has the registers, which the driver reaches
 * through the functions below. */
#include <takt/errno.h>
#include "nic_rig.h"

#include "drivers/e1000.c"
#include "drivers/nic_ring.c"

#define RX 0x2800u
#define TX 0x3800u

static struct e1000 nic;

/* ---- the model ---- */

static u16 eeprom_word[3];

static u32 model_read(const volatile u8 *p) {
    u32 at = (u32)(p - regs), v = peek(at);

    if (dead) return ~0u;
    if (at == 0x08 && in_reset && --in_reset == 0) poke(0, peek(0) & ~(1u << 26));
    if (at == 0xc0) poke(0xc0, 0);
    return v;
}

static void model_write(volatile u8 *p, u32 v) {
    u32 at = (u32)(p - regs);

    if (dead) return;
    assert_true(!in_reset || at == 0);
    if (at == 0xd0) v |= peek(0xd0);
    if (at == 0xd8) poke(0xd0, peek(0xd0) & ~v);
    if (at == 0x14 && v & 1) v = (u32)eeprom_word[v >> 8 & 3] << 16 | 0x10;
    if (at == 0 && v & 1u << 26) in_reset = stuck ? ~0u : 10;
    poke(at, v);
}

struct model_desc {
    u64 addr;
    u16 len;
    u8 sum_at, command, status, errors;
    u16 special;
};

/* Sends the frames that the model was told to send, at most `most` of them. */
static void model_send(u32 most) {
    for (; !ring_empty(TX) && most--; ring_next(TX)) {
        struct model_desc *d = ring_head(TX);

        assert_true(peek(0x400) & 2);
        assert_int_equal(d->command, 0x0b);
        assert_int_equal(d->status, 0);
        onto_wire(d->addr, d->len);
        d->status = 1;
    }
}

/* A frame arrives. Returns false if there is no room for it. */
static bool model_receive(const void *frame, u32 len, u8 status, u8 errors) {
    struct model_desc *d = ring_head(RX);

    if (!(peek(0x100) & 2) || ring_empty(RX)) return false;
    assert_int_equal(d->status, 0); /* given back as it was taken */
    memcpy((u8 *)(d->addr - OFFSET), frame, len < 2048 ? len : 2048);
    d->len = (u16)len;
    d->errors = errors;
    d->status = status;
    ring_next(RX);
    return true;
}

static bool good_frame(const void *frame, u32 len) { return model_receive(frame, len, 3, 0); }

static int setup(void **state) {
    rig_reset();
    memset(eeprom_word, 0, sizeof(eeprom_word));
    for (u32 i = 0x5200; i < 0x5400; i += 4) poke(i, ~0u); /* what somebody before left */
    return 0;
}

static int open_nic(void) { return e1000_init(&nic, regs, memory, dma_addr); }

static void test_absent(void **state) {
    dead = true;
    assert_int_equal(open_nic(), -ENODEV);
    dead = false;
    stuck = true;
    assert_int_equal(open_nic(), -ENODEV);
    stuck = false;
}

static void test_no_address(void **state) {
    poke(0x5400, 0);
    poke(0x5404, 0x80000000);
    assert_int_equal(open_nic(), -ENODEV);
    poke(0x5400, 0x12005401); /* that of a group */
    poke(0x5404, 0x80005634);
    assert_int_equal(open_nic(), -ENODEV);
    poke(0x5404, 0); /* none in its registers, nor in its EEPROM */
    assert_int_equal(open_nic(), -ENODEV);
}

/* As on Bochs. */
static void test_address_in_eeprom(void **state) {
    static const u8 mac[6] = { 0x52, 0x54, 0, 0x12, 0x34, 0x56 };

    poke(0x5400, 0);
    poke(0x5404, 0);
    memcpy(eeprom_word, mac, 6);
    assert_int_equal(open_nic(), 0);
    assert_memory_equal(nic.mac, mac, 6);
    assert_int_equal(peek(0x5400), 0x12005452); /* or it would take no frame */
    assert_int_equal(peek(0x5404), 0x80005634);
}

static void begin(bool all) {
    assert_int_equal(open_nic(), 0);
    e1000_start(&nic, all);
}

static void test_set_up(void **state) {
    static const u8 mac[6] = { 0x52, 0x54, 0, 0x12, 0x34, 0x56 };

    begin(false);
    assert_memory_equal(nic.mac, mac, 6);
    assert_int_equal(peek(0x00d0), 0); /* no interrupts */
    for (u32 i = 0x5200; i < 0x5400; i += 4) assert_int_equal(peek(i), 0);
    assert_int_equal(peek(0x2810), 0);
    assert_int_equal(peek(0x2818), NIC_RING - 1);
    assert_int_equal(peek(0x3810), 0);
    assert_int_equal(peek(0x3818), 0);
    assert_true(peek(0x100) & 2);
    assert_false(peek(0x100) & 0x18);
    e1000_start(&nic, true);
    assert_int_equal(peek(0x100) & 0x18, 0x18);
    for (u32 i = 0; i < NIC_RING; i++) /* each buffer its own, all in the memory that was given */
        assert_int_equal(((struct model_desc *)ring_at(RX, i))->addr - OFFSET,
                         (u64)nic.ring.rx_buffer + i * NIC_BUFFER);
    assert_ptr_equal(nic.ring.tx_buffer + NIC_RING * NIC_BUFFER, memory + NIC_RING_MEMORY);
    e1000_interrupts(&nic, E1000_IRQ_RX, 8000);
    assert_int_equal(peek(0xc4), 488); /* 125 us in 256 ns */
    assert_int_equal(peek(0xd0), E1000_IRQ_RX);
    e1000_interrupts(&nic, E1000_IRQ_RX, 1);
    assert_int_equal(peek(0xc4), 0xffff);
    e1000_interrupts(&nic, E1000_IRQ_RX, 0);
    assert_int_equal(peek(0xc4), 0);
    poke(0xc0, 0x40);
    assert_int_equal(e1000_causes(&nic), 0x40);
    assert_int_equal(nic.overruns, 1);
    assert_false(e1000_link(&nic));
    poke(8, 2);
    assert_true(e1000_link(&nic));
    e1000_stop(&nic);
    assert_int_equal(peek(0x100), 0);
    assert_int_equal(peek(0x400), 0);
    assert_int_equal(peek(0xd0), 0);
}

static void test_send(void **state) {
    u32 n = 0;

    begin(false);
    while (n < 1000 && rig_send(&nic.ring, n)) n++;
    assert_int_equal(n, NIC_RING - 1); /* full, and the device has not been told yet */
    assert_int_equal(peek(0x3818), 0);
    model_send(~0u);
    assert_int_equal(on_wire, 0);
    nic_send_kick(&nic.ring);
    assert_int_equal(peek(0x3818), NIC_RING - 1);
    assert_null(nic_send_buffer(&nic.ring));
    model_send(100);
    assert_int_equal(on_wire, 100);
    for (; n < 1000 && rig_send(&nic.ring, n); n++) nic_send_kick(&nic.ring);
    assert_int_equal(n, NIC_RING - 1 + 100);
    model_send(~0u);
    assert_int_equal(on_wire, n);
    rig_expect_sent(0, n);
    assert_non_null(nic_send_buffer(&nic.ring));
    assert_int_equal(nic.ring.sent, n);
    nic_send_put(&nic.ring, 5000); /* longer than frames are */
    nic_send_kick(&nic.ring);
    model_send(1);
    assert_int_equal(wire_len[n % WIRE], NIC_FRAME);
}

static void test_receive(void **state) {
    begin(false);
    rig_receive(&nic.ring, good_frame);
}

/* The device fills all buffers that it has. The driver must not read one frame more than came. */
static void test_receive_full(void **state) {
    const void *frame;
    u32 n = 0;

    begin(false);
    for (u32 i = 0; i < 500; i++) n += good_frame(&i, 4);
    assert_int_equal(n, NIC_RING - 1);
    for (n = 0; nic_receive(&nic.ring, &frame); n++) nic_receive_next(&nic.ring);
    assert_int_equal(n, NIC_RING - 1);
    assert_false(good_frame(&n, 4));
    nic_receive_refill(&nic.ring);
    assert_true(good_frame(&n, 4));
    assert_int_equal(nic_receive(&nic.ring, &frame), 4);
}

/* What is no frame is dropped, and the next good one is whole. */
static void test_bad_frames(void **state) {
    static const u8 good[60] = { 1 };
    const void *frame;

    begin(true);
    assert_true(model_receive(good, 2048, 1, 0)); /* parts of one that is too long */
    assert_true(model_receive(good, 2048, 1, 0));
    assert_true(good_frame(good, 60));
    assert_true(model_receive(good, 60, 3, 0x01)); /* its checksum is wrong */
    assert_true(good_frame(good, 0));
    assert_true(good_frame(good, 0xffff));
    assert_true(good_frame(good, NIC_FRAME + 1));
    assert_true(good_frame(good, NIC_FRAME));
    assert_int_equal(nic_receive(&nic.ring, &frame), NIC_FRAME);
    assert_memory_equal(frame, good, 60);
    nic_receive_next(&nic.ring);
    assert_int_equal(nic_receive(&nic.ring, &frame), 0);
    assert_int_equal(nic.ring.bad, 5);
    assert_int_equal(nic.ring.received, 1);
    nic_receive_refill(&nic.ring);
    assert_int_equal(peek(0x2818), 7);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_absent, setup),
        cmocka_unit_test_setup(test_no_address, setup),
        cmocka_unit_test_setup(test_address_in_eeprom, setup),
        cmocka_unit_test_setup(test_set_up, setup),
        cmocka_unit_test_setup(test_send, setup),
        cmocka_unit_test_setup(test_receive, setup),
        cmocka_unit_test_setup(test_receive_full, setup),
        cmocka_unit_test_setup(test_bad_frames, setup),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
