/* Checks whether what a guest says of itself fits what the driver domain measures (IOrchestra,
 * section 3: a malicious VM can be found in the management module). Three things do not fit:
 *
 *   - so many changes of its keys that reading them is a load of its own. The manager then does not
 *     listen to that disk for a while;
 *   - more dirty pages than the disk has pages. They count as that many;
 *   - flushes, several in a row, after which the disk has hardly written anything. The disk is then
 *     not asked to flush for a while, so that it does not hold up others.
 *
 * All of that happens to honest guests now and then, which is why none of it ends a VM. */
#ifndef DRIVERS_COLLAB_CLAIMS_H
#define DRIVERS_COLLAB_CLAIMS_H

#include <takt/types.h>

#define CLAIMS_SECOND   NS_PER_S /* changes are counted over this, and not listened to for it */
#define CLAIMS_CHANGES  200u     /* more in a second are a flood: an honest guest has some 50 */
#define CLAIMS_EMPTY    3u       /* flushes in a row that hardly write anything */
#define CLAIMS_DISTRUST (10 * NS_PER_S) /* how long such a disk is not asked to flush */

struct claims {
    u64 second; /* when the second began in which changes are counted, ns */
    u32 changes;
    u64 deaf_until;  /* the disk is not listened to before that, ns */
    u64 asked_nr;    /* pages that the disk claimed when it was asked to flush */
    u64 written;     /* bytes that it had written until then */
    u32 empty;       /* flushes in a row that hardly wrote anything */
    u64 doubt_until; /* the disk is not asked to flush before that, ns */
};

/* Counts a change of one of the disk's keys. Returns whether it is one too many in this second;
 * then c->deaf_until is set. */
bool claims_change(struct claims *c, u64 now);

/* Returns how many of `nr` dirty pages a disk of `pages` can have. */
static inline u64 claims_pages(u64 nr, u64 pages) { return MIN(nr, pages); }

/* Notes that the disk is asked to flush. It claims `nr` dirty pages, and has written `written`
 * bytes so far. */
static inline void claims_asked(struct claims *c, u64 nr, u64 written) {
    c->asked_nr = nr;
    c->written = written;
}

/* Judges a flush that the disk says it has done; it has written `written` bytes by now. Returns
 * whether the disk is not to be asked any more for a while; then c->doubt_until is set. */
bool claims_flushed(struct claims *c, u64 written, u64 now);

#endif
