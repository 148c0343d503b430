/* Calls over IP: lines=N (1) of them at a time. In each, both sides send a datagram of voice every
 * 20 ms, with the 160 bytes that G.711 needs for it and a head of 12 bytes, as RTP has.
 *
 * The server waits on port=P (5060). With to=A.B.C.D the guest is the client: start_ms=T (0) after
 * it has its network it begins to send, for run_ms=T (10000). The server answers the first datagram
 * of each line with its own ones, for as long. Lines begin at times that are spread over 20 ms.
 *
 * Each side prints what it has received: how many datagrams, and how many were lost; the mean of
 * the jitter (RFC 3550, 6.4.1) after each datagram; and how many came too late to be played. A line
 * plays the datagrams buffer_ms=T (60) after its first one came.
 *
 * guest/background.h and netstack/start.h have more words. The exit code of the client is 0 if it
 * heard the server. */
#include <guest/background.h>
#include <guest/guest.h>
#include <guest/mem.h>
#include <guest/printf.h>
#include <guest/thread.h>
#include <netstack/socket.h>
#include <netstack/start.h>

#define MAX_LINES 64
#define VOICE     160
#define PERIOD    (20 * NS_PER_MS)

/* A datagram. */
struct voice {
    u16 line, total; /* total: how many datagrams the line has, in each direction */
    u32 number;      /* from 0 */
    u32 us;          /* when it was due, by the sender's clock, modulo 2^32 us */
    u8 sound[VOICE];
};
_Static_assert(sizeof(struct voice) == 12 + VOICE, "there is no padding");

static struct line {
    u32 total; /* datagrams in each direction */
    /* What is heard. */
    u32 heard, late;
    u64 first; /* when its first datagram came, ns; it was number `from` */
    u32 from;
    u32 transit; /* of the last datagram, plus how far apart the two clocks are, us */
    i64 jitter;  /* us, in sixteenths */
    u64 sum;     /* of the jitter after each datagram, us */
    /* What is sent. */
    u32 ip, sent;
    u16 port;
    u64 begun; /* when the first datagram is due, ns; 0: not known yet. Set last */
} lines[MAX_LINES];

static struct sock *s;
static u64 buffer;
static u32 nr;

/* Counts a datagram of line `l` that arrived at the time `now`: its jitter (RFC 3550, 6.4.1), and
 * whether it came too late to be played. */
static void hear(struct line *l, const struct voice *v, u64 now) {
    u32 transit = (u32)(now / NS_PER_US) - v->us;
    i64 d = (i32)(transit - l->transit);

    if (!l->heard++) {
        l->first = now;
        l->from = v->number;
    } else {
        l->jitter += MAX(d, -d) - (l->jitter + 8) / 16;
        l->sum += (u64)l->jitter / 16;
    }
    l->transit = transit;
    l->late += (i64)(now - l->first) > (i64)(buffer + (v->number - l->from) * PERIOD);
}

/* Returns when the next datagram is due, of all lines that have begun and are not over, and tells
 * which line it is. Returns FOREVER if there is none. */
static u64 next_due(u32 *line) {
    u64 soonest = FOREVER;

    for (u32 i = 0; i < nr; i++) {
        u64 begun = __atomic_load_n(&lines[i].begun, __ATOMIC_ACQUIRE);

        if (!begun || lines[i].sent == lines[i].total) continue;
        if (begun + lines[i].sent * PERIOD >= soonest) continue;
        soonest = begun + lines[i].sent * PERIOD;
        *line = i;
    }
    return soonest;
}

/* Sends each datagram when it is due. A server goes on for ever; a client ends with its lines. */
static void speak(bool for_ever) {
    for (;;) {
        u32 line = 0;
        u64 due = next_due(&line), now = time_ns();
        struct line *l = &lines[line];
        struct voice v;

        if (due == FOREVER && !for_ever) return;
        if (due > now) { /* a line may begin meanwhile, so this does not sleep for long */
            sleep_until(MIN(due, now + NS_PER_MS));
            continue;
        }
        v = (struct voice){ (u16)line, (u16)l->total, l->sent++, (u32)(due / NS_PER_US), { 0 } };
        sock_send_to(s, &v, sizeof(v), l->ip, l->port, NET_FOREVER);
    }
}

/* Hears all lines until nothing has come for two seconds after the first datagram. A server then
 * answers each line. */
static void listen(bool answers) {
    u64 patience = NET_FOREVER;
    struct voice v;
    u32 ip;
    u16 port;

    for (i64 n; (n = sock_recv_from(s, &v, sizeof(v), &ip, &port, patience)) >= 0;) {
        u64 now = time_ns();

        if (n != sizeof(v) || v.line >= nr) continue;
        hear(&lines[v.line], &v, now);
        patience = now + 2 * NS_PER_S;
        if (!answers || lines[v.line].begun) continue;
        lines[v.line].ip = ip;
        lines[v.line].port = port;
        lines[v.line].total = v.total;
        __atomic_store_n(&lines[v.line].begun, now, __ATOMIC_RELEASE);
    }
}

/* Prints what all lines together have heard, lost and got too late. */
static void report(const char *who) {
    u64 heard = 0, late = 0, sent = 0, sum = 0;

    for (u32 i = 0; i < nr; i++) {
        heard += lines[i].heard;
        late += lines[i].late;
        sent += lines[i].total;
        sum += lines[i].sum;
    }
    printf("voice: %s heard %lu of %lu datagrams, %lu lost, %lu too late, jitter %lu us\n", who,
           heard, sent, sent - MIN(heard, sent), late, sum / MAX(heard, (u64)1));
}

static void hear_answers(void *arg) { listen(false); }
static void answer(void *arg) { speak(true); }

/* Begins all lines to the server, speaks, and waits for the thread that hears. */
static void call(u32 to, u16 port) {
    u32 total = (u32)(cmdline_u64("run_ms", 10000) * NS_PER_MS / PERIOD);
    u64 start = time_ns() + cmdline_u64("start_ms", 0) * NS_PER_MS + 1;
    struct thread *t = thread_start(net_thread_vcpu(), "hears", hear_answers, NULL);

    for (u32 i = 0; i < nr; i++) {
        lines[i].ip = to;
        lines[i].port = port;
        lines[i].total = total;
        lines[i].begun = start + i * PERIOD / nr;
    }
    speak(false);
    if (!t) guest_panic("voice: there is no memory");
    thread_join(t);
}

/* Runs the server, or the client if there is `to`. */
int main(void) {
    struct sock_options options = { 256 << 10, 65536 };
    u32 to = net_cmdline_ip("to", 0);
    u16 port = (u16)cmdline_u64("port", 5060);

    nr = (u32)MIN(MAX(cmdline_u64("lines", 1), 1ull), (u64)MAX_LINES);
    buffer = cmdline_u64("buffer_ms", 60) * NS_PER_MS;
    if (net_start(2 * net_bufs_for(options.rcvbuf)) || sock_open(SOCK_UDP, &options, &s) ||
        sock_bind(s, to ? 0 : port))
        guest_panic("voice: there is no network");
    background_start(net_thread_vcpu());
    if (to) {
        call(to, port);
        report("the client");
        return !lines[0].heard;
    }
    thread_start(net_thread_vcpu(), "answers", answer, NULL);
    listen(true);
    report("the server");
    return 0;
}
