/* A virtual disk that a driver domain serves: the back end of its rings, and what is behind it.
 * That is memory of the driver domain, which takes as long as a model says, or a range of an NVMe
 * disk.
 *
 * All functions are called on vCPU 0, from the loop that serves the devices. The rings of a disk on
 * a shared device may be polled by I/O cores (guest/cores.h); the functions then deal with these.
 */
#ifndef GUEST_SERVED_DISK_H
#define GUEST_SERVED_DISK_H

#include <guest/cores.h>
#include <guest/coschedule.h>
#include <guest/shared.h>
#include "drivers/back_blk.h"

struct served_disk {
    struct takt_back info;
    struct back_blk blk;
    bool on_nvme;             /* it is a range of the NVMe disk */
    struct shared_device *on; /* NULL: it is on none */
    struct lane *lane;        /* its rings, each of which an I/O core polls, instead of `blk` */
    u32 nr_lanes;             /* 0: no I/O core serves it */
    struct coschedule_disk coschedule;
    struct disk_ram none; /* a disk of 0 bytes, if the one that was asked for cannot be made */
};

/* Says that there are `n` I/O cores, which were started. Without this call there are none. */
void served_disk_use_cores(u32 n);
/* Returns the list of options that a disk of the kind which info->options name may have. */
const struct option_kind *served_disk_options(const struct takt_back *info);

/* Makes the disk that info->options describe, and its back end. *d is zeroed, and must not move
 * later; *offer is what the front end will see. If there is no room for a disk in memory, the front
 * end sees a disk of 0 bytes, so that its guest does not wait for ever. Returns 0 or a negative
 * errno; for most errors the console has a sentence. */
int served_disk_init(struct served_disk *d, const struct back_calls *calls,
                     const struct takt_back *info, struct takt_offer *offer);
/* Frees the disk, which was stopped. */
void served_disk_fini(struct served_disk *d);
/* Tells the manager of the disk, after the disk was offered to its front end. From then on a
 * monitor counts what the disk does. The second function ends that. */
void served_disk_manage(struct served_disk *d);
void served_disk_unmanage(struct served_disk *d);

/* Returns the back end's device. The caller maps its window before it starts the disk. */
struct back_dev *served_disk_dev(struct served_disk *d);
/* Begins to serve, as back_blk_start() says. *f is not used after the call. */
void served_disk_start(struct served_disk *d, const struct takt_front *f);
/* Stops to serve. Requests that are under way are given up. `started` says whether
 * served_disk_start() was called before. */
void served_disk_stop(struct served_disk *d, bool started);
/* As back_blk_serve() and back_blk_flush(); not for a disk that I/O cores serve. */
u64 served_disk_serve(struct served_disk *d, u64 now);
void served_disk_flush(struct served_disk *d);

/* Returns a copy of the back end, for its counters. With I/O cores they are sums over its rings,
 * which go on meanwhile. */
struct back_blk served_disk_counts(const struct served_disk *d);
/* Returns how many requests were carried out so far, of a disk that I/O cores serve. */
u64 served_disk_done(const struct served_disk *d);

#endif
