/* A priority queue of timers: a skew heap, embedded in what is timed. Pure data structure: who owns a
 * queue locks it and programs the hardware (hv/platform/timer.h) or the event loop (tests/sim). */
#ifndef HV_LIB_TIMERQ_H
#define HV_LIB_TIMERQ_H

#include <takt/types.h>

struct timer {
    u64 when;                                /* ns of the machine's clock */
    void (*fn)(struct timer *t, u64 now_ns); /* called once, with the timer no longer queued */
    struct timer *left, *right, *parent;     /* in the heap */
    u64 seq;                                 /* order of arrival, for equal deadlines */
    bool queued;
    u16 cpu; /* whose queue it is in; set by the owner of the queues */
};

struct timerq {
    struct timer *root;
    u64 seq;
};

static inline void timer_init(struct timer *t, void (*fn)(struct timer *, u64)) {
    *t = (struct timer){ .fn = fn };
}

void timerq_insert(struct timerq *q, struct timer *t, u64 when); /* t must not be queued */
void timerq_remove(struct timerq *q, struct timer *t);           /* harmless if not queued */

/* The earliest deadline, ~0 if none. */
static inline u64 timerq_next(const struct timerq *q) { return q->root ? q->root->when : ~0ull; }

/* Takes off and returns the earliest timer that is due at `now`, or NULL. Equal deadlines leave in the order
 * in which they came. */
struct timer *timerq_pop(struct timerq *q, u64 now);

#endif
