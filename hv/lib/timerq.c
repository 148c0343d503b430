/* A priority queue of timers, as a skew heap (Sleator, Tarjan 1986): a heap-ordered binary tree
 * that is never balanced. Each merge swaps the children of every node that it passes. That alone
 * makes an operation cost O(log n) on average. */
#include "lib/timerq.h"

/* Returns whether `a` is due before `b`. Of two timers with the same deadline, the one that came
 * first is due first. */
static bool is_before(const struct timer *a, const struct timer *b) {
    return a->when < b->when || (a->when == b->when && a->seq < b->seq);
}

/* Makes one heap of two, either of which may be empty, and stores it in *at, a link of `parent`.
 * The earlier of the two roots becomes the root. Its right branch has then to be merged with the
 * other heap, in the next round, and the result goes to its left, since the branches are
 * swapped. */
static void heap_merge(struct timer **at, struct timer *parent, struct timer *a, struct timer *b) {
    while (a && b) {
        struct timer *first = a;

        if (is_before(b, a)) {
            first = b;
            b = a;
        }
        a = first->right;
        first->right = first->left;
        first->parent = parent;
        *at = parent = first;
        at = &first->left;
    }
    *at = b;
    if (a) *at = a;
    if (*at) (*at)->parent = parent;
}

/* Queues a timer, which must not be queued. */
void timerq_insert(struct timerq *q, struct timer *t, u64 when) {
    t->when = when;
    t->seq = q->seq++;
    t->left = t->right = NULL;
    t->queued = true;
    heap_merge(&q->root, NULL, q->root, t);
}

/* Takes a timer off its queue, if it is queued. Its two children, merged into one heap, take its
 * place. */
void timerq_remove(struct timerq *q, struct timer *t) {
    struct timer *up = t->parent, **at = &q->root;

    if (!t->queued) return;
    if (up) {
        at = &up->right;
        if (up->left == t) at = &up->left;
    }
    heap_merge(at, up, t->left, t->right);
    t->queued = false;
}

/* Takes the earliest timer that is due at `now` off the queue. Returns it, or NULL if none is
 * due. */
struct timer *timerq_pop(struct timerq *q, u64 now) {
    struct timer *t = q->root;

    if (!t || t->when > now) return NULL;
    timerq_remove(q, t);
    return t;
}
