#include "drivers/collab/congest.h"
#include <takt/seed.h>

bool congest_crowded(const struct congest_limits *l, u32 in_queue, u32 used_pct, bool was) {
    if (l->busy_pct && used_pct >= l->busy_pct) return true;
    if (!l->queue) return false;
    if (was) return (u64)in_queue * 16 >= (u64)l->queue * 13;
    return (u64)in_queue * 8 > (u64)l->queue * 7;
}

static u32 place_of(const struct congest *c, u32 i) {
    u32 at = 0;

    while (at < c->nr && c->waiting[at] != i) at++;
    return at;
}

void congest_forget(struct congest *c, u32 i) {
    u32 at = place_of(c, i);

    if (at == c->nr) return;
    for (c->nr--; at < c->nr; at++) c->waiting[at] = c->waiting[at + 1];
}

/* Whoever asks while others are still being let go is released at once as well: it is not the
 * device that makes it wait. */
enum congest_answer congest_ask(struct congest *c, u32 i, bool crowded) {
    if (!crowded) {
        congest_forget(c, i);
        return CONGEST_RELEASE;
    }
    if (place_of(c, i) == c->nr) c->waiting[c->nr++] = (u8)i;
    return CONGEST_STANDS;
}

static u64 gap(struct congest *c) { return seed_next(&c->rng) % CONGEST_GAP_MS * NS_PER_MS; }

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
