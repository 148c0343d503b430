/* A virtio block device of this VM behind a page cache (guest/pagecache.h). Bottom half and flusher are on
 * vCPU 0, which is the turbo vCPU where there is one; whoever uses the cache had better be on another. Words
 * of the command line, for all disks:
 *
 *   cache=N        pages of the cache (256)
 *   queue=N        requests at a time (32)
 *   background=P   per cent of the pages that may be dirty before the flusher writes (10)
 *   dirty=P        per cent at which writers wait (20)
 *   expire_ms=T    age at which a dirty page is written (30000)
 *   interval_ms=T  how often the flusher looks for those (5000)
 *   ahead=N        pages read ahead at most (32); 0: none
 *
 * A device that loses its back end refuses everything until there is another; what is dirty then goes there.
 */
#ifndef GUEST_DISK_H
#define GUEST_DISK_H

#include <guest/device.h>
#include <guest/pagecache.h>
#include <guest/sync.h>
#include <guest/thread.h>
#include "drivers/virtio_blk.h"

#define VECTOR_DISK 0xe1

struct disk {
    struct pagecache cache;
    /* the rest is disk.c's */
    struct disk *next;
    u32 index;
    struct virtio_dev dev;
    struct virtio_blk blk;
    bool up;
    u64 interrupts;
    struct mutex lock;
    struct semaphore changed, flush;
    u32 run_wanted, flush_wanted; /* atomic */
};

/* The index-th block device (from 0); waits for it for as long as it takes. From a thread of vCPU 0; all
 * vCPUs that are to use it have been started. `d` stays. Negative errno: no such device, no memory. */
int disk_open(struct disk *d, u32 index);
/* The vCPU for threads that do not serve interrupts: the last. */
u32 disk_thread_vcpu(void);

#endif
