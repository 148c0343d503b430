/* Decides which VM is to write its dirty pages now (IOrchestra, section 3.1 and Algorithm 1): when
 * a device is idle, it is the one with most dirty pages. */
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

/* Returns whether a device is idle that moves `used` bytes a second and could move `capacity`. A
 * device whose capacity is 0, which means unlimited, always is. */
static inline bool flush_device_idle(u64 used, u64 capacity) {
    return !capacity || used < capacity / FLUSH_IDLE_PART;
}

/* Returns the index of the disk whose flush_now is to be set, among the `n` disks of one device, or
 * FLUSH_NOBODY. `idle` says whether the device is idle. It is the disk with most dirty pages, and
 * the first one of equals. (The paper's "for all i" must be "for some i".) While a VM that was
 * asked still has time to answer, no other VM is asked, because the device is about to be busy. A
 * disk whose flush_now is set is never asked again. So only the manager sets that key and only the
 * guest clears it, and no message is lost. */
u32 flush_choose(const struct flush_disk *d, u32 n, bool idle, u64 now);

#endif
