/* Decides for how long a guest whose queue to a device is full (congested) has to wait. congest.h
 * has the rules, and where they come from. */
#include "drivers/collab/congest.h"
#include <takt/seed.h>

/* Returns whether a device is crowded with `in_queue` requests and `used_pct` per cent of its
 * bandwidth in use. `was` says whether it was crowded before. A device becomes crowded above 7/8 of
 * its queue, and stays so down to 13/16. With one limit for both, the answer could change with
 * every request. */
bool congest_crowded(const struct congest_limits *l, u32 in_queue, u32 used_pct, bool was) {
    if (l->busy_pct && used_pct >= l->busy_pct) return true;
    if (!l->queue) return false;
    if (was) return (u64)in_queue * 16 >= (u64)l->queue * 13;
    return (u64)in_queue * 8 > (u64)l->queue * 7;
}

/* Returns whether a request that came now would take `pct` per cent of the time `alone` that it
 * takes on an idle device, or more. If that was so before (`was`), it remains so down to 13/16 of
 * the limit. With `pct` 0 it never is. */
bool congest_slow(u64 takes, u64 alone, u32 pct, bool was) {
    u64 limit = alone * pct / 100;

    if (!pct) return false;
    if (was) limit = limit / 16 * 13;
    return takes >= limit;
}

/* Returns the place of disk i among those that wait, or their number if it does not wait. */
static u32 place_of(const struct congest *c, u32 i) {
    u32 at = 0;

    while (at < c->nr && c->waiting[at] != i) at++;
    return at;
}

/* Takes disk i out of the list of those that wait, if it is there. */
void congest_forget(struct congest *c, u32 i) {
    u32 at = place_of(c, i);

    if (at == c->nr) return;
    for (c->nr--; at < c->nr; at++) c->waiting[at] = c->waiting[at + 1];
}

/* Answers disk i, which asks whether the device is crowded: either it is released at once, or it
 * has to wait. A disk that asks while others wait has to wait behind them, even if the device is
 * not crowded now. If it were released at once, it could ask whenever the device has room for a
 * moment, and make the device crowded before the turn of the others has come. */
enum congest_answer congest_ask(struct congest *c, u32 i, bool crowded) {
    if (!crowded && !c->nr) return CONGEST_RELEASE;
    if (place_of(c, i) == c->nr) c->waiting[c->nr++] = (u8)i;
    return CONGEST_STANDS;
}

/* Returns how long the next disk has to wait, at random, ns. */
static u64 gap(struct congest *c) { return seed_next(&c->rng) % CONGEST_GAP_MS * NS_PER_MS; }

/* Returns the disk that is to be released now, which waits no longer, or CONGEST_NOBODY. The disks
 * are released in the order in which they asked, each after a random gap. c->next is the time at
 * which the gap is over. If the device becomes crowded again meanwhile, the gaps begin anew. */
u32 congest_relieve(struct congest *c, bool crowded, u64 now) {
    u32 first = c->waiting[0];

    if (crowded || !c->nr) {
        c->next = ~0ull;
        return CONGEST_NOBODY;
    }
    if (c->next == ~0ull) c->next = now + gap(c);
    if (c->next > now) return CONGEST_NOBODY;
    congest_forget(c, first);
    c->next = c->nr ? now + gap(c) : ~0ull;
    return first;
}
