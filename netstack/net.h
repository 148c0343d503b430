/* The network stack of a guest: lwIP with one Ethernet interface, and the sockets of socket.h.
 *
 * Two kinds of context use the stack. The bottom half is one context, on the vCPU that takes the
 * interrupts. All of lwIP and every function of this header belong to it. Threads use socket.h, on
 * any vCPU. A thread and the bottom half share only the queues of spsc.h and single words that are
 * read and written atomically, and never a lock. With a lock, one side would wait for the other
 * while the other's vCPU is off its pCPU, which may take tens of milliseconds.
 *
 * There is one stack in a guest, because lwIP keeps its state in global variables. */
#ifndef NETSTACK_NET_H
#define NETSTACK_NET_H

#include <takt/types.h>
#include "lwip/pbuf.h"

#define NET_SOCKETS 64

struct sock;

/* One piece of a frame to be sent. The caller owns the memory. */
struct net_frag {
    const void *data;
    u32 len;
};

/* A checksum that the stack leaves to the device (virtio 1.2, 5.1.6.2). The device sums the bytes
 * of the frame from `start` to its end, and stores the sum at start + offset. Before that, the sum
 * of the pseudo header stands there. If `start` is 0, no checksum is left open. */
struct net_open_sum {
    u16 start, offset;
};

/* A frame to be sent, without its check sequence (FCS). */
struct net_frame {
    const struct net_frag *piece; /* `n` pieces, which are valid until tx() returns */
    unsigned n;
    struct net_open_sum open;
    /* Not 0: a large frame, which the device has to cut into frames with so many bytes of data each
     * (drivers/gso.h). Its headers are the first piece. */
    u16 cut;
    /* Not NULL: all pieces but the first one lie in the send buffer of this socket. The driver need
     * not copy them if it calls net_keep() now, and net_kept_until_now() when the device is done
     * with them. */
    struct sock *keeper;
};

/* What the stack needs from its surroundings: from a guest, or from a test on the host. Each
 * function gets `arg` as its first argument. */
struct net_host {
    void *arg;
    /* The time in nanoseconds. It never goes back. */
    u64 (*now_ns)(void *arg);
    /* Sends a frame. Returns false if there is no room. The stack then drops the frame and counts
     * it. */
    bool (*tx)(void *arg, const struct net_frame *f);
    /* Called from a thread: the bottom half shall call net_poll() soon. */
    void (*kick)(void *arg);
    /* Called in the bottom half: event number `event` (below 2 * NET_SOCKETS) may have come. If no
     * thread waits for it yet, the event has to be kept for the next wait(). This must not take a
     * lock that a thread may hold while its vCPU is off its pCPU. */
    void (*wake)(void *arg, unsigned event);
    /* Called from a thread: waits for the event. Returns false if now_ns() reaches the deadline
     * first. At most one thread waits for an event. */
    bool (*wait)(void *arg, unsigned event, u64 deadline_ns);
    /* Called from threads and from net_init(), never from the bottom half. alloc() returns memory
     * that is aligned to 16 bytes, or NULL if there is none. */
    void *(*alloc)(void *arg, size_t size);
    void (*free)(void *arg, void *p);
};

enum net_model {
    NET_PLAIN, /* lwIP as it is: no thread ever owns a socket */
    NET_OWNER, /* Linux's model: a thread that receives owns the socket meanwhile */
};

struct net_config {
    u8 mac[6];
    u32 ip, mask, gateway; /* 10.0.0.1 is 0x0a000001; gateway 0: there is none */
    u16 mtu;               /* bytes; 0: 1,500 */
    enum net_model model;
    bool early_ack; /* with NET_OWNER: acknowledge early, by Algorithm 1 of vTurbo */
    bool tx_open;   /* the checksums of UDP and TCP are left to the device */
    unsigned bufs;  /* buffers of NET_BUF_SIZE bytes for received frames; see net_bufs_for() */
    /* How many of `bufs` the driver keeps empty with the device; sockets get none of these. */
    unsigned posted;
    /* The most pbufs of data that all connections together may have queued, from net_sent_for(); 0:
     * NET_SENT_ALL. */
    unsigned sent;
};

/* Returns how many pbufs one connection needs to have `sndbuf` bytes sent and not acknowledged. */
unsigned net_sent_for(unsigned sndbuf);

/* Starts the stack. Call it once. Both structures are copied. Returns 0, or
 *   -ENOMEM  there is too little memory
 *   -EBUSY   the stack was started before
 *   -EINVAL  there are fewer buffers than `posted`, NET_BUFS_KEPT and the least that one socket
 *            needs, net_bufs_for(NET_RCVBUF_MIN), together */
int net_init(const struct net_config *config, const struct net_host *host);

/* Joins the network: from now on frames are taken and sent, and the others are told our address.
 * The driver calls this, in the bottom half, when its device has buffers for frames. A peer may
 * have waited for the address, and send at once; if its first frame found no buffer, it would
 * repeat that frame only seconds later. Further calls do nothing. */
void net_join(void);

/* Does what threads have asked for, and runs the timers that are due. Returns the time, in terms of
 * net_host.now_ns(), at which it wants to be called again. */
u64 net_poll(void);

void net_set_model(enum net_model model); /* holds for sockets that are opened from now on */
void net_set_early_ack(bool on);          /* holds from the next segment on */

/* Set how many bytes each socket may use of the buffers that it was opened with, at least
 * NET_RCVBUF_MIN and NET_SNDBUF_MIN. For datagrams and for what is sent that holds at once; the
 * window of a TCP connection is set when the connection is made. They have the type of a tunable's
 * function (guest/tunable.h), ignore `arg` and return NULL. They may be called in any context. */
const char *net_set_rcvbuf(void *arg, u64 bytes);
const char *net_set_sndbuf(void *arg, u64 bytes);

/* ---- received frames ---- */

#define NET_BUF_SIZE 2048
/* Bytes of lwIP's heap for each buffer: a struct tcp_seg, with the header that heap.c puts before
 * it. */
#define NET_BUF_HEAP 64
/* Bytes of a buffer that a frame may use; the rest describes the frame. */
#define NET_BUF_ROOM (NET_BUF_SIZE - 128)
/* Buffers that no socket gets, so that a segment without data (an acknowledgement, a SYN) always
 * finds one. */
#define NET_BUFS_KEPT 32

/* A received frame, and the buffer that it lies in. */
struct net_buf {
    struct pbuf_custom pc; /* lwIP knows the buffer by a pointer to this */
    struct net_buf *next;  /* in the free list or a backlog */
    struct sock *sock;     /* the socket to whose account the buffer counts; NULL: to none */
    /* The generation of that socket; if it is another one by now, the buffer counts no longer. */
    u32 generation;
    /* The next three describe a TCP segment for a socket. */
    u32 seq;
    u16 len;    /* bytes of data, without headers */
    bool plain; /* ACK is set, and none of SYN, FIN, RST and URG is */
    bool early; /* it was acknowledged early */
    /* The checksums of UDP and TCP need no check, because the device verified them, or because the
     * frame never left this machine. The driver sets this; net_buf_get() clears it. */
    bool checked;
    /* The sender of a datagram. */
    u16 port;
    u32 ip;
    u8 pad[128 - 16 - sizeof(struct pbuf_custom) - 3 * 8];
    u8 data[NET_BUF_ROOM];
};

/* Called by the driver, in the bottom half, when a device has begun to read the send buffer of a
 * socket by itself, and when it is done. Until then the memory stays with the socket, although the
 * connection may have ended. */
void net_keep(struct sock *s);
void net_kept_until_now(struct sock *s);

/* Sets how many bytes of data a large frame may have; 0: the device does not cut frames. The driver
 * calls this, in the bottom half, when it has opened its device. */
void net_set_large(u32 bytes);

/* Takes an empty buffer for the driver, which may put a frame anywhere into `data`. Returns NULL if
 * no buffer is free. */
struct net_buf *net_buf_get(void);
void net_buf_put(struct net_buf *nb); /* Gives a buffer back that was not used. */
/* Hands a frame to the stack: `len` bytes that begin at data + offset. The buffer belongs to the
 * stack from now on, also if the frame is not valid. */
void net_rx(struct net_buf *nb, u32 offset, u32 len);
/* The same for a frame that lies in several buffers. buf[0] has the frame's first `len[0]` bytes,
 * from data + offset on, and the others have the rest, each from its beginning. */
void net_rx_parts(struct net_buf *const *buf, const u32 *len, u32 nr, u32 offset);
/* Lets TCP send what it could not send before. The driver calls this, in the bottom half, when it
 * has room for frames again. */
void tcp_send_again(void);

/* ---- counters ---- */

/* Counters since net_init(). */
struct net_stats {
    /* Received frames, and those that were dropped: they were too long, or the driver asked for a
     * buffer and there was none. */
    u64 rx_frames, rx_dropped;
    u64 tx_frames, tx_dropped;
    u64 rx_unsummed,
        /* Frames whose UDP or TCP checksum the stack did not verify, or left to the device. */
        tx_unsummed;
    /* The next four count acknowledgements without data that were sent, by their reason. */
    u64 ack_bottom_half; /* a segment arrived at a socket that no thread owned */
    u64 ack_early;       /* early, by Algorithm 1 */
    u64 ack_process;     /* a thread released the socket, or had read data */
    /* lwIP's timer for delayed acknowledgements was due */
    u64 ack_timer;
    u64 ack_suppressed; /* not sent, because the peer already has a higher one */
    /* Segments with data whose acknowledgement number was raised to the highest one that the peer
     * already has. */
    u64 ack_raised;
    u64 backlog_segments; /* segments that were put into a backlog */
    u64 backlog_highest;  /* the most segments that one backlog held */
    /* Segments or datagrams dropped, because their socket held all the buffers that it may. */
    u64 drop_no_room;
    /* Connections that were reset because TCP refused data that had been acknowledged early. This
     * is 0 unless the stack is wrong. */
    u64 early_lost;
};
/* Returns the counters of the stack. The bottom half goes on changing them; they may be read at any
 * time. */
const struct net_stats *net_stats(void);

#endif
