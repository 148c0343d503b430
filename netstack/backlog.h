/* The backlog of a TCP socket that a thread owns, and Algorithm 1 of vTurbo (section 3.2): early
 * acknowledgements.
 *
 * While a thread owns the socket, the bottom half may read the state of the connection and must not
 * write it. This includes the times when the vCPU of the thread is off its pCPU. So segments are
 * kept here in order of arrival, and go through TCP when the thread releases the socket. Algorithm
 * 1 adds that a segment that is next in order is acknowledged at once. docs/netstack.md tells where
 * our reading of the algorithm differs from the printed one.
 *
 * Only the bottom half uses these functions. Sequence numbers are in host byte order. */
#ifndef NETSTACK_BACKLOG_H
#define NETSTACK_BACKLOG_H

#include <takt/types.h>

struct net_buf;

struct backlog {
    /* The segments in order of arrival. */
    struct net_buf *first, *last;
    /* Segments that TCP has not taken yet. Threads read it: sock_own() waits until it is 0. */
    u32 count;
    u32 nxt; /* bl.nxt of the paper: the number that is next in order after the backlog */
    /* Segments that are in order are acknowledged now. */
    bool online;
    /* A segment with FIN, SYN, RST or URG waits here; only TCP can tell whether it ends the stream
     */
    bool may_end;
    u32 acked; /* the highest acknowledgement number that was sent on this connection */
    u32 edge;  /* the highest right edge of a window that was announced to the peer */
};

/* The facts about the connection that Algorithm 1 reads. */
struct rcv_view {
    u32 nxt;  /* rcv.nxt */
    u32 edge; /* the right edge of the window that was announced last: there is room up to here */
    /* TCP keeps segments beyond a gap, or the connection takes no data in its present state */
    bool hole;
};

enum backlog_verdict {
    BACKLOG_DROPPED, /* there was no room; the buffer still belongs to the caller */
    BACKLOG_KEPT,    /* the segment was kept, and is acknowledged when it is replayed */
    BACKLOG_ACK,     /* the segment was kept, and all before bl.nxt has to be acknowledged now */
};

/* Returns whether sequence number `a` is before `b`, modulo 2^32. */
static inline bool seq_before(u32 a, u32 b) { return (int32_t)(a - b) < 0; }

/* Makes the backlog empty, for a connection whose next number is `rcv_nxt`. */
void backlog_init(struct backlog *b, u32 rcv_nxt);

/* Algorithm 1, for the segment in `nb` of a socket that is owned. The fields seq, len and plain of
 * `nb` are set. `early` says whether early acknowledgements are on, `room` whether the socket may
 * keep one more buffer. */
enum backlog_verdict backlog_add(struct backlog *b, const struct rcv_view *rcv, struct net_buf *nb,
                                 bool early, bool room);

/* Takes the first segment out, or returns NULL if there is none. The caller owns the buffer. The
 * segment still counts in `count` until backlog_done(), so that a thread does not own the socket
 * before TCP has the segment. */
struct net_buf *backlog_take(struct backlog *b);
void backlog_done(struct backlog *b);

#endif
