/* Disks that are ranges of the disk behind an NVMe controller. Data are copied once, between the front end's
 * memory and buffers of ours: the device must not reach the front end's, which may be gone before a transfer
 * ends, and which has no address for it in one piece.
 *
 * Each disk has DISK_NVME_DEPTH buffers of its own, so that none waits for another's. A request that is
 * longer than a buffer moves in pieces. When a VM goes, its commands are still under way for a while; whoever
 * has the range next, or the same VM after a reset, has to wait for them, so that no old write overtakes a
 * new one.
 */
#ifndef DRIVERS_DISK_NVME_H
#define DRIVERS_DISK_NVME_H

#include "drivers/disk.h"
#include "drivers/env.h"
#include "drivers/nvme.h"
#include "drivers/options.h"

#define DISK_NVME_DEPTH 8u
#define DISK_NVME_MOST  15u /* disks of a controller: NVME_QUEUE - 1 has places for all they can ask for */

struct disk_nvme;

struct disk_nvme_slot {
    struct nvme_command command;
    struct disk_nvme *disk;
    struct disk_request *q; /* NULL while busy: nobody waits for it any more */
    bool busy;
    u32 at, bytes;     /* of the request: done, and under way */
    u64 first, blocks; /* the range that the disk had when it began */
};

struct disk_nvme {
    struct disk disk;
    struct nvme_store *store;
    const struct takt_back *owner; /* NULL: it is nobody's */
    u64 first;                     /* block where it begins */
    bool waits;                    /* for commands of those who had its range before */
    struct disk_row ended;
    struct disk_nvme_slot slot[DISK_NVME_DEPTH];
};

struct nvme_store {
    struct nvme nvme;
    const struct driver_env *env;
    u64 now; /* of this turn */
    /* why the last open was refused: a sentence about the disk; with whom (owner), if `other` */
    const char *why;
    const struct takt_back *other;
    struct disk_nvme disk[DISK_NVME_MOST];
};

/* What the words behind the back end's name may be: `dev=nvme offset=1G size=16M`. */
extern const struct option_kind disk_nvme_options[];

/* `regs`, `bytes` and `env` as nvme_init() has them; `driver` has pages, which are never given back. -ENOMEM;
 * -ENODEV: nvme.why. */
int nvme_store_init(struct nvme_store *s, volatile void *regs, u64 bytes, const struct device_env *env,
                    const struct driver_env *driver);
/* The disk that owner->options ask for; `owner` stays where it is until the disk is closed. NULL: `why`. */
struct disk *nvme_store_open(struct nvme_store *s, const struct takt_back *owner);
void nvme_store_close(struct disk *d); /* one that has been stopped */
/* Ends what the controller is done with. True: some disks have news. */
bool nvme_store_run(struct nvme_store *s, u64 now);

#endif
