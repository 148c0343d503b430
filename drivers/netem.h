/* One direction of an emulated link: a wire with a rate, and after it a delay with jitter, and
 * loss. It is like Linux's netem, but it keeps frames in order unless it is told to reorder them.
 * The caller passes the time. */
#ifndef DRIVERS_NETEM_H
#define DRIVERS_NETEM_H

#include <takt/types.h>

struct netem_params {
    u64 rate; /* bits a second; 0: without a limit */
    /* ns; each frame's delay is drawn evenly from delay - jitter to delay + jitter */
    u64 delay, jitter;
    u32 loss; /* probability, in parts of 2^32 */
    /* As `loss`: the part of the frames that takes `delay` once more, so that later frames overtake
     * them. */
    u32 reorder;
    u32 queue; /* the most frames that the link holds, those that wait and those on their way */
    u64 seed;
};

struct netem {
    struct netem_params p;
    u64 rng;       /* state of the random numbers */
    u64 wire_free; /* when the wire has sent all that it was given, ns */
    u64 last_due;  /* when the last frame arrives, ns */
    u32 held;      /* frames that the link holds */
};

#define NETEM_FULL 0ull    /* the queue is full */
#define NETEM_LOST (~0ull) /* the frame was sent and will not arrive */

void netem_init(struct netem *n, const struct netem_params *p); /* Makes a link. *p is copied. */
/* Returns whether a link with these parameters changes anything. */
static inline bool netem_emulates(const struct netem_params *p) {
    return p->rate || p->delay || p->jitter || p->loss;
}
/* The same of a link. If it does not, frames need not go through it. */
static inline bool netem_active(const struct netem *n) { return netem_emulates(&n->p); }
/* Gives a frame of `bytes` to the link at the time `now`. Returns the time at which it arrives,
 * which is never before that of a frame that was sent earlier, unless that one is reordered; or
 * NETEM_FULL or NETEM_LOST. The
 * link holds a frame that will arrive until netem_arrived(). */
u64 netem_send(struct netem *n, u64 now, u32 bytes);
/* Notes that a frame has arrived, or was dropped, so that the link no longer holds it. */
void netem_arrived(struct netem *n);

#endif
