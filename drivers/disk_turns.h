/* Whose request begins next on a device that disks of several VMs share (IOrchestra, Algorithm 3):
 * deficit round robin by bytes, in the ratio of the disks' shares (drivers/collab/drr.h). A device
 * without this serves whoever comes first.
 *
 * Requests wait in a buffer for each disk, and begin on the device's model as far as its queue has
 * room. A request needs that room until the time when the model says that it ends. */
#ifndef DRIVERS_DISK_TURNS_H
#define DRIVERS_DISK_TURNS_H

#include "drivers/collab/drr.h"
#include "drivers/disk.h"
#include "drivers/disk_model.h"

#define DISK_TURNS_DISKS 32u /* disks on a device, at most */

/* What the device knows of a disk. */
struct disk_turn {
    u32 share; /* against those of the other disks, 1 or more; set by the disk's owner */
    struct drr drr;
    struct disk_row waiting; /* requests that have not begun */
    u64 bytes;               /* of requests that have begun */
};

struct disk_turns {
    struct disk_model *model;
    struct disk_turn *disk[DISK_TURNS_DISKS];
    u32 nr_disks;
    u32 at;                   /* the disk that is being visited */
    bool visited;             /* it has got the quantum of this visit */
    u64 most;                 /* bytes of the largest request so far */
    u64 end[DISK_MODEL_MOST]; /* when those that have begun end: a ring, from end[first] on */
    u32 first, nr_under_way;
};

void disk_turns_init(struct disk_turns *t, struct disk_model *model);
/* The disk is on the device from now on; may be repeated. What it had waiting is forgotten. Without
 * a place for it, which there are DISK_TURNS_DISKS of, this returns false. */
bool disk_turns_add(struct disk_turns *t, struct disk_turn *d);
/* A request of that disk waits for its turn. */
void disk_turns_wait(struct disk_turns *t, struct disk_turn *d, struct disk_request *q);
/* Returns the request that begins at `now`, which never goes back: q->due is when it ends, and *d
 * the disk that it is of. NULL: none waits, or the queue is full. */
struct disk_request *disk_turns_next(struct disk_turns *t, u64 now, struct disk_turn **d);
/* Returns when there will be room for another request, ns. There was none at the last call of
 * disk_turns_next(). */
static inline u64 disk_turns_room_at(const struct disk_turns *t) { return t->end[t->first]; }

#endif
