/* One direction of an emulated link: a wire that sends one frame after the other at a given rate,
 * and then a delay. The link does not hold frames itself. It only says when each one arrives; the
 * bridge keeps the frame until then. netem.h has the contracts. */
#include "drivers/netem.h"

/* Sets up an emulated link with the delay, rate and loss that `p` names. The state of the random
 * numbers must never be 0, because xorshift would then give zeros only. */
void netem_init(struct netem *n, const struct netem_params *p) {
    *n = (struct netem){ .p = *p, .rng = (p->seed + 1) * 0x9e3779b97f4a7c15ull | 1 };
    n->p.jitter = MIN(p->jitter, p->delay);
    n->p.queue = MAX(p->queue, 1u);
}

/* Returns the next random number, by xorshift64*. The same seed always gives the same numbers, so
 * that a run with losses can be repeated. */
static u32 random32(struct netem *n) { /* xorshift64* */
    n->rng ^= n->rng >> 12;
    n->rng ^= n->rng << 25;
    n->rng ^= n->rng >> 27;
    return (u32)(n->rng * 0x2545f4914f6cdd1dull >> 32);
}

/* Gives a frame of `bytes` to the link at the time `now`. Returns when it arrives (ns), or
 * NETEM_FULL or NETEM_LOST. The first two random numbers are drawn for each frame, so that the
 * sequence of delays is the same with loss and without. A frame that is reordered does not hold up
 * those behind it, so it leaves `last_due` as it is. */
u64 netem_send(struct netem *n, u64 now, u32 bytes) {
    u32 chance = random32(n), wobble = random32(n);
    u64 due;

    if (n->held >= n->p.queue) return NETEM_FULL;
    n->wire_free = MAX(n->wire_free, now);
    if (n->p.rate) n->wire_free += bytes * 8 * NS_PER_S / n->p.rate;
    if (chance < n->p.loss) return NETEM_LOST;
    due = n->wire_free + n->p.delay - n->p.jitter +
          (u64)((unsigned __int128)(2 * n->p.jitter) * wobble >> 32);
    n->last_due = MAX(due, n->last_due);
    n->held++;
    if (n->p.reorder && random32(n) < n->p.reorder) return n->last_due + n->p.delay;
    return n->last_due;
}

/* A frame has left the link, so that its place in the queue is free again. */
void netem_arrived(struct netem *n) { n->held--; }
