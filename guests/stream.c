/* A streaming server, and its viewers.
 *
 * The server first writes a file of kib=K (1024) to its disk, at at_kib=K (0). It sends the file to
 * each viewer that connects to port=P (5002), with sock_send_file() and at rate=R (2000000) bits a
 * second. It sends chunks of chunk_kib=K (16), each when it is due. A chunk is late if TCP has not
 * taken it when the next one is due. There are viewers=N (2) at a time. The senders are threads of
 * vCPU 0, as servers in the kernel are; with `regular` they are threads of the last vCPU. With
 * `copy`, the data goes through a buffer of the application. The server ends idle_ms=T (2000) after
 * its last viewer has gone.
 *
 * With to=A.B.C.D the guest is a viewer. It connects to that server and begins to play buffer_ms=T
 * (200) after the first byte has come, at that rate. It stalls whenever a chunk that is to be
 * played is not there (an underrun). What has come is compared with what belongs there. The exit
 * code is 0 if all came and was right.
 *
 * netstack/start.h and guest/disk.h have more words for the command line. */
#include <guest/disk.h>
#include <guest/guest.h>
#include <guest/mem.h>
#include <guest/printf.h>
#include <guest/thread.h>
#include <netstack/sendfile.h>
#include <netstack/socket.h>
#include <netstack/start.h>

#define MOST 8

static u64 base, size, chunk, period; /* the first three in bytes; period: of a chunk, in ns */
static u16 port;

/* Returns what belongs at byte `at` of the file, which is a multiple of 8. */
static u64 word_of(u64 at) { return (at + 1) * 0x9e3779b97f4a7c15ull; }

/* ---- the server ---- */

static struct disk disk;
static bool copies;

/* A thread that sends the file to one viewer at a time. */
static struct sender {
    struct sock *s;
    bool busy; /* the thread that accepts sets it, the sender clears it */
    struct semaphore go;
    u8 *buffer;
} senders[MOST];

/* Writes the file and drops it from the cache, so that the viewers' reads come from the disk. */
static void write_file(void) {
    u64 *buffer = malloc(chunk);

    if (!buffer) guest_panic("stream: there is no memory");
    for (u64 at = 0; at < size; at += chunk) {
        for (u64 i = 0; i < chunk; i += 8) buffer[i / 8] = word_of(at + i);
        if (pagecache_write(&disk.cache, base + at, buffer, chunk))
            guest_panic("stream: the file cannot be written");
    }
    if (pagecache_sync(&disk.cache)) guest_panic("stream: the file cannot be written");
    pagecache_drop(&disk.cache);
    free(buffer);
}

/* Sends one chunk, straight from the page cache or by a buffer (`copy`). Returns how many bytes
 * were sent, or an error. */
static i64 send_chunk(struct sender *me, struct pagecache_stream *at, u64 offset) {
    int error;

    if (!copies) return sock_send_file(me->s, &disk.cache, at, offset, chunk, NET_FOREVER);
    error = pagecache_read(&disk.cache, at, offset, me->buffer, chunk);
    if (error) return error;
    return sock_send(me->s, me->buffer, chunk, NET_FOREVER);
}

/* Sends the file to one viewer, each chunk when it is due, and counts those that are late. */
static void send_file(struct sender *me) {
    struct pagecache_stream at = pagecache_stream(base, size);
    u64 start = time_ns(), sent = 0, latest = 0;
    u32 late = 0;
    i64 n = 0;

    for (u64 due = start; sent < size; due += period, sent += chunk) {
        while (time_ns() < due) sleep_until(due);
        n = send_chunk(me, &at, base + sent);
        if (n < (i64)chunk) break;
        late += time_ns() > due + period;
        latest = MAX(latest, time_ns() - due);
    }
    printf("stream: sent %lu bytes in %lu ns: chunks=%lu late=%u latest_us=%lu end %ld\n", sent,
           time_ns() - start, sent / chunk, late, latest / 1000, n < 0 ? n : 0);
    sock_close(me->s);
}

/* Waits for a viewer and sends it the file, as a thread. */
static void sender(void *arg) {
    struct sender *me = arg;

    for (;;) {
        sem_down(&me->go);
        send_file(me);
        __atomic_store_n(&me->busy, false, __ATOMIC_RELEASE);
    }
}

static bool any_busy(u32 n) {
    for (u32 i = 0; i < n; i++)
        if (__atomic_load_n(&senders[i].busy, __ATOMIC_ACQUIRE)) return true;
    return false;
}

/* Gives a viewer to a sender that is free, and waits until one is. Only this thread sets `busy`, so
 * nobody takes the sender in between. */
static void hand_over(struct sock *s, u32 n) {
    for (u32 i = 0;; i = (i + 1) % n) {
        if (__atomic_load_n(&senders[i].busy, __ATOMIC_ACQUIRE)) {
            sleep_ns(NS_PER_MS);
            continue;
        }
        senders[i].s = s;
        senders[i].busy = true;
        sem_up(&senders[i].go);
        return;
    }
}

/* Accepts viewers. Ends when none has come for `idle` and none is being served. */
static void serve(u32 viewers) {
    struct sock_options options = { NET_RCVBUF_MIN, (u32)cmdline_u64("sndbuf", 65536) };
    u64 idle = cmdline_u64("idle_ms", 2000) * NS_PER_MS, deadline = NET_FOREVER;
    const struct pagecache_stats *c = &disk.cache.stats;
    struct sock *s, *v;
    int error;

    if (sock_open(SOCK_TCP, &options, &s) || sock_bind(s, port) || sock_listen(s, viewers))
        guest_panic("stream: there is no socket");
    for (;;) {
        error = sock_accept(s, &v, deadline);
        if (error && !any_busy(viewers)) break;
        if (!error) hand_over(v, viewers);
        deadline = time_ns() + idle;
    }
    printf("stream: cache hits=%lu misses=%lu ahead=%lu reads=%lu pages_read=%lu\n", c->hits,
           c->misses, c->ahead, c->reads, c->pages_read);
}

static void server(void *arg) {
    u32 viewers = *(u32 *)arg;

    write_file();
    serve(viewers);
}

/* Makes the senders, on vCPU 0 unless `regular` is given, and runs the server in a thread of the
 * last vCPU. */
static void run_server(u32 viewers) {
    u32 vcpu = 0;
    struct thread *t;
    int error = disk_open(&disk, 0);

    if (error || base + size > disk.cache.blocks * PAGE_SIZE)
        guest_panic("stream: the disk has no room for such a file (error %d)", error);
    if (cmdline_has("regular")) vcpu = net_thread_vcpu();
    copies = cmdline_has("copy");
    for (u32 i = 0; i < viewers; i++) {
        sem_init(&senders[i].go, 0);
        senders[i].buffer = malloc(chunk);
        if (!senders[i].buffer || !thread_start(vcpu, "sender", sender, &senders[i]))
            guest_panic("stream: there is no memory");
    }
    t = thread_start(net_thread_vcpu(), "server", server, &viewers);
    if (!t) guest_panic("stream: there is no memory");
    thread_join(t);
}

/* ---- a viewer ---- */

static u64 got;
static u32 wrong;

/* Compares `n` bytes with what the file has from `got` on, and counts those that are wrong. */
static void look_at(const u8 *p, u64 n) {
    for (u64 i = 0; i < n; i++) {
        u64 at = got + i;

        if (p[i] != (u8)(word_of(at & ~7ull) >> at % 8 * 8)) wrong++;
    }
    got += n;
}

/* Receives the stream and plays it: a chunk that is not there when it should be played is an
 * underrun, and everything after it is played later by as much. */
static void play(struct sock *s, u8 *buffer, u64 patience) {
    /* When the next chunk has to be there. */
    u64 first = 0, next = 0, played = 0, stalled = 0;
    u32 underruns = 0;
    i64 n;

    while ((n = sock_recv(s, buffer, chunk, NET_FOREVER)) > 0) {
        u64 now = time_ns();

        if (!first) {
            first = now;
            next = now + patience;
        }
        look_at(buffer, (u64)n);
        for (; got - played >= chunk; played += chunk, next += period) {
            if (now <= next) continue;
            underruns++;
            stalled += now - next;
            next = now;
        }
    }
    printf("stream: got %lu bytes in %lu ns: underruns=%u stalled_us=%lu wrong=%u end %ld\n", got,
           time_ns() - first, underruns, stalled / 1000, wrong, n);
}

/* Connects, plays, and prints the result. */
static void run_viewer(u32 to) {
    struct sock_options options = { (u32)cmdline_u64("rcvbuf", NET_RCVBUF_MIN), 4096 };
    u8 *buffer = malloc(chunk);
    struct sock *s;

    sleep_ns(cmdline_u64("start_ms", 0) * NS_PER_MS + 1);
    if (!buffer) guest_panic("stream: there is no memory");
    s = net_connect(to, port, &options);
    play(s, buffer, cmdline_u64("buffer_ms", 200) * NS_PER_MS);
    sock_close(s);
    sleep_ns(NS_PER_S / 4); /* time for the last acknowledgement to go out */
}

/* Runs the server, or the viewer of the server at `to`. Returns 1 if what the viewer got was
 * wrong. */
int main(void) {
    u32 viewers = (u32)MIN(MAX(cmdline_u64("viewers", 2), 1ull), (u64)MOST),
        to = net_cmdline_ip("to", 0);
    unsigned sockets;
    int error;

    base = cmdline_u64("at_kib", 0) << 10;
    chunk = MAX(cmdline_u64("chunk_kib", 16), 1ull) << 10;
    size = cmdline_u64("kib", 1024) << 10;
    size -= size % chunk;
    period = chunk * 8 * NS_PER_S / MAX(cmdline_u64("rate", 2000000), 1ull);
    port = (u16)cmdline_u64("port", 5002);
    /* More than are open at a time, because a closed socket lingers. */
    sockets = to ? 2 : viewers + 3;
    error = net_start(sockets * net_bufs_for((u32)cmdline_u64("rcvbuf", NET_RCVBUF_MIN)));
    if (error) guest_panic("stream: there is no network (error %d)", error);
    if (!to) {
        run_server(viewers);
        return 0;
    }
    run_viewer(to);
    return wrong || got != size;
}
