/* Large segments of TCP. lwIP makes segments of at most one MSS. But its queues hold longer ones as
 * well: it is told of a larger MSS while tcp_write() runs, and of the true one at all other times,
 * so that its congestion control and Nagle's algorithm count as always.
 *
 * lwIP sends a segment as a whole or not at all. So a large segment is only made if the windows
 * have room for all of it, and is sent at once. After a loss the windows may be smaller when it has
 * to be sent again; then it is divided. A peer may have acknowledged a part of it; then only the
 * rest is sent again. large.h has the contracts. */
#include <netstack/large.h>
#include <netstack/sock.h>
#include <string.h>
#include <netstack/lwip_private.h>
#include "lwip/prot/tcp.h"

/* To refer to fewer bytes than this costs more than to copy them. */
#define KEEP_LEAST 512

/* Returns how many bytes of the stream lwIP has been given that are not acknowledged. */
static u32 in_flight(const struct tcp_pcb *t) { return t->snd_lbb - t->lastack; }

static u32 window_of(const struct tcp_pcb *t) { return MIN(t->snd_wnd, t->cwnd); }

/* Returns whether lwIP has segments that it did not send, except for a short one at the end, which
 * Nagle's algorithm holds back and which may grow. */
static bool is_held_up(const struct tcp_pcb *t) {
    return t->unsent && (t->unsent->next || t->unsent->len >= t->mss || t->flags & TF_FIN);
}

/* Returns how many bytes of the stream lwIP may be given now, as one segment. When nothing is under
 * way it may have one MSS in any case, because its timers take care of a window that is closed. */
u32 large_room(const struct tcp_pcb *t, u32 sndbuf) {
    u32 most = MIN(net.large, sndbuf / 2), room = 0;

    if (is_held_up(t)) return 0;
    if (window_of(t) > in_flight(t)) room = window_of(t) - in_flight(t);
    room = MIN(room, MAX(most, (u32)t->mss));
    if (room >= t->mss) return room - room % t->mss;
    if (in_flight(t)) return 0;
    return t->mss;
}

/* Gives lwIP up to `n` bytes, as one segment. Returns how many it has taken. A short segment that
 * waits to be sent grows by them. */
u32 large_write(struct tcp_pcb *t, const void *at, u32 n) {
    u16 mss = t->mss;
    u32 before = 0;
    err_t err;

    if (t->unsent) before = t->unsent->len;
    n = MIN(n, LARGE_MOST - before);
    t->mss = (u16)MAX(before + n, (u32)mss);
    err = tcp_write(t, at, (u16)n, 0);
    t->mss = mss;
    if (err != ERR_OK) return 0;
    return n;
}

/* ---- segments that have to be sent again ---- */

/* Takes `n` bytes of data, fewer than it has, off the front of a segment. The first pbuf of a
 * segment has the headers, the others refer to the data. */
static void drop_front(struct tcp_seg *seg, u32 n) {
    seg->p->tot_len = (u16)(seg->p->tot_len - n);
    seg->len = (u16)(seg->len - n);
    seg->tcphdr->seqno = lwip_htonl(lwip_ntohl(seg->tcphdr->seqno) + n);
    for (struct pbuf *q = seg->p->next; n; q = q->next) {
        u32 k = MIN(n, (u32)q->len);

        q->tot_len = (u16)(q->tot_len - n);
        q->payload = (u8 *)q->payload + k;
        q->len = (u16)(q->len - k);
        n -= k;
    }
}

/* Takes the data from byte `at` on off a segment. Returns pbufs that refer to them, or NULL if
 * there is no memory; then the segment is as it was. */
static struct pbuf *cut_data(struct tcp_seg *seg, u32 at) {
    struct pbuf *p = seg->p, *rest;
    u32 gone = seg->len - at;

    while (at >= p->next->len) {
        p = p->next;
        at -= p->len;
    }
    rest = p->next; /* the pbuf with byte `at` */
    if (at) {
        struct pbuf *q = p->next;

        rest = pbuf_alloc(PBUF_RAW, (u16)(q->len - at), PBUF_ROM);
        if (!rest) return NULL;
        rest->payload = (u8 *)q->payload + at;
        rest->tot_len = (u16)(q->tot_len - at);
        rest->next = q->next;
        q->len = (u16)at;
        p = q;
    }
    p->next = NULL;
    for (struct pbuf *q = seg->p; q; q = q->next) q->tot_len = (u16)(q->tot_len - gone);
    return rest;
}

/* Divides the first unsent segment: `at` bytes of its data stay in it, the others go into a new
 * segment behind it. The headers of the new one are as lwIP makes them (tcp_create_segment()).
 * Returns false if there is no memory. */
static bool divide(struct tcp_pcb *t, u32 at) {
    struct tcp_seg *seg = t->unsent, *rest = memp_malloc(MEMP_TCP_SEG);
    struct pbuf *head = pbuf_alloc(PBUF_TRANSPORT, 0, PBUF_RAM), *data = NULL;
    u16 before = pbuf_clen(seg->p), flags = TCPH_FLAGS(seg->tcphdr);

    if (rest && head) data = cut_data(seg, at);
    if (!data) {
        if (rest) memp_free(MEMP_TCP_SEG, rest);
        if (head) pbuf_free(head);
        return false;
    }
    pbuf_cat(head, data);
    memset(rest, 0, sizeof(*rest));
    rest->p = head;
    rest->len = (u16)(seg->len - at);
    rest->flags = seg->flags;
    pbuf_add_header(head, TCP_HLEN);
    rest->tcphdr = head->payload;
    rest->tcphdr->src = seg->tcphdr->src;
    rest->tcphdr->dest = seg->tcphdr->dest;
    rest->tcphdr->seqno = lwip_htonl(lwip_ntohl(seg->tcphdr->seqno) + at);
    rest->tcphdr->urgp = 0;
    TCPH_HDRLEN_FLAGS_SET(rest->tcphdr, TCP_HLEN / 4, flags);
    TCPH_UNSET_FLAG(seg->tcphdr, TCP_FIN | TCP_PSH);
    seg->len = (u16)at;
    rest->next = seg->next;
    seg->next = rest;
    t->snd_queuelen = (u16)(t->snd_queuelen - before + pbuf_clen(seg->p) + pbuf_clen(rest->p));
    return true;
}

/* Makes the first unsent segment one that lwIP can send, if it is a large one that does not fit
 * into the windows, or that the device does not cut. Returns whether it has changed. */
static bool fit_first(struct tcp_pcb *t) {
    struct tcp_seg *seg = t->unsent;
    u32 at, acked, before, room = 0;

    if (!seg || seg->len <= t->mss) return false;
    acked = t->lastack - lwip_ntohl(seg->tcphdr->seqno);
    if (acked && acked < seg->len) {
        drop_front(seg, acked);
        t->snd_buf += acked;
        tcp_acknowledged(t->callback_arg, acked);
        return true;
    }
    before = lwip_ntohl(seg->tcphdr->seqno) - t->lastack;
    if (window_of(t) > before) room = window_of(t) - before;
    room = MIN(room, MAX(net.large, (u32)t->mss));
    if (room >= seg->len) return false;
    at = MAX(room - room % t->mss, (u32)t->mss);
    return divide(t, at);
}

void large_fit(void) {
    if (!net.had_large) return;
    for (struct tcp_pcb *t = tcp_active_pcbs; t; t = t->next)
        while (fit_first(t)) tcp_output(t);
}

bool large_waits(const struct tcp_pcb *t) {
    if (!net.had_large) return false;
    for (const struct tcp_seg *seg = t->unsent; seg; seg = seg->next)
        if (seg->len > t->mss) return true;
    return false;
}

/* ---- what the driver may do ---- */

/* Returns whether all data of a segment lie where lwIP was told to refer to them. */
static bool is_referred_to(const struct pbuf *p) {
    for (p = p->next; p; p = p->next)
        if (p->type_internal &
            (PBUF_TYPE_FLAG_STRUCT_DATA_CONTIGUOUS | PBUF_TYPE_FLAG_DATA_VOLATILE))
            return false;
    return true;
}

void large_describe(struct pbuf *p, struct net_frame *f) {
    u32 bytes = p->tot_len - p->len;
    struct sock *s;

    if (!bytes || (bytes < KEEP_LEAST && !net.had_large) || !is_referred_to(p)) return;
    s = tcp_sock_of(p);
    if (!s) return;
    if (bytes > s->pcb.tcp->mss) f->cut = s->pcb.tcp->mss;
    if (f->cut || bytes >= KEEP_LEAST) f->keeper = s;
}
