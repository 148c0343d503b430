/* A guest's side of IOrchestra (docs/collab.md): tells the driver domain, by the store, how many
 * dirty pages a disk's cache has, and flushes them when it is asked to. Without a manager nothing
 * happens, and the cache writes as it does by itself. */
#ifndef GUEST_COLLAB_H
#define GUEST_COLLAB_H

#include <guest/disk.h>

/* Begins for that disk, which has been opened; once, and for one disk of a guest. From a thread;
 * this connects to the store. Negative errno: there is no store, or no memory. */
int collab_start(struct disk *d);
/* How often it was asked to flush. */
u64 collab_flushes(void);

#endif
