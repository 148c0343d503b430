/* The backlog of a TCP socket, and Algorithm 1 of the paper vTurbo (section 3.2), which decides
 * which segments of the backlog are acknowledged at once. The *backlog* holds the segments that
 * arrive while a thread owns the socket, because TCP must not change the connection then. "Lines"
 * are those of the algorithm as the paper prints it. backlog.h says how it is used. */
#include <netstack/backlog.h>
#include <netstack/net.h>

void backlog_init(struct backlog *b, u32 rcv_nxt) {
    *b = (struct backlog){ .nxt = rcv_nxt, .acked = rcv_nxt, .edge = rcv_nxt };
}

/* Adds the segment to the end of the list. The count is written last: threads read it without a
 * lock. */
static void backlog_append(struct backlog *b, struct net_buf *nb) {
    nb->next = NULL;
    if (b->first)
        b->last->next = nb;
    else
        b->first = nb;
    b->last = nb;
    __atomic_store_n(&b->count, b->count + 1, __ATOMIC_SEQ_CST);
}

struct net_buf *backlog_take(struct backlog *b) {
    struct net_buf *nb = b->first;

    if (nb) b->first = nb->next;
    return nb;
}

void backlog_done(struct backlog *b) {
    __atomic_store_n(&b->count, b->count - 1, __ATOMIC_SEQ_CST);
}

/* Lines 4 to 13: TCP has taken over what was acknowledged early, so we go on from its rcv.nxt. Two
 * things keep early acknowledgements off. One is a gap that TCP still waits to be closed. The other
 * is a FIN in the backlog: TCP refuses what a peer sends after its FIN, so it must not have been
 * acknowledged. */
static void backlog_resync(struct backlog *b, const struct rcv_view *rcv) {
    if (!b->first) b->may_end = false;
    if ((b->first && b->online) || seq_before(rcv->nxt, b->nxt)) return;
    b->nxt = rcv->nxt;
    b->online = !rcv->hole && !b->may_end;
}

/* Decides what becomes of a segment that arrives while a thread owns its socket: kept in the
 * backlog, perhaps acknowledged early, or dropped. `plain` means that only ACK of the flags is set.
 * A segment is acknowledged early only if it is the next one in order, TCP will surely accept it,
 * and there was room for it. */
enum backlog_verdict backlog_add(struct backlog *b, const struct rcv_view *rcv, struct net_buf *nb,
                                 bool early, bool room) {
    bool in_order;

    if (early)
        backlog_resync(b, rcv);
    else
        b->online = false;

    /* Lines 14 to 20. A segment without data has no place in the order, and is never acknowledged.
     */
    in_order =
        nb->plain && nb->len && nb->seq == b->nxt && !seq_before(rcv->edge, nb->seq + nb->len);
    if (!in_order && (nb->len || !nb->plain)) b->online = false;

    /* Lines 21 and 22. bl.nxt moves only over segments that are kept; otherwise a segment that was
     * dropped would be acknowledged together with the next one. */
    if (!room) return BACKLOG_DROPPED;
    backlog_append(b, nb);
    if (!nb->plain) b->may_end = true;
    nb->early = b->online && in_order;
    if (!nb->early) return BACKLOG_KEPT;
    b->nxt += nb->len;
    return BACKLOG_ACK;
}
