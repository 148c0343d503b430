/* A guest's side of IOrchestra (docs/collab.md): tells the driver domain, by the store, how many
 * dirty pages a disk's cache has and when its queue is congested. It flushes the pages and releases
 * the queue when it is asked to. Without a manager nothing happens, and the cache does as it does
 * by itself. */
#ifndef GUEST_COLLAB_H
#define GUEST_COLLAB_H

#include <guest/disk.h>

struct collab_stats {
    u64 flushes;   /* times that the guest was asked to flush */
    u64 by_itself; /* times that it flushed because it knew that the device was idle */
    u64 asked;     /* times that it asked whether the device is crowded */
    u64 released;  /* times that its queue was released */
};

/* Begins for that disk, which has been opened; once, and for one disk of a guest. Call it from a
 * thread of vCPU 0; it connects to the store. Returns 0, or a negative errno: there is no store, or
 * no memory. */
int collab_start(struct disk *d);
/* Sets a function that is called from a thread of vCPU 0 when a manager has come (true) or goes
 * (false). For one that goes it is called before the keys that were made for it are removed, and
 * for a new one when keys can be made. Call this before collab_start(). */
void collab_on_manager(void (*fn)(bool there));
/* Counters; they may be read at any time. All are 0 before the start. */
const struct collab_stats *collab_stats(void);

#endif
