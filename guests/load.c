/* Traffic inside the machine, for iperf.c or the server of iperf 2 at to=A.B.C.D (10.0.0.2), port=P (5001).
 * From start_ms=M (0) after it has its network, one after the other:
 *
 *   tcp=BYTES or tcp_ms=T    a TCP stream of so many bytes, or for so long; sndbuf=BYTES (65536)
 *   udp_ms=T udp_rate=R      datagrams of udp_size=S (1470) bytes, R (1000000) bits of them a second, evenly
 *   ping_ms=T ping_rate=R    R (100) echo requests a second, at random with seed=S (1), whatever has been
 *                            answered
 *
 * and what netstack/virtio.h has. The exit code is 0 if all of TCP was taken and the first answer came.
 */
#include <guest/arrivals.h>
#include <guest/guest.h>
#include <guest/printf.h>
#include <guest/string.h>
#include <guest/thread.h>
#include <netstack/ping.h>
#include <netstack/socket.h>
#include <netstack/virtio.h>

#define PIECE 16380 /* of digits, so a multiple of 10 */
#define RETRY (50 * NS_PER_MS)

static u32 to;
static u16 port;
static u8 digits[PIECE];

/* The server may not be there yet. */
static struct sock *connect(void) {
    struct sock_options options = { NET_RCVBUF_MIN, (u32)cmdline_u64("sndbuf", 65536) };
    struct sock *s;

    for (;;) {
        int error = sock_open(SOCK_TCP, &options, &s);

        if (error) guest_panic("load: no socket: %d", error);
        error = sock_connect(s, to, port, NET_FOREVER);
        if (!error) return s;
        sock_close(s);
        sleep_ns(RETRY);
    }
}

/* False: the server ended it. */
static bool stream(u64 bytes, u64 ns) {
    struct sock *s = connect();
    u64 start = time_ns(), sent = 0;
    u8 rest[16];
    i64 n;

    while (sent < bytes && time_ns() - start < ns) {
        n = sock_send(s, digits, MIN(bytes - sent, (u64)PIECE), NET_FOREVER);
        if (n < 0) break;
        sent += (u64)n;
    }
    sock_shutdown(s);
    while ((n = sock_recv(s, rest, sizeof(rest), NET_FOREVER)) > 0)
        ;
    printf("load: tcp %lu bytes in %lu ns, end %ld\n", sent, time_ns() - start, n);
    sock_close(s);
    return n == 0;
}

/* ---- UDP ---- */

static void put_be32(u8 *p, u32 v) {
    for (u32 i = 4; i--; v >>= 8) p[i] = (u8)v;
}

/* As a client of iperf 2 has it: number, seconds, microseconds; the last number is negative. */
static void head(u8 *p, i64 number) {
    u64 us = time_ns() / NS_PER_US;

    put_be32(p, (u32)number);
    put_be32(p + 4, (u32)(us / 1000000));
    put_be32(p + 8, (u32)(us % 1000000));
}

static void datagrams(u64 ns, u64 rate, u32 size) {
    struct sock_options options = { NET_RCVBUF_MIN, 65536 };
    u64 start, interval = size * 8 * NS_PER_S / rate;
    struct sock *s;
    i64 n = 0;
    u8 *p = digits;

    if (sock_open(SOCK_UDP, &options, &s)) guest_panic("load: no socket");
    start = time_ns();
    for (; (u64)n * interval < ns; n++) {
        while (time_ns() < start + (u64)n * interval) sleep_until(start + (u64)n * interval);
        head(p, n);
        sock_send_to(s, p, size, to, port, NET_FOREVER);
    }
    printf("load: udp %ld datagrams of %u bytes in %lu ns\n", n, size, time_ns() - start);
    for (u32 i = 0; i < 5; i++) { /* some may be lost */
        head(p, -n);
        sock_send_to(s, p, size, to, port, NET_FOREVER);
        sleep_ns(RETRY);
    }
    sock_close(s);
}

/* ---- echo: all in interrupts of vCPU 0, where the bottom half is ---- */

#define MOST 8192

static struct {
    u64 sent[MOST];
    u32 rtt[MOST]; /* ns; sorted at the end */
    u32 requests, answers;
    u64 end;
    struct arrivals next;
    struct timer timer;
    struct semaphore over;
} echo;

static void on_reply(u32 ip, u16 id, u16 seq) {
    if (ip != to || seq >= echo.requests || !echo.sent[seq]) return;
    echo.rtt[echo.answers++] = (u32)MIN(time_ns() - echo.sent[seq], 0xffffffffull);
    echo.sent[seq] = 0;
}

static void on_echo_timer(struct timer *t) {
    if (echo.requests == MOST || echo.next.next >= echo.end) {
        sem_up(&echo.over);
        return;
    }
    echo.sent[echo.requests] = time_ns();
    net_ping(to, (u16)takt_vm_id(), (u16)echo.requests++);
    net_guest_run();
    arrivals_advance(&echo.next);
    timer_start(t, echo.next.next, on_echo_timer, NULL);
}

static void sort(u32 *a, u32 n) {
    for (u32 gap = n / 2; gap; gap /= 2)
        for (u32 i = gap; i < n; i++)
            for (u32 j = i; j >= gap && a[j - gap] > a[j]; j -= gap) {
                u32 t = a[j];

                a[j] = a[j - gap];
                a[j - gap] = t;
            }
}

static bool ping(u64 ns, u64 rate) {
    u64 sum = 0, flags = irq_save();

    sem_init(&echo.over, 0);
    echo.next = arrivals_begin(cmdline_u64("seed", 1), rate, time_ns());
    echo.end = time_ns() + ns;
    net_ping_on_reply(on_reply);
    timer_start(&echo.timer, echo.next.next, on_echo_timer, NULL);
    irq_restore(flags);
    sem_down(&echo.over);
    sleep_ns(NS_PER_S / 2); /* answers that are under way */
    flags = irq_save();
    net_ping_on_reply(NULL);
    irq_restore(flags);
    sort(echo.rtt, echo.answers);
    for (u32 i = 0; i < echo.answers; i++) sum += echo.rtt[i];
    if (!echo.answers) {
        printf("load: echo %u requests, no answer\n", echo.requests);
        return false;
    }
    printf("load: echo %u requests, %u answers, rtt ns p50 %u p99 %u max %u mean %lu\n", echo.requests,
           echo.answers, echo.rtt[(echo.answers - 1) / 2], echo.rtt[(echo.answers * 99 + 99) / 100 - 1],
           echo.rtt[echo.answers - 1], sum / echo.answers);
    return true;
}

int main(void) {
    u64 bytes = cmdline_u64("tcp", 0), ns = cmdline_u64("tcp_ms", 0) * NS_PER_MS;
    bool ok = true;

    for (u32 i = 0; i < PIECE; i++) digits[i] = (u8)('0' + i % 10);
    to = net_cmdline_ip("to", 0x0a000002);
    port = (u16)cmdline_u64("port", 5001);
    if (net_start(8 * net_bufs_for(NET_RCVBUF_MIN))) guest_panic("load: no network");
    sleep_ns(cmdline_u64("start_ms", 0) * NS_PER_MS + 1);
    if (bytes || ns) ok = stream(bytes ? bytes : ~0ull, ns ? ns : ~0ull);
    if (cmdline_has("udp_ms"))
        datagrams(cmdline_u64("udp_ms", 0) * NS_PER_MS, MAX(cmdline_u64("udp_rate", 1000000), 1ull),
                  (u32)MIN(MAX(cmdline_u64("udp_size", 1470), 16ull), 1470ull));
    if (cmdline_has("ping_ms"))
        ok &= ping(cmdline_u64("ping_ms", 0) * NS_PER_MS, cmdline_u64("ping_rate", 100));
    sleep_ns(NS_PER_S / 4); /* for the last acknowledgement */
    return !ok;
}
