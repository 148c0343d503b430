/* Checksums that are left to the device, and those for which the device gives its word: the
 * stack computes and verifies none of them, and all the others. */
#include <string.h>
#include "net_rig.h"

static int open_one(void **state) {
    wire_tx_open = true;
    open_with(NET_OWNER, true, NET_RCVBUF_MIN);
    wire_opens = 0;
    return 0;
}

static i64 read_all(void) {
    static u8 buf[8000];

    return sock_recv(s, buf, sizeof(buf), 0);
}

/* The checksum of every segment that goes out is left to the device, and is right once it is
 * completed. wire_seen() checks that. */
static void test_left_to_the_device(void **state) {
    u64 before = net_stats()->tx_unsummed;
    u8 data[4000];
    struct seen o;
    unsigned n = 0;

    stream_fill(data, 0, sizeof(data));
    assert_int_equal(sock_send(s, data, sizeof(data), 0), sizeof(data));
    wire_poll();
    while (wire_seen(&o)) n++;
    assert_true(n >= 2);
    assert_int_equal(wire_opens, n);
    assert_int_equal(net_stats()->tx_unsummed - before, n);
}

/* What the stack writes itself: early acknowledgements, and the number that it raises in what
 * lwIP sends again. */
static void test_own_segments(void **state) {
    u64 raised = net_stats()->ack_raised, early = net_stats()->ack_early;
    struct seen o;
    unsigned n = 0;

    assert_int_equal(sock_send(s, "0123456789", 10, 0), 10);
    wire_poll();
    sock_own(s);
    for (unsigned i = 0; i < 20; i++) peer_data(&p, i * 1000, 1000);
    wire_pass(8000);
    assert_int_equal(net_stats()->ack_early, early + 20);
    assert_true(net_stats()->ack_raised > raised);
    sock_release(s);
    wire_poll();
    while (wire_seen(&o)) n++;
    assert_true(n > 20);
    assert_int_equal(wire_opens, n);
}

/* Datagrams too; the wire looks at none of them, so this does. */
static void test_datagram(void **state) {
    struct sock *u;

    assert_int_equal(sock_open(SOCK_UDP, NULL, &u), 0);
    assert_int_equal(sock_send_to(u, "hello", 5, WIRE_PEER, 7, 0), 0);
    wire_poll();
    assert_int_equal(wire_opens, 1);
    sock_close(u);
    wire_poll();
}

/* A wrong sum in a segment that the driver vouches for does not matter, owned or not; in any
 * other it does, also in one that comes right behind. */
static void test_checked(void **state) {
    u64 before = net_stats()->rx_unsummed;

    wire_checked = true;
    p.break_sum = 1;
    peer_data(&p, 0, 1000);
    assert_int_equal(read_all(), 1000);
    sock_own(s);
    p.break_sum = 1;
    peer_data(&p, 1000, 1000);
    assert_int_equal(s->backlog.count, 1);
    assert_int_equal(net_stats()->rx_unsummed - before, 2);
    /* The socket was released, but the bottom half does not know that yet. */
    __atomic_store_n(&s->owned, 0, __ATOMIC_SEQ_CST);
    wire_checked = false;
    p.break_sum = 1;
    peer_data(&p, 2000, 1000);
    assert_int_equal(read_all(), 1000);
    assert_int_equal(read_all(), -EAGAIN);
    peer_data(&p, 2000, 1000);
    assert_int_equal(read_all(), 1000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_left_to_the_device, open_one, end),
        cmocka_unit_test_setup_teardown(test_own_segments, open_one, end),
        cmocka_unit_test_setup_teardown(test_datagram, open_one, end),
        cmocka_unit_test_setup_teardown(test_checked, open_one, end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
