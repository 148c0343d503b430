/* Disks that are ranges of the disk behind an NVMe controller. Data is copied once, between the
 * front end's memory and buffers of ours. The device must not reach the front end's memory
 * directly: that memory may be gone before a transfer ends, and the device would not find it in one
 * piece.
 *
 * Each disk has DISK_NVME_DEPTH buffers of its own, so that no disk waits for the buffers of
 * another one. A request that is longer than a buffer moves in pieces. When a VM goes, its commands
 * are still under way for a while. The next VM with that range, or the same VM after a reset, has
 * to wait for them, so that an old write does not overwrite a new one. */
#ifndef DRIVERS_DISK_NVME_H
#define DRIVERS_DISK_NVME_H

#include "drivers/disk.h"
#include "drivers/disk_load.h"
#include "drivers/env.h"
#include "drivers/nvme.h"
#include "drivers/options.h"

#define DISK_NVME_DEPTH 8u
/* Disks of a controller. The queue has NVME_QUEUE - 1 places, enough for the commands of all of
 * them. */
#define DISK_NVME_MOST 15u

struct disk_nvme;

struct disk_nvme_slot {
    struct nvme_command command;
    struct disk_nvme *disk;
    struct disk_request *q; /* NULL while `busy` is set: nobody waits for the command any more */
    bool busy;              /* a command is under way */
    u32 at, bytes;          /* bytes of the request that are done; bytes that the command moves */
    u64 first, blocks;      /* the range of the disk at the time when the request began */
};
_Static_assert(DISK_NVME_MOST *DISK_NVME_DEPTH < NVME_QUEUE, "the queue has room for all commands");

struct disk_nvme {
    struct disk disk;
    struct nvme_store *store;
    const struct takt_back *owner; /* the device that the disk belongs to; NULL: the disk is free */
    u64 first;                     /* the block where its range begins */
    /* commands of an earlier owner may still be under way in its range */
    bool waits;
    struct disk_row ended;
    struct disk_nvme_slot slot[DISK_NVME_DEPTH];
};

struct nvme_store {
    struct nvme nvme;
    const struct driver_env *env;
    u64 now; /* the time of this turn, ns */
    /* A request counts until the controller is done with it, also if nobody waits for it. The limit
     * of requests is what the buffers of all disks hold, or what nvme_store_describe() says. */
    struct disk_load load;
    bool described;
    /* Why the last nvme_store_open() failed: a sentence about the disk, such as "its range overlaps
     * that of". */
    const char *why;
    /* If it is not NULL, that sentence ends with the name of this device. */
    const struct takt_back *other;
    struct disk_nvme disk[DISK_NVME_MOST];
};

/* The options that may follow the back end's name: `dev=nvme offset=1G size=16M`. */
extern const struct option_kind disk_nvme_options[];

/* Sets the controller up. `regs`, `bytes` and `env` are as in nvme_init(). The memory comes from
 * `driver` and is never given back. Returns 0, or
 *   -ENOMEM  there is too little memory
 *   -ENODEV  the controller cannot be used: nvme.why says why not */
int nvme_store_init(struct nvme_store *s, volatile void *regs, u64 bytes,
                    const struct device_env *env, const struct driver_env *driver);
/* Notes what the administrator says of the controller: how many bytes a second it moves, and with
 * how many requests at a time it counts as full. 0 means that this is not known. */
void nvme_store_describe(struct nvme_store *s, u64 bandwidth, u32 queue);
/* Returns the disk that owner->options ask for. `owner` must live until the disk is closed. Returns
 * NULL if there is no such disk, and s->why says why not. */
struct disk *nvme_store_open(struct nvme_store *s, const struct takt_back *owner);
/* Frees a disk, which has been stopped. */
void nvme_store_close(struct disk *d);
/* Ends the requests that the controller is done with. Returns whether there were any. */
bool nvme_store_run(struct nvme_store *s, u64 now);

#endif
