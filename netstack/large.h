/* Large segments of TCP: of several times the maximum segment size (MSS). The device passes such a
 * segment on as it is, or cuts it (drivers/gso.h). lwIP then does for one large segment what it
 * would otherwise do for each of many. Only the bottom half uses these functions. */
#ifndef NETSTACK_LARGE_H
#define NETSTACK_LARGE_H

#include <netstack/net.h>

struct tcp_pcb;

/* The most bytes of data of a large segment: a multiple of 1,460 with which the frame's length, and
 * that of lwIP's pbufs, fits into 16 bits. */
#define LARGE_MOST (44 * 1460u)

/* Returns how many bytes of the stream lwIP may be given now, as one segment: no more than the peer
 * and the network take at once, because lwIP sends a segment as a whole or not at all. Returns 0 if
 * lwIP has something that it could not send yet. The caller then waits for an acknowledgement. */
u32 large_room(const struct tcp_pcb *t, u32 sndbuf);
/* Gives lwIP up to `n` bytes at `at`, where n is at most large_room(). Returns how many it has
 * taken. */
u32 large_write(struct tcp_pcb *t, const void *at, u32 n);

/* Returns whether a large segment waits to be sent. Then tcp_write() must not be called, because it
 * takes the last segment that waits for one of at most an MSS. */
bool large_waits(const struct tcp_pcb *t);

/* Divides the large segments that lwIP could not send, so that it can send a part of them. That
 * happens after a loss, when the network shall not take so much at once any more, and when the
 * device does not cut segments any more. */
void large_fit(void);

/* Notes in *f what a driver may do with the frame `p`, which begins with its Ethernet header, if it
 * is a TCP segment of ours with data: cut it, or refer to its data instead of copying them. */
void large_describe(struct pbuf *p, struct net_frame *f);

#endif
