/* Several modelled devices (drivers/disk_model.h) that are used as one, in stripes (RAID 0): the
 * first `stripe` bytes of each virtual disk are on the first member, the next ones on the second
 * member, and so on in turn. A request ends when all members have done their parts of it. Parts
 * that belong to one member are one part, because they are neighbours there. A flush or a discard
 * concerns all members.
 *
 * To its disks the set is one struct disk_model: its queue limit, its turns
 * (drivers/disk_turns.h) and what it counts are those of the whole. With I/O cores, all calls are
 * made under the lock of these turns. */
#ifndef DRIVERS_DISK_SET_H
#define DRIVERS_DISK_SET_H

#include "drivers/collab/monitor.h"
#include "drivers/disk.h"
#include "drivers/disk_model.h"

#define DISK_SET_MOST   4u          /* members */
#define DISK_SET_STRIPE (64 * 1024) /* bytes, without the option `stripe` */

/* What a member does for a request. */
struct disk_part {
    u64 begun, due; /* ns */
    u64 bytes;
    enum monitor_kind kind;
};

struct disk_member {
    struct disk_model *model;
    struct monitor *monitor; /* it is told what the member does; NULL: nobody wants to know */
    /* Parts that have begun, and whose end was not yet told: a ring. A member's parts end in the
     * order in which they began. */
    struct disk_part part[DISK_MODEL_MOST];
    u32 first, nr;
};

struct disk_set {
    u64 stripe; /* bytes */
    u32 nr;
    struct disk_member member[DISK_SET_MOST];
};

/* The words that describe a set: `of=ssd0+ssd1 stripe=64K queue=64 sched=drr`. The owner makes the
 * members that `of` names. */
extern const struct option_kind disk_set_options[];

/* Makes *whole the model of the set *s, which has no members yet. Both are zeroed, belong to the
 * caller, and have to live as long as any disk on them. Returns NULL, or a sentence that says which
 * option makes no sense. */
const char *disk_set_init(struct disk_set *s, struct disk_model *whole, const char *options);
/* Adds a member, which nobody else uses. The bandwidth of `whole` becomes the sum of those of its
 * members, which all have to be of this set. Returns false if there are DISK_SET_MOST already. */
bool disk_set_add(struct disk_set *s, struct disk_model *whole, struct disk_model *member);
/* Returns how many of the bytes [at, at + bytes) of a disk are on member k. */
u64 disk_set_bytes(const struct disk_set *s, u32 k, u64 at, u64 bytes);
/* Tells the members' monitors of all parts that have ended by `now`. To be called before their
 * periods end. */
void disk_set_settle(struct disk_set *s, u64 now);

/* Begins a request on a device, which is one device or a set, at the time `now`, which must never
 * go back. Returns when the request ends, ns. On a set, a later request may end earlier. */
u64 disk_device_begin(struct disk_model *m, u64 now, const struct disk_request *q);

#endif
