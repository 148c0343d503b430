/* Peers that send all but the first byte and so hold a gap open: for each segment beyond a gap lwIP
 * keeps a descriptor in the stack's heap. However many peers do so, another one gets its
 * connection. */
#include <string.h>
#include "net_rig.h"
#include <netstack/lwip_private.h>

#define SEGMENT 100
#define SILENT  40

static struct sock *taken[NET_SOCKETS];

/* Opens `connections` sockets of `rcvbuf` bytes, the peer of each of which sends as many segments
 * beyond a gap as the socket takes. Then one peer more connects, and its stream has to arrive. */
static void hold_gaps(unsigned connections, u32 rcvbuf) {
    struct sock_options options = { .rcvbuf = rcvbuf };
    unsigned segments = net_bufs_for(rcvbuf); /* more than three quarters of it are refused */
    u64 dropped;

    wire_start(NET_OWNER, true);
    heap_before = wire_heap();
    buffers_before = wire_buffers();
    read_so_far = 0;
    dropped = net_stats()->drop_no_room;
    assert_int_equal(sock_open(SOCK_TCP, &options, &listener), 0);
    assert_int_equal(sock_bind(listener, PORT), 0);
    assert_int_equal(sock_listen(listener, connections + 1), 0);
    for (unsigned i = 0; i < connections; i++) {
        peer_connect(&p, (u16)(20000 + i), PORT, true);
        assert_int_equal(sock_accept(listener, &taken[i], 0), 0);
        for (u32 n = 1; n <= segments; n++) peer_data(&p, n * SEGMENT, SEGMENT);
        wire_forget();
        assert_int_equal(acked(), 0);
    }
    /* Each gap is as large as its account, or as lwIP allows: nothing was dropped for want of
     * heap. */
    for (unsigned i = 0; i < connections; i++)
        assert_true(taken[i]->held >= MIN(segments / 4 * 3, (unsigned)TCP_OOSEQ_MAX_PBUFS));
    assert_true(net_stats()->drop_no_room > dropped || segments > TCP_OOSEQ_MAX_PBUFS);
    peer_connect(&p, 30000, PORT, true); /* fails if there is no SYN and ACK */
    assert_int_equal(sock_accept(listener, &s, 0), 0);
    for (u32 n = 0; n < 50; n++) peer_data(&p, n * 1000, 1000);
    wire_pass(300);
    assert_int_equal(acked(), 50000);
    expect_stream(50000);
}

static void test_many_connections(void **state) { hold_gaps(40, 256 << 10); }
static void test_large_windows(void **state) { hold_gaps(6, 2 << 20); }

/* Peers that acknowledge nothing: what was sent to them stays in the heap, too. One more gets its
 * connection, and all that is sent to it. */
static void test_nobody_acknowledges(void **state) {
    static u8 data[1 << 20];
    struct sock_options options = { .rcvbuf = NET_RCVBUF_MIN, .sndbuf = sizeof(data) };
    u64 begin;

    wire_start(NET_OWNER, true);
    heap_before = wire_heap();
    buffers_before = wire_buffers();
    read_so_far = 0;
    assert_int_equal(sock_open(SOCK_TCP, &options, &listener), 0);
    assert_int_equal(sock_bind(listener, PORT), 0);
    assert_int_equal(sock_listen(listener, SILENT + 1), 0);
    for (unsigned i = 0; i < SILENT; i++) {
        peer_connect(&p, (u16)(20000 + i), PORT, true);
        assert_int_equal(sock_accept(listener, &taken[i], 0), 0);
        assert_int_equal(sock_send(taken[i], data, sizeof(data), 0), sizeof(data));
        wire_poll();
    }
    peer_connect(&p, 30000, PORT, true);
    assert_int_equal(sock_accept(listener, &s, 0), 0);
    assert_int_equal(sock_send(s, data, 200000, 0), 200000);
    begin = wire_now;
    while (p.data < 200000 && wire_now < begin + 10 * NS_PER_S) {
        wire_pass(1);
        peer_hear(&p);
        peer_acknowledge(&p);
    }
    assert_int_equal(p.data, 200000);
    /* An acknowledgement makes room for the next eight segments at once; lwIP's own timer, which
     * comes every half second, would take 8 s. */
    assert_in_range(wire_now - begin, 1, NS_PER_S);
}

static int setup(void **state) {
    wire_bufs = NET_BUFS_KEPT + 64 + 8 * net_bufs_for(2 << 20);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_nobody_acknowledges, end),
        cmocka_unit_test_teardown(test_many_connections, end),
        cmocka_unit_test_teardown(test_large_windows, end),
    };

    return cmocka_run_group_tests(tests, setup, NULL);
}
