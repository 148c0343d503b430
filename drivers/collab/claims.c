/* Compares what a guest says of its dirty pages with what the driver domain measures. claims.h says
 * which contradictions count, and what follows from them. */
#include "drivers/collab/claims.h"

/* Changes are counted for a second at a time, from the first change on. */
bool claims_change(struct claims *c, u64 now) {
    if (now - c->second >= CLAIMS_SECOND) {
        c->second = now;
        c->changes = 0;
    }
    if (++c->changes <= CLAIMS_CHANGES) return false;
    c->changes = 0;
    c->second = c->deaf_until = now + CLAIMS_SECOND;
    return true;
}

/* The guest publishes its number when that has doubled or halved, and may have written some pages
 * by itself since. So it is a quarter that it has to write at least. */
bool claims_flushed(struct claims *c, u64 written, u64 now) {
    u64 pages = (written - c->written) / PAGE_SIZE;

    if (pages >= c->asked_nr / 4) {
        c->empty = 0;
        return false;
    }
    if (++c->empty < CLAIMS_EMPTY) return false;
    c->empty = 0;
    c->doubt_until = now + CLAIMS_DISTRUST;
    return true;
}
