/* The driver of a virtual function of the 82576. A model plays the card, and the real driver of
 * the physical function answers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include <takt/abi.h>
#include <takt/errno.h>
#include "igb_model.h"

#include "drivers/igb.c"
#include "drivers/igb_vfs.c"
#include "drivers/igbvf.c"
#include "drivers/nic_ring.c"

static struct igb pf;
static struct igb_vfs vfs;
static struct igbvf vf;
static u8 *memory, *pf_memory;
static u64 now;

static u64 dma_addr(const void *p) { return (u64)p; }
static u64 time_now(void) { return now; }

/* While the driver waits, the physical function has its turn. */
static void answers(void) {
    now += 50 * NS_PER_US;
    igb_vfs_serve(&vfs, now);
}

static void silence(void) { now += 50 * NS_PER_US; }

static const struct device_env env = { dma_addr, time_now, answers };

static void pf_begin(void) {
    assert_int_equal(igb_init(&pf, model_pf, pf_memory, dma_addr), 0);
    igb_start(&pf);
    igb_vfs_init(&vfs, &pf);
}

static int setup(void **state) {
    model_init(3);
    if (!memory) memory = aligned_alloc(4096, NIC_RING_MEMORY);
    if (!pf_memory) pf_memory = aligned_alloc(4096, NIC_RING_MEMORY);
    memset(memory, 0, NIC_RING_MEMORY);
    memset(pf_memory, 0, NIC_RING_MEMORY);
    now = NS_PER_S;
    pf_begin();
    return 0;
}

static int open_vf(u32 n) { return igbvf_init(&vf, model_vf[n], memory, &env); }

static void test_set_up(void **state) {
    u8 mac[6];

    assert_int_equal(open_vf(1), 0);
    assert_null(vf.why);
    igb_vfs_mac(&vfs, 1, mac);
    assert_memory_equal(vf.mac, mac, 6);
    assert_int_equal(vf_peek(1, 0x2808), NIC_RING * 16);
    assert_int_equal(vf_peek(1, 0x2800), (u32)(u64)vf.ring.rx);
    assert_int_equal(vf_peek(1, 0x3800), (u32)(u64)vf.ring.tx);
    assert_int_equal(vf_peek(1, 0x280c), 0x82000002);
    assert_int_equal(vf_peek(1, 0x2818), NIC_RING - 1);
    assert_true(vf_peek(1, 0x2828) & vf_peek(1, 0x3828) & 1u << 25);
    assert_int_equal(vf_peek(1, 0x1524), 0);
    igbvf_interrupts(&vf, 8000);
    assert_int_equal(vf_peek(1, 0x1680), 500);
    assert_int_equal(vf_peek(1, 0x1700), 0x8080);
    assert_int_equal(vf_peek(1, 0x1524) & vf_peek(1, 0x152c), 1);
    assert_int_equal(vf_peek(0, 0x2808) | vf_peek(2, 0x2808), 0);
    assert_true(igbvf_link(&vf));
    assert_int_equal(pf_peek(0xc90), 0x82);
    igbvf_stop(&vf);
    igb_vfs_serve(&vfs, now);
    assert_int_equal(pf_peek(0xc90), 0x80);
}

static void test_asks(void **state) {
    assert_int_equal(open_vf(0), 0);
    assert_int_equal(igbvf_vlan(&vf, 100, true), 0);
    assert_int_equal(pf_peek(0x5600 + 4 * 3), 1 << 4);
    assert_int_equal(igbvf_vlan(&vf, 4095, true), -EPERM);
    assert_int_equal(igbvf_vlan(&vf, 100, false), 0);
    assert_int_equal(igbvf_multicasts(&vf, true), 0);
    assert_int_equal(pf_peek(0x5ad0), 0x8b000000);
    assert_true(igbvf_check(&vf));
    pf_poke(0xc40, 0x80); /* the physical function was reset, and is there again */
    assert_false(igbvf_check(&vf));
}

/* There is no driver yet; there is one; it begins anew. */
static void test_physical_function_comes_and_goes(void **state) {
    model_init(3);
    assert_int_equal(open_vf(0), -ETIMEDOUT);
    assert_string_equal(vf.why, "the physical function has no driver");
    pf_begin();
    assert_int_equal(open_vf(0), 0);
    assert_true(igbvf_check(&vf));
    model_init(3);
    assert_false(igbvf_check(&vf));
    pf_begin();
    assert_false(igbvf_check(&vf));
    assert_int_equal(open_vf(0), 0);
    assert_true(igbvf_check(&vf));
}

static void test_no_answer(void **state) {
    static const struct device_env deaf = { dma_addr, time_now, silence };
    u64 began = now;

    assert_int_equal(igbvf_init(&vf, model_vf[0], memory, &deaf), -ETIMEDOUT);
    assert_string_equal(vf.why, "the physical function's driver does not listen");
    assert_in_range(now - began, IGBVF_PATIENCE, 2 * IGBVF_PATIENCE);
    pf_mailbox(0, 8); /* it has the mailbox, and keeps it */
    assert_int_equal(igbvf_init(&vf, model_vf[0], memory, &deaf), -ETIMEDOUT);
    assert_string_equal(vf.why, "the physical function keeps the mailbox");
}

/* ---- what a physical function might answer ---- */

static u32 said[3], acks; /* words; whether it says that it has read */

static void lies(void) {
    now += 50 * NS_PER_US;
    if (!(pf_peek(0xc80) & 1)) return;
    pf_write(0xc80, 1);
    for (u32 i = 0; i < 3; i++) pf_poke(0x800 + 4 * i, said[i]);
    pf_mailbox(0, acks | 1);
}

static const struct device_env liar = { dma_addr, time_now, lies };

static int with_answer(u32 first, u32 second, u32 third, u32 ack) {
    memcpy(said, (const u32[]){ first, second, third }, sizeof(said));
    acks = ack;
    return igbvf_init(&vf, model_vf[0], memory, &liar);
}

static void test_lies(void **state) {
    assert_int_equal(with_answer(0x80000001, 0x5452, 0x101, 2), 0);
    assert_int_equal(with_answer(0x80000001, 0, 0, 2), -EIO); /* no address */
    assert_int_equal(with_answer(0x80000001, 0, 0x10000, 2), -EIO);
    assert_int_equal(with_answer(0x80000001, 0x01, 0x101, 2), -EIO); /* that of a group */
    assert_int_equal(with_answer(0x40000001, 0x5452, 0x101, 2), -EIO);
    assert_int_equal(with_answer(0xc0000001, 0x5452, 0x101, 2), -EIO); /* yes and no */
    assert_int_equal(with_answer(0x00000001, 0x5452, 0x101, 2), -EIO);
    assert_int_equal(with_answer(0x80000002, 0x5452, 0x101, 2), -EIO);
    assert_int_equal(with_answer(0x80000001, 0x5452, 0x101, 0), -ETIMEDOUT);
    assert_non_null(vf.why);
}

static void babbles(void) {
    now += 50 * NS_PER_US;
    pf_poke(0x800, IGB_MSG_CONTROL | IGB_MSG_CTS);
    pf_mailbox(0, 3);
}

/* The physical function sends one message after the other, but never an answer. */
static void test_babble(void **state) {
    static const struct device_env babbler = { dma_addr, time_now, babbles };
    u64 began = now;

    assert_true(igbvf_init(&vf, model_vf[0], memory, &babbler) < 0);
    assert_in_range(now - began, IGBVF_PATIENCE, 3 * IGBVF_PATIENCE);
}

/* The physical function reads the request, then tells news, and answers when the news were read. */
static void news_first(void) {
    static const u32 answer[] = { 0x80000001, 0x5452, 0x101 };

    now += 50 * NS_PER_US;
    if (pf_peek(0xc80) & 1) {
        pf_poke(0x800, IGB_MSG_CONTROL | IGB_MSG_CTS);
        pf_mailbox(0, 3);
    } else if (pf_peek(0xc80) & 0x10000) {
        for (u32 i = 0; i < 3; i++) pf_poke(0x800 + 4 * i, answer[i]);
        pf_mailbox(0, 1);
    }
    pf_write(0xc80, 0x10001);
}

static void test_news(void **state) {
    static const struct device_env busy = { dma_addr, time_now, news_first };

    assert_int_equal(igbvf_init(&vf, model_vf[0], memory, &busy), 0);
    assert_int_equal(open_vf(0), 0);
    igb_vfs_link(&vfs);
    igb_vfs_serve(&vfs, now);
    assert_true(pf_peek(0xc40) & 0x10);
    assert_true(igbvf_check(&vf));
    assert_false(pf_peek(0xc40) & 0x10);
    assert_true(pf_peek(0xc80) & 0x10000); /* and it has said so */
}

static void test_absent(void **state) {
    pf_poke(0x08, ~0u);
    assert_int_equal(open_vf(0), -ENODEV);
}

struct rx_desc {
    u32 info[2], status;
    u16 len, vlan;
};

static void comes(u32 i, const u8 *from, u16 len) {
    volatile struct rx_desc *d = (volatile struct rx_desc *)vf.ring.rx + i;

    memset(vf.ring.rx_buffer + i * NIC_BUFFER, 0xff, 64);
    memcpy(vf.ring.rx_buffer + i * NIC_BUFFER + 6, from, 6);
    d->len = len;
    d->status = 3;
}

/* A function does not receive the frames that it has sent itself. */
static void test_echo(void **state) {
    static const u8 other[6] = { 2, 1 };
    const void *frame;

    assert_int_equal(open_vf(0), 0);
    comes(0, vf.mac, 60);
    comes(1, other, 60);
    comes(2, vf.mac, 60);
    comes(3, vf.mac, 8); /* too short to tell */
    assert_int_equal(igbvf_receive(&vf, &frame), 60);
    assert_memory_equal((const u8 *)frame + 6, other, 6);
    nic_receive_next(&vf.ring);
    assert_int_equal(igbvf_receive(&vf, &frame), 8);
    nic_receive_next(&vf.ring);
    assert_int_equal(igbvf_receive(&vf, &frame), 0);
    assert_int_equal(vf.echoes, 2);
}

/* What is too long, in one descriptor or in several, and what the device calls bad, is counted,
 * each once. */
static void test_too_long(void **state) {
    static const u8 other[6] = { 2, 1 };
    volatile struct rx_desc *d;
    const void *frame;

    assert_int_equal(open_vf(0), 0);
    d = (volatile struct rx_desc *)vf.ring.rx;
    for (u32 i = 0; i < 3; i++) comes(i, other, NIC_BUFFER);
    d[0].status = d[1].status = 1; /* without EOP: 7.1.5.2 */
    d[2].len = 60;                 /* the rest of it */
    comes(3, other, NIC_FRAME + 1);
    comes(4, other, 60);
    d[4].status |= 1u << 31;
    comes(5, other, NIC_FRAME);
    assert_int_equal(igbvf_receive(&vf, &frame), NIC_FRAME);
    assert_int_equal(vf.ring.bad, 3);
    nic_receive_next(&vf.ring);
    assert_int_equal(igbvf_receive(&vf, &frame), 0);
    assert_int_equal(vf.ring.received, 1);
}

/* One interrupt may be for both rings, and for none; a second decides. */
static void test_busy(void **state) {
    static const u8 other[6] = { 2, 1 };

    assert_int_equal(open_vf(0), 0);
    igbvf_interrupted(&vf);
    assert_int_equal(vf.cleaned, 0);
    comes(0, other, 60);
    igbvf_interrupted(&vf);
    assert_int_equal(vf.cleaned, 1);
    for (u32 i = 0; i < NIC_RING / 4; i++) nic_send_put(&vf.ring, 60);
    nic_send_kick(&vf.ring);
    vf.ring.tx[NIC_RING / 4 - 1].high = 1; /* they are on their way */
    igbvf_interrupted(&vf);
    assert_int_equal(vf.cleaned, 3);
    for (u32 i = 0; i < TAKT_IO_BUSY - 3; i++) igbvf_interrupted(&vf);
    now = vf.counted + NS_PER_S;
    assert_false(igbvf_busy(&vf, TAKT_IO_BUSY));
    for (u32 i = 0; i < TAKT_IO_BUSY / 2 + 1; i++) igbvf_interrupted(&vf);
    now += NS_PER_S / 2;
    assert_true(igbvf_busy(&vf, TAKT_IO_BUSY));
    now += NS_PER_S;
    assert_false(igbvf_busy(&vf, TAKT_IO_BUSY));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_set_up, setup),
        cmocka_unit_test_setup(test_asks, setup),
        cmocka_unit_test_setup(test_physical_function_comes_and_goes, setup),
        cmocka_unit_test_setup(test_no_answer, setup),
        cmocka_unit_test_setup(test_lies, setup),
        cmocka_unit_test_setup(test_babble, setup),
        cmocka_unit_test_setup(test_news, setup),
        cmocka_unit_test_setup(test_absent, setup),
        cmocka_unit_test_setup(test_echo, setup),
        cmocka_unit_test_setup(test_too_long, setup),
        cmocka_unit_test_setup(test_busy, setup),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
