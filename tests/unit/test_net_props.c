/* The modified receive path under thousands of random schedules: segments lost, late, twice,
 * overlapping, the socket owned and released at any point, the switch thrown. Whatever happens:
 * the stream is delivered exactly, no byte is acknowledged that was not kept, acknowledgement
 * numbers never go back, and the window never promises room that is not there.
 *
 * TAKT_SEED=n runs that schedule alone; TAKT_SCHEDULES=n as many from seed 1 on. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "net_wire.h"
#include <netstack/sock.h>
#include <netstack/lwip_private.h>

#define SCHEDULES 2000
#define PORT      5001
#define FLIGHT    48

static u64 rng;

static u32 rnd(u32 n) {
    rng ^= rng << 13, rng ^= rng >> 7, rng ^= rng << 17;
    return (rng * 0x2545f4914f6cdd1dull >> 33) % n;
}

/* ---- what a schedule is ---- */

struct flight { /* a segment on its way to the stack */
    u32 from, len;
    bool fin;
};

static struct {
    u64 seed;
    struct peer p;
    struct sock *s;
    u32 rcvbuf, total; /* bytes of the stream */
    u32 next;          /* that has not been sent yet */
    u32 read;
    bool fin_read, owned;
    struct flight flight[FLIGHT];
    unsigned n;
    /* How often the network loses, doubles, swaps and overlaps segments. */
    unsigned loss, duplicate, swap, overlap;
    /* The highest acknowledgement that the peer has seen, as a position in the stream. FIN counts
     * as one position. */
    u32 ack;
    const char *wrong;
} t;

/* All that the stack has of the stream, in order, from where the thread has read to: what may be
 * acknowledged. Walks the receive queue, the backlog and what lwIP keeps beyond a gap, so it
 * relies on nothing that the stack says of itself. */
static u8 kept[1 << 20];

static void keep(u32 from, const u8 *data, u32 len) {
    for (u32 i = 0; i < len; i++) {
        if (from + i >= t.total) break;
        if (data[i] != stream_byte(from + i))
            t.wrong = "the stack keeps other bytes than were sent";
        kept[from + i] = 1;
    }
}

static u32 position(u32 seq) { return seq - t.p.iss - 1; }

static u32 kept_up_to(void) {
    struct sock *s = t.s;
    u32 at = t.read;
    bool fin = false;

    memset(kept, 0, t.total);
    for (u32 i = s->rx.head; i != s->rx.tail; i++)
        for (struct pbuf *q = s->rx.slot[i & (s->rx.size - 1)]; q; q = q->next) {
            u32 skip = i == s->rx.head && (!s->piece || q == s->piece) ? s->offset : 0;

            if (i == s->rx.head && s->piece && q != s->piece) {
                bool later = false;

                for (struct pbuf *r = s->piece; r; r = r->next) later = later || r == q;
                if (!later) continue;
            }
            keep(at, (u8 *)q->payload + skip, q->len - skip);
            at += q->len - skip;
        }
    for (struct net_buf *nb = s->backlog.first; nb; nb = nb->next) {
        u8 *ip = nb->pc.pbuf.payload;

        keep(position(nb->seq), ip + 20 + (ip[32] >> 4) * 4, nb->len);
        fin = fin || ip[33] & FIN;
    }
    if (s->pcb.tcp)
        for (struct tcp_seg *g = s->pcb.tcp->ooseq; g; g = g->next) {
            u32 from = position(g->tcphdr->seqno);

            for (struct pbuf *q = g->p; q; from += q->len, q = q->next)
                keep(from, q->payload, q->len);
            fin = fin || TCPH_FLAGS(g->tcphdr) & FIN;
        }
    for (at = t.read; at < t.total && kept[at];) at++;
    return at + (at == t.total && (fin || s->eof));
}

static u32 checked_ack;

static void watch(const struct seen *o) {
    u32 ack = position(o->ack), edge = ack + (o->window << t.p.scale);

    if (o->to != t.p.port || o->flags & SYN) return;
    if (o->flags & RST) {
        t.wrong = "the connection was reset";
        return;
    }
    if (ack < t.ack) t.wrong = "an acknowledgement number went back";
    t.ack = MAX(t.ack, ack);
    if (edge > t.read + t.rcvbuf + 1) t.wrong = "the window promises room that is not there";
}

static void check(void) {
    if (!t.wrong && t.ack != checked_ack && t.ack > kept_up_to())
        t.wrong = "bytes were acknowledged that were not kept";
    checked_ack = t.ack;
    if (!t.wrong) return;
    fprintf(stderr, "seed %llu: %s (acknowledged %u, read %u of %u)\n", (unsigned long long)t.seed,
            t.wrong, t.ack, t.read, t.total);
    fail();
}

/* ---- the sender ---- */

static void launch(u32 from, u32 len) {
    struct flight f = { from, len, from + len == t.total };

    if (t.n == FLIGHT || rnd(100) < t.loss) return;
    t.flight[t.n++] = f;
    if (t.n < FLIGHT && rnd(100) < t.duplicate) t.flight[t.n++] = f;
}

static void arrive(void) {
    unsigned i = rnd(100) < t.swap ? rnd(t.n) : 0;
    struct flight f = t.flight[i];
    u8 data[1460];

    memmove(&t.flight[i], &t.flight[i + 1], (--t.n - i) * sizeof(f));
    stream_fill(data, f.from, f.len);
    if (rnd(2)) net.replays = rnd(3); /* a replay that stops, and what comes then */
    peer_segment(&t.p, ACK | (f.fin ? FIN : 0), t.p.iss + 1 + f.from, data, f.len);
}

/* A new segment, within the window that the peer knows; sometimes it begins in what was sent
 * before. */
static void send_new(void) {
    u32 room = position(t.p.edge), from = t.next, len = 1 + rnd(rnd(4) ? 1400 : 60);

    if (t.next >= t.total || t.next >= room || t.n == FLIGHT) return;
    len = MIN(MIN(len, t.total - from), room - from);
    t.next += len;
    if (rnd(100) < t.overlap) {
        u32 back = rnd(800);

        back = MIN(back, from);
        from -= back;
        len = MIN(len + back, 1460);
    }
    launch(from, len);
}

/* From the oldest that was not acknowledged, as after a time-out. */
static void send_again(void) {
    u32 from = MIN(position(t.p.una), t.total), len = 1 + rnd(1460);

    len = MIN(len, t.total - from);
    launch(from, len);
    t.next = MAX(t.next, from + len);
}

/* ---- the thread ---- */

static void read_some(void) {
    static u8 buf[8192];
    i64 n = sock_recv(t.s, buf, 1 + rnd(sizeof(buf)), 0);

    if (n == 0) t.fin_read = true;
    if (n < 0 && n != -EAGAIN) t.wrong = "the connection broke";
    for (i64 i = 0; i < n; i++)
        if (buf[i] != stream_byte(t.read + i)) t.wrong = "another byte was delivered than was sent";
    if (n > 0) t.read += n;
}

static void thread_acts(void) {
    if (t.owned) {
        if (rnd(3)) return;
        t.owned = false;
        sock_release(t.s);
    } else if (rnd(3) == 0 && t.s->backlog.count == 0) {
        if (rnd(4) == 0) /* The peer's acknowledgement of this goes to the backlog. */
            sock_send(t.s, "data of ours", 12, 0);
        wire_poll();
        t.owned = true;
        sock_own(t.s);
    } else {
        read_some();
    }
}

static void run(u64 seed) {
    static u16 port;
    struct sock_options options;
    struct sock *listener;
    u32 idle = 0, before;
    bool early;

    rng = seed * 0x9e3779b97f4a7c15ull + 1;
    memset(&t, 0, sizeof(t));
    checked_ack = 0;
    t.seed = seed;
    t.rcvbuf = rnd(2) ? NET_RCVBUF_MIN : 100000 + rnd(200000);
    t.total = 1 + rnd(rnd(3) ? 100000 : 300000);
    t.loss = rnd(3) ? 0 : rnd(20);
    t.duplicate = rnd(3) ? 0 : rnd(20);
    t.swap = rnd(3) ? 0 : rnd(40);
    t.overlap = rnd(3) ? 0 : rnd(20);
    early = rnd(5) > 0;
    wire_start(rnd(10) ? NET_OWNER : NET_PLAIN, early);
    options = (struct sock_options){ .rcvbuf = t.rcvbuf };
    assert_int_equal(sock_open(SOCK_TCP, &options, &listener), 0);
    assert_int_equal(sock_bind(listener, PORT), 0);
    assert_int_equal(sock_listen(listener, 1), 0);
    peer_connect(&t.p, 1024 + ++port % 50000, PORT, rnd(4) > 0);
    assert_int_equal(sock_accept(listener, &t.s, 0), 0);
    wire_spy = watch;
    while (!t.fin_read) {
        before = t.read + t.ack;
        switch (rnd(10)) {
        case 0 ... 3: send_new(); break;
        case 4 ... 6:
            if (t.n) arrive();
            break;
        case 7: thread_acts(); break;
        case 8: wire_poll(); break;
        case 9:
            if (rnd(20) == 0) net_set_early_ack(early = !early);
            if (rnd(10) == 0) wire_pass(rnd(300));
            /* So much time passes that what the thread has sent is sent again. */
            if (t.owned && rnd(20) == 0) wire_pass(5000);
            if (!t.n || rnd(30) == 0) send_again();
            break;
        }
        peer_hear(&t.p);
        check();
        idle = t.read + t.ack == before ? idle + 1 : 0;
        if (idle > 200000) t.wrong = "nothing moves any more";
    }
    if (t.read != t.total) t.wrong = "the end came before the last byte";
    if (net_stats()->early_lost) t.wrong = "TCP refused what was acknowledged early";
    check();
    if (t.owned) sock_release(t.s);
    wire_end();
}

static void test_schedules(void **state) {
    const char *seed = getenv("TAKT_SEED"), *n = getenv("TAKT_SCHEDULES");
    u64 first = 1, last = SCHEDULES;
    size_t heap = 0;
    unsigned buffers = 0;
    struct net_stats was;

    if (n) last = strtoull(n, NULL, 0);
    if (seed) first = last = strtoull(seed, NULL, 0);
    for (u64 i = first; i <= last; i++) {
        run(i);
        wire_pass(600);
        if (i == first) {
            heap = wire_heap();
            buffers = wire_buffers();
        }
        assert_int_equal(wire_heap(), heap);
        assert_int_equal(wire_buffers(), buffers);
    }
    was = *net_stats();
    print_message(
        "%llu schedules: %llu segments in backlogs, %llu early acknowledgements, %llu suppressed, "
        "%llu raised\n",
        (unsigned long long)(last - first + 1), (unsigned long long)was.backlog_segments,
        (unsigned long long)was.ack_early, (unsigned long long)was.ack_suppressed,
        (unsigned long long)was.ack_raised);
    if (last - first < 100) return;
    /* If the schedules never reached these cases, the test would show nothing. */
    assert_true(was.backlog_segments > 1000 && was.ack_early > 1000 && was.ack_suppressed > 100);
    assert_true(was.ack_raised > 10);
    assert_true(was.ack_bottom_half > 1000 && was.ack_process > 100 && was.drop_no_room > 0);
}

int main(void) {
    static const struct CMUnitTest tests[] = { cmocka_unit_test(test_schedules) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
