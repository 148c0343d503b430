/* Two real threads: one is the bottom half with the peer, the other reads, and stops for a while
 * now and then while it owns the socket. The machine's scheduler decides at which point they meet.
 * The stream has to come out exactly. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <pthread.h>
#include <unistd.h>
#include <cmocka.h>
#include "net_wire.h"

#define TOTAL (4u << 20)

static struct sock *s;
static u32 got;
static bool wrong, done;

static void *reader(void *arg) {
    static u8 buf[30000];
    u32 rng = 1;

    for (;;) {
        i64 n;

        rng = rng * 1664525 + 1013904223;
        if (rng >> 28 == 0) {
            sock_own(s);
            usleep(rng >> 16 & 1023);
            sock_release(s);
        }
        n = sock_recv(s, buf, 1 + (rng >> 8) % sizeof(buf), NET_FOREVER);
        if (n <= 0) break;
        for (i64 i = 0; i < n; i++) wrong = wrong || buf[i] != stream_byte(got + i);
        got += n;
    }
    __atomic_store_n(&done, true, __ATOMIC_RELEASE);
    return NULL;
}

static void run(enum net_model model, bool early) {
    static u16 port = 3000;
    struct sock_options options = { .rcvbuf = 200000 };
    struct sock *listener;
    struct peer p;
    pthread_t thread;
    u32 sent = 0;

    got = wrong = done = false;
    wire_start(model, early);
    assert_int_equal(sock_open(SOCK_TCP, &options, &listener), 0);
    assert_int_equal(sock_bind(listener, 5001), 0);
    assert_int_equal(sock_listen(listener, 1), 0);
    peer_connect(&p, port++, 5001, true);
    assert_int_equal(sock_accept(listener, &s, 0), 0);
    wire_threads(true);
    assert_int_equal(pthread_create(&thread, NULL, reader, NULL), 0);
    for (u64 idle = 0; !__atomic_load_n(&done, __ATOMIC_ACQUIRE); idle++) {
        u32 n = MIN(MIN(TOTAL - sent, p.edge - p.nxt), 1460);

        if (sent < TOTAL && (i32)(p.edge - p.nxt) > 0) {
            peer_data(&p, sent, n);
            sent += n;
            if (sent == TOTAL) peer_segment(&p, FIN | ACK, p.nxt, NULL, 0);
            idle = 0;
        }
        wire_poll();
        peer_hear(&p);
        if (idle > 1000) {
            wire_now += NS_PER_MS;
            usleep(20);
        }
    }
    pthread_join(thread, NULL);
    wire_threads(false);
    assert_false(wrong);
    assert_int_equal(got, TOTAL);
    assert_int_equal(net_stats()->early_lost, 0);
    wire_end();
}

static void test_threads(void **state) {
    u64 early = 0;

    for (u32 i = 0; i < 20 && !early; i++) { /* the machine says how many, perhaps none */
        run(NET_OWNER, true);
        early = net_stats()->ack_early;
    }
    assert_true(early);
    run(NET_OWNER, false);
    run(NET_PLAIN, false);
}

int main(void) {
    static const struct CMUnitTest tests[] = { cmocka_unit_test(test_threads) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
