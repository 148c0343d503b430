/* The bottom half of UDP sockets, that is the part that runs in interrupt handlers and calls lwIP.
 * Datagrams that arrive go into the receive queue of their socket; if the queue is full, they are
 * dropped and counted. Datagrams to be sent lie in the socket's send buffer, each behind a `struct
 * udp_head`. sock.h has the contracts. */
#include <netstack/sock.h>
#include <string.h>
#include "lwip/udp.h"

/* Puts a received datagram into the socket's queue; lwIP calls it. It is dropped if the socket has
 * used up its buffers, if its receive buffer would be fuller than the thread has asked for, or if
 * it lies in more than one buffer, which no datagram needs. */
static void on_datagram(void *arg, struct udp_pcb *pcb, struct pbuf *p, const ip_addr_t *from,
                        u16_t port) {
    struct sock *s = arg;
    struct net_buf *nb = container_of(p, struct net_buf, pc.pbuf);

    sock_reclaim(s);
    if (s->held == s->quota || p->next ||
        s->pushed - __atomic_load_n(&s->consumed, __ATOMIC_ACQUIRE) + p->tot_len >
            MIN(s->rcvbuf, net.rcvbuf)) {
        net.stats.drop_no_room++;
        pbuf_free(p);
        return;
    }
    sock_charge(s, p);
    nb->ip = lwip_ntohl(from->addr);
    nb->port = port;
    s->pushed += p->tot_len;
    if (!spsc_push(&s->rx, p)) net_panic("a receive queue is fuller than its socket's account");
    sock_wake(s, EVENT_READ);
}

/* Copies `n` bytes out of the send buffer, where they may lie in two pieces. */
static void copy_out(struct sock *s, void *to, u32 n) {
    for (u32 part; n; n -= part, to = (u8 *)to + part) {
        u8 *at;

        part = MIN(n, byte_ring_piece(&s->tx, s->tx.head, &at));
        memcpy(to, at, part);
        byte_ring_done(&s->tx, part);
    }
}

/* Sends the datagrams that the thread has put into the send buffer, and then carries out its
 * command. */
void udp_sock_service(struct sock *s) {
    struct udp_head head;

    while (s->pcb.udp && byte_ring_count(&s->tx)) {
        struct pbuf *p;
        ip_addr_t to;

        copy_out(s, &head, sizeof(head));
        p = pbuf_alloc(PBUF_TRANSPORT, head.len, PBUF_RAM);
        if (p) {
            copy_out(s, p->payload, head.len);
            to.addr = lwip_htonl(head.ip);
            udp_sendto(s->pcb.udp, p, &to, head.port);
            pbuf_free(p);
        } else {
            net.stats.tx_dropped++;
            byte_ring_done(&s->tx, head.len);
        }
        sock_wake(s, EVENT_WRITE);
    }
    udp_sock_command(s, __atomic_load_n(&s->cmd, __ATOMIC_ACQUIRE));
}

/* Returns lwIP's control block of the socket, and makes it if there is none yet. NULL: there is no
 * memory. */
static struct udp_pcb *pcb_of(struct sock *s) {
    if (s->pcb.udp) return s->pcb.udp;
    s->pcb.udp = udp_new();
    if (s->pcb.udp) udp_recv(s->pcb.udp, on_datagram, s);
    return s->pcb.udp;
}

/* Gives the socket a port; 0 means any free one. */
static int bind_to(struct sock *s, u16 port) {
    if (!pcb_of(s)) return -ENOMEM;
    if (udp_bind(s->pcb.udp, IP_ADDR_ANY, port) != ERR_OK) return -NET_EADDRINUSE;
    return 0;
}

/* Carries out a command of a UDP socket's thread. Connecting only notes the peer's address, because
 * UDP has no connections. */
void udp_sock_command(struct sock *s, enum sock_cmd cmd) {
    switch (cmd) {
    case CMD_NONE: break;
    case CMD_BIND: sock_done(s, bind_to(s, s->cmd_port)); break;
    case CMD_CONNECT: /* a socket that is not bound gets any free port */
        s->ip = s->cmd_ip;
        s->port = s->cmd_port;
        s->connected = true;
        if (s->pcb.udp && s->pcb.udp->local_port)
            sock_done(s, 0);
        else
            sock_done(s, bind_to(s, 0));
        break;
    case CMD_CLOSE:
        s->cmd = CMD_NONE;
        if (s->pcb.udp) udp_remove(s->pcb.udp);
        s->pcb.udp = NULL;
        sock_free(s);
        break;
    default: sock_done(s, -EINVAL); break;
    }
}
