/* The bottom half of the network stack: the context, in the interrupt handlers of one vCPU, that
 * runs all of lwIP. This file has the buffers of received frames, the interface between lwIP and
 * the driver of the network card, what threads ask for, and timers. lwIP calls its packets *pbufs*;
 * here each received one lies in a `struct net_buf`. A socket's *account* is the number of buffers
 * that it may hold. net.h and sock.h have the contracts. */
#include <netstack/heap.h>
#include <netstack/large.h>
#include <netstack/sock.h>
#include <string.h>
#include "lwip/etharp.h"
#include "lwip/inet_chksum.h"
#include "lwip/init.h"
#include "lwip/prot/ip.h"
#include "lwip/prot/ip4.h"
#include "lwip/prot/tcp.h"
#include "lwip/prot/udp.h"
#include "lwip/sys.h"
#include "lwip/timeouts.h"
#include "netif/ethernet.h"

/* How many segments go from backlogs through TCP in one turn. The device's ring fills meanwhile, so
 * a turn has to end before the ring is full. */
#define REPLAYS 32

/* The heap of lwIP has three shares. HEAP_CONNECTIONS is for control blocks and for segments
 * without data: SYN, FIN and acknowledgements. The second share is for what is sent: net.sent pbufs
 * of all connections together, and HEAP_EACH for what each of them may have on top. tcp.c keeps to
 * these limits. The third share is for what is received: lwIP keeps a struct tcp_seg in the
 * heap for each segment beyond a gap, so there are NET_BUF_HEAP bytes for each buffer. Without
 * these limits a peer that never closes a gap, or acknowledges nothing, would fill the heap, and no
 * other peer could connect. */
#define HEAP_CONNECTIONS (64u << 10)
#define HEAP_EACH        ((size_t)NET_SOCKETS * NET_SENT_EACH * NET_SENT_PBUF)

struct net net;

u32_t sys_now(void) { return net_now() / NS_PER_MS; }

const struct net_stats *net_stats(void) { return &net.stats; }
void net_set_model(enum net_model model) { net.model = model; }
void net_set_early_ack(bool on) { net.early_ack = on; }

/* ---- buffers ---- */

/* Returns the buffer that a received pbuf lies in. */
static struct net_buf *net_buf_of(struct pbuf *p) {
    return container_of(p, struct net_buf, pc.pbuf);
}

/* Gives a buffer back to the list of free ones. The buffer no longer counts to the account of its
 * socket, unless that socket was closed meanwhile and its slot has a new user, which the generation
 * shows. */
void net_buf_put(struct net_buf *nb) {
    if (nb->sock && nb->sock->generation == nb->generation) nb->sock->held--;
    nb->sock = NULL;
    nb->next = net.free;
    net.free = nb;
    net.nr_free++;
}

static void buf_freed(struct pbuf *p) { net_buf_put(net_buf_of(p)); }

/* Takes an empty buffer for the driver. Returns NULL if there is none. If no buffer is free, those
 * that threads have read are first taken back from all sockets. */
struct net_buf *net_buf_get(void) {
    struct net_buf *nb;

    if (!net.free)
        for (unsigned i = 0; i < NET_SOCKETS; i++) sock_reclaim(&net.socks[i]);
    nb = net.free;
    if (!nb) {
        net.stats.rx_dropped++;
        return NULL;
    }
    net.free = nb->next;
    net.nr_free--;
    nb->checked = false;
    return nb;
}

/* Makes `len` bytes of a buffer, from data + offset on, a pbuf, as lwIP calls its buffers. A device
 * could claim a length beyond the buffer, so that is checked. Returns NULL if it is wrong. */
static struct pbuf *pbuf_of(struct net_buf *nb, u32 offset, u32 len) {
    if (offset > NET_BUF_ROOM || len > NET_BUF_ROOM - offset) return NULL;
    nb->pc.custom_free_function = buf_freed;
    return pbuf_alloced_custom(PBUF_RAW, (u16)len, PBUF_RAM, &nb->pc, nb->data + offset, (u16)len);
}

/* Gives lwIP a frame whose first buffer is `nb`. */
static void net_input(struct net_buf *nb, struct pbuf *p) {
    net.why = WHY_ARRIVAL;
    net.stats.rx_unsummed += nb->checked;
    net_verify(!nb->checked);
    if (net.netif.input(p, &net.netif) != ERR_OK) pbuf_free(p);
}

/* Hands a received frame to the stack: `len` bytes that begin at nb->data + offset. The buffer
 * belongs to the stack after that. */
void net_rx(struct net_buf *nb, u32 offset, u32 len) {
    struct pbuf *p = pbuf_of(nb, offset, len);

    net.stats.rx_frames++;
    if (p) {
        net_input(nb, p);
        return;
    }
    net.stats.rx_dropped++;
    net_buf_put(nb);
}

/* Returns whether a frame is a TCP segment whose headers begin in its first pbuf. */
static bool is_tcp(const struct pbuf *p) {
    const struct eth_hdr *eth = p->payload;
    const struct ip_hdr *ip = (const void *)(eth + 1);

    return p->len >= SIZEOF_ETH_HDR + IP_HLEN + TCP_HLEN && eth->type == PP_HTONS(ETHTYPE_IP) &&
           IPH_PROTO(ip) == IP_PROTO_TCP;
}

/* Hands a received frame that lies in `nr` buffers to the stack, as a chain of pbufs. lwIP counts
 * the bytes of a chain with 16 bits. Frames other than those of TCP do not need several buffers,
 * and are dropped. The chain is made from its end, because each pbuf also has the length of those
 * behind it. */
void net_rx_parts(struct net_buf *const *buf, const u32 *len, u32 nr, u32 offset) {
    struct pbuf *p = NULL, *q;
    u32 total = 0;

    net.stats.rx_frames++;
    for (u32 i = nr; i; p = q) {
        u32 begin = 0;

        i--;
        if (i == 0) begin = offset;
        q = pbuf_of(buf[i], begin, len[i]);
        total += len[i];
        if (!q || total > 0xffff) goto drop;
        q->next = p;
        q->tot_len = (u16)total;
    }
    if (p && is_tcp(p)) {
        net_input(buf[0], p);
        return;
    }
drop:
    net.stats.rx_dropped++;
    for (u32 i = 0; i < nr; i++) net_buf_put(buf[i]);
}

/* ---- the interface ---- */

/* Checksums of packets to be sent are left to the device if it offers that (`tx_open`). */
void net_verify(bool sums) {
    u16 flags = NETIF_CHECKSUM_ENABLE_ALL;

    if (!sums) flags &= ~(NETIF_CHECKSUM_CHECK_TCP | NETIF_CHECKSUM_CHECK_UDP);
    if (net.config.tx_open) flags &= ~(NETIF_CHECKSUM_GEN_TCP | NETIF_CHECKSUM_GEN_UDP);
    NETIF_SET_CHECKSUM_CTRL(&net.netif, flags);
}

/* Prepares a packet whose UDP or TCP checksum lwIP has left out: puts the sum of the pseudo header
 * where the device will put the checksum. Returns where that is, or zeros if there is nothing to be
 * done. lwIP puts all headers into the first pbuf. */
static struct net_open_sum open_sum(struct pbuf *p) {
    struct net_open_sum open = { 0 };
    const struct eth_hdr *eth = p->payload;
    const struct ip_hdr *ip = (const void *)(eth + 1);
    ip4_addr_t from, to;
    u16 sum;

    if (!net.config.tx_open || p->len < SIZEOF_ETH_HDR + IP_HLEN ||
        eth->type != PP_HTONS(ETHTYPE_IP))
        return open;
    if (IPH_PROTO(ip) == IP_PROTO_TCP)
        open.offset = offsetof(struct tcp_hdr, chksum);
    else if (IPH_PROTO(ip) == IP_PROTO_UDP)
        open.offset = offsetof(struct udp_hdr, chksum);
    else
        return open;
    open.start = SIZEOF_ETH_HDR + IPH_HL_BYTES(ip);
    ip4_addr_copy(from, ip->src);
    ip4_addr_copy(to, ip->dest);
    sum = ~inet_chksum_pseudo_partial(p, IPH_PROTO(ip), lwip_ntohs(IPH_LEN(ip)) - IPH_HL_BYTES(ip),
                                      0, &from, &to);
    memcpy((u8 *)p->payload + open.start + open.offset, &sum, sizeof(sum));
    net.stats.tx_unsummed++;
    return open;
}

/* Sends a whole frame by the driver; lwIP calls it. lwIP keeps a frame in several pieces, which the
 * driver puts together. */
static err_t link_output(struct netif *netif, struct pbuf *p) {
    struct net_frag piece[8];
    struct net_frame f = { .piece = piece, .open = open_sum(p) };

    for (struct pbuf *q = p; q; q = q->next) {
        if (!q->len) continue;
        if (f.n == ARRAY_SIZE(piece)) goto drop;
        piece[f.n++] = (struct net_frag){ q->payload, q->len };
    }
    large_describe(p, &f);
    if (net.host.tx(net.host.arg, &f)) {
        net.stats.tx_frames++;
        return ERR_OK;
    }
drop:
    net.stats.tx_dropped++;
    return ERR_BUF;
}

/* lwIP's IP layer calls this to send a packet through ARP. If the packet tells the peer less than
 * the peer already knows, it is not sent. */
static err_t ip_output(struct netif *netif, struct pbuf *p, const ip4_addr_t *to) {
    struct tcp_told told = { 0 };
    err_t err;

    if (!tcp_may_send(p, &told)) return ERR_OK;
    err = etharp_output(netif, p, to);
    if (err == ERR_OK) tcp_was_sent(&told);
    return err;
}

/* Tells lwIP what the network card is like; lwIP calls it when the interface is added. */
static err_t netif_up(struct netif *netif) {
    netif->name[0] = 'e';
    netif->name[1] = 'n';
    netif->output = ip_output;
    netif->linkoutput = link_output;
    netif->mtu = 1500;
    if (net.config.mtu) netif->mtu = net.config.mtu;
    netif->hwaddr_len = 6;
    memcpy(netif->hwaddr, net.config.mac, 6);
    netif->flags =
        NETIF_FLAG_BROADCAST | NETIF_FLAG_ETHARP | NETIF_FLAG_ETHERNET | NETIF_FLAG_LINK_UP;
    net_verify(true);
    return ERR_OK;
}

/* ---- start ---- */

const char *net_set_rcvbuf(void *arg, u64 bytes) {
    __atomic_store_n(&net.rcvbuf, (u32)bytes, __ATOMIC_RELAXED);
    return NULL;
}

const char *net_set_sndbuf(void *arg, u64 bytes) {
    __atomic_store_n(&net.sndbuf, (u32)bytes, __ATOMIC_RELAXED);
    return NULL;
}

unsigned net_sent_for(unsigned sndbuf) {
    return MIN(2 * (MIN(sndbuf, NET_SNDBUF_MAX) / TCP_MSS + 1), (unsigned)TCP_SND_QUEUELEN);
}

/* Starts the stack: allocates its memory and adds its one interface. Returns 0 or an error. The
 * memory is taken here, in one piece each for lwIP's heap and for the buffers, because the bottom
 * half must not call the guest's malloc(), whose lock a thread may hold. */
int net_init(const struct net_config *config, const struct net_host *host) {
    u32 sent = MAX(config->sent, NET_SENT_ALL);
    size_t heap = HEAP_CONNECTIONS + HEAP_EACH + (size_t)sent * NET_SENT_PBUF +
                  (size_t)config->bufs * NET_BUF_HEAP;
    ip4_addr_t ip = { lwip_htonl(config->ip) }, mask = { lwip_htonl(config->mask) },
               gateway = { lwip_htonl(config->gateway) };
    struct net_buf *nb;

    if (net.up) return -EBUSY;
    if (config->bufs < config->posted ||
        config->bufs - config->posted < NET_BUFS_KEPT + net_bufs_for(NET_RCVBUF_MIN))
        return -EINVAL;
    net.host = *host;
    net.config = *config;
    net.model = config->model;
    net.early_ack = config->early_ack;
    net.sent = sent;
    net_set_rcvbuf(NULL, NET_RCVBUF_MAX);
    net_set_sndbuf(NULL, NET_SNDBUF_MAX);
    net.heap_memory = host->alloc(host->arg, heap);
    net.buf_memory = host->alloc(host->arg, (size_t)config->bufs * NET_BUF_SIZE);
    if (!net.heap_memory || !net.buf_memory) {
        if (net.heap_memory) host->free(host->arg, net.heap_memory);
        if (net.buf_memory) host->free(host->arg, net.buf_memory);
        return -ENOMEM;
    }
    net_heap_init(net.heap_memory, heap);
    nb = net.buf_memory;
    for (unsigned i = 0; i < config->bufs; i++) {
        nb[i].sock = NULL;
        net_buf_put(&nb[i]);
    }
    net.bufs = config->bufs;
    lwip_init();
    netif_add(&net.netif, &ip, &mask, &gateway, NULL, netif_up, ethernet_input);
    netif_set_default(&net.netif);
    net.up = true;
    return 0;
}

/* lwIP announces its address by ARP when the interface comes up. */
void net_join(void) { netif_set_up(&net.netif); }

/* ---- what threads ask for ---- */

/* Has the bottom half look at the socket soon. A thread sets its socket's bit first and calls the
 * bottom half afterwards; net_poll() clears `kicked` first and reads the bits afterwards. So no bit
 * is overlooked. */
void sock_notify(struct sock *s) {
    __atomic_fetch_or(&net.pending, BIT(sock_index(s)), __ATOMIC_SEQ_CST);
    if (!__atomic_exchange_n(&net.kicked, 1, __ATOMIC_SEQ_CST)) net.host.kick(net.host.arg);
}

void sock_later(struct sock *s) {
    __atomic_fetch_or(&net.pending, BIT(sock_index(s)), __ATOMIC_SEQ_CST);
}

/* Wakes the thread that waits for `event` at the socket, if there is one. The fence makes what the
 * caller has written visible before `waiting` is read. wait_for() in socket.c sets `waiting` first
 * and then looks. So at least one of them sees the other. */
void sock_wake(struct sock *s, enum sock_event event) {
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (__atomic_load_n(&s->waiting[event], __ATOMIC_RELAXED))
        net.host.wake(net.host.arg, 2 * sock_index(s) + event);
}

void sock_charge(struct sock *s, struct pbuf *p) {
    for (; p; p = p->next) {
        struct net_buf *nb = net_buf_of(p);

        nb->sock = s;
        nb->generation = s->generation;
        s->held++;
    }
}

/* Frees the buffers of the receive queue that the thread has read. The thread has moved `head` of
 * the receive queue past what it has read; those buffers are free now. The thread cannot free them
 * itself, because only the bottom half may change the list of free buffers. */
void sock_reclaim(struct sock *s) {
    u32 head = __atomic_load_n(&s->rx.head, __ATOMIC_ACQUIRE);

    while (s->freed != head) pbuf_free(s->rx.slot[s->freed++ & (s->rx.size - 1)]);
}

/* Tells the thread the result of its command. The command is cleared before the result is stored,
 * because the thread may give the next command as soon as it sees the result. */
void sock_done(struct sock *s, int result) {
    u32 cmd = __atomic_load_n(&s->cmd, __ATOMIC_ACQUIRE);

    /* No thread waits for CMD_CLOSE, and one may have come since: it has to stay. */
    while (cmd != CMD_CLOSE && !__atomic_compare_exchange_n(&s->cmd, &cmd, CMD_NONE, false,
                                                            __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        ;
    __atomic_store_n(&s->cmd_result, result, __ATOMIC_RELEASE);
    sock_wake(s, EVENT_READ);
}

/* Resets the fields of a socket whose slot gets a new user. Whatever the last user of the slot has
 * left must not reach the next one. */
void sock_clear(struct sock *s) {
    s->rx.head = s->rx.tail = s->freed = 0;
    s->tx.head = s->tx.tail = s->given = 0;
    s->accepted.head = s->accepted.tail = 0;
    s->owned = s->put_off = s->cmd = s->waiting[EVENT_READ] = s->waiting[EVENT_WRITE] = 0;
    s->consumed = s->reported = s->read = s->offset = s->pushed = s->recved = 0;
    s->piece = NULL;
    s->error = s->cmd_result = 0;
    s->ip = s->port = 0;
    s->pcb.tcp = NULL;
    s->connected = s->eof = s->listening = s->closing = s->abort = false;
    s->fin_wanted = s->fin_sent = s->ack_due = s->held_back = false;
    backlog_init(&s->backlog, 0);
}

/* Gives the slot of a socket that nobody uses any more its next state. If it was made for a
 * listener that still listens, it becomes spare, and free otherwise. */
static void free_slot(struct sock *s) {
    if (s->parent && s->parent->listening) {
        __atomic_store_n(&s->slot, SLOT_SPARE, __ATOMIC_RELEASE);
        return;
    }
    __atomic_fetch_sub(&net.reserved, s->quota, __ATOMIC_SEQ_CST);
    s->parent = NULL;
    __atomic_store_n(&s->slot, SLOT_FREE, __ATOMIC_RELEASE);
}

/* Frees the slot of a socket that neither the guest's program nor lwIP uses any more, and gives
 * back all its buffers. If the socket was made for a listener that still listens, it becomes spare:
 * it keeps its memory and waits for the next connection. Some buffers may still be under way in the
 * stack. They counted to the socket's account (`held`), which is empty now. The slot's generation
 * grows, so that net_buf_put() sees that these buffers belong to no socket any more. If the device
 * still reads from the send buffer, the next user of the slot has to wait, because otherwise that
 * user's data would be sent to the peer of this connection. */
void sock_free(struct sock *s) {
    struct net_buf *nb;

    /* Segments that came while a thread owned the socket, and that TCP has not seen yet. */
    while ((nb = backlog_take(&s->backlog))) {
        pbuf_free(&nb->pc.pbuf);
        backlog_done(&s->backlog);
    }
    s->rx.head = s->rx.tail; /* all that was received counts as read */
    sock_reclaim(s);
    s->generation++;
    s->held = 0;
    if (s->kept)
        __atomic_store_n(&s->slot, SLOT_READ, __ATOMIC_RELEASE);
    else
        free_slot(s);
}

void net_keep(struct sock *s) { s->kept++; }

void net_kept_until_now(struct sock *s) {
    s->kept--;
    if (!s->kept && s->slot == SLOT_READ) free_slot(s);
}

void net_set_large(u32 bytes) {
    net.large = MIN(bytes, LARGE_MOST);
    net.had_large |= net.large != 0;
}

/* Does what the thread of this socket has asked for, if the slot is in use. */
void sock_service(struct sock *s) {
    if (__atomic_load_n(&s->slot, __ATOMIC_ACQUIRE) != SLOT_TAKEN) return;
    sock_reclaim(s);
    if (s->type == SOCK_TCP)
        tcp_sock_service(s);
    else
        udp_sock_service(s);
}

bool sock_put_off(struct sock *s) {
    if (!sock_owned(s)) return false;
    __atomic_store_n(&s->put_off, 1, __ATOMIC_SEQ_CST);
    /* If it is not owned any more, its thread may have released it before it could see put_off.
     * Then nobody would come back to the socket, so the caller has to do the work now. */
    return sock_owned(s);
}

/* Does what threads have asked for, and lets lwIP's timers run. Returns the time at which it wants
 * to be called again, or NET_FOREVER. `net.why` says meanwhile for what reason an acknowledgement
 * would be sent, so that it is counted right. */
u64 net_poll(void) {
    u64 pending, now;
    u32 wait;

    __atomic_store_n(&net.kicked, 0, __ATOMIC_SEQ_CST);
    net.replays = REPLAYS;
    pending = __atomic_exchange_n(&net.pending, 0, __ATOMIC_SEQ_CST);
    net.why = WHY_PROCESS;
    for (; pending; pending &= pending - 1) sock_service(&net.socks[__builtin_ctzll(pending)]);
    net.why = WHY_TIMER;
    large_fit();
    sys_check_timeouts();
    large_fit();
    net.why = WHY_ARRIVAL;
    now = net_now();
    wait = sys_timeouts_sleeptime();
    if (__atomic_load_n(&net.pending, __ATOMIC_SEQ_CST)) return now;
    if (wait == SYS_TIMEOUTS_SLEEPTIME_INFINITE) return NET_FOREVER;
    /* Round up to lwIP's milliseconds. So the result is the same, to the nanosecond, however often
     * the same timer is asked for. A guest's timer that is set to a new time costs an exit. */
    return (now / NS_PER_MS + wait) * NS_PER_MS;
}
