/* Whether a guest's queue is congested because the device is (IOrchestra, section 3.2 and
 * Algorithm 2). A guest whose queue passes 7/8 of its limit sets `congested` and asks. If the
 * device is crowded, that stands, until the device is relieved: then those that wait are let go in
 * the order in which they asked, with gaps of 0 to 99 ms at random, so that they do not come back
 * all at once. If the device is not crowded, the guest is let go at once (`release_request`).
 *
 * Two slips of the paper: its test for release reads `congested = 1` where `release_request = 1` is
 * meant, and it has no number for "overcrowded", which is struct congest_limits here.
 *
 * One reading of ours: the paper lets the manager clear `congested` when it releases. Here it only
 * sets release_request, and the guest clears first `congested`, then release_request. A manager
 * that ended between two writes of its own would leave a guest that waits and that nobody knows
 * of (tests/unit/test_collab_orders.c finds that order). */
#ifndef DRIVERS_COLLAB_CONGEST_H
#define DRIVERS_COLLAB_CONGEST_H

#include <takt/types.h>

#define CONGEST_DISKS  64u /* virtual disks of a device at most */
#define CONGEST_NOBODY (~0u)
#define CONGEST_GAP_MS 100u /* gaps are below this */

/* When a device with a queue of `queue` requests is crowded. */
struct congest_limits {
    u32 queue;    /* requests; 0: without a limit */
    u32 busy_pct; /* of the bandwidth in use, from which on it is crowded as well; 0: never */
};

/* The rule that Linux has for a queue, applied to the host's: crowded above 7/8, no longer below
 * 13/16, in between as it `was`. `used_pct`: of the bandwidth. */
bool congest_crowded(const struct congest_limits *l, u32 in_queue, u32 used_pct, bool was);

/* Whether requests to a device wait mainly for each other: one that came now would take `takes` ns,
 * and it takes `alone` ns on a device that does nothing else. Letting more requests go at a time
 * then makes none of them faster. It is so from `pct` per cent of `alone` on (0: never), no longer
 * below 13/16 of that, and in between as it `was`. */
bool congest_slow(u64 takes, u64 alone, u32 pct, bool was);

struct congest {
    u64 rng;                   /* of the gaps: any seed */
    u8 waiting[CONGEST_DISKS]; /* disks with congested = 1, in the order in which they asked */
    u32 nr;                    /* of them */
    u64 next;                  /* when the first is let go; ~0: the device is crowded */
};

static inline struct congest congest_begin(u64 seed) {
    return (struct congest){ .rng = seed, .next = ~0ull };
}

enum congest_answer {
    CONGEST_STANDS,  /* the manager leaves congested at 1 */
    CONGEST_RELEASE, /* it sets release_request to 1; the guest then clears both */
};

/* Disk `i` asks. One that waits already keeps its place. While any disk waits, congest_relieve() is
 * to be called after this. */
enum congest_answer congest_ask(struct congest *c, u32 i, bool crowded);

/* Disk `i` is gone, or has cleared `congested` itself. */
void congest_forget(struct congest *c, u32 i);

/* Who is to be let go now, as with CONGEST_RELEASE; CONGEST_NOBODY: nobody. To be called when
 * the device has become crowded, or is no longer, and when c->next has come; again until it is
 * nobody. */
u32 congest_relieve(struct congest *c, bool crowded, u64 now);

#endif
