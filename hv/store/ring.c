/* A connection to the store as a stream of bytes: puts requests together from bytes, and takes
 * replies and events apart. An event tells a client that a node has changed which it watches. This
 * file also serves the ring in a page of a VM: two queues of bytes, for requests and for replies,
 * each with two indexes. The guest can write that page at any time. So whatever is read from it is
 * read only once. Two indexes belong to the store; for these, the copies in struct store_client
 * count. */
#include <takt/errno.h>
#include "common/string.h"
#include "mm/frame.h"
#include "store/tree.h"

#define HEAD         ((u32)sizeof(struct xs_header))
#define STREAM_ORDER 1 /* of the pages of store_stream() */

/* Ends the connection: nothing is taken or given any more. The page tells the guest why. */
static void break_up(struct store_client *c, u32 error) {
    c->bad = true;
    c->in_have = c->out_len = c->out_sent = 0;
    if (c->page) __atomic_store_n(&c->page->error, error, __ATOMIC_RELEASE);
}

_Static_assert(2 * XS_PAYLOAD_MAX == PAGE_SIZE << STREAM_ORDER, "a request and a reply");

/* Allocates the pages for the data of a request and of a reply. Returns 0 or -ENOMEM. */
int store_stream(struct store_client *c) {
    hpa_t pages;

    if (c->in.data) return 0;
    pages = frame_alloc_zeroed(STREAM_ORDER);
    if (pages == HPA_NONE) return -ENOMEM;
    c->in.data = hpa_to_va(pages);
    c->out.data = c->in.data + XS_PAYLOAD_MAX;
    return 0;
}

/* Frees these pages, if there are any. */
void store_end_stream(struct store_client *c) {
    if (c->in.data) frame_free(va_to_hpa(c->in.data), STREAM_ORDER);
    c->in.data = c->out.data = NULL;
}

/* Returns where byte `at` of a packet is, and in *n how many of *n bytes from there on follow each
 * other: head and data are apart. */
static u8 *packet_at(struct store_packet *p, u32 at, u32 *n) {
    if (at >= HEAD) return p->data + at - HEAD;
    *n = MIN(*n, HEAD - at);
    return (u8 *)&p->head + at;
}

/* Takes bytes of requests from a client, and returns how many it took. A packet is collected in
 * c->in, first its head and then the rest, whose length the head tells. The length is checked
 * before any of the rest is copied, because c->in has no room for more than XS_PAYLOAD_MAX. */
u32 store_feed(struct store_client *c, const void *bytes, u32 n) {
    u32 taken = 0, want, part;
    u8 *to;

    while (!c->bad && !c->out_len) {
        want = HEAD;
        if (c->in_have >= HEAD) want += c->in.head.len;
        part = MIN(want - c->in_have, n - taken);
        to = packet_at(&c->in, c->in_have, &part);
        memcpy(to, (const u8 *)bytes + taken, part);
        c->in_have += part;
        taken += part;
        if (c->in_have < want) break;
        if (want == HEAD && c->in.head.len > XS_PAYLOAD_MAX) {
            break_up(c, XS_RING_ERROR_PROTOCOL);
        } else if (c->in_have == HEAD + c->in.head.len) {
            if (!store_request(c)) break;
            c->out_len = HEAD + c->out.head.len;
            c->in_have = 0;
        }
    }
    return taken;
}

/* Writes bytes of replies and events for a client, and returns how many. A reply or an event is put
 * into c->out as a whole and leaves in pieces, as far as there is room. An event begins only when
 * the packet before it has left completely. */
u32 store_drain(struct store_client *c, void *bytes, u32 room) {
    u32 done = 0, part;
    const u8 *from;
    int len;

    while (done < room && !c->bad) {
        if (!c->out_len) {
            len = store_event(c, c->out.data);
            if (!len) break;
            c->out.head = (struct xs_header){ .type = XS_WATCH_EVENT, .len = (u32)len };
            c->out_len = HEAD + (u32)len;
        }
        part = MIN(c->out_len - c->out_sent, room - done);
        from = packet_at(&c->out, c->out_sent, &part);
        memcpy((u8 *)bytes + done, from, part);
        done += part;
        c->out_sent += part;
        if (c->out_sent == c->out_len) c->out_sent = c->out_len = 0;
    }
    return done;
}

/* Forgets all bytes of a connection that were taken or have to be given, so that it can begin
 * anew. */
void store_fresh(struct store_client *c) {
    c->bad = false;
    c->in_have = c->out_len = c->out_sent = 0;
}

/* Connects a client to the ring in a page of its VM. `connection` is stored last, because the guest
 * may use the ring from then on. */
void store_connect(struct store_client *c, struct xs_page *p) {
    c->page = p;
    store_fresh(c);
    c->req_cons = c->rsp_prod = 0;
    p->req_cons = p->req_prod = p->rsp_cons = p->rsp_prod = 0;
    p->features = XS_FEATURE_RECONNECT | XS_FEATURE_ERROR;
    p->error = XS_RING_ERROR_NONE;
    __atomic_store_n(&p->connection, XS_CONNECTED, __ATOMIC_RELEASE);
}

/* Passes bytes from the ring to the store and returns how many. */
static u32 ring_take(struct store_client *c) {
    u32 there = __atomic_load_n(&c->page->req_prod, __ATOMIC_ACQUIRE) - c->req_cons, at, n;

    if (there > XS_RING_SIZE) {
        break_up(c, XS_RING_ERROR_INDEX);
        return 0;
    }
    at = c->req_cons % XS_RING_SIZE;
    n = store_feed(c, c->page->req + at, MIN(there, XS_RING_SIZE - at));
    c->req_cons += n;
    __atomic_store_n(&c->page->req_cons, c->req_cons, __ATOMIC_RELEASE);
    return n;
}

/* Passes bytes from the store to the ring and returns how many. */
static u32 ring_give(struct store_client *c) {
    u32 there = c->rsp_prod - __atomic_load_n(&c->page->rsp_cons, __ATOMIC_ACQUIRE), at, n;

    if (there > XS_RING_SIZE) {
        break_up(c, XS_RING_ERROR_INDEX);
        return 0;
    }
    at = c->rsp_prod % XS_RING_SIZE;
    n = store_drain(c, c->page->rsp + at, MIN(XS_RING_SIZE - there, XS_RING_SIZE - at));
    c->rsp_prod += n;
    __atomic_store_n(&c->page->rsp_prod, c->rsp_prod, __ATOMIC_RELEASE);
    return n;
}

/* Returns whether another round of store_pump() could move anything. Most visits are for one
 * request, and looking costs less than a round that moves nothing. */
static bool ring_waits(const struct store_client *c, bool asks) {
    if (c->out_len || !list_empty(&c->events) || !list_empty(&c->late)) return true;
    if (!asks) return false;
    return store_waits(c) || __atomic_load_n(&c->page->req_prod, __ATOMIC_RELAXED) != c->req_cons;
}

/* Puts the two answers of store_pump() into one number. */
static unsigned pump_result(bool tell, bool more) {
    unsigned result = 0;

    if (tell) result |= STORE_TELL;
    if (more) result |= STORE_MORE;
    return result;
}

/* Moves requests, replies and events between a client's ring and the store. Requests are taken only
 * if `asks`. Returns STORE_TELL if the guest has to be told, STORE_MORE if there is more to do. It
 * counts the cost of all that it does, and stops at LIMIT_RING or after as many rounds as the
 * client may have requests. So a guest that always has another request cannot keep the others from
 * being served. */
unsigned store_pump(struct store_client *c, bool asks) {
    bool more = store_work() || store_spent > LIMIT_RING, was_bad = c->bad;
    u32 cost = store_spent, moved = 0, n;

    if (!c->page || c->left) return pump_result(false, more);
    if (__atomic_load_n(&c->page->connection, __ATOMIC_ACQUIRE) == XS_RECONNECT) {
        if (store_reset(c)) return STORE_MORE;
        store_connect(c, c->page);
        return STORE_TELL | STORE_MORE;
    }
    for (u32 i = 1; !c->bad && !more; i++) {
        store_spent = 0;
        n = 0;
        if (asks) n = ring_take(c);
        n += ring_give(c);
        moved += n;
        cost += COST_RING_VISIT + COST_RING_BYTE * n + store_spent;
        more = cost > LIMIT_RING || store_work();
        if (!n || (!more && !ring_waits(c, asks))) break;
        if (i == c->quota.requests) {
            more = true;
        } else {
            cost += store_spent; /* store_work() has counted anew: this is what it took */
            if (cost > LIMIT_RING) more = true;
        }
    }
    if (!asks && __atomic_load_n(&c->page->req_prod, __ATOMIC_RELAXED) != c->req_cons) more = true;
    /* A client whose connection is broken gets no answers, so what it had asked for is dropped. */
    if (c->bad && !more && (c->nr_watches || c->nr_transactions)) {
        store_reset(c);
        more = true;
    }
    return pump_result(moved || was_bad != c->bad, more);
}
