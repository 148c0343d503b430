/* Sockets: threads beside the bottom half, sending, how connections begin and end, and the
 * limits that all sockets share. */
#include <string.h>
#include "net_rig.h"

/* ---- threads and the bottom half ---- */

/* A thread that owns the socket again before the bottom half has come waits for the replay. */
static void test_own_waits_for_replay(void **state) {
    open_with(NET_OWNER, true, 0);
    sock_own(s);
    peer_data(&p, 0, 1000);
    sock_release(s);
    assert_int_equal(s->backlog.count, 1);
    sock_own(s);
    assert_int_equal(s->backlog.count, 0);
    assert_int_equal(spsc_count(&s->rx), 1);
    sock_release(s);
    expect_stream(1000);
}

/* What is asked for while the socket is owned is done on release, even if no segment came. */
static void test_put_off(void **state) {
    open_with(NET_OWNER, true, 0);
    peer_data(&p, 0, 1000); /* to be acknowledged by a timer */
    sock_own(s);
    assert_int_equal(sock_send(s, "0123456789", 10, 0), 10); /* another thread's */
    wire_pass(600);
    peer_hear(&p);
    assert_int_equal(p.data, 0);
    assert_int_equal(p.acks, 0);
    sock_release(s);
    wire_poll();
    assert_int_equal(acked(), 1000);
    assert_int_equal(p.data, 10);
    expect_stream(1000);
}

/* A segment comes after the release and before the bottom half has looked: it does not overtake the
 * backlog. */
static void test_no_overtaking(void **state) {
    open_with(NET_OWNER, false, 0);
    sock_own(s);
    peer_data(&p, 0, 1000);
    sock_release(s);
    peer_data(&p, 1000, 1000);
    wire_pass(300);
    assert_int_equal(acked(), 2000);
    expect_stream(2000);
}

struct taken {
    u32 bytes, pieces;
    bool owned;
};

static void take(void *arg, const u8 *data, size_t n) {
    struct taken *t = arg;

    t->owned = sock_owned(s);
    for (size_t i = 0; i < n; i++) assert_int_equal(data[i], stream_byte(t->bytes + i));
    t->bytes += n;
    t->pieces++;
}

/* Receives without a copy: the receiver sees each segment where it lies, and no more bytes than it
 * asked for. */
static void test_in_place(void **state) {
    struct taken t = { 0 };

    open_with(NET_OWNER, true, 0);
    peer_data(&p, 0, 1000);
    peer_data(&p, 1000, 1000);
    assert_int_equal(sock_recv_in_place(s, 1500, take, &t, 0), 1500);
    assert_true(t.owned && !sock_owned(s));
    assert_int_equal(t.bytes, 1500);
    assert_int_equal(t.pieces, 2);
    read_so_far = 1500;
    expect_stream(500);
    assert_int_equal(sock_recv_in_place(s, 1500, take, &t, 0), -EAGAIN);
}

/* A long backlog goes through TCP by turns, between which the device is served. What comes then
 * goes behind it, and is acknowledged as if the socket were still owned. */
static void test_replay_in_turns(void **state) {
    u32 i, before;

    open_with(NET_OWNER, true, 0);
    sock_own(s);
    for (i = 0; i < 200; i++) peer_data(&p, i * 100, 100);
    sock_release(s);
    net_poll();
    before = spsc_count(&s->rx);
    assert_in_range(before, 16, 64);
    assert_int_equal(s->backlog.count, 200 - before);
    assert_int_equal(read_some(), 100); /* waits for the rest */
    read_so_far = 100;
    assert_int_equal(s->backlog.count, 0);
    sock_own(s);
    for (; i < 280; i++) peer_data(&p, i * 100, 100);
    sock_release(s);
    net_poll();
    peer_data(&p, i++ * 100, 100);
    assert_in_range(s->backlog.count, 81 - 64, 81 - 16);
    assert_int_equal(acked(), i * 100);
    wire_poll();
    assert_int_equal(s->backlog.count, 0);
    expect_stream((i - 1) * 100);
    assert_int_equal(net_stats()->early_lost, 0);
}

/* A part of it, into the buffer that lwIP refers to. */
static i64 send_in_place(const u8 *from, u32 size) {
    void *at;
    i64 n = sock_room(s, &at, 0);

    if (n < 0) return n;
    n = MIN(MIN((u32)n, size), 12345u);
    memcpy(at, from, n);
    sock_filled(s, n);
    return n;
}

static void test_send(void **state) {
    static u8 data[200000];
    u32 n = 0;

    open_with(NET_OWNER, true, 0);
    stream_fill(data, 0, sizeof(data));
    while (n < sizeof(data)) {
        struct seen o;
        i64 done = n / 30000 % 2 ? send_in_place(data + n, sizeof(data) - n)
                                 : sock_send(s, data + n, MIN(sizeof(data) - n, 30000u), 0);

        if (done > 0) n += done;
        wire_poll();
        while (wire_seen(&o)) {
            if (o.seq != p.ack) continue;
            for (u32 i = 0; i < o.len; i++) assert_int_equal(o.data[i], stream_byte(p.data + i));
            p.ack += o.len;
            p.data += o.len;
        }
        peer_acknowledge(&p);
        wire_pass(1);
    }
    for (unsigned i = 0; i < 100 && p.data < sizeof(data); i++) {
        peer_hear(&p);
        peer_acknowledge(&p);
        wire_pass(1);
    }
    assert_int_equal(p.data, sizeof(data));
    sock_close(s);
    wire_poll();
    peer_hear(&p);
    assert_true(p.flags & FIN);
    peer_acknowledge(&p);
    peer_segment(&p, FIN | ACK, p.nxt, NULL, 0);
    wire_poll();
    assert_int_equal(s->slot, SLOT_SPARE);
}

/* A peer that acknowledges nothing: to wait for it ends with the deadline, and an abort gets the
 * socket back at once, where a close would wait for as long as TCP tries. */
static void test_flush_and_abort(void **state) {
    u8 data[100];

    open_with(NET_OWNER, true, 0);
    assert_int_equal(sock_flush(s, 0), 0);
    stream_fill(data, 0, sizeof(data));
    assert_int_equal(sock_send(s, data, sizeof(data), 0), sizeof(data));
    assert_int_equal(sock_flush(s, wire_now + NS_PER_S), -EAGAIN);
    peer_hear(&p);
    peer_acknowledge(&p);
    assert_int_equal(sock_flush(s, 0), 0);
    assert_int_equal(sock_send(s, data, sizeof(data), 0), sizeof(data));
    sock_abort(s);
    wire_poll();
    peer_hear(&p);
    assert_true(p.flags & RST && !(p.flags & FIN));
    assert_int_equal(s->slot, SLOT_SPARE);
}

/* What the driver keeps with the device and what one socket may hold are reserved: others are
 * refused rather than starved. */
static void test_buffers_are_reserved(void **state) {
    struct sock_options large = { .rcvbuf = 1 << 20 };
    struct sock *more[4];
    unsigned n = 0;

    open_with(NET_OWNER, true, NET_RCVBUF_MIN);
    while (n < 4 && sock_open(SOCK_TCP, &large, &more[n]) == 0) n++;
    /* There are 4,096 buffers: 32 are kept, 64 posted, and 384 taken already. */
    assert_int_equal(n, 3);
    for (unsigned i = 0; i < n; i++) sock_close(more[i]);
    wire_poll();
    assert_int_equal(sock_open(SOCK_TCP, &large, &more[0]), 0);
    /* A listener that cannot have all its connections gives back what it took. */
    assert_int_equal(sock_bind(more[0], 99), 0);
    assert_int_equal(sock_listen(more[0], 3), -ENOSPC);
    assert_int_equal(sock_accept(more[0], &more[1], 0), -EINVAL);
    sock_close(more[0]);
    wire_poll();
    assert_int_equal(net.reserved, 3 * net_bufs_for(NET_RCVBUF_MIN));
}

static void test_accept_queue(void **state) {
    struct peer q, r;
    struct sock *c;

    open_with(NET_OWNER, true, NET_RCVBUF_MIN); /* at most two at a time */
    peer_connect(&q, 1, PORT, true);
    peer_connect(&r, 2, PORT, true); /* has no socket: reset */
    peer_hear(&r);
    assert_true(r.flags & RST);
    assert_int_equal(sock_accept(listener, &c, 0), 0);
    assert_int_equal(sock_accept(listener, &c, 0), -EAGAIN);
    sock_close(c);
    wire_poll();
    peer_hear(&q);
    peer_segment(&q, FIN | ACK, q.nxt, NULL, 0);
    peer_connect(&r, 3, PORT, true); /* its place is free */
    assert_int_equal(sock_accept(listener, &c, 0), 0);
}

static void test_connect(void **state) {
    struct seen o;

    open_with(NET_OWNER, true, 0);
    assert_int_equal(sock_open(SOCK_TCP, NULL, &s), 0);
    assert_int_equal(sock_connect(s, WIRE_PEER, 80, 0), -EAGAIN);
    wire_poll();
    assert_true(wire_seen(&o));
    assert_int_equal(o.flags, SYN);
    memset(&p, 0, sizeof(p));
    p = (struct peer){ .port = 80,
                       .to = o.from,
                       .iss = 77,
                       .nxt = 78,
                       .una = 78,
                       .edge = 78,
                       .window = 65535,
                       .scaled = true,
                       .scale = 10,
                       .irs = o.seq,
                       .ack = o.seq + 1 };
    peer_segment(&p, SYN | ACK, 77, NULL, 0);
    assert_true(s->connected);
    sock_own(s);
    peer_data(&p, 0, 1000);
    assert_int_equal(acked(), 1000);
    sock_release(s);
    wire_poll();
    expect_stream(1000);
    /* The peer refuses this connection. */
    assert_int_equal(sock_open(SOCK_TCP, NULL, &s), 0);
    assert_int_equal(sock_connect(s, WIRE_PEER, 81, 0), -EAGAIN);
    wire_poll();
    while (wire_seen(&o) && !(o.flags & SYN))
        ;
    p = (struct peer){ .port = 81, .to = o.from, .iss = 1, .nxt = 1, .ack = o.seq + 1 };
    peer_segment(&p, RST | ACK, 0, NULL, 0);
    assert_int_equal(read_some(), -NET_ECONNRESET);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_own_waits_for_replay, end),
        cmocka_unit_test_teardown(test_put_off, end),
        cmocka_unit_test_teardown(test_no_overtaking, end),
        cmocka_unit_test_teardown(test_in_place, end),
        cmocka_unit_test_teardown(test_replay_in_turns, end),
        cmocka_unit_test_teardown(test_send, end),
        cmocka_unit_test_teardown(test_flush_and_abort, end),
        cmocka_unit_test_teardown(test_buffers_are_reserved, end),
        cmocka_unit_test_teardown(test_accept_queue, end),
        cmocka_unit_test_teardown(test_connect, end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
