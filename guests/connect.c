/* Opens connections to httpd.c at a fixed rate, as httperf does. Each connection gets one page and
 * ends. It begins when it is due, whether or not others have ended (open loop), as long as one of
 * `most` threads is free. Times count from when a connection was due.
 *
 *   to=A.B.C.D (10.0.0.2)  port=P (80)   the server
 *   rate=R (100)     connections a second
 *   run_ms=T (1000)  for how long connections are due
 *   size=BYTES (5120) of the page
 *   most=N (64)      connections at a time
 *   timeout_ms=T (5000)  a connection that takes longer has failed
 *   start_ms=T (0)   when the first one is due
 *
 * netstack/start.h has more words. It prints how many connections had their page, how long it took
 * from when they were due to the connection and to the first byte, and the rate at which pages
 * came. The exit code is 0 if at least one page came and none was wrong. */
#include <guest/guest.h>
#include <guest/printf.h>
#include <guest/string.h>
#include <guest/thread.h>
#include <netstack/socket.h>
#include <netstack/start.h>
#include "common/hist.h"

#define MAX_THREADS 128

static const struct sock_options options = { NET_RCVBUF_MIN, 4096 };
static struct mutex lock = MUTEX; /* guards what follows */
static struct hist connected, responded;
static u64 start, next, end, interval, last;
static u32 done, failed, wrong;

static u32 to;
static u16 port;
static u64 size, timeout;
static char request[64];

/* Returns when the next connection is due, or 0 if there is no other one. */
static u64 take_next(void) {
    u64 due = 0;

    mutex_lock(&lock);
    if (next < end) {
        due = next;
        next += interval;
    }
    mutex_unlock(&lock);
    return due;
}

/* Receives the answer to the end of the connection. Returns how many bytes came, or a negative
 * errno; *first is the time of the first one. */
static i64 receive(struct sock *s, u64 deadline, u64 *first) {
    static u8 in[4096]; /* nobody reads it */
    u64 sum = 0;
    i64 n;

    while ((n = sock_recv(s, in, sizeof(in), deadline)) > 0) {
        if (!sum) *first = time_ns();
        sum += (u64)n;
    }
    return n < 0 ? n : (i64)sum;
}

/* Opens the connection that was due at the time `due`, gets the page, and closes the connection.
 * Notes how long it took until the connection was made and until the answer came, both counted from
 * `due`. */
static void get(u64 due) {
    u64 at, first = 0, deadline = due + timeout;
    struct sock *s;
    i64 n = -EAGAIN;

    if (sock_open(SOCK_TCP, &options, &s)) guest_panic("connect: there is no socket");
    if (sock_connect(s, to, port, deadline)) goto out;
    at = time_ns();
    if (sock_send(s, request, strlen(request), deadline) != (i64)strlen(request)) goto out;
    n = receive(s, deadline, &first);
out:
    if (n < 0)
        sock_abort(s);
    else
        sock_close(s);
    mutex_lock(&lock);
    if (n < 0) {
        failed++;
    } else {
        done++;
        wrong += n < (i64)size; /* the head comes on top of the page */
        hist_add(&connected, at - due);
        hist_add(&responded, first - due);
        last = time_ns();
    }
    mutex_unlock(&lock);
}

static void work(void *arg) {
    for (u64 due; (due = take_next());) {
        while (time_ns() < due) sleep_until(due);
        get(due);
    }
}

/* Opens the connections, and prints how many were answered and how long that took. Returns 1 if a
 * page was wrong or none came. */
int main(void) {
    struct thread *t[MAX_THREADS];
    u32 most = (u32)MIN(MAX(cmdline_u64("most", 64), 1ull), (u64)MAX_THREADS);

    to = net_cmdline_ip("to", 0x0a000002);
    port = (u16)cmdline_u64("port", 80);
    size = cmdline_u64("size", 5120);
    timeout = cmdline_u64("timeout_ms", 5000) * NS_PER_MS;
    snprintf(request, sizeof(request), "GET /%lu HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
             size);
    if (net_start(2 * most * net_bufs_for(options.rcvbuf)))
        guest_panic("connect: there is no network");
    interval = NS_PER_S / MAX(cmdline_u64("rate", 100), 1ull);
    start = next = time_ns() + cmdline_u64("start_ms", 0) * NS_PER_MS + 1;
    end = start + cmdline_u64("run_ms", 1000) * NS_PER_MS;
    for (u32 i = 0; i < most; i++) {
        t[i] = thread_start(net_thread_vcpu(), "connection", work, NULL);
        if (!t[i]) guest_panic("connect: there is no memory for %u threads", most);
    }
    for (u32 i = 0; i < most; i++) thread_join(t[i]);
    printf("connect: %u pages of %lu bytes in %lu ns, %u failed, %u wrong\n", done, size,
           last ? last - start : 0, failed, wrong);
    printf("connect: ns until connected mean %lu p99 %lu, until the answer mean %lu p99 %lu\n",
           connected.sum / MAX(connected.count, (u64)1), hist_percentile(&connected, 990),
           responded.sum / MAX(responded.count, (u64)1), hist_percentile(&responded, 990));
    sleep_ns(NS_PER_S / 4); /* time for the last acknowledgement to go out */
    return !done || wrong;
}
