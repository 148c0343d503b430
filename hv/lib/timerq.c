/* Pairing heap (Fredman, Sedgewick, Sleator, Tarjan 1986). A node's children are a list through `next`;
 * `prev` points to the left sibling, or to the parent in a first child, so that any node can be cut out. */
#include "lib/timerq.h"

static bool before(const struct timer *a, const struct timer *b) {
    return a->when < b->when || (a->when == b->when && a->seq < b->seq);
}

/* Joins two heaps; either may be NULL. Their roots have no siblings. */
static struct timer *meld(struct timer *a, struct timer *b) {
    if (!a) return b;
    if (!b) return a;
    if (before(b, a)) {
        struct timer *t = a;
        a = b;
        b = t;
    }
    b->prev = a;
    b->next = a->child;
    if (a->child) a->child->prev = b;
    a->child = b;
    return a;
}

/* One heap from a list of siblings: pairs from left to right, then the pairs from right to left. */
static struct timer *merge_pairs(struct timer *first) {
    struct timer *pairs = NULL, *heap = NULL;

    while (first) {
        struct timer *a = first, *b = a->next;

        first = b ? b->next : NULL;
        a->next = a->prev = NULL;
        if (b) b->next = b->prev = NULL;
        a = meld(a, b);
        a->next = pairs;
        pairs = a;
    }
    while (pairs) {
        struct timer *p = pairs;

        pairs = p->next;
        p->next = NULL;
        heap = meld(heap, p);
    }
    return heap;
}

void timerq_insert(struct timerq *q, struct timer *t, u64 when) {
    t->when = when;
    t->seq = q->seq++;
    t->child = t->next = t->prev = NULL;
    t->queued = true;
    q->root = meld(q->root, t);
}

void timerq_remove(struct timerq *q, struct timer *t) {
    if (!t->queued) return;
    struct timer *rest = merge_pairs(t->child);

    if (t == q->root) {
        q->root = rest;
    } else {
        if (t->prev->child == t)
            t->prev->child = t->next;
        else
            t->prev->next = t->next;
        if (t->next) t->next->prev = t->prev;
        q->root = meld(q->root, rest);
    }
    t->child = t->next = t->prev = NULL;
    t->queued = false;
}

struct timer *timerq_pop(struct timerq *q, u64 now) {
    struct timer *t = q->root;

    if (!t || t->when > now) return NULL;
    timerq_remove(q, t);
    return t;
}
