/* Inside the stack: the socket, and what net.c, tcp.c, udp.c (the bottom half) and socket.c
 * (threads) ask of each other. */
#ifndef NETSTACK_SOCK_H
#define NETSTACK_SOCK_H

#include <netstack/backlog.h>
#include <netstack/net.h>
#include <netstack/socket.h>
#include <netstack/spsc.h>
#include "lwip/netif.h"

struct tcp_pcb;
struct udp_pcb;

enum slot { SLOT_FREE, SLOT_TAKEN, SLOT_SPARE }; /* spare: a connection that a listener may make */
enum sock_cmd { CMD_NONE, CMD_BIND, CMD_LISTEN, CMD_CONNECT, CMD_SHUTDOWN, CMD_CLOSE };
enum sock_event { EVENT_READ, EVENT_WRITE };

struct sock {
    u32 slot; /* FREE -> TAKEN: by compare and swap; else by whoever has it */

    /* set when it is taken, then constant; the memory stays for the next one */
    enum sock_type type;
    u32 rcvbuf;
    u32 quota;    /* buffers it may hold, which are reserved for it */
    bool ownable; /* NET_OWNER */
    struct sock *parent;

    /* queues */
    struct spsc rx;       /* struct pbuf: received, in order */
    struct byte_ring tx;  /* TCP: the stream; UDP: datagrams, each behind a struct udp_head */
    struct spsc accepted; /* a listener's: struct sock */

    /* threads write, the bottom half reads */
    u32 owned;
    /* the bottom half has left something undone because it is owned; it writes it too */
    u32 put_off;
    u32 consumed; /* bytes read, modulo 2^32 */
    u32 cmd;
    u32 cmd_ip;
    u16 cmd_port;
    u32 waiting[2];
    bool abort; /* goes with CMD_CLOSE */
    /* threads alone */
    struct pbuf *piece; /* of the first of rx: what is read next */
    u32 offset;
    u32 reported; /* of consumed */
    u32 read;     /* bytes read, not published yet */

    /* the bottom half writes, threads read */
    int cmd_result; /* 1: not done */
    bool connected, eof;
    int error; /* negative; 0: none */
    u32 ip;    /* of the peer */
    u16 port;

    /* the bottom half alone */
    struct backlog backlog; /* threads read count */
    union {
        struct tcp_pcb *tcp;
        struct udp_pcb *udp;
    } pcb;
    u32 generation; /* of the slot's users */
    u32 held;       /* buffers, wherever they are */
    u32 freed;      /* of rx: entries before it have been freed */
    u32 pushed;     /* bytes into rx */
    u32 recved;     /* of consumed: told to lwIP */
    u32 given;      /* of tx: given to lwIP */
    bool listening; /* threads read it */
    bool closing, fin_wanted, fin_sent, ack_due;
    bool held_back; /* lwIP was not given all of tx, as too much is queued to be sent */
};

/* What all connections together may have queued to be sent, in pbufs of lwIP: a segment is two, its
 * headers and its data. With NET_SENT_EACH a connection goes on when others have used up
 * NET_SENT_ALL, as their peers acknowledge nothing. */
#define NET_SENT_ALL  640u
#define NET_SENT_EACH 8u
/* Bytes of the heap for each: struct tcp_seg and the data's pbuf take 64, the headers' pbuf 128. */
#define NET_SENT_PBUF 128u

/* What an acknowledgement that goes out is counted as. */
enum net_why { WHY_ARRIVAL, WHY_EARLY, WHY_PROCESS, WHY_TIMER };

struct net {
    struct net_host host;
    struct net_config config;
    struct netif netif;
    struct net_stats stats;
    enum net_model model;
    bool up, early_ack, replaying, replaying_early;
    enum net_why why;
    struct net_buf *free;
    unsigned bufs, nr_free;
    void *buf_memory, *heap_memory;
    u32 reserved; /* buffers, by sockets; atomic */
    u64 pending;  /* sockets that threads want looked at; atomic */
    u32 kicked;
    /* segments that may still go from backlogs through TCP before the next net_poll() */
    u32 replays;
    struct sock socks[NET_SOCKETS];
};
extern struct net net;

static inline unsigned sock_index(const struct sock *s) { return s - net.socks; }
static inline bool sock_owned(const struct sock *s) {
    return __atomic_load_n(&s->owned, __ATOMIC_SEQ_CST);
}
static inline u64 net_now(void) { return net.host.now_ns(net.host.arg); }

/* ---- threads ---- */
void sock_notify(struct sock *s);

/* ---- whoever takes a slot ---- */
void sock_clear(struct sock *s); /* all but what was set when it was taken */

/* ---- the bottom half ---- */
/* whether lwIP looks at the UDP and TCP checksums of what it takes in next */
void net_verify(bool sums);
/* after what it may wait for has been written */
void sock_wake(struct sock *s, enum sock_event event);
void sock_reclaim(struct sock *s); /* buffers that have been read */
/* the buffer is on its account from here on */
void sock_charge(struct sock *s, struct net_buf *nb);
void sock_done(struct sock *s, int result); /* of its command */
/* the slot, when neither side uses it any more */
void sock_free(struct sock *s);
void sock_service(struct sock *s);
bool sock_put_off(struct sock *s); /* true: it is owned, and to be looked at when it is released */

void tcp_sock_service(struct sock *s);
void tcp_sock_command(struct sock *s, enum sock_cmd cmd);
void udp_sock_service(struct sock *s);
void udp_sock_command(struct sock *s, enum sock_cmd cmd);

/* What a TCP segment that went out told its peer. */
struct tcp_told {
    struct sock *s; /* NULL: nobody's */
    u32 ack, edge;
};
/* False: the segment at p (IP header first) is not to be sent. */
bool tcp_may_send(struct pbuf *p, struct tcp_told *told);
void tcp_was_sent(const struct tcp_told *told);

struct udp_head {
    u32 ip;
    u16 port, len;
};

#endif
