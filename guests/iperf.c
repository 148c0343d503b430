/* A server of iperf 2 for TCP and UDP. Its clients are this guest itself, load.c, and the program
 * iperf of any system. It serves one connection and one flow of datagrams at a time, and prints
 * what it has received. For datagrams it also prints loss and jitter (RFC 3550, 6.4.1), and reports
 * them to the client. With to=A.B.C.D it is a client instead (netstack/iperf.h).
 *
 * Command line of the server:
 *
 *   port=P (5001)
 *   rcvbuf=BYTES (262144)  the receive buffer of a socket
 *   idle_ms=T              ends when after a connection there was no other one for so long
 *   check                  a stream has to be that of netstack/iperf.h, else the exit code is not 0
 *   busy, busy=P           one more thread computes, on the vCPU of the thread that serves
 *                          (guest/background.h)
 *   work=N                 executes about N instructions for each byte that it receives
 *   each=N                 executes about N instructions for what each call returns, be it long or
 *                          short
 *   in_place               does work and check where the data lie, while the socket is owned
 *                          (sock_recv_in_place())
 *
 * netstack/start.h has more words. */
#include <guest/background.h>
#include <guest/guest.h>
#include <guest/mem.h>
#include <guest/printf.h>
#include <guest/thread.h>
#include <netstack/iperf.h>
#include <netstack/socket.h>
#include <netstack/start.h>

#define CONNECTIONS 2 /* one that is served, and one that waits */
#define PIECE       16384
/* When no datagram came for so long, a flow counts as over, even if its last datagram was lost. */
#define QUIET NS_PER_S

static u16 port;
static struct sock_options options;
static bool check, in_place;
static u64 idle, work, each;
static u32 wrong;

/* Prints the counters of the network stack, for the tools that compare set-ups. */
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

/* Returns the rate in hundredths of Mb/s. */
static u64 mbps100(u64 bytes, u64 ns) {
    if (!ns) return 0;
    return bytes * 8 * 100 * 1000 / ns;
}

/* Executes about so many instructions. */
static void work_for(u64 instructions) {
    /* A turn of the loop has two instructions. */
    for (u64 i = instructions / 2; i; i--) __asm__ volatile("");
}

/* ---- TCP ---- */

struct stream {
    u64 bytes, first, last; /* first, last: when data came first and last, in ns */
    u32 wrong;              /* bytes that were not the right digit */
    u64 to_come;            /* instructions that are still to be executed for this call */
};

/* Handles a piece of data of a TCP stream, as a sock_take_fn: counts it, and does what the command
 * line asks of a reader, such as to check each byte, or to compute for each. */
static void take(void *arg, const u8 *p, size_t n) {
    struct stream *stream = arg;

    stream->last = time_ns();
    if (!stream->first) stream->first = stream->last;
    if (check)
        for (u64 i = 0; i < n; i++) {
            u64 at = stream->bytes + i;
            u8 right = 0;

            if (at >= IPERF_STREAM_HEAD) right = (u8)('0' + at % 10);
            stream->wrong += p[i] != right;
        }
    work_for(n * work + stream->to_come);
    stream->to_come = 0;
    stream->bytes += n;
}

/* Receives one stream to its end and prints its rate. Time counts from the first to the last data,
 * so that a client that connects early changes nothing. */
static void serve_connection(struct sock *s, u8 *buffer) {
    struct stream stream = { 0 };
    u64 ns;
    i64 n;

    for (;;) {
        stream.to_come = each;
        if (in_place)
            n = sock_recv_in_place(s, PIECE, take, &stream, NET_FOREVER);
        else
            n = sock_recv(s, buffer, PIECE, NET_FOREVER);
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

/* Serves one connection after the other. It ends when none has come for `idle`. */
static void tcp_server(void *arg) {
    u8 *buffer = malloc(PIECE);
    struct sock *s, *c;
    u64 deadline = NET_FOREVER;

    if (!buffer || sock_open(SOCK_TCP, &options, &s) || sock_bind(s, port) ||
        sock_listen(s, CONNECTIONS))
        guest_panic("iperf: there is no TCP socket");
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
    u32 highest, datagrams, out_of_order; /* highest: the highest number */
    /* Ns, of the last datagram, plus how far apart the two clocks are. */
    i64 transit;
    u64 jitter; /* ns */
    u8 report[IPERF_REPORT_SIZE];
} flow;

/* Returns whether the datagram begins a new flow. A client whose last datagrams were lost must not
 * keep others out. A flow that has ended must not begin again with a datagram that arrives late. */
static bool begins(u32 ip, u16 port, u32 number, u64 now) {
    bool same = ip == flow.ip && port == flow.port;

    if (same && !flow.over) return false;
    return now - flow.last > QUIET || (flow.over && (!same || number == 1)) || !flow.datagrams;
}

/* Counts a datagram. The last one counts too, but its time does not, because it may be one of many
 * copies that the client has sent. */
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

/* Computes and prints the result of a flow, whose last datagram has come. */
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

/* Counts a datagram if it belongs to the flow; answers the last one with the report, every time
 * that it comes, because the client repeats it until it has the answer. */
static void take_datagram(struct sock *s, const u8 *p, u64 n, u32 ip, u16 port) {
    struct iperf_head h = iperf_head(p);
    u64 now = time_ns();

    if (!h.last && begins(ip, port, h.number, now))
        flow = (typeof(flow)){ .ip = ip, .port = port };
    else if (ip != flow.ip || port != flow.port || !flow.datagrams)
        return;
    if (!flow.over) {
        count(&h, n, now);
        work_for(n * work);
    }
    if (h.last) { /* again, if our answer was lost or late */
        if (!flow.over) end_flow();
        sock_send_to(s, flow.report, sizeof(flow.report), ip, port, NET_FOREVER);
    }
}

/* Datagrams that are too short to have a head are ignored. */
static void udp_server(void *arg) {
    static u8 p[2048];
    struct sock *s;
    u32 ip;
    u16 from;
    i64 n;

    if (sock_open(SOCK_UDP, &options, &s) || sock_bind(s, port))
        guest_panic("iperf: there is no UDP socket");
    while ((n = sock_recv_from(s, p, sizeof(p), &ip, &from, NET_FOREVER)) >= 0)
        if (n >= IPERF_DATAGRAM) take_datagram(s, p, (u64)n, ip, from);
}

/* Runs the tests of netstack/iperf.h as a client, or serves; as a server it ends with the TCP
 * server. */
int main(void) {
    struct thread *t;

    if (cmdline_has("to")) {
        if (net_start(2 * net_bufs_for(NET_RCVBUF_MIN))) guest_panic("iperf: there is no network");
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
        guest_panic("iperf: there is no network");
    t = thread_start(net_thread_vcpu(), "tcp", tcp_server, NULL);
    thread_start(net_thread_vcpu(), "udp", udp_server, NULL);
    background_start(net_thread_vcpu());
    if (!t) guest_panic("iperf: no thread can be started on vCPU %u", net_thread_vcpu());
    thread_join(t);
    return wrong != 0;
}
