/* Whether a guest's queue is congested because the device is (IOrchestra, section 3.2 and Algorithm
 * 2). A guest whose queue passes 7/8 of its limit sets `congested` and asks. If the device is not
 * crowded, the guest is released at once (`release_request`). If the device is crowded, `congested`
 * stays set and the guest waits until the device is crowded no longer. The guests that wait are
 * then released in the order in which they asked, with gaps of 0 to 99 ms at random, so that they
 * do not come back all at once.
 *
 * Two slips of the paper: its test for release reads `congested = 1` where `release_request = 1` is
 * meant, and it has no number for "overcrowded", which is struct congest_limits here.
 *
 * One reading of ours: the paper lets the manager clear `congested` when it releases. Here it only
 * sets release_request, and the guest clears first `congested`, then release_request. A manager
 * that ended between two writes of its own would leave a guest that waits and that nobody knows of
 * (tests/unit/test_collab_orders.c finds that order). */
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

/* Returns whether the device is crowded, by the rule that Linux has for a queue: it is above 7/8 of
 * the limit, it is no longer below 13/16, and in between it stays as it `was`. `in_queue` is the
 * number of requests in the device's queue, `used_pct` how many per cent of its bandwidth are in
 * use. */
bool congest_crowded(const struct congest_limits *l, u32 in_queue, u32 used_pct, bool was);

/* Returns whether requests to a device wait mainly for each other. A request that came now would
 * take `takes` ns, and it takes `alone` ns on a device that does nothing else. If the first time is
 * `pct` per cent of the second one or more (0: never), a device that gets more requests does none
 * of them sooner. The answer stays true down to 13/16 of that limit if it `was` true before. */
bool congest_slow(u64 takes, u64 alone, u32 pct, bool was);

struct congest {
    u64 rng;                   /* of the gaps: any seed */
    u8 waiting[CONGEST_DISKS]; /* disks with congested = 1, in the order in which they asked */
    u32 nr;                    /* of them */
    u64 next; /* when the first one is released, ns; ~0: not known, because the device is crowded */
};

static inline struct congest congest_begin(u64 seed) {
    return (struct congest){ .rng = seed, .next = ~0ull };
}

enum congest_answer {
    CONGEST_STANDS,  /* the manager leaves congested at 1 */
    CONGEST_RELEASE, /* it sets release_request to 1; the guest then clears both */
};

/* Answers disk `i` (below CONGEST_DISKS), which asks whether the device is crowded. A disk that
 * waits already keeps its place. While any disk waits, call congest_relieve() after this. */
enum congest_answer congest_ask(struct congest *c, u32 i, bool crowded);

/* Forgets disk `i`, because it is gone or has cleared `congested` itself. */
void congest_forget(struct congest *c, u32 i);

/* Returns the disk that is to be released now, as with CONGEST_RELEASE, or CONGEST_NOBODY. Call it
 * when the device has become crowded or is crowded no longer, and when c->next has come. Repeat the
 * call until it returns CONGEST_NOBODY. */
u32 congest_relieve(struct congest *c, bool crowded, u64 now);

#endif
