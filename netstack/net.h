/* The network stack of a guest: lwIP, one Ethernet interface, and the sockets of socket.h.
 *
 * There are two kinds of context. The bottom half is one, on the vCPU that takes the interrupts:
 * every function of this header belongs to it, and all of lwIP. Threads use socket.h, on whatever
 * vCPU; they share with the bottom half the queues of spsc.h and single words, never a lock, so
 * that neither waits for a vCPU that is off its pCPU.
 *
 * There is one stack in a guest, as lwIP keeps its state in global variables.
 */
#ifndef NETSTACK_NET_H
#define NETSTACK_NET_H

#include <takt/types.h>
#include "lwip/pbuf.h"

#define NET_SOCKETS 64

struct sock;

struct net_frag {
    const void *data;
    u32 len;
};

/* A checksum that is left to the device (virtio 1.2, 5.1.6.2): of the frame's bytes from `start`
 * on, to be put at start + offset, where the sum of the pseudo header is. start 0: none. */
struct net_open_sum {
    u16 start, offset;
};

/* What the stack needs of who runs it, on a host or in a guest. `arg` comes first everywhere. */
struct net_host {
    void *arg;
    u64 (*now_ns)(void *arg);
    /* A frame without FCS, in `n` pieces that are valid until this returns. False: no room, it is
     * dropped and counted. */
    bool (*tx)(void *arg, const struct net_frag *piece, unsigned n, struct net_open_sum open);
    /* From a thread: net_poll() is wanted soon in the bottom half. */
    void (*kick)(void *arg);
    /* Event number `event` (below 2 * NET_SOCKETS) may have come; called in the bottom half. It
     * must not take a lock that is held with a thread's vCPU off its pCPU. Kept until the wait, if
     * nobody waits yet. */
    void (*wake)(void *arg, unsigned event);
    /* From a thread: waits for that event; false if now_ns() reaches the deadline before. Nobody
     * else waits for it. */
    bool (*wait)(void *arg, unsigned event, u64 deadline_ns);
    /* From threads and net_init(), never from the bottom half. alloc: 16-byte aligned, NULL if
     * there is none. */
    void *(*alloc)(void *arg, size_t size);
    void (*free)(void *arg, void *p);
};

enum net_model {
    NET_PLAIN, /* lwIP as it is: nobody owns a socket */
    NET_OWNER, /* Linux's model: who receives owns the socket meanwhile */
};

struct net_config {
    u8 mac[6];
    u32 ip, mask, gateway; /* as 0x0a000001 for 10.0.0.1; gateway 0: none */
    u16 mtu;               /* 0: 1,500 */
    enum net_model model;
    bool early_ack; /* with NET_OWNER: Algorithm 1 */
    bool tx_open;   /* checksums of UDP and TCP are left to the device */
    unsigned bufs;  /* buffers for received frames, NET_BUF_SIZE each; see net_bufs_for() */
    /* of them, that the driver keeps empty with the device: no socket gets these */
    unsigned posted;
};

/* Once. -ENOMEM; -EBUSY; -EINVAL: fewer buffers than posted + NET_BUFS_KEPT + net_bufs_for() of the
 * smallest socket. */
int net_init(const struct net_config *config, const struct net_host *host);

/* Takes what threads ask for, runs the timers that are due. Returns the time at which it wants to
 * be called again. */
u64 net_poll(void);

void net_set_model(enum net_model model); /* of sockets that are opened from now on */
void net_set_early_ack(bool on);          /* takes effect with the next segment */

/* ---- received frames ---- */

#define NET_BUF_SIZE 2048
/* of lwIP's heap for each buffer: struct tcp_seg, with its header in heap.c */
#define NET_BUF_HEAP 64
#define NET_BUF_ROOM (NET_BUF_SIZE - 128)
/* buffers that no socket gets, so that segments without data are always served */
#define NET_BUFS_KEPT 32

struct net_buf {
    struct pbuf_custom pc; /* first: lwIP's name of the buffer */
    struct net_buf *next;  /* in the free list or a backlog */
    struct sock *sock;     /* whose account it is on; NULL: nobody's */
    u32 generation;        /* of that socket */
    /* of a TCP segment for a socket */
    u32 seq;
    u16 len;    /* bytes of data */
    bool plain; /* ACK is set; SYN, FIN, RST, URG are not */
    bool early; /* was acknowledged early */
    /* of any frame; the driver's word, and so false after net_buf_get() */
    /* checksums of UDP and TCP need no look: they were verified, or never left this machine */
    bool checked;
    /* of a datagram */
    u16 port;
    u32 ip;
    u8 pad[128 - 16 - sizeof(struct pbuf_custom) - 3 * 8];
    u8 data[NET_BUF_ROOM];
};

/* An empty buffer for the driver, which fills `data` from any offset on; NULL: none is free. */
struct net_buf *net_buf_get(void);
void net_buf_put(struct net_buf *nb); /* unused */
/* A frame of `len` bytes at data + offset; the buffer is the stack's from here on, also if the
 * frame is no good. */
void net_rx(struct net_buf *nb, u32 offset, u32 len);
/* Lets TCP send what it could not: the driver has room for frames again. In the bottom half. */
void tcp_send_again(void);

/* ---- counters ---- */

struct net_stats {
    u64 rx_frames, rx_dropped; /* dropped: too long, or no buffer where the driver asked for one */
    u64 tx_frames, tx_dropped;
    u64 rx_unsummed,
        /* of these, whose UDP or TCP checksum the stack did not look at, or left open */
        tx_unsummed;
    /* acknowledgements without data that went out */
    u64 ack_bottom_half; /* when a segment arrived at a socket that nobody owned */
    u64 ack_early;       /* Algorithm 1 */
    u64 ack_process;     /* because a thread released the socket or had read */
    u64 ack_timer;
    u64 ack_suppressed; /* not sent: the peer has a higher one already */
    /* segments with data whose number was raised to what the peer has already */
    u64 ack_raised;
    u64 backlog_segments; /* that went into a backlog */
    u64 backlog_highest;  /* most segments in one backlog */
    u64 drop_no_room;     /* segments or datagrams for a socket that holds all the buffers it may */
    /* connections aborted because TCP refused what had been acknowledged: never */
    u64 early_lost;
};
const struct net_stats *net_stats(void);

#endif
