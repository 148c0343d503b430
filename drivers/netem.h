/* One direction of an emulated link, as Linux's netem has it but for the order, which it keeps: a wire of
 * some rate, behind it a delay with jitter, and loss. In whatever time the caller counts. */
#ifndef DRIVERS_NETEM_H
#define DRIVERS_NETEM_H

#include <takt/types.h>

struct netem_params {
    u64 rate;          /* bits a second; 0: any */
    u64 delay, jitter; /* ns; the delay of each frame lies within delay +- jitter, evenly */
    u32 loss;          /* probability, in parts of 2^32 */
    u32 queue;         /* frames that it holds at most, waiting or under way */
    u64 seed;
};

struct netem {
    struct netem_params p;
    u64 rng;
    u64 wire_free; /* when the wire has sent all that it was given */
    u64 last_due;
    u32 held;
};

#define NETEM_FULL 0ull    /* the queue is full */
#define NETEM_LOST (~0ull) /* the frame was sent and will not arrive */

void netem_init(struct netem *n, const struct netem_params *p);
/* Does it do anything at all? */
static inline bool netem_active(const struct netem *n) {
    return n->p.rate || n->p.delay || n->p.jitter || n->p.loss;
}
/* A frame of `bytes` is given to the link at `now`: when it arrives (never before one that went earlier), or
 * one of the two above. Each that is to arrive is held until netem_arrived(). */
u64 netem_send(struct netem *n, u64 now, u32 bytes);
void netem_arrived(struct netem *n);

#endif
