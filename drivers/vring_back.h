/* The device's side of a split ring (virtio 1.2, 2.7), in the memory of a front end that may be hostile and
 * changes what it likes while we look: every index and every descriptor is copied once and judged by the
 * copy, and every address must lie in the window. Whoever breaks a rule has a broken ring, which gives
 * nothing any more.
 */
#ifndef DRIVERS_VRING_BACK_H
#define DRIVERS_VRING_BACK_H

#include <takt/device.h>
#include "drivers/virtio.h"

#define VRING_MAX_SEGS 64 /* longest chain that we serve; a longer one breaks the ring */

struct vring_seg {
    u8 *p; /* in the window */
    u32 len;
};

/* A chain as it was when it was taken: first what the device reads, then what it writes. The bytes behind it
 * may still change at any time. */
struct vring_chain {
    u16 head;
    u16 nr_out, nr_in;
    u32 out_len, in_len;
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
    /* ours alone */
    u16 avail_next, avail_seen;
    u16 used_next, used_shown;
    bool broken;
};

/* Where front end memory [gpa, gpa + len) is; NULL: not wholly within the window. */
void *window_at(const struct takt_window *w, u64 gpa, u64 len);

/* As the front end has set the queue up: guest-physical addresses. -EINVAL: size, alignment or place is
 * wrong. */
int vring_back_init(struct vring_back *r, const struct takt_window *w, u64 features, u32 size, u64 desc,
                    u64 avail, u64 used);
/* The next chain: 1; 0: there is none; -EINVAL: the ring is broken. */
int vring_back_take(struct vring_back *r, struct vring_chain *c);
/* Is there one? */
bool vring_back_waiting(struct vring_back *r);
/* Gives the last n chains that were taken, and not put, back to be taken again. */
void vring_back_untake(struct vring_back *r, u32 n);
/* Done with the chain, in which `len` bytes were written. The front end does not see it yet. */
void vring_back_put(struct vring_back *r, u16 head, u32 len);
/* Shows what was put since the last time. True: the front end wants an interrupt. */
bool vring_back_flush(struct vring_back *r);
/* Asks to be notified of the next chain. True: there is one already, and there may be no notification. */
bool vring_back_listen(struct vring_back *r);
/* No notifications, as far as it lies with us. */
void vring_back_ignore(struct vring_back *r);

/* Copies up to `len` bytes out of the segments, from byte `offset` of them all on; how many there were. And
 * into them. */
u32 vring_copy_out(void *to, const struct vring_seg *seg, u32 nr, u32 offset, u32 len);
u32 vring_copy_in(const struct vring_seg *seg, u32 nr, u32 offset, const void *from, u32 len);

#endif
