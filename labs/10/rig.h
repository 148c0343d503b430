/* A peer that sends segments, and a connection whose socket a thread owns. */
#ifndef LAB10_RIG_H
#define LAB10_RIG_H

#include <netstack/backlog.h>
#include <netstack/net.h>
#include "check.h"

#define SEGMENTS 64u
#define START    0xfffffc00u /* sequence numbers wrap soon */
#define WINDOW   8192u

static struct backlog b;
static struct rcv_view rcv;
static struct net_buf *bufs;
static unsigned used;

/* Begins with an empty backlog. TCP has received all before START, and announced WINDOW bytes. */
static inline void begin(void) {
    if (!bufs) bufs = calloc(SEGMENTS, sizeof(*bufs));
    used = 0;
    rcv = (struct rcv_view){ .nxt = START, .edge = START + WINDOW };
    backlog_init(&b, START);
}

/* A segment arrives: `len` bytes, the first of which is number START + at. */
static inline enum backlog_verdict arrives_with(u32 at, u16 len, bool plain, bool room) {
    struct net_buf *nb = &bufs[used++ % SEGMENTS];

    nb->seq = START + at;
    nb->len = len;
    nb->plain = plain;
    nb->early = false;
    nb->next = NULL;
    return backlog_add(&b, &rcv, nb, true, room);
}

static inline enum backlog_verdict arrives(u32 at, u16 len) {
    return arrives_with(at, len, true, true);
}

/* Checks what is to be done with a segment (0: dropped, 1: kept, 2: acknowledged now). */
static inline void verdict(const char *what, enum backlog_verdict came,
                           enum backlog_verdict expected) {
    static const char *const words[] = { "dropped", "kept", "acknowledged now" };

    if (came != expected) differs(what, words[expected], words[came % 3]);
}

/* TCP takes all that is in the backlog, as when the thread releases the socket. */
static inline void replay(void) {
    struct net_buf *nb;

    while ((nb = backlog_take(&b))) {
        if (nb->plain && nb->seq == rcv.nxt)
            rcv.nxt += nb->len;
        else if (nb->len)
            rcv.hole = seq_before(rcv.nxt, nb->seq);
        backlog_done(&b);
    }
    rcv.edge = rcv.nxt + WINDOW;
}

#endif
