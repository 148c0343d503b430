/* Requests and responses over TCP, with a histogram of how long they take. Without to= it is the
 * server:
 *
 *   port=P (7001)   workers=N (4) connections at a time
 *
 * With to=A.B.C.D it is a client, which uses one connection:
 *
 *   start_ms=M (0)  it waits for so long before it has its network
 *   count=N (1000)  requests of size=S (64) bytes, each answered by answer=A (1024) bytes
 *   rate=R          R requests a second, at random times that follow from seed=S (else from the
 *                   VM's own seed). The time of each counts from when it was due. Without a rate,
 *                   the next request goes when the last one has been answered
 *
 * netstack/start.h has more words. The exit code of the client is 0 if every answer came and was
 * right. */
#include <guest/arrivals.h>
#include <guest/guest.h>
#include <guest/printf.h>
#include <guest/string.h>
#include <guest/thread.h>
#include <netstack/socket.h>
#include <netstack/start.h>
#include "common/hist.h"

#define MAX_WORKERS 16
#define MOST        16384 /* bytes of a request, and of an answer */
#define PATIENCE    (10 * NS_PER_S)

/* The head of a request, in this machine's byte order. The answer begins with `number`. */
struct head {
    u32 number, size, answer;
};

static u16 port;

/* Sends all `n` bytes. Returns false if the connection ends, or if the client does not take them in
 * time. */
static bool send(struct sock *s, const void *p, u64 n) {
    return sock_send(s, p, n, time_ns() + PATIENCE) == (i64)n;
}

/* Byte `i` of answer `number`, for i of 4 and more. */
static u8 byte_of(u32 number, u32 i) { return (u8)(number + i); }

/* ---- the server ---- */

static struct sock *listener;
/* Held by the thread that accepts, because a listener may have one reader. */
static struct mutex accepting = MUTEX;

/* Answers one request. Returns false if the connection has ended, or if the request is not valid.
 */
static bool answer(struct sock *s, u8 *buffer) {
    struct head h;

    if (!sock_recv_exactly(s, &h, sizeof(h), PATIENCE) || h.size < sizeof(h) || h.size > MOST ||
        h.answer < 4 || h.answer > MOST ||
        !sock_recv_exactly(s, buffer, h.size - sizeof(h), PATIENCE))
        return false;
    memcpy(buffer, &h.number, 4);
    for (u32 i = 4; i < h.answer; i++) buffer[i] = byte_of(h.number, i);
    return send(s, buffer, h.answer);
}

/* Accepts a connection, answers its requests, and closes it, again and again, as a worker thread of
 * the server. */
static void work(void *buffer) {
    for (;;) {
        struct sock *s;
        int error;

        mutex_lock(&accepting);
        error = sock_accept(listener, &s, NET_FOREVER);
        mutex_unlock(&accepting);
        if (error) return;
        while (answer(s, buffer))
            ;
        if (sock_flush(s, time_ns() + NS_PER_S))
            sock_abort(s);
        else
            sock_close(s);
    }
}

/* Opens the port and starts the workers, which serve connections for ever. So this does not return
 * unless there is no network any more; then it returns 1. */
static int serve(u32 workers) {
    static u8 buffers[MAX_WORKERS][MOST];
    struct sock_options options = { NET_RCVBUF_MIN, 65536 };
    struct thread *t = NULL;

    if (net_start((2 * workers + 1) * net_bufs_for(options.rcvbuf)) ||
        sock_open(SOCK_TCP, &options, &listener) || sock_bind(listener, port) ||
        sock_listen(listener, 2 * workers))
        guest_panic("rr: there is no network");
    for (u32 i = 0; i < workers; i++)
        t = thread_start(net_thread_vcpu(), "worker", work, buffers[i]);
    if (!t) guest_panic("rr: there is no memory");
    thread_join(t);
    return 1;
}

/* ---- the client ---- */

static struct hist hist;

/* Returns whether the answer is that to request `number`. */
static bool right(const u8 *p, u32 number, u32 n) {
    bool same = !memcmp(p, &number, 4);

    for (u32 i = 4; same && i < n; i++) same = p[i] == byte_of(number, i);
    return same;
}

/* Prints how many answers took less than each power of two. The percentiles are finer, because the
 * histogram divides each power of two into eight. */
static void report(u64 ns, u32 wrong) {
    printf("rr: %lu answers in %lu ns, %u wrong; ns p50 %lu p90 %lu p99 %lu p99.9 %lu max %lu mean "
           "%lu\n",
           hist.count, ns, wrong, hist_percentile(&hist, 500), hist_percentile(&hist, 900),
           hist_percentile(&hist, 990), hist_percentile(&hist, 999), hist.max,
           hist.sum / MAX(hist.count, (u64)1));
    for (u32 octave = 0; octave < HIST_OCTAVES; octave++) {
        u64 n = 0;

        for (u32 i = 0; i < HIST_SUB; i++) n += hist.bucket[octave * HIST_SUB + i];
        if (n) printf("rr: under %lu ns %lu\n", (u64)HIST_SUB << octave, n);
    }
}

/* Sends requests as a client, and measures how long the answers take. With a rate, a request that
 * goes out late because the one before took long counts from when it was due: otherwise slow
 * answers would hide how long requests have to wait. */
static int ask(u32 to) {
    static u8 out[MOST], in[MOST];
    struct sock_options options = { NET_RCVBUF_MIN, 65536 };
    u64 count = cmdline_u64("count", 1000), rate = cmdline_u64("rate", 0), start;
    struct head h = { .size = (u32)MIN(MAX(cmdline_u64("size", 64), sizeof(h)), (u64)MOST),
                      .answer = (u32)MIN(MAX(cmdline_u64("answer", 1024), 4ull), (u64)MOST) };
    struct arrivals due;
    struct sock *s;
    u32 wrong = 0;

    if (net_start(2 * net_bufs_for(options.rcvbuf))) guest_panic("rr: there is no network");
    s = net_connect(to, port, &options);
    start = time_ns();
    due = arrivals_begin(cmdline_u64("seed", takt_seed()), rate, start);
    for (; h.number < count; h.number++) {
        u64 from = time_ns();

        if (rate) from = due.next;
        while (time_ns() < from) sleep_until(from);
        memcpy(out, &h, sizeof(h));
        if (!send(s, out, h.size) || !sock_recv_exactly(s, in, h.answer, PATIENCE)) break;
        hist_add(&hist, time_ns() - from);
        wrong += !right(in, h.number, h.answer);
        arrivals_advance(&due);
    }
    report(time_ns() - start, wrong);
    sock_close(s);
    sleep_ns(NS_PER_S / 4); /* time for the last acknowledgement to go out */
    return h.number != count || wrong;
}

int main(void) {
    u32 to = net_cmdline_ip("to", 0);

    port = (u16)cmdline_u64("port", 7001);
    if (to) {
        sleep_ns(cmdline_u64("start_ms", 0) * NS_PER_MS);
        return ask(to);
    }
    return serve((u32)MIN(MAX(cmdline_u64("workers", 4), 1ull), (u64)MAX_WORKERS));
}
