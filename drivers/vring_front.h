/* The driver's side of a split ring (virtio 1.2, 2.7): buffers are added, shown to the device in batches, and
 * taken back. One context at a time. The device is not trusted to keep the rules: a ring that it breaks gives
 * nothing any more. */
#ifndef DRIVERS_VRING_FRONT_H
#define DRIVERS_VRING_FRONT_H

#include "drivers/env.h"
#include "drivers/virtio.h"

#define VRING_INDIRECT 8 /* longest chain that goes into a table of its own */

struct vring_sg {
    u64 addr; /* as the device knows it */
    u32 len;
};

struct vring_slot {
    void *token; /* of the chain that begins here; NULL: none */
    u16 next;    /* in the free list, or in the chain */
    u16 count;   /* descriptors of that chain */
};

struct vring_front {
    /* set at init, then constant */
    const struct driver_env *env;
    u16 size;
    bool event_idx, indirect;
    struct vring_desc *desc, *table; /* table: VRING_INDIRECT descriptors a slot */
    struct vring_avail *avail;
    struct vring_used *used;
    struct vring_slot *slot;
    size_t pages;
    /* ours alone: what is in the rings is for the device */
    u16 free, nr_free;
    u16 avail_next, avail_shown, used_next;
    bool broken;
};

/* `size`: a power of two up to TAKT_QUEUE_MAX; `features` as negotiated. -EINVAL, -ENOMEM. */
int vring_front_init(struct vring_front *r, const struct driver_env *env, u32 size, u64 features);
void vring_front_fini(struct vring_front *r);

/* A chain of nr_out buffers that the device reads, then nr_in that it writes. `token` (not NULL) comes back
 * from vring_front_take(). -ENOSPC: the ring is full; -EINVAL: no such chain. */
int vring_front_add(struct vring_front *r, const struct vring_sg *sg, u32 nr_out, u32 nr_in, void *token);
/* Shows the device what was added since the last time. True: it wants to be notified. */
bool vring_front_publish(struct vring_front *r);
/* The token of a chain that the device is done with, and how many bytes it says it wrote; NULL: none. */
void *vring_front_take(struct vring_front *r, u32 *len);
/* Asks for an interrupt when the device is done with the `after`th chain from now (1: the next). True: it is
 * already, and there may be no interrupt. */
bool vring_front_listen(struct vring_front *r, u16 after);
/* No interrupts, as far as it lies with us. */
void vring_front_ignore(struct vring_front *r);
/* Any chain that the device has not given back, after it was reset; NULL: none. */
void *vring_front_drain(struct vring_front *r);
/* Chains that are with the device. */
u32 vring_front_outstanding(const struct vring_front *r);

#endif
