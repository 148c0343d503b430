/* The protocol of the measuring program iperf, version 2, and its client. A TCP test is a stream of
 * digits; a UDP test is a flow of numbered datagrams, whose last one has a negative number and is
 * answered with the server's report. iperf.h has the contracts. */
#include <guest/guest.h>
#include <guest/mem.h>
#include <guest/printf.h>
#include <guest/string.h>
#include <guest/thread.h>
#include <netstack/iperf.h>
#include <netstack/socket.h>
#include <netstack/start.h>

/* Bytes that are sent at once, if the command line says nothing else; a multiple of 10, so that
 * each piece begins with digit 0. */
#define PIECE   16380
#define LONGEST 1470
/* How long the client waits for the server's report before it asks again. */
#define ANSWER        (20 * NS_PER_MS)
#define TRIES         250
#define FLAG_VERSION1 0x80000000u
#define FLAG_NUMBER64 0x08000000u /* numbers and counts have an upper half, in another word */

static u8 digits[PIECE];
static u8 *piece = digits; /* what a stream consists of */
static u32 piece_bytes = PIECE;

/* ---- the format: words of 32 bits, big endian ---- */

/* Returns word n of the packet. */
static u32 get_word(const u8 *p, u32 n) {
    p += 4 * n;
    return (u32)p[0] << 24 | (u32)p[1] << 16 | (u32)p[2] << 8 | p[3];
}

/* Writes word n of the packet; what of `v` is beyond 32 bits is left out. */
static void put_word(u8 *p, u32 n, u64 v) {
    p += 4 * n;
    for (u32 i = 4; i--; v >>= 8) p[i] = (u8)v;
}

/* Reads word 0 only. The upper half of the number is in word 3, but nobody here sends 2^31
 * datagrams. */
struct iperf_head iperf_head(const u8 *p) {
    i64 number = (int32_t)get_word(p, 0);

    return (struct iperf_head){ .number = (u32)MAX(number, -number),
                                .last = number < 0,
                                .ns = get_word(p, 1) * NS_PER_S + get_word(p, 2) * NS_PER_US };
}

/* Writes the head of a datagram: its number, and when it was sent. */
static void put_head(u8 *p, i64 number, u64 ns) {
    memset(p, 0, IPERF_DATAGRAM);
    put_word(p, 0, (u64)number);
    put_word(p, 1, ns / NS_PER_S);
    put_word(p, 2, ns % NS_PER_S / NS_PER_US);
    put_word(p, 3, (u64)number >> 32);
    put_word(p, 4, FLAG_NUMBER64);
}

/* Writes a server's report into the payload `p` of a datagram. The places of the words are those of
 * iperf 2's `server_hdr`. */
void iperf_put_report(u8 *p, const struct iperf_report *r) {
    memset(p, 0, IPERF_REPORT_SIZE);
    put_word(p, 4, FLAG_VERSION1 | FLAG_NUMBER64);
    put_word(p, 5, r->bytes >> 32);
    put_word(p, 6, r->bytes);
    put_word(p, 7, r->ns / NS_PER_S);
    put_word(p, 8, r->ns % NS_PER_S / NS_PER_US);
    put_word(p, 9, r->lost);
    put_word(p, 10, r->out_of_order);
    put_word(p, 11, r->datagrams);
    put_word(p, 12, r->jitter_ns / NS_PER_S);
    put_word(p, 13, r->jitter_ns % NS_PER_S / NS_PER_US);
}

/* Reads what iperf_put_report() or iperf itself has written. */
static struct iperf_report get_report(const u8 *p) {
    return (struct iperf_report){ .bytes = (u64)get_word(p, 5) << 32 | get_word(p, 6),
                                  .ns = get_word(p, 7) * NS_PER_S + get_word(p, 8) * NS_PER_US,
                                  .lost = get_word(p, 9),
                                  .out_of_order = get_word(p, 10),
                                  .datagrams = get_word(p, 11),
                                  .jitter_ns =
                                      get_word(p, 12) * NS_PER_S + get_word(p, 13) * NS_PER_US };
}

/* ---- the client ---- */

/* Sends a TCP stream for so many bytes or so long, closes its own side, and waits until the server
 * closes, too: only then has everything arrived. Returns false if the server ended the stream
 * early. */
static bool send_stream(const char *who, u32 ip, u16 port, u64 bytes, u64 ns) {
    struct sock_options options = { NET_RCVBUF_MIN, (u32)cmdline_u64("sndbuf", 65536) };
    struct sock *s = net_connect(ip, port, &options);
    u64 start = time_ns(), sent = 0;
    u8 rest[16];
    i64 n;

    memset(piece, 0, IPERF_STREAM_HEAD);
    while (sent < bytes && time_ns() - start < ns) {
        n = sock_send(s, piece, MIN(bytes - sent, (u64)piece_bytes), NET_FOREVER);
        if (n < 0) break;
        sent += (u64)n;
        for (u32 i = 0; i < IPERF_STREAM_HEAD; i++) piece[i] = (u8)('0' + i);
    }
    sock_shutdown(s);
    while ((n = sock_recv(s, rest, sizeof(rest), NET_FOREVER)) > 0)
        ;
    printf("%s: tcp %lu bytes in %lu ns, end %ld\n", who, sent, time_ns() - start, n);
    sock_close(s);
    return n == 0;
}

/* Sends the last datagram again and again until the server answers with its report. A negative
 * number says that a datagram is the last one, and each repetition gets the next number (iperf.h).
 * Returns false if the server does not answer. */
static bool ask_for_report(struct sock *s, u8 *p, u32 size, i64 number, u32 ip, u16 port,
                           struct iperf_report *r) {
    static u8 answer[IPERF_REPORT_SIZE];
    u64 now = time_ns();

    for (u32 i = 0; i < TRIES; i++) {
        put_head(p, -(number + i), now);
        sock_send_to(s, p, size, ip, port, NET_FOREVER);
        if (sock_recv_from(s, answer, sizeof(answer), NULL, NULL, time_ns() + ANSWER) !=
            sizeof(answer))
            continue;
        *r = get_report(answer);
        return true;
    }
    return false;
}

/* Sends datagrams at a fixed rate for `ns`. Each is due at a time that is computed from the start,
 * so that a sender that was kept off its CPU makes up for it. Returns whether the server has sent
 * its report. */
static bool send_datagrams(const char *who, u32 ip, u16 port, u64 ns, u64 rate, u32 size) {
    struct sock_options options = { NET_RCVBUF_MIN, 65536 };
    u64 start, interval = size * 8 * NS_PER_S / rate;
    struct iperf_report r;
    struct sock *s;
    i64 n = 0;
    bool told;

    if (sock_open(SOCK_UDP, &options, &s)) guest_panic("%s: there is no socket", who);
    start = time_ns();
    for (; (u64)n * interval < ns; n++) {
        while (time_ns() < start + (u64)n * interval) sleep_until(start + (u64)n * interval);
        put_head(digits, n + 1, time_ns());
        sock_send_to(s, digits, size, ip, port, NET_FOREVER);
    }
    printf("%s: udp %ld datagrams of %u bytes in %lu ns\n", who, n, size, time_ns() - start);
    /* One more datagram, which is the last one. */
    told = ask_for_report(s, digits, size, n + 1, ip, port, &r);
    if (told)
        printf("%s: the server says %lu bytes in %lu ns, %u of %u datagrams lost, jitter %lu ns\n",
               who, r.bytes, r.ns, r.lost, r.datagrams, r.jitter_ns);
    else
        printf("%s: the server says nothing\n", who);
    sock_close(s);
    return told;
}

/* Makes what is sent, in pieces of the length that the command line asks for. */
static void make_pieces(const char *who) {
    piece_bytes = (u32)MIN(cmdline_u64("len", PIECE), 1ull << 20) / 10 * 10;
    piece_bytes = MAX(piece_bytes, 40u);
    if (piece_bytes > PIECE) piece = malloc(piece_bytes);
    if (!piece) guest_panic("%s: there is no memory for len=%u", who, piece_bytes);
    for (u32 i = 0; i < PIECE; i++) digits[i] = (u8)('0' + i % 10);
    for (u32 i = 0; i < piece_bytes; i++) piece[i] = (u8)('0' + i % 10);
}

/* Runs the tests that the command line asks for, first TCP and then UDP. Returns true if the server
 * took the whole stream and has reported on the datagrams. */
bool iperf_client(const char *who) {
    u64 bytes = cmdline_u64("tcp", 0), ns = cmdline_u64("tcp_ms", 0) * NS_PER_MS;
    u32 ip = net_cmdline_ip("to", 0x0a000002);
    u16 port = (u16)cmdline_u64("port", IPERF_PORT);
    bool ok = true;

    make_pieces(who);
    if (bytes || ns) {
        if (!bytes) bytes = ~0ull; /* there is no limit */
        if (!ns) ns = ~0ull;
        ok = send_stream(who, ip, port, bytes, ns);
    }
    if (cmdline_has("udp_ms"))
        ok &= send_datagrams(
            who, ip, port, cmdline_u64("udp_ms", 0) * NS_PER_MS,
            MAX(cmdline_u64("udp_rate", 1000000), 1ull),
            (u32)MIN(MAX(cmdline_u64("udp_size", LONGEST), (u64)IPERF_DATAGRAM), (u64)LONGEST));
    return ok;
}
