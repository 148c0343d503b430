/* Decides whose request begins next on a device that disks of several VMs share (IOrchestra,
 * Algorithm 3): deficit round robin by bytes, in the ratio of the disks' shares
 * (drivers/collab/drr.h). A device without this serves the request that comes first.
 *
 * Requests wait in a buffer for each disk, and begin on the device's model as far as its queue has
 * room. A request needs that room until the time when the model says that it ends.
 *
 * With I/O cores (docs/collab.md) there are two levels. The device chooses an I/O core by the
 * weights of the cores, and the core chooses one of its disks by their shares. A core keeps the
 * request that it has chosen until it is the core's turn. */
#ifndef DRIVERS_DISK_TURNS_H
#define DRIVERS_DISK_TURNS_H

#include "drivers/collab/drr.h"
#include "drivers/disk.h"
#include "drivers/disk_model.h"
#include "drivers/lock.h"

#define DISK_TURNS_DISKS 32u    /* disks or I/O cores that take turns, at most */
#define DISK_TURNS_SHARE 65536u /* the largest share */

struct disk_round;

/* One that takes turns with others: a disk, or an I/O core with its disks. */
struct disk_turn {
    u32 share; /* against those of the others, 1 to DISK_TURNS_SHARE; set by the owner */
    struct drr drr;
    struct disk_row waiting; /* requests that have not begun */
    struct disk_round *from; /* of an I/O core: its disks, whose requests it takes; else NULL */
    u64 bytes;               /* of requests that were chosen */
};

/* Those that take turns. */
struct disk_round {
    struct disk_turn *disk[DISK_TURNS_DISKS];
    u32 nr_disks;
    u32 at;       /* the disk that is being visited */
    bool visited; /* it has got the quantum of this visit */
    u64 most;     /* bytes of the largest request so far */
};

/* An I/O core's place at a device. */
struct disk_core {
    struct disk_turn turn;
    struct disk_round round;
    u64 ended, latency_ns; /* requests that have ended, and the time that they took altogether */
};

struct disk_turns {
    /* With I/O cores, it guards all that follows, the model, and what its disks have here. */
    struct driver_lock lock;
    struct disk_model *model;
    struct disk_round round;
    u64 end
        [DISK_MODEL_MOST]; /* when those that have begun end: a ring, ordered from end[first] on */
    u32 first, nr_under_way;
};

/* ---- a round ---- */

/* Makes a round in which no disk takes turns yet. */
void disk_round_init(struct disk_round *r);
/* Lets the disk take turns from now on. Its list of waiting requests becomes empty. A disk may be
 * added again, which only empties its list. Returns false if there are DISK_TURNS_DISKS already. */
bool disk_round_add(struct disk_round *r, struct disk_turn *d);
/* Removes the disk, which takes no turns any more. */
void disk_round_remove(struct disk_round *r, const struct disk_turn *d);
/* Computes the quanta anew. Call it when shares have changed. */
void disk_round_shares(struct disk_round *r);
/* Puts a request of that disk at the end of its list, where it waits for its turn. */
void disk_round_wait(struct disk_round *r, struct disk_turn *d, struct disk_request *q);
/* Removes and returns the request whose turn it is, or NULL if none waits. */
struct disk_request *disk_round_next(struct disk_round *r);

/* ---- a device ---- */

/* Sets the turns at a device up, whose model is `model`. No disk and no I/O core takes turns yet.
 */
void disk_turns_init(struct disk_turns *t, struct disk_model *model);
/* Makes *c an I/O core of the device, with the largest share. Returns false if there is no place
 * for it. */
bool disk_turns_add_core(struct disk_turns *t, struct disk_core *c);
/* Begins the request whose turn it is at the time `now`, and returns it: q->due is when it ends,
 * and q->turn is the disk that it belongs to. Returns NULL if no request waits, or if the device's
 * queue is full. */
struct disk_request *disk_turns_next(struct disk_turns *t, u64 now);
/* Returns when there will be room for another request, ns. There was none at the last call of
 * disk_turns_next(). */
static inline u64 disk_turns_room_at(const struct disk_turns *t) { return t->end[t->first]; }

#endif
