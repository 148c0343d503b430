#include <netstack/backlog.h>
#include <netstack/net.h>

void backlog_init(struct backlog *b, u32 rcv_nxt) {
    *b = (struct backlog){ .nxt = rcv_nxt, .acked = rcv_nxt, .edge = rcv_nxt };
}

static void append(struct backlog *b, struct net_buf *nb) {
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

/* Lines 4 to 13: what was acknowledged early has been taken over by TCP, so its rcv.nxt is where
 * to go on from. A gap that TCP still waits to be filled keeps this off. So does a FIN in the
 * backlog: what a peer sends behind its FIN is refused by TCP, and must not have been
 * acknowledged. */
static void resync(struct backlog *b, const struct rcv_view *rcv) {
    if (!b->first) b->may_end = false;
    if ((b->first && b->online) || seq_before(rcv->nxt, b->nxt)) return;
    b->nxt = rcv->nxt;
    b->online = !rcv->hole && !b->may_end;
}

enum backlog_verdict backlog_add(struct backlog *b, const struct rcv_view *rcv, struct net_buf *nb,
                                 bool early, bool room) {
    bool in_order;

    if (early)
        resync(b, rcv);
    else
        b->online = false;

    /* Lines 14 to 20. A segment without data is not in any order, and is never acknowledged. */
    in_order =
        nb->plain && nb->len && nb->seq == b->nxt && !seq_before(rcv->edge, nb->seq + nb->len);
    if (!in_order && (nb->len || !nb->plain)) b->online = false;

    /* Lines 21 and 22; bl.nxt moves only over what is kept. */
    if (!room) return BACKLOG_DROPPED;
    append(b, nb);
    if (!nb->plain) b->may_end = true;
    nb->early = b->online && in_order;
    if (!nb->early) return BACKLOG_KEPT;
    b->nxt += nb->len;
    return BACKLOG_ACK;
}
