/* The bottom half of TCP sockets. A thread *owns* a socket while it receives from it; lwIP must not
 * change the connection then. So segments for an owned socket go to its *backlog*, and through TCP
 * only when the thread releases the socket (the *replay*). With early acknowledgements, Algorithm 1
 * of vTurbo (section 3.2), a segment in the backlog is acknowledged at once if it is in order. This
 * file also passes to lwIP what threads ask for: connect, send, close. sock.h and backlog.h have
 * the contracts. */
#include <netstack/hooks.h>
#include <netstack/large.h>
#include <netstack/ping.h>
#include <netstack/sock.h>
#include "lwip/inet_chksum.h"
#include "lwip/prot/ethernet.h"
#include <netstack/lwip_private.h>
#include "lwip/prot/ip4.h"
#include "lwip/prot/tcp.h"

#define CONTROL (TCP_FIN | TCP_SYN | TCP_RST | TCP_URG)

static err_t on_recv(void *arg, struct tcp_pcb *pcb, struct pbuf *p, err_t err);

/* ---- segments ---- */

/* The header of a received or sent TCP segment, decoded. */
struct segment {
    const struct ip_hdr *ip;
    struct tcp_hdr *tcp;
    u32 seq, ack;
    u16 total, len; /* total: bytes of the packet; len: bytes of data */
    u8 flags;
};

/* Decodes the packet `p`, which begins with its IP header. Returns false if it is not a whole TCP
 * segment behind an IP header without options. lwIP deals with such a packet, and drops it if it is
 * not valid. */
static bool tcp_parse(const struct pbuf *p, struct segment *g) {
    u16 header;

    g->ip = p->payload;
    g->tcp = (struct tcp_hdr *)((u8 *)p->payload + IP_HLEN);
    if (p->len < IP_HLEN + TCP_HLEN || g->ip->_v_hl != 0x45 || IPH_PROTO(g->ip) != IP_PROTO_TCP)
        return false;
    if (IPH_OFFSET(g->ip) & PP_HTONS(IP_OFFMASK | IP_MF)) return false;
    g->total = lwip_ntohs(IPH_LEN(g->ip));
    header = IP_HLEN + TCPH_HDRLEN_BYTES(g->tcp);
    if (header < IP_HLEN + TCP_HLEN || header > g->total || header > p->len ||
        g->total > p->tot_len)
        return false;
    g->len = g->total - header;
    g->seq = lwip_ntohl(g->tcp->seqno);
    g->ack = lwip_ntohl(g->tcp->ackno);
    g->flags = TCPH_FLAGS(g->tcp);
    return true;
}

/* Returns whether the checksums of the segment are right, as lwIP would find. A segment that goes
 * into the backlog may be acknowledged before lwIP sees it, so it has to be checked here. */
static bool tcp_intact(struct pbuf *p, const struct segment *g) {
    struct net_buf *nb = container_of(p, struct net_buf, pc.pbuf);
    ip_addr_t from, to;
    u16 sum;

    if (inet_chksum(g->ip, IP_HLEN)) return false;
    if (nb->checked) return true;
    ip4_addr_copy(from, g->ip->src);
    ip4_addr_copy(to, g->ip->dest);
    pbuf_realloc(p, g->total); /* cuts off what pads a short frame */
    pbuf_remove_header(p, IP_HLEN);
    sum = ip_chksum_pseudo(p, IP_PROTO_TCP, p->tot_len, &from, &to);
    pbuf_add_header(p, IP_HLEN);
    return sum == 0;
}

/* Computes the checksum of a segment whose TCP header `h` is at the beginning of `p`, unless the
 * device does. */
static void fill_in_sum(struct pbuf *p, struct tcp_hdr *h, const struct tcp_pcb *t) {
    h->chksum = 0;
    if (!net.config.tx_open)
        h->chksum = ip_chksum_pseudo(p, IP_PROTO_TCP, p->tot_len, &t->local_ip, &t->remote_ip);
}

/* Returns the socket of a connection, or NULL. Ports and address are as they are on the wire. */
static struct sock *find_sock(u16 local, u16 remote, u32 remote_ip) {
    struct tcp_pcb *t;

    local = lwip_ntohs(local);
    remote = lwip_ntohs(remote);
    for (t = tcp_active_pcbs; t; t = t->next)
        if (t->local_port == local && t->remote_port == remote && t->remote_ip.addr == remote_ip)
            break;
    if (!t || t->recv != on_recv) return NULL;
    return t->callback_arg;
}

struct sock *tcp_sock_of(struct pbuf *p) {
    struct segment g;
    struct sock *s = NULL;

    pbuf_remove_header(p, SIZEOF_ETH_HDR);
    if (tcp_parse(p, &g)) s = find_sock(g.tcp->src, g.tcp->dest, g.ip->dest.addr);
    pbuf_add_header(p, SIZEOF_ETH_HDR);
    return s;
}

/* lwIP keeps segments that the driver could not take, and would repeat them only when its timer is
 * due. */
void tcp_send_again(void) { tcp_txnow(); }

/* ---- acknowledgements ---- */

/* Decides whether lwIP may send the packet `p`, and notes in *told what it tells the peer. This is
 * needed because the backlog may have acknowledged more than lwIP knows. An acknowledgement without
 * data is left out if its number is lower than one that was sent, or if it says nothing new after a
 * replay: the peer would take several equal ones for a loss. A segment with data must be sent, so
 * its number is raised instead. At the end the acknowledgement is counted by its reason. */
bool tcp_may_send(struct pbuf *p, struct tcp_told *told) {
    struct segment g;
    struct backlog *b;
    struct sock *s;
    bool pure;

    if (!tcp_parse(p, &g) || g.flags & TCP_SYN || !(g.flags & TCP_ACK)) return true;
    s = find_sock(g.tcp->src, g.tcp->dest, g.ip->dest.addr);
    if (!s) return true;
    b = &s->backlog;
    told->s = s;
    told->ack = g.ack;
    told->edge = g.ack + ((u32)lwip_ntohs(g.tcp->wnd) << s->pcb.tcp->rcv_scale);
    pure = g.len == 0 && g.total == p->tot_len && !(g.flags & (TCP_FIN | TCP_RST));
    if (pure && net.why == WHY_TIMER && sock_put_off(s)) {
        s->ack_due = true;
        return false;
    }
    if (pure) {
        bool news = seq_before(b->acked, g.ack) || seq_before(b->edge, told->edge);

        if (seq_before(g.ack, b->acked) ||
            (!news && (net.replaying_early || net.why == WHY_TIMER))) {
            net.stats.ack_suppressed++;
            return false;
        }
    } else if (seq_before(g.ack, b->acked)) {
        u32 window = 0;

        if (seq_before(b->acked, told->edge)) window = told->edge - b->acked;
        g.tcp->ackno = lwip_htonl(b->acked);
        g.tcp->wnd = lwip_htons(MIN(window >> s->pcb.tcp->rcv_scale, 0xffff));
        pbuf_remove_header(p, IP_HLEN);
        fill_in_sum(p, g.tcp, s->pcb.tcp);
        pbuf_add_header(p, IP_HLEN);
        told->ack = b->acked;
        net.stats.ack_raised++;
    }
    if (!pure) return true;
    switch (net.why) {
    case WHY_ARRIVAL: net.stats.ack_bottom_half++; break;
    case WHY_EARLY: net.stats.ack_early++; break;
    case WHY_PROCESS: net.stats.ack_process++; break;
    case WHY_TIMER: net.stats.ack_timer++; break;
    }
    return true;
}

/* Notes the highest acknowledgement and the highest right edge of the window that the peer was
 * told. */
void tcp_was_sent(const struct tcp_told *told) {
    struct backlog *b;

    if (!told->s) return;
    b = &told->s->backlog;
    if (seq_before(b->acked, told->ack)) b->acked = told->ack;
    if (seq_before(b->edge, told->edge)) b->edge = told->edge;
}

/* Sends an early acknowledgement, of all bytes before bl.nxt (the number that is next in order
 * after the backlog). It only reads the state of the connection, because a thread owns that. The
 * right edge of the window stays where it is. */
static void ack_early(const struct sock *s) {
    const struct tcp_pcb *t = s->pcb.tcp;
    u32 window = (t->rcv_ann_right_edge - s->backlog.nxt) >> t->rcv_scale;
    struct pbuf *p = pbuf_alloc(PBUF_IP, TCP_HLEN, PBUF_RAM);
    enum net_why why = net.why;
    struct tcp_hdr *h;

    if (!p) return; /* no memory: a later acknowledgement says the same and more */
    h = p->payload;
    h->src = lwip_htons(t->local_port);
    h->dest = lwip_htons(t->remote_port);
    h->seqno = lwip_htonl(t->snd_nxt);
    h->ackno = lwip_htonl(s->backlog.nxt);
    TCPH_HDRLEN_FLAGS_SET(h, 5, TCP_ACK);
    h->wnd = lwip_htons(MIN(window, 0xffff));
    h->urgp = 0;
    fill_in_sum(p, h, t);
    net.why = WHY_EARLY;
    ip4_output_if(p, &t->local_ip, &t->remote_ip, t->ttl, t->tos, IP_PROTO_TCP, &net.netif);
    net.why = why;
    pbuf_free(p);
}

/* ---- what arrives ---- */

/* Returns whether the socket may hold the buffers of the segment `p`. Segments beyond a gap may
 * take only three quarters of the buffers, so that there is room for the segment that closes the
 * gap. */
static bool tcp_has_room(const struct sock *s, const struct pbuf *p, u32 seq, u32 expected) {
    u32 most = s->quota, n = 1;

    if (p->next) n = pbuf_clen(p);
    if (seq_before(expected, seq)) most = s->quota / 4 * 3;
    return s->held + n <= most;
}

/* Passes the segments of the backlog to lwIP's TCP as if they arrived now. Only a limited number of
 * segments go in one turn; the rest wait for the next turn, so that the device's ring is emptied in
 * between. After this the socket may have lost its connection, or may have been freed. */
static void replay(struct sock *s) {
    u32 generation = s->generation;
    u16 checks = net.netif.chksum_flags;
    enum net_why why = net.why;
    struct net_buf *nb;

    if (!s->backlog.count) return;
    /* to_backlog() has verified the checksums. */
    NETIF_SET_CHECKSUM_CTRL(&net.netif, checks & ~NETIF_CHECKSUM_CHECK_TCP);
    net.replaying = true;
    net.why = WHY_PROCESS;
    while (s->generation == generation && net.replays && (nb = backlog_take(&s->backlog))) {
        net.replays--;
        net.replaying_early = nb->early;
        ip4_input(&nb->pc.pbuf, &net.netif);
        if (s->generation == generation) backlog_done(&s->backlog);
    }
    net.replaying = net.replaying_early = false;
    NETIF_SET_CHECKSUM_CTRL(&net.netif, checks);
    net.why = why;
    if (s->generation != generation) return;
    if (s->backlog.count) {
        sock_notify(s);
        return;
    }
    if (s->pcb.tcp && seq_before(s->pcb.tcp->rcv_nxt, s->backlog.acked)) {
        net.stats.early_lost++;
        tcp_abort(s->pcb.tcp);
    }
    /* This segment has waited long enough in the backlog, so lwIP shall not delay its
     * acknowledgement any further. */
    if (s->pcb.tcp && s->pcb.tcp->flags & TF_ACK_DELAY) s->ack_due = true;
    sock_wake(s, EVENT_READ);
}

/* Tells lwIP how much the thread has read since the last time, which opens the window. lwIP takes
 * at most 64 KiB in one call. */
static void refresh(struct sock *s) {
    enum net_why why = net.why;
    u32 n;

    sock_reclaim(s);
    n = __atomic_load_n(&s->consumed, __ATOMIC_ACQUIRE) - s->recved;
    s->recved += n;
    net.why = WHY_PROCESS;
    for (u32 part; n && s->pcb.tcp; n -= part) {
        part = MIN(n, 0xffff);
        tcp_recved(s->pcb.tcp, part);
    }
    net.why = why;
}

/* Sends the acknowledgement that was put off until the thread released the socket. */
static void acknowledge_due(struct sock *s) {
    enum net_why why = net.why;

    if (!s->ack_due || !s->pcb.tcp) return;
    s->ack_due = false;
    if (!seq_before(s->backlog.acked, s->pcb.tcp->rcv_nxt)) return;
    net.why = WHY_PROCESS;
    tcp_ack_now(s->pcb.tcp);
    tcp_output(s->pcb.tcp);
    net.why = why;
}

/* Puts a segment into the backlog of its socket, and acknowledges it early if Algorithm 1 says so.
 * If the socket has no room for it, the segment is dropped. Returns false if the segment is not
 * valid; then it is still the caller's, and lwIP drops it. */
static bool to_backlog(struct sock *s, struct pbuf *p, const struct segment *g) {
    const struct tcp_pcb *t = s->pcb.tcp;
    struct net_buf *nb = container_of(p, struct net_buf, pc.pbuf);
    struct rcv_view rcv = { t->rcv_nxt, t->rcv_ann_right_edge,
                            t->ooseq || t->refused_data || t->state != ESTABLISHED ||
                                t->flags & TF_RXCLOSED };
    u32 expected = s->backlog.online ? s->backlog.nxt : t->rcv_nxt;
    bool room;

    if (!tcp_intact(p, g)) return false;
    sock_reclaim(s);
    room = tcp_has_room(s, p, g->seq, expected);
    nb->seq = g->seq;
    nb->len = g->len;
    nb->plain = (g->flags & (CONTROL | TCP_ACK)) == TCP_ACK;
    switch (backlog_add(&s->backlog, &rcv, nb, net.early_ack, room)) {
    case BACKLOG_DROPPED:
        net.stats.drop_no_room++;
        pbuf_free(p);
        return true;
    case BACKLOG_ACK: ack_early(s); break;
    case BACKLOG_KEPT: break;
    }
    sock_charge(s, p);
    net.stats.backlog_segments++;
    net.stats.backlog_highest = MAX(net.stats.backlog_highest, s->backlog.count);
    /* If the thread has released the socket just now, it may have seen an empty backlog. Then
     * nobody would come for this segment, so we do the work now. */
    if (!sock_owned(s)) sock_service(s);
    return true;
}

/* Takes a received TCP segment into a backlog, if its socket needs that; lwIP calls this for each
 * IP packet before it looks at the packet. Returns 1 if the packet was taken (into a backlog, or
 * dropped), and 0 if lwIP shall go on with it. A segment also goes to the backlog while earlier
 * ones wait there, because it must not overtake them. */
int net_ip4_input(struct pbuf *p, struct netif *inp) {
    struct segment g;
    struct sock *s;

    if (net.replaying) return 0;
    if (!tcp_parse(p, &g)) return net_ping_input(p);
    s = find_sock(g.tcp->dest, g.tcp->src, g.ip->src.addr);
    if (!s || g.ip->dest.addr != net.netif.ip_addr.addr) return 0;
    if (sock_owned(s)) return to_backlog(s, p, &g);
    replay(s);
    if (s->slot != SLOT_TAKEN || !s->pcb.tcp) return 0;
    if (s->backlog.count) return to_backlog(s, p, &g);
    refresh(s);
    acknowledge_due(s);
    if (!s->pcb.tcp || !g.len) return 0;
    if (!tcp_has_room(s, p, g.seq, s->pcb.tcp->rcv_nxt)) {
        net.stats.drop_no_room++;
        pbuf_free(p);
        return 1;
    }
    sock_charge(s, p);
    /* A large segment stands for several, and TCP acknowledges at least every second one (RFC 9293,
     * 3.8.6.3). lwIP shall not wait for a second large one. */
    if (g.len > s->pcb.tcp->mss) tcp_set_flags(s->pcb.tcp, TF_ACK_DELAY);
    return 0;
}

/* ---- what lwIP tells ---- */

/* It is defined below. */
static void attach(struct sock *s, struct tcp_pcb *t);

/* Cuts the socket off from its connection. From now on lwIP may free the connection without telling
 * us. */
static void detach(struct sock *s) {
    struct tcp_pcb *t = s->pcb.tcp;

    tcp_arg(t, NULL);
    tcp_recv(t, NULL);
    tcp_sent(t, NULL);
    tcp_err(t, NULL);
    tcp_poll(t, NULL, 0);
    s->pcb.tcp = NULL;
}

/* Leaves the connection to lwIP if the socket no longer needs it: our FIN was sent, nothing more
 * can come for the thread, and no byte of the socket's memory is waiting to be acknowledged. */
static void tcp_settle(struct sock *s) {
    struct tcp_pcb *t = s->pcb.tcp;

    if (!t || !s->fin_sent || !(s->eof || s->closing) || byte_ring_count(&s->tx)) return;
    detach(s);
    tcp_shutdown(t, 1, 0);
    if (s->closing) sock_free(s);
}

/* Puts received data into the socket's queue, or notes the end of the stream (`p` is NULL); lwIP
 * calls it, in the order of the stream. The receive queue has room for all buffers of the socket's
 * account, so it cannot be full. */
static err_t on_recv(void *arg, struct tcp_pcb *pcb, struct pbuf *p, err_t err) {
    struct sock *s = arg;

    if (!p) {
        __atomic_store_n(&s->eof, true, __ATOMIC_RELEASE);
        sock_wake(s, EVENT_READ);
        tcp_settle(s);
        return ERR_OK;
    }
    for (struct pbuf *q = p; q; q = q->next) s->pushed += q->len;
    if (!spsc_push(&s->rx, p)) net_panic("a receive queue is fuller than its socket's account");
    sock_wake(s, EVENT_READ);
    return ERR_OK;
}

void tcp_acknowledged(struct sock *s, u32 len) {
    byte_ring_done(&s->tx, len);
    sock_wake(s, EVENT_WRITE);
    if (s->held_back) sock_later(s);
    tcp_settle(s);
}

static err_t on_sent(void *arg, struct tcp_pcb *pcb, u16_t len) {
    tcp_acknowledged(arg, len);
    return ERR_OK;
}

static void send_more(struct sock *s);

/* Tries again to send what could not be sent for lack of memory; lwIP calls it now and then. */
static err_t on_poll(void *arg, struct tcp_pcb *pcb) {
    if (!sock_put_off(arg)) send_more(arg);
    return ERR_OK;
}

/* Notes that the connection has ended, and wakes its thread. lwIP has freed its part already. */
static void on_error(void *arg, err_t err) {
    struct sock *s = arg;

    if (!s) return;
    s->pcb.tcp = NULL;
    s->error = -NET_ECONNABORTED;
    if (err == ERR_RST) s->error = -NET_ECONNRESET;
    __atomic_store_n(&s->eof, true, __ATOMIC_RELEASE);
    if (__atomic_load_n(&s->cmd, __ATOMIC_ACQUIRE) == CMD_CONNECT) sock_done(s, s->error);
    sock_wake(s, EVENT_READ);
    sock_wake(s, EVENT_WRITE);
    if (s->closing) sock_free(s);
}

/* Notes that the peer has accepted our connection, and wakes the thread that waits for that. */
static err_t on_connected(void *arg, struct tcp_pcb *pcb, err_t err) {
    struct sock *s = arg;

    attach(s, pcb);
    sock_done(s, 0);
    return ERR_OK;
}

/* Gives the connection of a peer that has connected to a listener one of the sockets that were
 * reserved for it; if none is left, lwIP refuses the peer. */
static err_t on_accept(void *arg, struct tcp_pcb *pcb, err_t err) {
    struct sock *s = arg, *c;

    if (!pcb || err != ERR_OK) return ERR_VAL;
    for (c = net.socks; c < net.socks + NET_SOCKETS; c++)
        if (c->parent == s && c->slot == SLOT_SPARE) break;
    if (c == net.socks + NET_SOCKETS) return ERR_MEM;
    sock_clear(c);
    c->slot = SLOT_TAKEN;
    attach(c, pcb);
    if (!spsc_push(&s->accepted, c)) net_panic("a listener has more connections than it may make");
    sock_wake(s, EVENT_READ);
    return ERR_OK;
}

/* Ties a new connection to its socket. From now on the receive window is that of the socket; the
 * SYN could announce 64 KiB at most. The limit of net_set_rcvbuf() becomes the size of the socket's
 * buffer, because sock_release() tells the bottom half each time that a quarter of that has been
 * read. A quarter of a larger buffer might be more than the window, which would then stay closed.
 */
static void attach(struct sock *s, struct tcp_pcb *t) {
    s->pcb.tcp = t;
    s->ip = lwip_ntohl(t->remote_ip.addr);
    s->port = t->remote_port;
    s->rcvbuf = MIN(s->rcvbuf, net.rcvbuf);
    t->rcv_wnd = MIN(s->rcvbuf, TCP_WND_MAX(t));
    t->rcv_ann_wnd = MIN(t->rcv_wnd, 0xffff);
    t->rcv_ann_right_edge = t->rcv_nxt + t->rcv_ann_wnd;
    backlog_init(&s->backlog, t->rcv_nxt);
    tcp_arg(t, s);
    tcp_recv(t, on_recv);
    tcp_sent(t, on_sent);
    tcp_err(t, on_error);
    tcp_poll(t, on_poll, 1);
    __atomic_store_n(&s->connected, true, __ATOMIC_RELEASE);
}

/* ---- what threads ask for ---- */

/* Returns how many more pbufs the connection may queue in lwIP: what is left of the share of all
 * connections, or of its own, whichever is more. Without a share of its own, a connection could be
 * starved by others. */
static u32 tcp_send_room(const struct tcp_pcb *t) {
    u32 all = 0, shared = 0, own = 0;

    for (const struct tcp_pcb *other = tcp_active_pcbs; other; other = other->next)
        all += other->snd_queuelen;
    if (all < net.sent) shared = net.sent - all;
    if (t->snd_queuelen < NET_SENT_EACH) own = NET_SENT_EACH - t->snd_queuelen;
    return MAX(shared, own);
}

/* Gives lwIP some of the `n` bytes of the send buffer at `at`. Returns how many it has taken. If
 * the device cuts frames they are one segment, which is sent at once; with the next one, lwIP would
 * wait until both fit into the window. */
static u32 give(struct sock *s, struct tcp_pcb *t, const u8 *at, u32 n) {
    u32 room = tcp_send_room(t);

    if (!net.large) {
        room = large_waits(t) ? 0 : room / 2 * tcp_mss(t);
        s->held_back = room < n;
        n = MIN(MIN(n, room), MIN(tcp_sndbuf(t), 0xffff));
        if (!n || tcp_write(t, at, n, 0) != ERR_OK) return 0;
        return n;
    }
    room = room < NET_SENT_EACH / 2 ? 0 : large_room(t, s->tx.size);
    s->held_back = room < n;
    n = MIN(MIN(n, room), tcp_sndbuf(t));
    if (n) n = large_write(t, at, n);
    if (n) tcp_output(t);
    return n;
}

/* Gives lwIP as much of the send buffer as it takes. lwIP refers to the bytes, so they stay in the
 * buffer until they are acknowledged. */
static void send_more(struct sock *s) {
    struct tcp_pcb *t = s->pcb.tcp;
    u8 *at;
    u32 n;

    if (!t || !s->connected || s->fin_sent) return;
    s->held_back = false;
    while ((n = byte_ring_piece(&s->tx, s->given, &at))) {
        n = give(s, t, at, n);
        if (!n) break;
        s->given += n;
    }
    if (s->no_delay) tcp_nagle_disable(t);
    tcp_output(t);
    if (s->fin_wanted && s->given == s->tx.tail) {
        s->fin_sent = true;
        if (tcp_shutdown(t, 0, 1) != ERR_OK) tcp_abort(t); /* lwIP then calls on_error() */
        tcp_settle(s);
    }
}

/* Turns the connection block into a listening one, which lwIP allocates anew because it is smaller.
 */
static int listen_on(struct sock *s) {
    struct tcp_pcb *t = tcp_listen_with_backlog(s->pcb.tcp, 64);

    if (!t) return -ENOMEM;
    s->pcb.tcp = t;
    s->listening = true;
    tcp_arg(t, s);
    tcp_accept(t, on_accept);
    return 0;
}

/* Closes the connections that no thread has accepted, and frees the sockets that were reserved for
 * further ones. */
static void close_children(struct sock *s) {
    struct sock *c;

    /* The thread that accepts is gone, so we are the consumer. */
    while ((c = spsc_peek(&s->accepted))) {
        spsc_pop(&s->accepted);
        tcp_sock_command(c, CMD_CLOSE);
    }
    for (c = net.socks; c < net.socks + NET_SOCKETS; c++) {
        if (c->parent != s) continue;
        c->parent = NULL;
        if (c->slot == SLOT_SPARE) sock_free(c);
    }
}

/* Ends the connection of a socket that its thread has closed. If data is left that the thread has
 * not read, or if it asked for that, the connection is reset, as in Linux; otherwise what is in the
 * send buffer is sent first, and the socket is freed later by tcp_settle() or on_error(). */
static void close_sock(struct sock *s) {
    struct tcp_pcb *t = s->pcb.tcp;

    s->cmd = CMD_NONE;
    s->closing = true;
    if (s->listening) {
        s->listening = false;
        s->pcb.tcp = NULL;
        tcp_close(t);
        t = NULL;
    }
    close_children(s);
    if (!t) {
        sock_free(s);
    } else if (!s->connected) {
        detach(s);
        tcp_close(t);
        sock_free(s);
    } else if (s->abort || s->pushed != s->consumed || s->backlog.first) {
        tcp_abort(t);
    } else {
        s->fin_wanted = true;
        if (s->fin_sent)
            tcp_settle(s);
        else
            send_more(s);
    }
}

/* Returns lwIP's connection block of the socket, and makes it if there is none yet. NULL: there is
 * no memory. */
static struct tcp_pcb *tcp_pcb_of(struct sock *s) {
    if (!s->pcb.tcp) s->pcb.tcp = tcp_new();
    return s->pcb.tcp;
}

/* Binds the socket to the port that its thread has asked for. Returns 0 or an error. The option
 * lets a server bind its port again while old connections of that port are still ending. */
static int bind_sock(struct sock *s) {
    struct tcp_pcb *t = tcp_pcb_of(s);

    if (!t) return -ENOMEM;
    ip_set_option(t, SOF_REUSEADDR);
    if (tcp_bind(t, IP_ADDR_ANY, s->cmd_port) != ERR_OK) return -NET_EADDRINUSE;
    return 0;
}

/* Carries out a command of the socket's thread and tells it the result. Connecting takes time, so
 * its result comes later. */
void tcp_sock_command(struct sock *s, enum sock_cmd cmd) {
    ip_addr_t to = { lwip_htonl(s->cmd_ip) };
    struct tcp_pcb *t;
    int result;

    switch (cmd) {
    case CMD_NONE: break;
    case CMD_BIND: sock_done(s, bind_sock(s)); break;
    case CMD_LISTEN:
        result = -EINVAL;
        if (s->pcb.tcp && !s->listening) result = listen_on(s);
        sock_done(s, result);
        break;
    case CMD_CONNECT:
        if (s->connected || s->listening) {
            sock_done(s, -EINVAL);
            break;
        }
        t = tcp_pcb_of(s);
        if (!t) {
            sock_done(s, -ENOMEM);
            break;
        }
        tcp_arg(t, s);
        tcp_err(t, on_error);
        if (tcp_connect(t, &to, s->cmd_port, on_connected) != ERR_OK) {
            tcp_abort(t);
            break;
        }
        /* tcp_connect() has only begun: on_connected() or on_error() ends the command. */
        s->cmd = CMD_CONNECT;
        break;
    case CMD_SHUTDOWN:
        s->fin_wanted = true;
        result = -NET_ENOTCONN;
        if (s->pcb.tcp && s->connected) result = 0;
        sock_done(s, result);
        send_more(s);
        break;
    case CMD_CLOSE: close_sock(s); break;
    }
}

/* Does all that waits for this TCP socket. If a thread owns the socket, that is done after the
 * release. The order matters: the backlog has to go through TCP before anything else looks at the
 * connection. */
void tcp_sock_service(struct sock *s) {
    u32 cmd;

    if (sock_put_off(s)) return;
    replay(s);
    if (s->slot != SLOT_TAKEN || s->backlog.count) return;
    refresh(s);
    acknowledge_due(s);
    send_more(s);
    if (s->slot != SLOT_TAKEN) return;
    cmd = __atomic_load_n(&s->cmd, __ATOMIC_ACQUIRE);
    if (cmd != CMD_CONNECT || !s->pcb.tcp || s->pcb.tcp->state == CLOSED) tcp_sock_command(s, cmd);
}
