/* The device's side of a split ring (virtio 1.2, 2.7). The ring lies in the memory of a front end
 * that may be hostile and change it while we read. So each index and each descriptor is copied once
 * and the copy is checked, and every address must lie in the window. If the front end breaks a rule
 * the ring is broken: it gives no more chains.
 */
#ifndef DRIVERS_VRING_BACK_H
#define DRIVERS_VRING_BACK_H

#include <takt/device.h>
#include "drivers/virtio.h"

#define VRING_MAX_SEGS 64 /* the longest chain that we serve; a longer one breaks the ring */

struct vring_seg {
    u8 *p; /* in the window */
    u32 len;
};

/* A chain as it was when it was taken: first the segments that the device reads, then those that it
 * writes. The front end may still change the bytes of the segments at any time. */
struct vring_chain {
    u16 head;            /* its first descriptor, by which it is given back */
    u16 nr_out, nr_in;   /* how many segments the device reads, and how many it writes */
    u32 out_len, in_len; /* how many bytes these have */
    struct vring_seg seg[VRING_MAX_SEGS];
};

struct vring_back {
    /* set at init, then constant */
    const struct takt_window *window;
    u16 size;
    bool event_idx, indirect;
    const u8 *desc;
    struct vring_avail *avail;
    struct vring_used *used;
    /* These are in our own memory, where the front end cannot change them. */
    /* The next chain to take; up to where the front end has shown chains. */
    u16 avail_next, avail_seen;
    u16 used_next, used_shown; /* where the next used chain goes; up to where we have shown them */
    bool broken;
};

/* Returns where the front end's memory [gpa, gpa + len) is in ours, or NULL if it is not wholly
 * within the window. */
void *window_at(const struct takt_window *w, u64 gpa, u64 len);

/* Sets the ring up as the front end describes it, by guest-physical addresses. Returns 0, or
 * -EINVAL if its size, its alignment or its place is wrong. */
int vring_back_init(struct vring_back *r, const struct takt_window *w, u64 features, u32 size,
                    u64 desc, u64 avail, u64 used);
/* Goes on with a ring that another back end has served before, behind the last chain that the
 * driver has got back. Call it directly after vring_back_init(). The earlier back end must have
 * given all chains back in their order. */
void vring_back_resume(struct vring_back *r);
/* Takes the next chain. Returns 1, 0 if there is none, or -EINVAL if the ring is broken. */
int vring_back_take(struct vring_back *r, struct vring_chain *c);
/* Returns whether there is a chain to take. */
bool vring_back_waiting(struct vring_back *r);
/* Undoes the last `n` calls that took a chain: these chains, which must not have been put, are
 * taken again. */
void vring_back_untake(struct vring_back *r, u32 n);
/* Gives a chain back after `len` bytes were written to it. The front end sees it after
 * vring_back_flush(). */
void vring_back_put(struct vring_back *r, u16 head, u32 len);
/* Shows the chains that were put since the last time. Returns whether the front end wants an
 * interrupt. */
bool vring_back_flush(struct vring_back *r);
/* Asks to be notified of the next chain. Returns true if there is one already; then there may be no
 * notification. */
bool vring_back_listen(struct vring_back *r);
/* Asks for no notifications. Some may come nevertheless. */
void vring_back_ignore(struct vring_back *r);

/* Copy up to `len` bytes out of `nr` segments, or into them, beginning at byte `offset` of all of
 * them together. They return how many bytes there were. */
u32 vring_copy_out(void *to, const struct vring_seg *seg, u32 nr, u32 offset, u32 len);
u32 vring_copy_in(const struct vring_seg *seg, u32 nr, u32 offset, const void *from, u32 len);

/* Copies the first `len` bytes that the device reads, as vring_copy_out() does. For a header, whose
 * length is a constant and which nearly always lies in the first segment, this is faster. */
static inline u32 vring_copy_header(void *to, const struct vring_chain *c, u32 len) {
    if (!c->nr_out || c->seg[0].len < len) return vring_copy_out(to, c->seg, c->nr_out, 0, len);
    __builtin_memcpy(to, c->seg[0].p, len);
    return len;
}

#endif
