/* A virtio block device of this VM behind a page cache (guest/pagecache.h). Its bottom half and its
 * flusher run on vCPU 0, which is the turbo vCPU if there is one; threads that use the cache should
 * run on another vCPU. These words of the command line hold for all disks:
 *
 *   cache=N        pages of the cache (256)
 *   queue=N        requests at a time (32)
 *   background=P   with more dirty pages than this per cent, the flusher writes (10)
 *   dirty=P        with so many, writers wait (20)
 *   expire_ms=T    a page is written after it has been dirty for so long (30000)
 *   interval_ms=T  how often the flusher looks for such pages (5000)
 *   ahead=N        the most pages that are read ahead (32); 0: none
 *   tune           the numbers that can change are keys in the store (guest/tunable.h)
 *   avoid=0        the queue is never congested (pagecache_congested()), however full it is
 *
 * A VM that is on several sockets (docs/collab.md) has a ring for each of them. A request goes to
 * the ring of the socket on which the thread runs that has asked for the page or changed it. The
 * bottom half on vCPU 0 serves all rings.
 *
 * A device that loses its back end refuses all requests until it has another one. Dirty pages are
 * then written to the new one.
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
    /* Only disk.c uses these. */
    struct disk *next;
    u32 index;
    struct virtio_dev dev;
    struct virtio_blk ring[TAKT_MAX_QUEUES];
    u32 nr_rings; /* one for each socket on which the VM is; others may read it */
    bool up;
    u64 interrupts;
    struct mutex lock;
    struct semaphore changed, flush;
    u32 run_wanted, flush_wanted; /* set by other vCPUs; atomic */
};

/* Opens the index-th block device (from 0), and waits for it without a limit. Call it from a thread
 * of vCPU 0, after all vCPUs that are to use the disk were started. *d must not move afterwards.
 * Returns 0, or
 *   -ENODEV  the VM has no such device
 *   -ENOSPC  the back end had no room for the disk; the console has a sentence
 *   -EINVAL  the words of the command line make no sense
 *   -ENOMEM  there is too little memory */
int disk_open(struct disk *d, u32 index);
/* The vCPU where threads should run that use a disk: the last one, because vCPU 0 serves
 * interrupts. */
u32 disk_thread_vcpu(void);

#endif
