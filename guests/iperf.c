/* iperf 2, for the guest of the same name, load.c and the programs of that name elsewhere: a
 * server of TCP and UDP, of one connection and one flow of datagrams at a time; it prints what
 * it has got, of datagrams also loss and jitter (RFC 3550, 6.4.1), which it reports to the
 * client as well. With to=A.B.C.D it is a client instead: netstack/iperf.h.
 *
 * Command line of the server: port=P (5001); rcvbuf=BYTES of a socket (262144); idle_ms=T: ends
 * when for so long after a connection there was no other; check: a stream has to be that of
 * netstack/iperf.h, else the exit code says so; busy: one more thread computes, on the vCPU of
 * the one that serves; work=N, each=N: of the TCP stream, some N instructions for each byte, or
 * for what each call brings, whatever that is; in_place: that work, and the check, on the data
 * where they lie, while the socket is owned (sock_recv_in_place()); and what netstack/start.h
 * has. */
#include <guest/guest.h>
#include <guest/mem.h>
#include <guest/printf.h>
#include <guest/thread.h>
#include <netstack/iperf.h>
#include <netstack/socket.h>
#include <netstack/start.h>

#define CONNECTIONS 2 /* one that is served, one that waits */
#define PIECE       16384
/* after which a flow of datagrams counts as over, whatever its end was */
#define QUIET NS_PER_S

static u16 port;
static struct sock_options options;
static bool check, in_place;
static u64 idle, work, each;
static u32 wrong;

static void print_counters(void) {
    const struct net_stats *n = net_stats();
    const struct net_device_stats *d = net_device_stats();

    printf("iperf: acks early=%lu bottom_half=%lu process=%lu timer=%lu suppressed=%lu backlog=%lu "
           "backlog_most=%lu\n",
           n->ack_early, n->ack_bottom_half, n->ack_process, n->ack_timer, n->ack_suppressed,
           n->backlog_segments, n->backlog_highest);
    printf(
        "iperf: frames rx=%lu turns=%lu batch_most=%u rx_bad=%lu rx_dropped=%lu no_room=%lu tx=%lu "
        "tx_dropped=%lu rx_unsummed=%lu tx_unsummed=%lu\n",
        d->frames, d->polls, d->batch_most, d->bad, n->rx_dropped, n->drop_no_room, n->tx_frames,
        n->tx_dropped, n->rx_unsummed, n->tx_unsummed);
}

/* bits a second, in 1/100 Mb/s */
static u64 mbps100(u64 bytes, u64 ns) {
    if (!ns) return 0;
    return bytes * 8 * 100 * 1000 / ns;
}

/* ---- TCP ---- */

struct stream {
    u64 bytes, first, last;
    u32 wrong;   /* digits */
    u64 to_come; /* of the instructions of this call */
};

static void work_for(u64 instructions) {
    for (u64 i = instructions / 2; i; i--) __asm__ volatile(""); /* two a turn */
}

/* What the reader does with its data, wherever they are. */
static void take(void *arg, const u8 *p, size_t n) {
    struct stream *stream = arg;

    stream->last = time_ns();
    if (!stream->first) stream->first = stream->last;
    if (check)
        for (u64 i = 0; i < n; i++) {
            u64 at = stream->bytes + i;

            stream->wrong += p[i] != (at < IPERF_STREAM_HEAD ? 0 : '0' + at % 10);
        }
    work_for(n * work + stream->to_come);
    stream->to_come = 0;
    stream->bytes += n;
}

static void serve_connection(struct sock *s, u8 *buffer) {
    struct stream stream = { 0 };
    u64 ns;
    i64 n;

    for (;;) {
        stream.to_come = each;
        n = in_place ? sock_recv_in_place(s, PIECE, take, &stream, NET_FOREVER)
                     : sock_recv(s, buffer, PIECE, NET_FOREVER);
        if (n <= 0) break;
        if (!in_place) take(&stream, buffer, (size_t)n);
    }
    sock_close(s);
    ns = stream.last - stream.first;
    wrong += stream.wrong || n < 0;
    printf("iperf: tcp %lu bytes in %lu ns, %lu.%02lu Mb/s, %u wrong, end %ld\n", stream.bytes, ns,
           mbps100(stream.bytes, ns) / 100, mbps100(stream.bytes, ns) % 100, stream.wrong, n);
    print_counters();
}

static void tcp_server(void *arg) {
    u8 *buffer = malloc(PIECE);
    struct sock *s, *c;
    u64 deadline = NET_FOREVER;

    if (!buffer || sock_open(SOCK_TCP, &options, &s) || sock_bind(s, port) ||
        sock_listen(s, CONNECTIONS))
        guest_panic("iperf: no TCP socket");
    while (sock_accept(s, &c, deadline) == 0) {
        serve_connection(c, buffer);
        if (idle) deadline = time_ns() + idle;
    }
}

/* ---- UDP ---- */

static struct {
    u32 ip;
    u16 port;
    bool over;
    u64 bytes, first, last;
    u32 highest, datagrams, out_of_order; /* highest: number */
    i64 transit;                          /* ns, but for how far the clocks are apart */
    u64 jitter;                           /* ns */
    u8 report[IPERF_REPORT_SIZE];
} flow;

/* A client whose last datagrams were lost does not keep others out; one that has ended does not
 * begin again with a datagram that comes late. */
static bool begins(u32 ip, u16 port, u32 number, u64 now) {
    bool same = ip == flow.ip && port == flow.port;

    if (same && !flow.over) return false;
    return now - flow.last > QUIET || (flow.over && (!same || number == 1)) || !flow.datagrams;
}

/* The last one counts as a datagram, but its time does not: it may be one of many that were sent
 * for it. */
static void count(const struct iperf_head *h, u64 n, u64 now) {
    i64 transit = (i64)(now - h->ns), d = transit - flow.transit;

    flow.bytes += n;
    if (h->number <= flow.highest)
        flow.out_of_order++;
    else
        flow.highest = h->number;
    if (!flow.datagrams++)
        flow.first = now;
    else if (!h->last)
        flow.jitter += (MAX(d, -d) - (i64)flow.jitter) / 16;
    if (h->last) return;
    flow.transit = transit;
    flow.last = now;
}

static void end_flow(void) {
    u32 sent = flow.highest;
    struct iperf_report r = { .bytes = flow.bytes,
                              .ns = flow.last - flow.first,
                              .jitter_ns = flow.jitter,
                              .datagrams = sent,
                              .lost = sent - MIN(flow.datagrams, sent),
                              .out_of_order = flow.out_of_order };
    u64 rate = mbps100(r.bytes, r.ns);

    iperf_put_report(flow.report, &r);
    flow.over = true;
    printf("iperf: udp %lu bytes in %lu ns, %lu.%02lu Mb/s, %u of %u datagrams lost, %u out of "
           "order, jitter "
           "%lu ns\n",
           r.bytes, r.ns, rate / 100, rate % 100, r.lost, sent, r.out_of_order, r.jitter_ns);
    print_counters();
}

static void take_datagram(struct sock *s, const u8 *p, u64 n, u32 ip, u16 port) {
    struct iperf_head h = iperf_head(p);
    u64 now = time_ns();

    if (!h.last && begins(ip, port, h.number, now))
        flow = (typeof(flow)){ .ip = ip, .port = port };
    else if (ip != flow.ip || port != flow.port || !flow.datagrams)
        return;
    if (!flow.over) count(&h, n, now);
    if (h.last) { /* again, if our answer was lost or late */
        if (!flow.over) end_flow();
        sock_send_to(s, flow.report, sizeof(flow.report), ip, port, NET_FOREVER);
    }
}

static void udp_server(void *arg) {
    static u8 p[2048];
    struct sock *s;
    u32 ip;
    u16 from;
    i64 n;

    if (sock_open(SOCK_UDP, &options, &s) || sock_bind(s, port))
        guest_panic("iperf: no UDP socket");
    while ((n = sock_recv_from(s, p, sizeof(p), &ip, &from, NET_FOREVER)) >= 0)
        if (n >= IPERF_DATAGRAM) take_datagram(s, p, (u64)n, ip, from);
}

static void compute(void *arg) {
    for (volatile u64 n = 0;; n++)
        ;
}

int main(void) {
    struct thread *t;

    if (cmdline_has("to")) {
        if (net_start(2 * net_bufs_for(NET_RCVBUF_MIN))) guest_panic("iperf: no network");
        wrong = !iperf_client("iperf");
        sleep_ns(NS_PER_S / 4); /* for the last acknowledgement */
        return wrong != 0;
    }
    port = (u16)cmdline_u64("port", IPERF_PORT);
    options.rcvbuf = (u32)cmdline_u64("rcvbuf", 256 << 10);
    check = cmdline_has("check");
    in_place = cmdline_has("in_place");
    work = cmdline_u64("work", 0);
    each = cmdline_u64("each", 0);
    idle = cmdline_u64("idle_ms", 0) * NS_PER_MS;
    if (net_start((CONNECTIONS + 2) * net_bufs_for(options.rcvbuf)))
        guest_panic("iperf: no network");
    t = thread_start(net_thread_vcpu(), "tcp", tcp_server, NULL);
    thread_start(net_thread_vcpu(), "udp", udp_server, NULL);
    if (cmdline_has("busy")) thread_start(net_thread_vcpu(), "compute", compute, NULL);
    if (!t) guest_panic("iperf: no thread on vCPU %u", net_thread_vcpu());
    thread_join(t);
    return wrong != 0;
}
