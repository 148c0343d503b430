/* Compares what a guest says of its dirty pages with what the driver domain measures. claims.h says
 * which contradictions count, and what follows from them. */
#include "drivers/collab/claims.h"

/* Counts a change of one of the disk's keys. Returns true if there were too many in this second;
 * then the manager does not listen to the disk until c->deaf_until. A second begins with the first
 * change that no earlier second has counted. */
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

/* Judges a flush that the disk says it has done, by what it has really written. Returns true if
 * that was too little several times in a row; then the disk is not asked to flush until
 * c->doubt_until. A quarter of what the guest has claimed is enough. The guest publishes its number
 * of dirty pages only when that has doubled or halved, and may have written some of them by itself
 * since. */
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
