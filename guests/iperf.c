/* A server for clients of iperf 2, TCP and UDP, one of each at a time: takes what comes and reports it; of
 * datagrams also loss and jitter (RFC 3550, 6.4.1), to itself: the client gets no report. With idle_ms=T it
 * ends when for so long after a TCP connection there was no other.
 *
 * Command line: port=P (5001); rcvbuf=BYTES of a socket (262144); check: the stream has to be that of iperf
 * and of load.c, digits in order, else the exit code says so; busy: one more thread computes, on the vCPU of
 * the one that serves; and what netstack/virtio.h has.
 */
#include <guest/guest.h>
#include <guest/mem.h>
#include <guest/printf.h>
#include <guest/thread.h>
#include <netstack/socket.h>
#include <netstack/virtio.h>

#define CONNECTIONS 1
#define PIECE       16384

static u16 port;
static struct sock_options options;
static bool check;
static u64 idle;
static u32 wrong;

static void print_counters(void) {
    const struct net_stats *n = net_stats();
    const struct net_device_stats *d = net_device_stats();

    printf("iperf: acks early=%lu bottom_half=%lu process=%lu timer=%lu suppressed=%lu backlog=%lu "
           "backlog_most=%lu\n",
           n->ack_early, n->ack_bottom_half, n->ack_process, n->ack_timer, n->ack_suppressed,
           n->backlog_segments, n->backlog_highest);
    printf("iperf: frames rx=%lu turns=%lu batch_most=%u rx_dropped=%lu no_room=%lu tx=%lu tx_dropped=%lu\n",
           d->frames, d->polls, d->batch_most, n->rx_dropped, n->drop_no_room, n->tx_frames, n->tx_dropped);
}

/* bits a second, in 1/100 Mb/s */
static u64 mbps100(u64 bytes, u64 ns) { return ns ? bytes * 8 * 100 * 1000 / ns : 0; }

/* ---- TCP ---- */

static u32 wrong_digits(const u8 *p, u64 n, u64 at) {
    u32 bad = 0;

    for (u64 i = 0; i < n; i++) bad += p[i] != '0' + (at + i) % 10;
    return bad;
}

static void serve_connection(struct sock *s, u8 *piece) {
    u64 bytes = 0, first = 0, last = 0;
    i64 n;
    u32 bad = 0;

    while ((n = sock_recv(s, piece, PIECE, NET_FOREVER)) > 0) {
        last = time_ns();
        if (!first) first = last;
        if (check) bad += wrong_digits(piece, (u64)n, bytes);
        bytes += (u64)n;
    }
    sock_close(s);
    wrong += bad || n < 0;
    printf("iperf: tcp %lu bytes in %lu ns, %lu.%02lu Mb/s, %u wrong, end %ld\n", bytes, last - first,
           mbps100(bytes, last - first) / 100, mbps100(bytes, last - first) % 100, bad, n);
    print_counters();
}

static void tcp_server(void *arg) {
    u8 *piece = malloc(PIECE);
    struct sock *s, *c;
    u64 deadline = NET_FOREVER;

    if (!piece || sock_open(SOCK_TCP, &options, &s) || sock_bind(s, port) || sock_listen(s, CONNECTIONS))
        guest_panic("iperf: no TCP socket");
    while (sock_accept(s, &c, deadline) == 0) {
        serve_connection(c, piece);
        if (idle) deadline = time_ns() + idle;
    }
}

/* ---- UDP ---- */

static struct {
    u64 bytes, first, last;
    u32 datagrams, out_of_order, highest; /* highest: one more than the highest number */
    i64 transit;                          /* ns, but for how far the clocks are apart */
    u64 jitter;                           /* ns */
} udp;

static u32 be32(const u8 *p) { return (u32)p[0] << 24 | (u32)p[1] << 16 | (u32)p[2] << 8 | p[3]; }

static void count_datagram(const u8 *p, u64 n, u64 now) {
    u32 number = be32(p);
    i64 transit = (i64)now - (i64)(be32(p + 4) * NS_PER_S + be32(p + 8) * NS_PER_US);
    i64 d = transit - udp.transit;

    if (!udp.datagrams++)
        udp.first = now;
    else
        udp.jitter += ((d < 0 ? -d : d) - (i64)udp.jitter) / 16;
    udp.transit = transit;
    udp.last = now;
    udp.bytes += n;
    if (number < udp.highest)
        udp.out_of_order++;
    else
        udp.highest = number + 1;
}

static void report_datagrams(u32 sent) {
    u64 ns = udp.last - udp.first, rate = mbps100(udp.bytes, ns);

    printf("iperf: udp %lu bytes in %lu ns, %lu.%02lu Mb/s, %u of %u datagrams lost, %u out of order, jitter "
           "%lu "
           "ns\n",
           udp.bytes, ns, rate / 100, rate % 100, sent - MIN(udp.datagrams, sent), sent, udp.out_of_order,
           udp.jitter);
    print_counters();
    udp = (typeof(udp)){ 0 };
}

static void udp_server(void *arg) {
    static u8 p[2048];
    struct sock *s;
    i64 n;

    if (sock_open(SOCK_UDP, &options, &s) || sock_bind(s, port)) guest_panic("iperf: no UDP socket");
    while ((n = sock_recv_from(s, p, sizeof(p), NULL, NULL, NET_FOREVER)) >= 0) {
        if (n < 12) continue;
        if ((int32_t)be32(p) >= 0)
            count_datagram(p, (u64)n, time_ns());
        else if (udp.datagrams)
            report_datagrams(-be32(p)); /* the last one: it tells how many there were */
    }
}

static void compute(void *arg) {
    for (volatile u64 n = 0;; n++)
        ;
}

int main(void) {
    struct thread *t;

    port = (u16)cmdline_u64("port", 5001);
    options.rcvbuf = (u32)cmdline_u64("rcvbuf", 256 << 10);
    check = cmdline_has("check");
    idle = cmdline_u64("idle_ms", 0) * NS_PER_MS;
    if (net_start((CONNECTIONS + 2) * net_bufs_for(options.rcvbuf))) guest_panic("iperf: no network");
    t = thread_start(net_thread_vcpu(), "tcp", tcp_server, NULL);
    thread_start(net_thread_vcpu(), "udp", udp_server, NULL);
    if (cmdline_has("busy")) thread_start(net_thread_vcpu(), "compute", compute, NULL);
    if (!t) guest_panic("iperf: no memory");
    thread_join(t);
    return wrong != 0;
}
