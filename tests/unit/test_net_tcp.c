/* The path by which TCP data is received (netstack/): which thread owns a socket, the backlog,
 * and early acknowledgements. The peer follows a script. */
#include <string.h>
#include "net_rig.h"
#include <netstack/lwip_private.h>

/* ---- Algorithm 1 by itself: each row is a line of it ---- */

static void test_algorithm(void **state) {
    static const struct {
        u32 rcv_nxt; /* of the connection, when the segment comes */
        u32 seq;
        u16 len;
        bool plain, room, hole, drain; /* drain: the backlog is empty by then */
        enum backlog_verdict want;
        u32 nxt; /* bl.nxt after it */
        bool online;
    } step[] = {
        { 100, 100, 10, 1, 1, 0, 1, BACKLOG_ACK, 110, 1 }, /* lines 4-8, 15-17, 22 */
        /* lines 14-17: the segment follows the backlog in order */
        { 100, 110, 10, 1, 1, 0, 0, BACKLOG_ACK, 120, 1 },
        { 100, 120, 0, 1, 1, 0, 0, BACKLOG_KEPT, 120, 1 },     /* no data: nothing to acknowledge */
        { 100, 120, 10, 1, 0, 0, 0, BACKLOG_DROPPED, 120, 1 }, /* 21: not kept, bl.nxt stays */
        { 100, 130, 10, 1, 1, 0, 0, BACKLOG_KEPT, 120, 0 },    /* 18-20 */
        /* the missing segment comes, but does not turn early ACKs on */
        { 100, 120, 10, 1, 1, 0, 0, BACKLOG_KEPT, 120, 0 },
        /* lines 10-13: early ACKs are on again, but this segment is not in order */
        { 120, 140, 10, 1, 1, 0, 0, BACKLOG_KEPT, 120, 0 },
        { 120, 120, 10, 1, 1, 0, 0, BACKLOG_ACK, 130, 1 },    /* 10-17 */
        { 150, 150, 10, 1, 1, 1, 1, BACKLOG_KEPT, 150, 0 },   /* a gap waits in TCP: off */
        { 150, 150, 10, 1, 1, 0, 1, BACKLOG_ACK, 160, 1 },    /* closed: on */
        { 150, 160, 10, 0, 1, 0, 0, BACKLOG_KEPT, 160, 0 },   /* FIN, RST, SYN: for TCP */
        { 170, 165, 10, 1, 1, 0, 1, BACKLOG_KEPT, 170, 0 },   /* half of it known: not in order */
        { 170, 170, 2000, 1, 1, 0, 1, BACKLOG_KEPT, 170, 0 }, /* beyond the window */
        { 170, 170, 830, 1, 1, 0, 1, BACKLOG_ACK, 1000, 1 },  /* up to its very edge */
    };
    struct net_buf buf[ARRAY_SIZE(step)];
    struct backlog b;

    backlog_init(&b, 100);
    for (unsigned i = 0; i < ARRAY_SIZE(step); i++) {
        struct rcv_view rcv = { step[i].rcv_nxt, 1000, step[i].hole };
        struct net_buf *nb = &buf[i];

        if (step[i].drain)
            while (backlog_take(&b)) backlog_done(&b);
        nb->seq = step[i].seq;
        nb->len = step[i].len;
        nb->plain = step[i].plain;
        assert_int_equal(backlog_add(&b, &rcv, nb, true, step[i].room), step[i].want);
        assert_int_equal(b.nxt, step[i].nxt);
        assert_int_equal(b.online, step[i].online);
    }
    /* When early ACKs are switched off, nothing is acknowledged, whether it is in order or not. */
    backlog_init(&b, 100);
    buf[0].seq = 100, buf[0].len = 10, buf[0].plain = true;
    assert_int_equal(backlog_add(&b, &(struct rcv_view){ 100, 1000, false }, &buf[0], false, true),
                     BACKLOG_KEPT);
    assert_int_equal(b.nxt, 100);
}

/* ---- connections ---- */

static void test_handshake(void **state) {
    open_with(NET_OWNER, true, 1 << 20);
    peer_data(&p, 0, 1000);
    peer_data(&p, 1000, 1000);
    assert_int_equal(acked(), 2000);
    /* The window is more than 64 KiB, so it is scaled. It is as large as the socket asked for. */
    assert_in_range(p.edge - p.una, (1 << 20) - 2000 - 1024, (1 << 20) - 2000);
    expect_stream(2000);
    assert_int_equal(read_some(), -EAGAIN);
}

/* lwIP gets its memory from netstack/heap.c. If it took memory from a heap of its own (by default
 * 1,600 bytes), a few segments beyond a gap would fill that heap, and no acknowledgement could be
 * allocated. */
static void test_memory(void **state) {
    open_with(NET_OWNER, true, 1 << 20);
    assert_in_range(wire_heap() - heap_before, sizeof(struct tcp_pcb), 64 << 10);
    /* These are 40 segments beyond a gap, and lwIP allocates memory for each of them. */
    for (u32 i = 1; i <= 40; i++) peer_data(&p, i * 100, 100);
    assert_int_equal(acked(), 0);
    peer_data(&p, 0, 100);
    wire_pass(300); /* the acknowledgement may be a delayed one */
    assert_int_equal(acked(), 4100);
    expect_stream(4100);
}

static void test_handshake_without_scaling(void **state) {
    open_with(NET_OWNER, true, 1 << 20);
    peer_connect(&p, 1234, PORT, false);
    assert_int_equal(sock_accept(listener, &s, 0), 0);
    sock_own(s);
    peer_data(&p, 0, 1000);
    assert_int_equal(acked(), 1000);
    assert_int_equal(p.edge - p.una, 65535 - 1000);
    sock_release(s);
    wire_poll();
    expect_stream(1000);
}

static void test_early_ack(void **state) {
    const struct tcp_pcb *t;
    struct tcp_pcb before;
    struct net_stats was;

    open_with(NET_OWNER, true, 0);
    was = *net_stats();
    t = s->pcb.tcp;
    before = *t;
    sock_own(s);
    for (unsigned i = 0; i < 50; i++) {
        peer_data(&p, i * 1000, 1000);
        assert_int_equal(acked(), (i + 1) * 1000); /* at once, though nobody polls or releases */
    }
    assert_int_equal(p.acks, 50);
    assert_int_equal(net_stats()->ack_early - was.ack_early, 50);
    assert_int_equal(net_stats()->backlog_highest, 50);
    /* Nobody has written to the owned state. */
    assert_memory_equal(t, &before, sizeof(before));
    assert_int_equal(spsc_count(&s->rx), 0);
    sock_release(s);
    wire_poll();
    expect_stream(50000);
    /* The replay has not told the peer again what it knew, and nothing more comes later. */
    wire_pass(1000);
    peer_hear(&p);
    assert_true(p.acks <= 52);
    assert_int_equal(net_stats()->early_lost, 0);
}

static void test_no_early_ack(void **state) {
    open_with(NET_OWNER, false, 0);
    peer_data(&p, 0, 1000); /* leaves a delayed acknowledgement */
    sock_own(s);
    for (unsigned i = 1; i < 50; i++) peer_data(&p, i * 1000, 1000);
    wire_pass(300); /* its timer as well waits for the release */
    assert_int_equal(acked(), 0);
    assert_int_equal(p.acks, 0);
    sock_release(s);
    wire_poll();
    assert_int_equal(acked(), 50000);
    assert_true(net_stats()->ack_process > 0);
    expect_stream(50000);
}

static void test_plain(void **state) {
    open_with(NET_PLAIN, true, 0);
    sock_own(s);
    peer_data(&p, 0, 1000);
    peer_data(&p, 1000, 1000);
    assert_int_equal(acked(), 2000);
    assert_int_equal(s->backlog.count, 0);
    sock_release(s);
    expect_stream(2000);
}

static void test_switch(void **state) {
    open_with(NET_OWNER, true, 0);
    sock_own(s);
    peer_data(&p, 0, 1000);
    assert_int_equal(acked(), 1000);
    net_set_early_ack(false);
    peer_data(&p, 1000, 1000);
    assert_int_equal(acked(), 1000);
    /* TCP has to acknowledge what came meanwhile, and it does so only after the release. */
    net_set_early_ack(true);
    peer_data(&p, 2000, 1000);
    assert_int_equal(acked(), 1000);
    sock_release(s);
    wire_pass(300);
    assert_int_equal(acked(), 3000);
    sock_own(s);
    peer_data(&p, 3000, 1000);
    assert_int_equal(acked(), 4000);
    sock_release(s);
    wire_poll();
    expect_stream(4000);
}

static void test_out_of_order(void **state) {
    open_with(NET_OWNER, true, 0);
    sock_own(s);
    peer_data(&p, 0, 1000);
    peer_data(&p, 2000, 1000); /* 1000 is missing */
    peer_data(&p, 3000, 1000);
    assert_int_equal(acked(), 1000);
    assert_int_equal(p.acks, 1);
    assert_false(s->backlog.online);
    peer_data(&p, 1000, 1000); /* there, but only TCP puts it together */
    assert_int_equal(acked(), 1000);
    sock_release(s);
    wire_poll();
    assert_int_equal(acked(), 4000);
    /* The gap is closed, so early ACKs are on again. */
    sock_own(s);
    peer_data(&p, 4000, 1000);
    assert_int_equal(acked(), 5000);
    sock_release(s);
    wire_poll();
    expect_stream(5000);
}

/* The gap outlives the release: early acknowledgements stay off while TCP holds what is beyond
 * it. */
static void test_gap_in_tcp(void **state) {
    open_with(NET_OWNER, true, 0);
    peer_data(&p, 1000, 1000);
    assert_int_equal(acked(), 0);
    sock_own(s);
    peer_data(&p, 0, 1000);
    assert_int_equal(acked(), 0);
    sock_release(s);
    wire_poll();
    assert_int_equal(acked(), 2000);
    sock_own(s);
    peer_data(&p, 2000, 500);
    assert_int_equal(acked(), 2500);
    sock_release(s);
    wire_poll();
    expect_stream(2500);
}

static void test_duplicates(void **state) {
    open_with(NET_OWNER, true, 0);
    sock_own(s);
    peer_data(&p, 0, 1000);
    peer_data(&p, 0, 1000);
    peer_data(&p, 500, 1000); /* overlaps */
    assert_int_equal(acked(), 1000);
    sock_release(s);
    wire_poll();
    assert_int_equal(acked(), 1500);
    expect_stream(1500);
}

static u32 ack_before;

static void never_back(const struct seen *o) {
    if (o->to != p.port || o->flags & (SYN | RST)) return;
    assert_true((i32)(o->ack - ack_before) >= 0);
    ack_before = o->ack;
}

/* On release TCP goes through all that was acknowledged early: its own numbers are lower for a
 * while, and stay here; what carries data goes out with the number that the peer knows. */
static void test_suppression(void **state) {
    u64 suppressed, raised;
    struct seen o;

    open_with(NET_OWNER, true, 0);
    suppressed = net_stats()->ack_suppressed;
    raised = net_stats()->ack_raised;
    ack_before = p.iss + 1;
    wire_spy = never_back;
    peer_data(&p, 0, 1000); /* the window opens to its full size */
    peer_data(&p, 1000, 1000);
    assert_int_equal(acked(), 2000);
    p.acks = 0;
    sock_own(s);
    for (unsigned i = 2; i < 22; i++) peer_data(&p, i * 1000, 1000);
    peer_hear(&p);
    assert_int_equal(p.acks, 20);
    sock_release(s);
    wire_poll();
    peer_hear(&p);
    assert_int_equal(p.acks, 20);
    assert_true(net_stats()->ack_suppressed - suppressed >= 9);
    expect_stream(22000);

    /* Our own data is sent again while the socket is owned. */
    assert_int_equal(sock_send(s, "0123456789", 10, 0), 10);
    wire_poll();
    while (wire_seen(&o))
        ;
    sock_own(s);
    for (unsigned i = 22; i < 42; i++) peer_data(&p, i * 1000, 1000);
    wire_pass(8000);
    assert_true(net_stats()->ack_raised > raised);
    while (wire_seen(&o)) {
        if (!o.len) continue;
        assert_int_equal(o.ack, p.iss + 1 + 42000);
        assert_memory_equal(o.data, "0123456789", 10);
    }
    sock_release(s);
    wire_poll();
    expect_stream(20000);
}

/* A segment that closes a gap is acknowledged early. On release, TCP goes through the segment
 * beyond the gap first. */
static void test_gap_closed_in_backlog(void **state) {
    open_with(NET_OWNER, true, 0);
    ack_before = p.iss + 1;
    wire_spy = never_back;
    sock_own(s);
    peer_data(&p, 1000, 1000);
    peer_data(&p, 0, 1000);
    assert_int_equal(acked(), 1000);
    sock_release(s);
    wire_poll();
    assert_int_equal(acked(), 2000);
    expect_stream(2000);
}

/* ---- the window ---- */

static u32 buffer_size;
static bool promised_too_much;

static void within_room(const struct seen *o) {
    u32 edge;

    if (o->to != p.port || o->flags & (SYN | RST)) return;
    edge = o->ack + (o->window << p.scale) - p.iss - 1;
    /* All bytes up to the edge must fit beside those that were not read yet. FIN has a sequence
     * number, but takes no room. */
    if (edge > read_so_far + buffer_size + 1) promised_too_much = true;
}

static void test_window(void **state) {
    u32 sent = 0;

    buffer_size = NET_RCVBUF_MIN;
    promised_too_much = false;
    open_with(NET_OWNER, true, buffer_size);
    wire_spy = within_room;
    sock_own(s);
    for (;;) { /* as much as the peer may */
        u32 room;

        peer_hear(&p);
        room = p.edge - p.nxt;
        if (!room) break;
        peer_data(&p, sent, MIN(room, 1000));
        sent += MIN(room, 1000);
    }
    assert_in_range(sent, buffer_size - 1024, buffer_size);
    assert_int_equal(acked(), sent);
    assert_true(p.edge == p.una); /* zero window */
    peer_data(&p, sent, 1000);    /* more than it may: not acknowledged */
    assert_int_equal(acked(), sent);
    sock_release(s);
    wire_poll();
    p.nxt = p.iss + 1 + sent;
    expect_stream(40000);
    wire_poll();
    peer_hear(&p); /* the window opens as the thread reads */
    assert_in_range(p.edge - p.una, 40000 - 2048, 40000);
    expect_stream(sent - 40000);
    peer_data(&p, sent, 1000);
    expect_stream(1000);
    assert_false(promised_too_much);
}

/* The buffer is large, but somebody has limited how much of it a socket may use. The window is that
 * small, and when it was full, it opens as soon as the thread has read a part of it. */
static void test_window_of_a_limited_buffer(void **state) {
    u32 room, sent = 0;

    wire_start(NET_OWNER, true);
    net_set_rcvbuf(NULL, NET_RCVBUF_MIN);
    open_with(NET_OWNER, true, 16 * NET_RCVBUF_MIN);
    net_set_rcvbuf(NULL, NET_RCVBUF_MAX); /* holds for later connections */
    for (;; sent += room) {
        peer_hear(&p);
        room = MIN(p.edge - p.nxt, 1000u);
        if (!room) break;
        peer_data(&p, sent, room);
        wire_poll();
    }
    assert_in_range(sent, NET_RCVBUF_MIN - 1024, NET_RCVBUF_MIN);
    expect_stream(sent / 2);
    wire_poll();
    peer_hear(&p);
    assert_in_range(p.edge - p.una, NET_RCVBUF_MIN / 4, NET_RCVBUF_MIN);
    expect_stream(sent - sent / 2);
}

static void test_zero_window_probe(void **state) {
    u32 sent = 0;

    buffer_size = NET_RCVBUF_MIN;
    open_with(NET_OWNER, true, buffer_size);
    /* The last bytes are fewer than the unit of the scaled window. */
    while (sent < buffer_size) {
        u32 n = MIN(buffer_size - sent, 1460);

        peer_data(&p, sent, n);
        sent += n;
    }
    wire_pass(300);
    assert_int_equal(acked(), sent);
    assert_true(p.edge == p.una);
    p.acks = 0;
    peer_data(&p, sent, 1);
    assert_int_equal(acked(), sent);
    assert_int_equal(p.acks, 1); /* the answer to a probe */
    p.nxt--;
    sock_own(s);
    peer_data(&p, sent, 1);
    assert_int_equal(acked(), sent);
    assert_int_equal(p.acks, 1); /* owned: on release */
    sock_release(s);
    wire_poll();
    peer_hear(&p);
    assert_int_equal(p.acks, 2);
    expect_stream(sent);
}

/* The backlog holds as much as it may. What is dropped is not acknowledged, and comes again. */
static void test_backlog_full(void **state) {
    u32 i, most = net_bufs_for(NET_RCVBUF_MIN);
    u64 drops;

    open_with(NET_OWNER, true, NET_RCVBUF_MIN);
    drops = net_stats()->drop_no_room;
    sock_own(s);
    for (i = 0; i < most + 50; i++) peer_data(&p, i * 10, 10);
    assert_int_equal(acked(), most * 10);
    assert_int_equal(s->held, most);
    assert_int_equal(net_stats()->drop_no_room - drops, 50);
    sock_release(s);
    wire_poll();
    expect_stream(most * 10);
    sock_own(s);
    for (i = most; i < most + 50; i++) peer_data(&p, i * 10, 10);
    sock_release(s);
    wire_poll();
    expect_stream(500);
    assert_int_equal(net_stats()->early_lost, 0);
}

/* Segments beyond a gap cannot take the place of the one that closes it. */
static void test_gap_leaves_room(void **state) {
    u32 i;

    open_with(NET_OWNER, true, NET_RCVBUF_MIN);
    for (i = 1; i < 400; i++) peer_data(&p, i * 10, 10);
    peer_data(&p, 0, 10);
    wire_pass(300);
    assert_true(acked() >= 90 * 10);
    expect_stream(acked());
}

/* ---- the end of a connection while it is owned ---- */

static void test_fin(void **state) {
    open_with(NET_OWNER, true, 0);
    sock_own(s);
    peer_data(&p, 0, 1000);
    peer_segment(&p, FIN | ACK, p.nxt, NULL, 0);
    assert_int_equal(acked(), 1000); /* not the FIN */
    sock_release(s);
    wire_poll();
    assert_int_equal(acked(), 1001);
    expect_stream(1000);
    assert_int_equal(read_some(), 0);
    sock_close(s);
    wire_poll();
    peer_hear(&p);
    assert_true(p.flags & FIN);
    assert_false(p.flags & RST);
}

static void test_fin_with_data(void **state) {
    u8 data[500];

    open_with(NET_OWNER, true, 0);
    sock_own(s);
    stream_fill(data, 0, 500);
    peer_segment(&p, FIN | ACK, p.nxt, data, 500);
    assert_int_equal(acked(), 0);
    sock_release(s);
    wire_pass(300);
    assert_int_equal(acked(), 501);
    expect_stream(500);
    assert_int_equal(read_some(), 0);
}

/* A peer that ends its stream and then sends beyond that end. Where the end is, only TCP finds
 * out, on release: nothing may be acknowledged early behind it. */
static void test_data_behind_a_fin(void **state) {
    for (u32 gap = 0; gap <= 280; gap += 280) {
        open_with(NET_OWNER, true, 0);
        sock_own(s);
        peer_segment(&p, FIN | ACK, p.nxt + gap, NULL, 0);
        for (u32 i = 0; i < 10; i++) peer_data(&p, i * 1000, 1000);
        assert_int_equal(acked(), 0);
        sock_release(s);
        wire_pass(300);
        /* lwIP takes the whole segment in which the stream ends. */
        assert_in_range(acked(), gap + 1, 1001);
        assert_false(p.flags & RST);
        assert_int_equal(net_stats()->early_lost, 0);
        expect_stream(acked() - 1);
        assert_int_equal(read_some(), 0);
        end(state);
    }
}

static void test_rst(void **state) {
    open_with(NET_OWNER, true, 0);
    sock_own(s);
    peer_data(&p, 0, 1000);
    peer_segment(&p, RST | ACK, p.nxt, NULL, 0);
    peer_data(&p, 1000, 1000);
    assert_int_equal(acked(), 1000);
    sock_release(s);
    wire_poll();
    expect_stream(1000); /* it came before */
    assert_int_equal(read_some(), -NET_ECONNRESET);
    assert_int_equal(sock_send(s, "x", 1, 0), -NET_ECONNRESET);
}

/* A reset has a number out of order, as an attacker would guess it. */
static void test_rst_out_of_order(void **state) {
    open_with(NET_OWNER, true, 0);
    sock_own(s);
    peer_segment(&p, RST, p.nxt + 100, NULL, 0);
    peer_data(&p, 0, 1000);
    sock_release(s);
    wire_pass(300);
    assert_int_equal(acked(), 1000);
    expect_stream(1000);
}

static void test_abort(void **state) {
    open_with(NET_OWNER, true, 0);
    sock_own(s);
    peer_data(&p, 0, 1000);
    tcp_abort(s->pcb.tcp); /* as a timer of lwIP would */
    peer_data(&p, 1000, 1000);
    sock_release(s);
    wire_poll();
    assert_int_equal(s->backlog.count, 0);
    assert_int_equal(read_some(), -NET_ECONNABORTED);
    peer_hear(&p);
    assert_true(p.flags & RST);
}

static void test_close_with_data_unread(void **state) {
    open_with(NET_OWNER, true, 0);
    peer_data(&p, 0, 1000);
    sock_close(s);
    wire_poll();
    peer_hear(&p);
    assert_true(p.flags & RST);
}

/* Acknowledgement of a wrong segment would lose it: TCP drops it on release. */
static void test_bad_checksum(void **state) {
    open_with(NET_OWNER, true, 0);
    sock_own(s);
    p.break_sum = 1;
    peer_data(&p, 0, 1000);
    assert_int_equal(acked(), 0);
    assert_int_equal(s->backlog.count, 0);
    peer_data(&p, 0, 1000);
    assert_int_equal(acked(), 1000);
    sock_release(s);
    wire_poll();
    expect_stream(1000);
}

/* Segments without data flood an owned socket: bounded, and never answered, or two such stacks
 * would talk for ever. */
static void test_pure_acks(void **state) {
    open_with(NET_OWNER, true, NET_RCVBUF_MIN);
    sock_own(s);
    for (unsigned i = 0; i < 1000; i++) peer_acknowledge(&p);
    peer_hear(&p);
    assert_int_equal(p.acks, 0);
    assert_int_equal(s->held, net_bufs_for(NET_RCVBUF_MIN));
    sock_release(s);
    wire_poll();
    assert_int_equal(s->held, 0);
    peer_data(&p, 0, 1000);
    expect_stream(1000);
}

/* A guest sets its timer to what it says, and setting it again costs an exit. */
static void test_deadline_stays(void **state) {
    u64 deadline;

    open_with(NET_OWNER, true, 0);
    peer_data(&p, 0, 100);
    deadline = wire_poll();
    assert_in_range(deadline, wire_now + 10 * NS_PER_MS, wire_now + NS_PER_S);
    for (u32 i = 0; i < 50; i++) {
        wire_now += NS_PER_MS / 7;
        assert_int_equal(wire_poll(), deadline);
    }
    expect_stream(100);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_algorithm),
        cmocka_unit_test_teardown(test_handshake, end),
        cmocka_unit_test_teardown(test_memory, end),
        cmocka_unit_test_teardown(test_handshake_without_scaling, end),
        cmocka_unit_test_teardown(test_early_ack, end),
        cmocka_unit_test_teardown(test_no_early_ack, end),
        cmocka_unit_test_teardown(test_plain, end),
        cmocka_unit_test_teardown(test_switch, end),
        cmocka_unit_test_teardown(test_out_of_order, end),
        cmocka_unit_test_teardown(test_gap_in_tcp, end),
        cmocka_unit_test_teardown(test_duplicates, end),
        cmocka_unit_test_teardown(test_suppression, end),
        cmocka_unit_test_teardown(test_gap_closed_in_backlog, end),
        cmocka_unit_test_teardown(test_window, end),
        cmocka_unit_test_teardown(test_window_of_a_limited_buffer, end),
        cmocka_unit_test_teardown(test_zero_window_probe, end),
        cmocka_unit_test_teardown(test_backlog_full, end),
        cmocka_unit_test_teardown(test_gap_leaves_room, end),
        cmocka_unit_test_teardown(test_fin, end),
        cmocka_unit_test_teardown(test_fin_with_data, end),
        cmocka_unit_test(test_data_behind_a_fin),
        cmocka_unit_test_teardown(test_rst, end),
        cmocka_unit_test_teardown(test_rst_out_of_order, end),
        cmocka_unit_test_teardown(test_abort, end),
        cmocka_unit_test_teardown(test_close_with_data_unread, end),
        cmocka_unit_test_teardown(test_bad_checksum, end),
        cmocka_unit_test_teardown(test_pure_acks, end),
        cmocka_unit_test_teardown(test_deadline_stays, end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
