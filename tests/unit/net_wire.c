#include "net_wire.h"
#include <netstack/heap.h>
#include <netstack/sock.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <netstack/lwip_private.h>

#define LOG 8192

u64 wire_now = 1000 * NS_PER_S;
bool wire_tx_full, wire_tx_open, wire_checked;
void (*wire_spy)(const struct seen *s);
unsigned wire_bufs = 4096, wire_arps, wire_opens, wire_larges, wire_kept;
bool wire_keeps, wire_cuts;

static struct seen *out_log;
static u32 log_first, log_last;
static bool woken[2 * NET_SOCKETS]; /* atomic */
static bool threads;

static const u8 mac_us[6] = { 2, 0, 0, 0, 0, 1 }, mac_peer[6] = { 2, 0, 0, 0, 0, 2 };

void net_panic(const char *why) {
    fprintf(stderr, "net_panic: %s\n", why);
    abort();
}

static u64 get(const u8 *p, unsigned n) {
    u64 v = 0;

    while (n--) v = v << 8 | *p++;
    return v;
}

static void put(u8 *p, unsigned n, u64 v) {
    while (n--) {
        p[n] = v;
        v >>= 8;
    }
}

static u16 sum(const u8 *p, size_t n, u32 start) {
    for (size_t i = 0; i + 1 < n; i += 2) start += get(p + i, 2);
    if (n & 1) start += p[n - 1] << 8;
    while (start >> 16) start = (start & 0xffff) + (start >> 16);
    return ~start;
}

/* ---- the stack's side of the wire ---- */

static void saw_tcp(const u8 *ip, size_t len) {
    u32 total = get(ip + 2, 2), header;
    struct seen *s = &out_log[log_last++ % LOG];
    const u8 *t = ip + 20;

    memset(s, 0, offsetof(struct seen, data));
    header = (t[12] >> 4) * 4;
    s->bad =
        ip[0] != 0x45 || total > len || header < 20 || 20 + header > total || sum(ip, 20, 0) ||
        sum(t, total - 20,
            get(ip + 12, 2) + get(ip + 14, 2) + get(ip + 16, 2) + get(ip + 18, 2) + 6 + total - 20);
    s->from = get(t, 2);
    s->to = get(t + 2, 2);
    s->seq = get(t + 4, 4);
    s->ack = get(t + 8, 4);
    s->flags = t[13];
    s->window = get(t + 14, 2);
    if (!s->bad) {
        s->len = total - 20 - header;
        memcpy(s->data, t + header, MIN(s->len, sizeof(s->data)));
    }
    if (wire_spy) wire_spy(s);
}

static void answer_arp(const u8 *frame) {
    u8 reply[42];

    wire_arps++;
    memcpy(reply, frame + 6, 6);
    memcpy(reply + 6, mac_peer, 6);
    memcpy(reply + 12, frame + 12, 8);
    put(reply + 20, 2, 2);
    memcpy(reply + 22, mac_peer, 6);
    memcpy(reply + 28, frame + 38, 4);
    memcpy(reply + 32, frame + 22, 10);
    wire_frame(reply, sizeof(reply));
}

/* Returns where the checksum is in the header of TCP or UDP. */
static u32 sum_offset(const u8 *frame) {
    if (frame[23] == 6) return 16; /* TCP */
    return 6;
}

/* Completes a checksum that is left to the device, as a device does. */
static void complete(u8 *frame, size_t len, struct net_open_sum open) {
    if (!wire_tx_open || open.start + open.offset + 2u > len || open.offset != sum_offset(frame)) {
        fprintf(stderr, "net_wire: no checksum can be left to the device there\n");
        abort();
    }
    put(frame + open.start + open.offset, 2, sum(frame + open.start, len - open.start, 0));
    wire_opens++;
}

/* Cuts a large frame, as a device does, into frames with `size` bytes of data. */
static void cut(const u8 *frame, size_t len, size_t head, u32 size) {
    u8 part[1514];

    for (size_t at = head; at < len; at += size) {
        size_t n = MIN((size_t)size, len - at);

        memcpy(part, frame, head);
        memcpy(part + head, frame + at, n);
        put(part + 16, 2, head - 14 + n);
        put(part + 38, 4, get(frame + 38, 4) + at - head);
        if (at + n < len) part[47] &= ~(FIN | PSH);
        wire_fix_sums(part, head + n);
        saw_tcp(part + 14, head + n - 14);
    }
    wire_larges++;
}

static bool tx(void *arg, const struct net_frame *f) {
    static u8 frame[65536];
    size_t len = 0;

    if (wire_tx_full || (f->cut && !wire_cuts)) return false;
    if (wire_keeps && f->keeper) {
        net_keep(f->keeper);
        wire_kept++;
    }
    for (unsigned i = 0; i < f->n; i++) {
        memcpy(frame + len, f->piece[i].data, f->piece[i].len);
        len += f->piece[i].len;
    }
    if (f->open.start) complete(frame, len, f->open);
    if (f->cut) {
        cut(frame, len, f->piece[0].len, f->cut);
        return true;
    }
    if (get(frame + 12, 2) == 0x806 && get(frame + 20, 2) == 1)
        answer_arp(frame);
    else if (get(frame + 12, 2) == 0x800 && frame[23] == 6)
        saw_tcp(frame + 14, len - 14);
    return true;
}

static u64 now(void *arg) { return wire_now; }
/* A thread that waits runs the bottom half itself, unless a thread runs that never stops. */
static void kick(void *arg) {}
static bool woke(unsigned event) {
    return __atomic_exchange_n(&woken[event], false, __ATOMIC_SEQ_CST);
}
static void wake(void *arg, unsigned event) {
    __atomic_store_n(&woken[event], true, __ATOMIC_SEQ_CST);
}
static void *host_alloc(void *arg, size_t size) { return aligned_alloc(16, ALIGN_UP(size, 16)); }
static void host_free(void *arg, void *p) { free(p); }

/* With one thread waiting is running the bottom half. */
static bool wait(void *arg, unsigned event, u64 deadline) {
    u64 next;

    while (threads && !woke(event)) usleep(50);
    if (threads) return true;
    while (!woke(event)) {
        next = wire_poll();
        if (woke(event)) return true;
        if (next > deadline) next = deadline;
        if (next == NET_FOREVER || next > wire_now + 3600 * NS_PER_S) {
            fprintf(stderr, "net_wire: waits for ever\n");
            abort();
        }
        wire_now = MAX(next, wire_now);
        if (wire_now >= deadline) return false;
    }
    return true;
}

u64 wire_poll(void) {
    u64 next;

    do next = net_poll();
    while (next <= wire_now);
    return next;
}

void wire_pass(u64 ms) {
    for (u64 end = wire_now + ms * NS_PER_MS; wire_now < end;) {
        wire_now = MIN(end, MAX(wire_poll(), wire_now + NS_PER_MS));
        wire_poll();
    }
}

void wire_frame(const void *frame, size_t len) {
    struct net_buf *nb = net_buf_get();

    if (!nb) return;
    memcpy(nb->data + 2, frame, MIN(len, NET_BUF_ROOM - 2));
    nb->checked = wire_checked;
    net_rx(nb, 2, len);
}

void wire_start(enum net_model model, bool early_ack) {
    static bool up;
    struct net_config config = { .ip = WIRE_US,
                                 .mask = 0xffffff00,
                                 .model = model,
                                 .early_ack = early_ack,
                                 .tx_open = wire_tx_open,
                                 .bufs = wire_bufs,
                                 .posted = 64 };
    struct net_host host = { .now_ns = now,
                             .tx = tx,
                             .kick = kick,
                             .wake = wake,
                             .wait = wait,
                             .alloc = host_alloc,
                             .free = host_free };

    memcpy(config.mac, mac_us, 6);
    if (!up) {
        u8 hello[42] = { 0 };

        out_log = calloc(LOG, sizeof(*out_log));
        if (net_init(&config, &host)) abort();
        net_join();
        /* An ARP request of the peer, from which the stack learns its address. */
        memcpy(hello, mac_us, 6);
        memcpy(hello + 6, mac_peer, 6);
        put(hello + 12, 8, 0x0806000108000604);
        put(hello + 20, 2, 1);
        memcpy(hello + 22, mac_peer, 6);
        put(hello + 28, 4, WIRE_PEER);
        put(hello + 38, 4, WIRE_US);
        wire_frame(hello, sizeof(hello));
    }
    up = true;
    net_set_model(model);
    net_set_early_ack(early_ack);
    wire_tx_full = wire_checked = false;
    wire_spy = NULL;
    wire_forget();
}

bool wire_seen(struct seen *out) {
    if (log_first == log_last) return false;
    if (log_last - log_first > LOG) log_first = log_last - LOG;
    *out = out_log[log_first++ % LOG];
    if (out->bad) {
        fprintf(stderr, "net_wire: the stack sent a malformed segment\n");
        abort();
    }
    return true;
}

void wire_forget(void) { log_first = log_last; }

size_t wire_heap(void) { return net_heap_used(); }
unsigned wire_buffers(void) { return net.bufs - net.nr_free; }

void wire_end(void) {
    for (unsigned i = 0; i < NET_SOCKETS; i++) {
        struct sock *s = &net.socks[i];

        if (s->slot != SLOT_TAKEN) continue;
        s->owned = 0;
        if (!s->closing) sock_close(s);
    }
    wire_poll();
    while (tcp_active_pcbs) tcp_abort(tcp_active_pcbs);
    while (tcp_tw_pcbs) tcp_abort(tcp_tw_pcbs);
    wire_poll();
    memset(woken, 0, sizeof(woken));
    wire_forget();
}

void wire_threads(bool on) { threads = on; }

void wire_fix_sums(u8 *f, size_t len) {
    size_t at = 14 + (f[14] & 15) * 4, n = len - at, sums = at + sum_offset(f);

    if (len < 34 || at < 34 || sums + 2 > len) return;
    put(f + 24, 2, 0);
    put(f + 24, 2, sum(f + 14, at - 14, 0));
    put(f + sums, 2, 0);
    put(f + sums, 2,
        sum(f + at, n,
            get(f + 26, 2) + get(f + 28, 2) + get(f + 30, 2) + get(f + 32, 2) + f[23] + n));
}

/* ---- the peer ---- */

/* Makes a segment of the peer in `f`, which is all zeros. Returns the length of the frame. */
static size_t make_segment(u8 *f, struct peer *p, u8 flags, u32 seq, const void *data, size_t len) {
    bool syn = flags & SYN;
    u32 options = 0, total, at = 34;

    if (syn) options = 4; /* the maximum segment size */
    if (syn && p->scaled) options = 8;
    total = 40 + options + len;
    memcpy(f, mac_us, 6);
    memcpy(f + 6, mac_peer, 6);
    put(f + 12, 2, 0x800);
    f[14] = 0x45;
    put(f + 16, 2, total);
    put(f + 22, 2, 64 << 8 | 6);
    put(f + 26, 4, WIRE_PEER);
    put(f + 30, 4, WIRE_US);
    put(f + 24, 2, sum(f + 14, 20, 0));
    put(f + at, 2, p->port);
    put(f + at + 2, 2, p->to);
    put(f + at + 4, 4, seq);
    if (flags & ACK) put(f + at + 8, 4, p->ack);
    f[at + 12] = (20 + options) / 4 << 4;
    f[at + 13] = flags;
    put(f + at + 14, 2, MIN(p->window, 65535));
    if (syn) {
        put(f + at + 20, 4, 0x020405b4); /* MSS 1,460 */
        if (p->scaled) put(f + at + 24, 4, 0x01030300);
    }
    if (len) memcpy(f + at + 20 + options, data, len);
    put(f + at + 16, 2,
        sum(f + at, total - 20,
            2 * (WIRE_PEER >> 16) + (WIRE_PEER & 0xffff) + (WIRE_US & 0xffff) + 6 + total - 20) +
            p->break_sum);
    p->break_sum = 0;
    return MAX(14 + total, 60);
}

void peer_segment(struct peer *p, u8 flags, u32 seq, const void *data, size_t len) {
    u8 f[2048] = { 0 };
    size_t n = make_segment(f, p, flags, seq, data, len);

    wire_frame(f, n);
}

void peer_large(struct peer *p, u32 from, size_t len) {
    static u8 f[65536 + 60], data[65536];
    struct net_buf *buf[64];
    u32 part[64], nr = 0;
    size_t n;

    memset(f, 0, sizeof(f));
    stream_fill(data, from, len);
    n = make_segment(f, p, ACK | PSH, p->iss + 1 + from, data, len);
    for (size_t at = 0; at < n; at += part[nr++]) {
        buf[nr] = net_buf_get();
        if (!buf[nr]) abort();
        part[nr] = MIN(n - at, (size_t)(nr ? NET_BUF_ROOM : NET_BUF_ROOM - 2));
        memcpy(buf[nr]->data + (nr ? 0 : 2), f + at, part[nr]);
    }
    buf[0]->checked = true;
    net_rx_parts(buf, part, nr, 2);
    if ((i32)(p->iss + 1 + from + len - p->nxt) > 0) p->nxt = p->iss + 1 + from + len;
}

void peer_connect(struct peer *p, u16 port, u16 to, bool scaled) {
    static u32 iss = 0xfffff000;
    struct seen s;

    iss += 0x10000 - 0x800;
    *p = (struct peer){ .port = port,
                        .to = to,
                        .iss = iss,
                        .nxt = iss + 1,
                        .window = 65535,
                        .scaled = scaled,
                        .una = iss + 1,
                        .edge = iss + 1,
                        .scale = scaled ? 10 : 0 };
    wire_forget();
    peer_segment(p, SYN, p->iss, NULL, 0);
    wire_poll();
    if (!wire_seen(&s) || s.flags != (SYN | ACK) || s.ack != p->iss + 1) {
        fprintf(stderr, "net_wire: no SYN and ACK\n");
        abort();
    }
    p->irs = s.seq;
    p->ack = s.seq + 1;
    p->edge = s.ack + s.window;
    peer_segment(p, ACK, p->nxt, NULL, 0);
    wire_poll();
}

void peer_hear(struct peer *p) {
    struct seen s;

    while (wire_seen(&s)) {
        if (s.to != p->port) continue;
        p->flags |= s.flags;
        if (s.flags & ACK && (i32)(s.ack - p->una) > 0) p->una = s.ack;
        if (s.flags & ACK && !(s.flags & RST)) {
            u32 edge = s.ack + (s.window << p->scale);

            if ((i32)(edge - p->edge) > 0) p->edge = edge;
        }
        if (!s.len && !(s.flags & (FIN | RST | SYN))) p->acks++;
        if (s.seq == p->ack) {
            p->ack += s.len + !!(s.flags & FIN);
            p->data += s.len;
        }
    }
}

void peer_acknowledge(struct peer *p) { peer_segment(p, ACK, p->nxt, NULL, 0); }

u8 stream_byte(u32 n) { return n ^ n >> 8 ^ n >> 16 ^ n * 31 >> 3; }

void stream_fill(u8 *to, u32 from, size_t len) {
    for (size_t i = 0; i < len; i++) to[i] = stream_byte(from + i);
}

void peer_data(struct peer *p, u32 from, size_t len) {
    u8 data[1500];

    stream_fill(data, from, len);
    peer_segment(p, ACK | PSH, p->iss + 1 + from, data, len);
    if ((i32)(p->iss + 1 + from + len - p->nxt) > 0) p->nxt = p->iss + 1 + from + len;
}
