/* Skew heap (Sleator, Tarjan 1986): a heap-ordered binary tree without any balance kept; that each merge
 * swaps the children of every node that it passes makes it short on average, in O(log n) amortised. */
#include "lib/timerq.h"

static bool before(const struct timer *a, const struct timer *b) {
    return a->when < b->when || (a->when == b->when && a->seq < b->seq);
}

/* Puts the two heaps, of which each may be empty, as one where *at points from. */
static void merge(struct timer **at, struct timer *parent, struct timer *a, struct timer *b) {
    while (a && b) {
        struct timer *first = before(b, a) ? b : a;

        b = first == a ? b : a;
        a = first->right;
        first->right = first->left;
        first->parent = parent;
        *at = parent = first;
        at = &first->left;
    }
    *at = a ? a : b;
    if (*at) (*at)->parent = parent;
}

void timerq_insert(struct timerq *q, struct timer *t, u64 when) {
    t->when = when;
    t->seq = q->seq++;
    t->left = t->right = NULL;
    t->queued = true;
    merge(&q->root, NULL, q->root, t);
}

void timerq_remove(struct timerq *q, struct timer *t) {
    struct timer *up = t->parent;

    if (!t->queued) return;
    merge(!up ? &q->root : up->left == t ? &up->left : &up->right, up, t->left, t->right);
    t->queued = false;
}

struct timer *timerq_pop(struct timerq *q, u64 now) {
    struct timer *t = q->root;

    if (!t || t->when > now) return NULL;
    timerq_remove(q, t);
    return t;
}
