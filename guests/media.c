/* Streamed sound and pictures over TCP, in the manner of RTSP. The server waits on port=P (554).
 * With to=A.B.C.D the guest is the client: after start_ms=T (0) it asks to DESCRIBE, SETUP and
 * PLAY, one after the other, each with an answer of 512 bytes. Then the server sends rate=R (20)
 * packets a second of sound, of 32 bytes, and as many of pictures, of 160 bytes, for run_ms=T
 * (10000). The client answers each picture at once with one byte.
 *
 * The client prints how long each request took, and for sound and pictures the mean of the jitter
 * (RFC 3550, 6.4.1) after each packet. The server prints the mean time from when a picture was sent
 * until its byte came (the trip time).
 *
 * guest/background.h and netstack/start.h have more words. The exit code of the client is 0 if all
 * packets came in their order. */
#include <guest/background.h>
#include <guest/guest.h>
#include <guest/printf.h>
#include <guest/string.h>
#include <guest/thread.h>
#include <netstack/socket.h>
#include <netstack/start.h>

#define ANSWER   512
#define SOUND    32
#define PICTURE  160
#define PATIENCE (20 * NS_PER_S)

struct head {
    u32 size;   /* of the whole packet: SOUND or PICTURE; 0: the stream has ended */
    u32 number; /* from 0, of its kind */
    u64 ns;     /* when it was due */
};

static const struct sock_options options = { NET_RCVBUF_MIN, 65536 };
static u64 rate, duration;

static bool send(struct sock *s, const void *p, u64 n) {
    return sock_send(s, p, n, time_ns() + PATIENCE) == (i64)n;
}

/* ---- the server ---- */

static u64 sent_at[4096]; /* when picture n was sent, modulo the size of this table */
static u64 trips, trip_sum;

/* Takes the client's bytes, one for each picture. */
static void take_answers(void *arg) {
    u8 byte;

    while (sock_recv_exactly(arg, &byte, 1, PATIENCE)) {
        trip_sum += time_ns() - sent_at[trips % ARRAY_SIZE(sent_at)];
        trips++;
    }
}

/* Sends one packet of sound or pictures, with its number and the time at which it was due. Returns
 * false if the connection has ended. */
static bool send_packet(struct sock *s, u32 size, u32 number, u64 due) {
    u8 packet[PICTURE] = { 0 };
    struct head head = { size, number, due };

    memcpy(packet, &head, sizeof(head));
    if (size == PICTURE) sent_at[number % ARRAY_SIZE(sent_at)] = time_ns();
    return send(s, packet, size ? size : sizeof(head));
}

/* Serves one client: answers its three requests, and then sends it sound and pictures at a fixed
 * rate until the time is over. Returns false if the client ended the connection before the stream
 * began. */
static bool serve(struct sock *s) {
    u64 period = NS_PER_S / MAX(rate, 1ull), start;
    u8 request[64], answer[ANSWER] = { 0 };
    struct thread *t;
    u32 n = 0;

    for (u32 i = 0; i < 3; i++)
        if (!sock_recv_exactly(s, request, sizeof(request), PATIENCE) ||
            !send(s, answer, sizeof(answer)))
            return false;
    t = thread_start(net_thread_vcpu(), "answers", take_answers, s);
    if (!t) guest_panic("media: there is no memory");
    start = time_ns();
    for (; n * period < duration; n++) {
        u64 due = start + n * period;

        while (time_ns() < due) sleep_until(due);
        if (!send_packet(s, SOUND, n, due) || !send_packet(s, PICTURE, n, due)) break;
    }
    send_packet(s, 0, 0, 0);
    thread_join(t); /* it ends when the client has closed the connection */
    printf("media: the server sent %u pictures, %lu were answered, trip time %lu us\n", n, trips,
           trip_sum / (MAX(trips, (u64)1) * 1000));
    return true;
}

/* Serves one client after the other, for ever. */
static void server(u16 port) {
    struct sock *listener, *s;

    if (sock_open(SOCK_TCP, &options, &listener) || sock_bind(listener, port) ||
        sock_listen(listener, 2))
        guest_panic("media: there is no socket");
    while (!sock_accept(listener, &s, NET_FOREVER)) {
        sock_no_delay(s);
        if (!serve(s)) printf("media: a client has broken off\n");
        sock_close(s);
    }
}

/* ---- the client ---- */

static struct kind {
    u32 n;
    i64 transit, jitter; /* ns; jitter in sixteenths */
    u64 sum;
} sound, picture;

/* Adds a packet that has come at `now` to the jitter of its kind (RFC 3550, 6.4.1, in integers). */
static void count(struct kind *k, const struct head *head, u64 now) {
    i64 transit = (i64)(now - head->ns), d = transit - k->transit;

    if (k->n++) {
        k->jitter += MAX(d, -d) - (k->jitter + 8) / 16;
        k->sum += (u64)k->jitter / 16;
    }
    k->transit = transit;
}

/* Receives the packets of sound and pictures until the stream ends, counts how late each is, and
 * answers each picture with a byte. Returns whether all packets came in their order, and as many
 * pictures as pieces of sound. */
static bool play(struct sock *s) {
    struct head head;
    u8 rest[PICTURE], byte = 0;

    while (sock_recv_exactly(s, &head, sizeof(head), PATIENCE) && head.size) {
        struct kind *k = &sound;

        if (head.size == PICTURE) k = &picture;
        if ((head.size != PICTURE && head.size != SOUND) || head.number != k->n ||
            !sock_recv_exactly(s, rest, head.size - sizeof(head), PATIENCE))
            return false;
        count(k, &head, time_ns());
        if (k == &picture && !send(s, &byte, 1)) return false;
    }
    return sound.n && sound.n == picture.n;
}

/* Sends one request and waits for its answer. Returns how long that took, in us. */
static u64 request(struct sock *s) {
    u8 out[64] = { 0 }, in[ANSWER];
    u64 start = time_ns();

    if (!send(s, out, sizeof(out)) || !sock_recv_exactly(s, in, sizeof(in), PATIENCE))
        guest_panic("media: the server does not answer");
    return (time_ns() - start) / NS_PER_US;
}

/* Plays once from the server, and prints what was measured. Returns 1 if the connection broke
 * off. */
static int client(u32 to, u16 port) {
    struct sock *s;
    u64 us[3];
    bool ok;

    sleep_ns(cmdline_u64("start_ms", 0) * NS_PER_MS + 1);
    s = net_connect(to, port, &options);
    sock_no_delay(s);
    for (u32 i = 0; i < ARRAY_SIZE(us); i++) us[i] = request(s);
    ok = play(s);
    printf("media: describe %lu us, setup %lu us, play %lu us\n", us[0], us[1], us[2]);
    printf("media: %u packets of each kind, jitter of sound %lu us, of pictures %lu us\n", sound.n,
           sound.sum / (MAX(sound.n, (u32)1) * 1000),
           picture.sum / (MAX(picture.n, (u32)1) * 1000));
    sock_close(s);
    sleep_ns(NS_PER_S / 2);
    return !ok;
}

/* Runs the server, or the client if there is `to`. */
int main(void) {
    u32 to = net_cmdline_ip("to", 0);
    u16 port = (u16)cmdline_u64("port", 554);

    rate = cmdline_u64("rate", 20);
    duration = cmdline_u64("run_ms", 10000) * NS_PER_MS;
    if (net_start(5 * net_bufs_for(options.rcvbuf))) guest_panic("media: there is no network");
    background_start(net_thread_vcpu());
    if (to) return client(to, port);
    server(port);
    return 1;
}
