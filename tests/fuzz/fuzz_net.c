/* The whole network stack, with a connection up, receives any bytes as frames, and TCP segments
 * with right checksums whose fields the input chooses. The input also says when the socket is
 * owned, released and read. No memory may be lost, and data that was acknowledged early must have
 * been kept: the peer will never send it again. */
#include <stdlib.h>
#include <string.h>
#include "tests/unit/net_wire.h"
#include <netstack/sock.h>

int LLVMFuzzerTestOneInput(const u8 *data, size_t size);

static const u8 *in, *in_end;

static u32 take(unsigned n) {
    u32 v = 0;

    while (n-- && in < in_end) v = v << 8 | *in++;
    return v;
}

static size_t take_bytes(u8 *to, size_t most) {
    size_t n = take(2) % (most + 1);

    n = MIN(n, (size_t)(in_end - in));
    memcpy(to, in, n);
    in += n;
    return n;
}

static struct peer p;
static struct sock *listener, *s, *udp;
static bool owned;

static void one_segment(void) {
    u8 flags = take(1), data[1460];
    u32 seq = p.nxt + (int16_t)take(2), ack = p.ack;
    size_t n = take_bytes(data, sizeof(data));

    p.ack += (int16_t)take(2);
    peer_segment(&p, flags, seq, data, n);
    if (seq == p.nxt && !(flags & SYN)) p.nxt += n + !!(flags & FIN);
    p.ack = ack;
}

/* A TCP or UDP packet for our address. The input has its bytes from the IP options on. */
static void one_packet(void) {
    u8 f[1600] = { 2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0 };
    size_t n;

    f[14] = 0x45;
    n = 34 + take_bytes(f + 34, 1400);
    f[16] = (n - 14) >> 8;
    f[17] = n - 14;
    f[22] = 64;                 /* time to live */
    f[23] = 17;                 /* UDP */
    if (take(1) & 1) f[23] = 6; /* TCP */
    f[26] = 10;                 /* from 10.0.0.2 to 10.0.0.1 */
    f[29] = 2;
    f[30] = 10;
    f[33] = 1;
    if (take(1) & 1) {
        f[34] = p.port >> 8;
        f[35] = p.port;
        f[36] = p.to >> 8;
        f[37] = p.to;
    }
    if (take(1) & 1) f[14 + take(1) % 20] = take(1);
    wire_fix_sums(f, n);
    wire_frame(f, n);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size) {
    static size_t heap;
    static unsigned buffers;
    static u16 port;
    struct sock_options options = { .rcvbuf = NET_RCVBUF_MIN };
    u8 buf[2000];

    in = data;
    in_end = data + size;
    if (take(1) & 1)
        wire_start(NET_OWNER, true);
    else
        wire_start(NET_PLAIN, true);
    owned = false;
    if (sock_open(SOCK_TCP, &options, &listener) || sock_bind(listener, 5001) ||
        sock_listen(listener, 2))
        abort();
    if (sock_open(SOCK_UDP, &options, &udp) || sock_bind(udp, 5001)) abort();
    peer_connect(&p, 1024 + ++port % 30000, 5001, take(1) & 1);
    if (sock_accept(listener, &s, 0)) abort();
    while (in < in_end) {
        switch (take(1) % 13) {
        case 0: wire_frame(buf, take_bytes(buf, sizeof(buf))); break;
        case 1: one_packet(); break;
        case 2 ... 5: one_segment(); break;
        case 6:
            if (s->backlog.count) wire_poll();
            if (!owned) sock_own(s);
            owned = true;
            break;
        case 7:
            if (owned) sock_release(s);
            owned = false;
            break;
        case 8:
            if (!owned) sock_recv(s, buf, sizeof(buf), 0);
            sock_recv_from(udp, buf, sizeof(buf), NULL, NULL, 0);
            break;
        case 9: sock_send(s, buf, take(1), 0); break;
        case 10: wire_pass(take(1) * 8); break;
        case 12: /* a flood of segments in order, whatever the window is */
            for (u32 n = take(1) % 64; n; n--) peer_data(&p, p.nxt - p.iss - 1, 1460);
            break;
        case 11:
            net_set_early_ack(take(1) & 1);
            wire_poll();
            break;
        }
        peer_hear(&p);
    }
    wire_end();
    wire_pass(600);
    if (net_stats()->early_lost) abort();
    if (!heap) {
        heap = wire_heap();
        buffers = wire_buffers();
    }
    if (wire_heap() > heap + 4096 || wire_buffers() != buffers)
        abort(); /* ARP entries may hold a packet each */
    return 0;
}
