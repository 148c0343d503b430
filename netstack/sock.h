/* The socket as the inside of the stack sees it, and the functions that net.c, tcp.c and udp.c (the
 * bottom half) and socket.c (threads) call in each other. Programs include socket.h. */
#ifndef NETSTACK_SOCK_H
#define NETSTACK_SOCK_H

#include <netstack/backlog.h>
#include <netstack/net.h>
#include <netstack/socket.h>
#include <netstack/spsc.h>
#include "lwip/netif.h"

struct tcp_pcb;
struct udp_pcb;

/* The state of an entry of net.socks. A spare socket waits for a connection that a listener may
 * make: it has its memory, and no peer yet. The send buffer of one in SLOT_READ is still being read
 * by the device; otherwise the socket is free. */
enum slot { SLOT_FREE, SLOT_TAKEN, SLOT_SPARE, SLOT_READ };
/* What a thread asks the bottom half to do with a socket. */
enum sock_cmd { CMD_NONE, CMD_BIND, CMD_LISTEN, CMD_CONNECT, CMD_SHUTDOWN, CMD_CLOSE };
/* What a thread can wait for: data, a connection or the result of a command (READ); room (WRITE).
 */
enum sock_event { EVENT_READ, EVENT_WRITE };

/* A socket. Its fields are grouped by the context that writes them, because no lock guards them. */
struct sock {
    /* From FREE to TAKEN by compare-and-swap. All other changes are made by the context that has
     * the slot. */
    u32 slot;

    /* Set when the slot is taken, then constant. The memory of the queues stays for the next user
     * of the slot. */
    enum sock_type type;
    u32 rcvbuf;   /* of a connection: what the limit of net_set_rcvbuf() left of it */
    u32 quota;    /* how many buffers it may hold; they are reserved for it */
    bool ownable; /* a thread owns it while it receives (NET_OWNER) */
    /* The listener that it was made for; NULL: none. */
    struct sock *parent;

    /* The queues between the two contexts. */
    struct spsc rx; /* of struct pbuf: received data, in order */
    /* For TCP the stream; for UDP datagrams, each behind its struct udp_head. */
    struct byte_ring tx;
    /* Of struct sock: the connections of a listener that no thread has taken yet. */
    struct spsc accepted;

    /* Threads write these, the bottom half reads them. */
    u32 owned; /* a thread owns the socket now */
    /* The bottom half sets this when it leaves work undone because the socket is owned. The thread
     * that releases the socket clears it and calls for the bottom half. */
    u32 put_off;
    u32 consumed; /* bytes read so far, modulo 2^32 */
    u32 cmd;      /* the command (enum sock_cmd), and its arguments */
    u32 cmd_ip;
    u16 cmd_port;
    /* For each enum sock_event: a thread waits for it. */
    u32 waiting[2];
    bool abort;    /* with CMD_CLOSE: reset the connection */
    bool no_delay; /* sock_no_delay() */
    /* Only threads use these. */
    /* Where the next byte is read: the part of the first pbuf of rx, and the offset in it. */
    struct pbuf *piece;
    u32 offset;
    u32 reported; /* the value of `consumed` when the bottom half was last told */
    u32 read;     /* bytes read that are not in `consumed` yet */

    /* The bottom half writes these, threads read them. */
    int cmd_result; /* of the last command; 1: it is not done yet */
    bool connected, eof;
    int error; /* what ended the connection, a negative errno; 0: nothing did */
    u32 ip;    /* address of the peer */
    u16 port;

    /* Only the bottom half uses these. Threads read backlog.count and `listening`. */
    struct backlog backlog;
    union {
        struct tcp_pcb *tcp;
        struct udp_pcb *udp;
    } pcb;
    u32 generation; /* grows each time that the slot is freed */
    u32 held;       /* how many buffers count to its account, wherever they are */
    u32 freed;      /* index into rx: the bottom half has freed the entries before it */
    u32 pushed;     /* bytes that were put into rx so far */
    u32 recved;     /* how much of `consumed` lwIP was told */
    u32 given;      /* index into tx: lwIP was given the bytes before it */
    u32 kept;       /* how many frames the device has whose data it reads from tx */
    bool listening;
    bool closing, fin_wanted, fin_sent, ack_due;
    bool held_back; /* lwIP was not given all of tx, because too much waits to be sent */
};

/* What all connections together may have queued in lwIP, in pbufs, unless net_init() is asked for
 * more. A segment is two pbufs: its headers and its data. Each connection may have NET_SENT_EACH
 * pbufs even when the others have used up what all may have. Otherwise peers that acknowledge
 * nothing would stop the other connections. */
#define NET_SENT_ALL  640u
#define NET_SENT_EACH 8u
/* Bytes of the heap for each: struct tcp_seg and the pbuf of the data take 64 together, the pbuf of
 * the headers takes 128. */
#define NET_SENT_PBUF 128u

/* Why an acknowledgement is sent. The counters of struct net_stats follow from it. */
enum net_why { WHY_ARRIVAL, WHY_EARLY, WHY_PROCESS, WHY_TIMER };

/* The state of the stack. There is one in a guest. */
struct net {
    struct net_host host;
    struct net_config config;
    struct netif netif;
    struct net_stats stats;
    enum net_model model;
    /* replaying: segments of a backlog go through TCP now; replaying_early: this one was
     * acknowledged early */
    bool up, early_ack, replaying, replaying_early;
    enum net_why why;
    struct net_buf *free;
    unsigned bufs, nr_free;
    void *buf_memory, *heap_memory;
    u32 sent;     /* pbufs that all connections together may have queued; constant */
    u32 reserved; /* buffers that sockets have reserved; atomic */
    u64 pending;  /* one bit for each socket that a thread wants looked at; atomic */
    /* The bottom half was called and has not run yet; atomic. */
    u32 kicked;
    /* How many segments may still go from backlogs through TCP before the next net_poll(). */
    u32 replays;
    /* The most bytes of data of a large segment; 0: the device cuts none. */
    u32 large;
    bool had_large; /* there may be large segments */
    /* How much of its buffers each socket may use, bytes; atomic. */
    u32 rcvbuf, sndbuf;
    struct sock socks[NET_SOCKETS];
};
extern struct net net;

static inline unsigned sock_index(const struct sock *s) { return s - net.socks; }
static inline bool sock_owned(const struct sock *s) {
    return __atomic_load_n(&s->owned, __ATOMIC_SEQ_CST);
}
static inline u64 net_now(void) { return net.host.now_ns(net.host.arg); }

/* ---- called by threads ---- */
/* Has the bottom half look at the socket soon. */
void sock_notify(struct sock *s);

/* ---- called by the context that takes a slot ---- */
/* Resets all fields but those that are set when the slot is taken. */
void sock_clear(struct sock *s);

/* ---- called in the bottom half ---- */
/* Sets whether lwIP verifies the UDP and TCP checksums of the packets that it gets from now on. */
void net_verify(bool sums);
/* The same as sock_notify(), for the bottom half itself: net_poll() follows anyway. */
void sock_later(struct sock *s);
/* Wakes the thread that waits for `event`. Call it after what the thread waits for was written. */
void sock_wake(struct sock *s, enum sock_event event);
void sock_reclaim(struct sock *s); /* Frees the buffers that the thread has read. */
/* Counts the buffers of a received packet to the socket's account. */
void sock_charge(struct sock *s, struct pbuf *p);
/* Ends the command of the socket with this result, and wakes its thread. */
void sock_done(struct sock *s, int result);
/* Frees the slot. Call it when neither side uses it any more. A connection of a listener that still
 * listens becomes spare again. */
void sock_free(struct sock *s);
/* Does for the socket what its thread has asked for, by the function below for the socket's type.
 */
void sock_service(struct sock *s);
/* Returns whether a thread owns the socket. If so, it also notes that there is work to do, and the
 * thread calls the bottom half when it releases the socket. */
bool sock_put_off(struct sock *s);

/* What sock_service() does for TCP and for UDP, and the part of it that carries out the command of
 * the socket's thread. */
void tcp_sock_service(struct sock *s);
void tcp_sock_command(struct sock *s, enum sock_cmd cmd);
void udp_sock_service(struct sock *s);
void udp_sock_command(struct sock *s, enum sock_cmd cmd);

/* What a TCP segment that was sent told its peer: the acknowledgement number, and the right edge of
 * the window. */
struct tcp_told {
    struct sock *s; /* NULL: the segment belongs to no socket */
    u32 ack, edge;
};
/* Called for each packet that lwIP wants to send. `p` begins with the IP header. It may raise the
 * acknowledgement number. Returns false if the packet shall not be sent. Fills in *told. */
bool tcp_may_send(struct pbuf *p, struct tcp_told *told);
/* Called when that packet was sent. */
void tcp_was_sent(const struct tcp_told *told);
/* Returns the socket that sends the TCP segment `p`, which begins with its Ethernet header, or NULL
 * if it is not a segment of a socket. */
struct sock *tcp_sock_of(struct pbuf *p);
/* Frees the place of `len` bytes in the send buffer, which the peer has acknowledged. */
void tcp_acknowledged(struct sock *s, u32 len);

/* Stands before each datagram in a send buffer. `len` is in bytes. */
struct udp_head {
    u32 ip;
    u16 port, len;
};

#endif
