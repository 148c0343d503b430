/* The largest buffer that a socket may have (vTurbo, section 3.2: 40 MB): the peer is promised
 * all of it, and may fill it while no thread reads, even while the reader owns the socket. Every
 * byte is kept. */
#include <string.h>
#include "net_rig.h"

#define SEGMENT 1460

static int open_one(void **state) {
    wire_bufs = 3 * net_bufs_for(NET_RCVBUF_MAX) + 1024;
    open_with(NET_OWNER, true, NET_RCVBUF_MAX);
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

static void expect_all(u32 n) {
    expect_stream(n);
    assert_int_equal(read_some(), -EAGAIN);
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
    expect_all(sent);
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
    expect_all(sent);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_nobody_reads, open_one, end),
        cmocka_unit_test_setup_teardown(test_owner_is_away, open_one, end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
