/* Which VM is to write its dirty pages now (IOrchestra, section 3.1 and Algorithm 1): when a device
 * is idle, the one with most of them. */
#ifndef DRIVERS_COLLAB_FLUSH_H
#define DRIVERS_COLLAB_FLUSH_H

#include <takt/types.h>

#define FLUSH_NOBODY (~0u)
/* a VM that has not answered for so long does not hold up others */
#define FLUSH_PATIENCE  NS_PER_S
#define FLUSH_IDLE_PART 10u /* idle: less than this part of the bandwidth is used */

/* What a virtual disk's keys say. */
struct flush_disk {
    bool has_dirty_pages; /* the guest's */
    bool flush_now;       /* the manager's, until the guest clears it */
    u64 nr;               /* dirty pages, the guest's */
    u64 asked;            /* when flush_now was set, ns */
};

/* Is a device idle that moved `used` bytes a second of the `capacity` that it can? One whose
 * capacity is 0 (unlimited) is. */
static inline bool flush_device_idle(u64 used, u64 capacity) {
    return !capacity || used < capacity / FLUSH_IDLE_PART;
}

/* The disk of one device whose flush_now is to be set; FLUSH_NOBODY: none now. It has dirty
 * pages (the paper's "for all i" must be "for some i"), and more than all others; of equals the
 * first is taken. While one VM has been asked and still has time to answer, nobody else is
 * asked, because the device is about to be busy. A disk that has flush_now already is never
 * asked again: so only the guest clears that key and only the manager sets it, and no message is
 * lost. */
u32 flush_choose(const struct flush_disk *d, u32 n, bool idle, u64 now);

#endif
