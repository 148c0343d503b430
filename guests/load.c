/* A source of traffic inside the machine, for iperf.c or the server of iperf 2 at to=A.B.C.D (10.0.0.2),
 * port=P (5001): from start_ms=M (0) after it has its network
 *
 *   tcp=BYTES or tcp_ms=T    a TCP stream of so many bytes, or for so long; sndbuf=BYTES (65536)
 *
 * and what netstack/virtio.h has. The exit code is 0 if all of it was taken.
 */
#include <guest/guest.h>
#include <guest/mem.h>
#include <guest/printf.h>
#include <guest/thread.h>
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

int main(void) {
    u64 bytes = cmdline_u64("tcp", 0), ns = cmdline_u64("tcp_ms", 0) * NS_PER_MS;
    bool ok = true;

    for (u32 i = 0; i < PIECE; i++) digits[i] = (u8)('0' + i % 10);
    to = net_cmdline_ip("to", 0x0a000002);
    port = (u16)cmdline_u64("port", 5001);
    if (net_start(8 * net_bufs_for(NET_RCVBUF_MIN))) guest_panic("load: no network");
    sleep_ns(cmdline_u64("start_ms", 0) * NS_PER_MS + 1);
    if (bytes || ns) ok = stream(bytes ? bytes : ~0ull, ns ? ns : ~0ull);
    sleep_ns(NS_PER_S / 4); /* for the last acknowledgement */
    return !ok;
}
