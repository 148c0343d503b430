/* The backlog of a TCP socket that a thread owns, and Algorithm 1 of vTurbo (section 3.2): early
 * acknowledgements.
 *
 * While a thread owns the socket, also when it is off its pCPU meanwhile, the bottom half may read
 * the state of the connection and must not write it: segments are kept here, in order of arrival,
 * and go through TCP on release. What Algorithm 1 adds is that a segment that is next in order is
 * acknowledged at once. docs/netstack.md tells where this reading of it differs from the printed
 * one.
 */
#ifndef NETSTACK_BACKLOG_H
#define NETSTACK_BACKLOG_H

#include <takt/types.h>

struct net_buf;

struct backlog {
    struct net_buf *first, *last;
    u32 count; /* threads read it: a socket is not taken while segments wait */
    u32 nxt;   /* bl.nxt: what is next in order behind the backlog */
    bool online;
    bool may_end; /* a segment that may end the stream waits here: where, TCP says on release */
    u32 acked;    /* the highest acknowledgement number that was sent on this connection */
    u32 edge;     /* the highest right edge of a window that was promised */
};

/* What Algorithm 1 reads of the connection. */
struct rcv_view {
    u32 nxt;   /* rcv.nxt */
    u32 edge;  /* the right edge of the window that was announced: there is room up to here */
    bool hole; /* segments beyond a gap wait in TCP, or the connection takes no data as it is */
};

enum backlog_verdict {
    BACKLOG_DROPPED, /* no room: the buffer is still the caller's */
    BACKLOG_KEPT,    /* kept, to be acknowledged by who replays it */
    BACKLOG_ACK,     /* kept, and everything before bl.nxt is to be acknowledged now */
};

/* a before b, modulo 2^32. */
static inline bool seq_before(u32 a, u32 b) { return (int32_t)(a - b) < 0; }

void backlog_init(struct backlog *b, u32 rcv_nxt);

/* Algorithm 1, for a segment in `nb` (its seq, len and plain are set) of an owned socket. `early`
 * is the switch, `room` whether the buffer may be kept. */
enum backlog_verdict backlog_add(struct backlog *b, const struct rcv_view *rcv, struct net_buf *nb,
                                 bool early, bool room);

/* The first segment, which is the caller's from here on; NULL: none. It counts until
 * backlog_done(). */
struct net_buf *backlog_take(struct backlog *b);
void backlog_done(struct backlog *b);

#endif
