/* The driver's side of a split ring (virtio 1.2, 2.7): buffers are added, shown to the device in
 * batches, and taken back. One caller at a time. The device is not trusted. If it breaks the rules
 * the ring is broken: it gives no more chains back. */
#ifndef DRIVERS_VRING_FRONT_H
#define DRIVERS_VRING_FRONT_H

#include "drivers/env.h"
#include "drivers/virtio.h"

/* The longest chain that goes into a table of its own (indirect descriptors). */
#define VRING_INDIRECT 8

struct vring_sg {
    u64 addr; /* as the device knows it */
    u32 len;
};

struct vring_slot {
    /* The token of the chain that begins with this descriptor; NULL: none begins here. */
    void *token;
    u16 next;  /* the next descriptor in the free list, or in the chain */
    u16 count; /* how many descriptors that chain has */
};

struct vring_front {
    /* set at init, then constant */
    const struct driver_env *env;
    u16 size;
    bool event_idx, indirect;
    struct vring_desc *desc, *table; /* `table` has VRING_INDIRECT descriptors for each slot */
    struct vring_avail *avail;
    struct vring_used *used;
    struct vring_slot *slot;
    size_t pages;
    /* These are not in the rings, where the device could change them. */
    u16 free, nr_free; /* the first free descriptor; how many there are */
    /* where the next chain goes; up to where the device was shown chains */
    u16 avail_next, avail_shown;
    u16 used_next; /* the next used chain to take */
    bool broken;
};

/* Allocates a ring of `size` descriptors, a power of two up to TAKT_QUEUE_MAX. `features` are those
 * that were negotiated. Returns 0, -EINVAL if the size is wrong, or -ENOMEM. */
int vring_front_init(struct vring_front *r, const struct driver_env *env, u32 size, u64 features);
/* Frees the ring's memory. The device must not use it any more: call this after it was reset. */
void vring_front_fini(struct vring_front *r);

/* Adds a chain of nr_out buffers that the device reads, and then nr_in buffers that it writes.
 * `token`, not NULL, comes back from vring_front_take(). Returns 0, or
 *   -ENOSPC  the ring is full
 *   -EINVAL  the chain is empty or too long, or has no token */
int vring_front_add(struct vring_front *r, const struct vring_sg *sg, u32 nr_out, u32 nr_in,
                    void *token);
/* Shows the device the chains that were added since the last time. Returns whether it wants to be
 * notified. */
bool vring_front_publish(struct vring_front *r);
/* Takes a chain that the device is done with. Returns its token; *len is how many bytes the device
 * claims to have written. Returns NULL if there is none. */
void *vring_front_take(struct vring_front *r, u32 *len);
/* Asks for an interrupt when the device is done with the next `after` chains. Returns true if it is
 * done with them already; then there may be no interrupt. */
bool vring_front_listen(struct vring_front *r, u16 after);
/* Asks for no interrupts. Some may come nevertheless. */
void vring_front_ignore(struct vring_front *r);
/* Takes back a chain that the device has not given back. Call it after the device was reset.
 * Returns its token, or NULL if there is none left. */
void *vring_front_drain(struct vring_front *r);
/* Returns how many chains the device has. */
u32 vring_front_outstanding(const struct vring_front *r);

#endif
