/* A priority queue of timers. It is a pure data structure: its owner locks it and programs the
 * hardware (hv/platform/timer.h), or runs an event loop (tests/sim). */
#ifndef HV_LIB_TIMERQ_H
#define HV_LIB_TIMERQ_H

#include <takt/types.h>

struct timer {
    u64 when;                                /* ns of the machine's clock */
    void (*fn)(struct timer *t, u64 now_ns); /* called once; the timer is no longer queued then */
    struct timer *left, *right, *parent;     /* in the heap */
    u64 seq;                                 /* order of arrival, for equal deadlines */
    bool queued;
    u16 cpu; /* the pCPU whose queue it is in; set by the owner of the queues */
};

struct timerq {
    struct timer *root;
    u64 seq;
};

/* Prepares a timer, which then is not queued. `fn` is what is called when it is due. */
static inline void timer_init(struct timer *t, void (*fn)(struct timer *, u64)) {
    *t = (struct timer){ .fn = fn };
}

/* Queues a timer, which must not be queued. */
void timerq_insert(struct timerq *q, struct timer *t, u64 when);
/* Does nothing if the timer is not queued. */
void timerq_remove(struct timerq *q, struct timer *t);

/* Returns the earliest deadline, ~0 if there is none. */
static inline u64 timerq_next(const struct timerq *q) {
    if (!q->root) return ~0ull;
    return q->root->when;
}

/* Takes the earliest timer that is due at `now` off the queue and returns it, or NULL. Timers
 * with the same deadline leave in the order in which they came. */
struct timer *timerq_pop(struct timerq *q, u64 now);

#endif
