/* Chooses the VM that has to write its dirty pages now. flush.h has the rule. */
#include "drivers/collab/flush.h"

/* Returns the disk with most dirty pages, or FLUSH_NOBODY while the device is busy, or while a disk
 * that was asked is still flushing: two at once would slow each other down. */
u32 flush_choose(const struct flush_disk *d, u32 n, bool idle, u64 now) {
    u32 best = FLUSH_NOBODY;

    if (!idle) return FLUSH_NOBODY;
    for (u32 i = 0; i < n; i++) {
        if (d[i].flush_now && now - d[i].asked < FLUSH_PATIENCE) return FLUSH_NOBODY;
        if (!d[i].has_dirty_pages || d[i].flush_now) continue;
        if (best == FLUSH_NOBODY || d[i].nr > d[best].nr) best = i;
    }
    return best;
}
