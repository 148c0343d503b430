/* Large segments: what the stack sends through a device that cuts frames, also when they are lost,
 * and what it receives in several buffers. */
#include <string.h>
#include <netstack/large.h>
#include "net_rig.h"

#define MOST (600u << 10)

static u8 stream[MOST], have[MOST]; /* have: bytes that the peer has got */
static u32 missing;                 /* the first byte that it has not got */
static u64 seed;

static u32 rnd(u32 below) {
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return (u32)((seed >> 33) % below);
}

static int open_one(void **state) {
    wire_tx_open = true;
    open_with(NET_OWNER, true, 0);
    wire_keeps = false;
    wire_cuts = true;
    wire_kept = wire_larges = 0;
    net_set_large(LARGE_MOST);
    stream_fill(stream, 0, sizeof(stream));
    memset(have, 0, sizeof(have));
    missing = 0;
    return 0;
}

/* The peer gets a segment. Its data must be those of the stream, and no more than its MSS. */
static void arrives(const struct seen *g) {
    u32 at = g->seq - p.irs - 1;

    assert_in_range(g->len, 1, 1460);
    assert_true(at + g->len <= MOST);
    assert_memory_equal(g->data, stream + at, g->len);
    memset(have + at, 1, g->len);
    while (missing < MOST && have[missing]) missing++;
}

/* The peer acknowledges what it has, and offers at least the window that it has promised before. */
static void acknowledge(u32 window) {
    static u32 edge;
    u32 ack = p.irs + 1 + missing;

    if (missing == 0) edge = ack;
    if ((i32)(edge - ack) > 0) window = MAX(window, edge - ack);
    p.window = MIN(window, 65535u);
    edge = ack + p.window;
    p.ack = ack;
    peer_acknowledge(&p);
}

static void test_large_segments(void **state) {
    struct seen g;
    u32 sent = 0, acks = 0;

    while (missing < MOST) {
        i64 n = sock_send(s, stream + sent, MIN(MOST - sent, 16384u), 0);

        if (n > 0) sent += (u32)n;
        wire_poll();
        while (wire_seen(&g))
            if (g.len) arrives(&g);
        acknowledge(65535);
        acks++;
    }
    assert_true(wire_larges > 10);
    assert_true(acks < 120); /* one for several segments */
    assert_int_equal(net_stats()->tx_dropped, 0);
}

/* Sends `total` bytes to a peer that loses segments and acknowledgements, with windows of any size.
 * When half of them have arrived, the device does not cut any more, if `stop` says so. */
static void play(u32 total, bool stop) {
    u32 sent = 0, larges = ~0u, turns = 0;
    struct seen g;

    acknowledge(65535);
    while (missing < total) {
        u32 before = missing;

        assert_true(turns++ < 4000);
        if (sent < total) {
            u32 most = 1 + rnd(40000);
            i64 n = sock_send(s, stream + sent, MIN(total - sent, most), 0);

            if (n > 0) sent += (u32)n;
        }
        wire_poll();
        while (wire_seen(&g)) {
            if (!g.len || rnd(12) == 0) continue;
            arrives(&g);
            u32 window = 1500 + rnd(64000);
            if (rnd(3)) acknowledge(window);
        }
        if (stop && missing > total / 2 && larges == ~0u) {
            net_set_large(0);
            wire_cuts = false;
            larges = wire_larges;
        }
        if (missing == before) wire_pass(rnd(400));
        if (rnd(10) == 0) acknowledge(65535);
    }
    acknowledge(65535);
    wire_poll();
    if (stop) assert_true(wire_larges == larges);
    assert_true(wire_larges > 0);
    assert_int_equal(sock_flush(s, 0), 0);
}

static void test_losses(void **state) {
    for (u32 i = 1; i <= 40; i++) {
        end(NULL);
        open_one(NULL);
        seed = i;
        play(100000 + rnd(200000), i % 4 == 0);
    }
}

/* What arrives in a large frame is acknowledged at once, and counts to the socket's account with
 * all its buffers. */
static void test_large_arrives(void **state) {
    peer_large(&p, 0, 40000);
    assert_int_equal(acked(), 40000);
    assert_int_equal(s->held, (40000 + 54 + 2 + NET_BUF_ROOM - 1) / NET_BUF_ROOM);
    expect_stream(40000);
    sock_own(s);
    peer_large(&p, 40000, 65000);
    peer_large(&p, 105000, 1000);
    assert_int_equal(acked(), 106000); /* early */
    sock_release(s);
    wire_poll();
    expect_stream(66000);
    peer_large(&p, 110000, 20000); /* beyond a gap */
    peer_large(&p, 106000, 4000);
    wire_poll();
    assert_int_equal(acked(), 130000);
    expect_stream(24000);
    peer_large(&p, 125000, 10000); /* half of it has come before */
    expect_stream(5000);
    sock_notify(s);
    wire_poll();
    assert_int_equal(s->held, 0);
}

/* A socket that is nearly full takes no large segment that needs more buffers than are left. */
static void test_account(void **state) {
    u32 at = 0;

    while (s->held + 33 < s->quota) {
        peer_large(&p, at, 500); /* short, so that the window is not the limit */
        at += 500;
        assert_true(at < 200000);
    }
    u64 dropped = net_stats()->drop_no_room;
    peer_large(&p, at, 65000);
    assert_int_equal(net_stats()->drop_no_room, dropped + 1);
    assert_true(s->held <= s->quota);
    expect_stream(at);
}

/* Frames that no device needs several buffers for, or that are too long for lwIP. */
static void test_bad_parts(void **state) {
    for (u32 how = 0; how < 4; how++) {
        unsigned before = wire_buffers();
        u64 dropped = net_stats()->rx_dropped;
        struct net_buf *buf[40];
        u32 len[40], nr = how == 2 ? 40 : 3;

        for (u32 i = 0; i < nr; i++) {
            buf[i] = net_buf_get();
            len[i] = NET_BUF_ROOM;
            memset(buf[i]->data, 0, NET_BUF_ROOM);
        }
        buf[0]->data[12] = 8;
        buf[0]->data[14] = 0x45;
        buf[0]->data[23] = how == 0 ? 17 : 6;
        if (how == 1) len[1] = NET_BUF_ROOM + 1;
        if (how == 3) len[0] = 40;
        net_rx_parts(buf, len, nr, 0);
        assert_int_equal(net_stats()->rx_dropped, dropped + 1);
        assert_int_equal(wire_buffers(), before);
    }
}

/* As long as the device reads from the send buffer of a connection that has ended, nobody else gets
 * that buffer. */
static void test_kept_memory(void **state) {
    u32 again = 0;

    wire_keeps = true;
    assert_int_equal(sock_send(s, stream, 30000, 0), 30000);
    wire_poll();
    assert_true(wire_kept > 0);
    sock_abort(s);
    wire_poll();
    assert_int_equal(s->slot, SLOT_READ);
    for (wire_keeps = false; again < wire_kept - 1; again++) net_kept_until_now(s);
    assert_int_equal(s->slot, SLOT_READ);
    net_kept_until_now(s);
    assert_int_equal(s->slot, SLOT_SPARE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_large_segments, open_one, end),
        cmocka_unit_test_setup_teardown(test_losses, open_one, end),
        cmocka_unit_test_setup_teardown(test_large_arrives, open_one, end),
        cmocka_unit_test_setup_teardown(test_account, open_one, end),
        cmocka_unit_test_setup_teardown(test_bad_parts, open_one, end),
        cmocka_unit_test_setup_teardown(test_kept_memory, open_one, end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
