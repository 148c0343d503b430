/* One connection of the network stack, with the peer of net_wire.h at its other end. */
#ifndef TESTS_NET_RIG_H
#define TESTS_NET_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <netstack/sock.h>
#include "net_wire.h"

#define PORT 5001

static struct sock *listener, *s;
static struct peer p;
static u32 read_so_far;
static size_t heap_before;
static unsigned buffers_before;

/* `rcvbuf`: of each of at most two connections at a time, 0 for the stack's own. */
static inline void open_with(enum net_model model, bool early, u32 rcvbuf) {
    struct sock_options options = { .rcvbuf = rcvbuf };
    static u16 port = 20000;

    wire_start(model, early);
    heap_before = wire_heap();
    buffers_before = wire_buffers();
    read_so_far = 0;
    assert_int_equal(sock_open(SOCK_TCP, &options, &listener), 0);
    assert_int_equal(sock_bind(listener, PORT), 0);
    assert_int_equal(sock_listen(listener, 2), 0);
    peer_connect(&p, port++, PORT, true);
    assert_int_equal(sock_accept(listener, &s, 0), 0);
}

static inline int end(void **state) {
    if (listener) {
        wire_end();
        wire_pass(600); /* the timer of TCP stops when it finds no connection */
        listener = NULL;
        /* Nothing leaks, whatever the test did. */
        assert_int_equal(wire_heap(), heap_before);
        assert_int_equal(wire_buffers(), buffers_before);
    }
    return 0;
}

/* Reads `n` bytes and compares; what sock_recv() says of more goes to who asks. */
static inline void expect_stream(u32 n) {
    static u8 got[65536], want[65536];

    while (n) {
        i64 r = sock_recv(s, got, MIN(n, sizeof(got)), 0);

        assert_true(r > 0);
        stream_fill(want, read_so_far, (size_t)r);
        assert_memory_equal(got, want, (size_t)r);
        read_so_far += (u32)r;
        n -= (u32)r;
    }
}

static inline i64 read_some(void) {
    u8 buf[100];

    return sock_recv(s, buf, sizeof(buf), 0);
}

/* How many bytes the peer knows to have arrived. */
static inline u32 acked(void) {
    peer_hear(&p);
    return p.una - p.iss - 1;
}

#endif
