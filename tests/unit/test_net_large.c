/* The largest buffer that a socket may have (vTurbo, section 3.2: 40 MB): the peer is promised all of it, may
 * fill it while nobody reads, also while the reader owns the socket, and every byte is kept. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <string.h>
#include <cmocka.h>
#include "net_wire.h"
#include <netstack/sock.h>

#define PORT    80
#define SEGMENT 1460

static struct sock *listener, *s;
static struct peer p;

static int open_one(void **state) {
    struct sock_options options = { .rcvbuf = NET_RCVBUF_MAX };
    static u16 port = 30000;

    wire_bufs = 2 * net_bufs_for(NET_RCVBUF_MAX) + 1024;
    wire_start(NET_OWNER, true);
    assert_int_equal(sock_open(SOCK_TCP, &options, &listener), 0);
    assert_int_equal(sock_bind(listener, PORT), 0);
    assert_int_equal(sock_listen(listener, 1), 0);
    peer_connect(&p, port++, PORT, true);
    assert_int_equal(sock_accept(listener, &s, 0), 0);
    return 0;
}

static int end(void **state) {
    wire_end();
    wire_pass(600);
    return 0;
}

/* As much as the window has room for, behind the first byte; how many bytes that makes. */
static u32 fill_window(void) {
    u32 sent = 1;

    while (sent + SEGMENT <= p.edge - p.iss - 1) {
        peer_data(&p, sent, SEGMENT);
        sent += SEGMENT;
        if (sent / SEGMENT % 16 == 0) peer_hear(&p);
    }
    wire_pass(600); /* what is acknowledged late */
    peer_hear(&p);
    assert_int_equal(p.una - p.iss - 1, sent);
    return sent;
}

static void expect_stream(u32 n) {
    static u8 got[65536], want[65536];

    for (u32 at = 0, len; at < n; at += len) {
        i64 r = sock_recv(s, got, sizeof(got), 0);

        assert_true(r > 0);
        len = (u32)r;
        stream_fill(want, at, len);
        assert_memory_equal(got, want, len);
        wire_poll();
    }
    assert_int_equal(sock_recv(s, got, sizeof(got), 0), -EAGAIN);
}

static void test_nobody_reads(void **state) {
    u64 dropped = net_stats()->drop_no_room;
    u32 sent;

    peer_data(&p, 0, 1); /* its acknowledgement tells of the whole window */
    wire_pass(600);
    peer_hear(&p);
    assert_in_range(p.edge - p.una, NET_RCVBUF_MAX - 2048, NET_RCVBUF_MAX);
    sent = fill_window();
    assert_true(sent > NET_RCVBUF_MAX - 4096);
    assert_int_equal(net_stats()->drop_no_room, dropped);
    expect_stream(sent);
}

static void test_owner_is_away(void **state) {
    u64 dropped = net_stats()->drop_no_room, early = net_stats()->ack_early;
    u32 sent;

    peer_data(&p, 0, 1);
    wire_pass(600);
    peer_hear(&p);
    sock_own(s);
    sent = fill_window();
    assert_true(sent > NET_RCVBUF_MAX - 4096);
    assert_true(net_stats()->ack_early - early > sent / SEGMENT - 2);
    sock_release(s);
    wire_poll();
    assert_int_equal(net_stats()->drop_no_room, dropped);
    expect_stream(sent);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_nobody_reads, open_one, end),
        cmocka_unit_test_setup_teardown(test_owner_is_away, open_one, end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
