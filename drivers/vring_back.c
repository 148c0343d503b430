/* The device's side of a virtio split ring, whose driver (the front end) is in another VM. The ring
 * has three parts in that VM's memory: *descriptors*, each of which names a buffer; the *available*
 * ring, in which the driver names the chains of descriptors that it gives us; and the *used* ring,
 * in which we name those that we are done with. The front end may write anything into them at any
 * time. So each value is read once, copied, and checked before it is used. vring_back.h has the
 * contracts. */
#include "drivers/vring_back.h"
#include <takt/abi.h>
#include <takt/errno.h>
#include <takt/io.h>

static u16 load16(const u16 *p) { return __atomic_load_n(p, __ATOMIC_RELAXED); }

static void store16(u16 *p, u16 v) { __atomic_store_n(p, v, __ATOMIC_RELAXED); }

/* Returns after which used chain the front end wants an interrupt (the event index). */
static u16 back_used_event(struct vring_back *r) { return load16(&r->avail->ring[r->size]); }

/* Returns where we say after which available chain we want to be notified (our event index). */
static u16 *back_avail_event(struct vring_back *r) { return (u16 *)&r->used->ring[r->size]; }

/* Returns whether the front end's memory [gpa, gpa + len) is wholly within the window, the range of
 * our addresses that shows that memory. The window has a hole, as the VM's RAM has: [0, low) and
 * [TAKT_HIGH_RAM, TAKT_HIGH_RAM + high). Sums are avoided where they could overflow, because gpa
 * and len come from the other VM. */
static bool in_window(const struct takt_window *w, u64 gpa, u64 len) {
    u64 end = w->low; /* the end of the part of the window in which gpa is */

    if (gpa >= TAKT_HIGH_RAM) end = TAKT_HIGH_RAM + w->high;
    return gpa <= end && len <= end - gpa;
}

/* Returns where the front end's memory [gpa, gpa + len) is in ours, or NULL if it is not wholly
 * within the window. */
void *window_at(const struct takt_window *w, u64 gpa, u64 len) {
    if (!in_window(w, gpa, len)) return NULL;
    return pa_to_ptr(w->base + gpa);
}

/* Sets the ring up at the guest-physical addresses that the front end names. Returns 0, or -EINVAL
 * if its size, its alignment or its place is wrong. The ring counts as broken until all is checked,
 * so that nobody uses a ring whose set-up has failed. */
int vring_back_init(struct vring_back *r, const struct takt_window *w, u64 features, u32 size,
                    u64 desc, u64 avail, u64 used) {
    *r = (struct vring_back){ .window = w, .size = (u16)size, .broken = true };
    if (!size || size > TAKT_QUEUE_MAX || size & (size - 1) || desc % 16 || avail % 2 || used % 4)
        return -EINVAL;
    r->event_idx = features & BIT(VIRTIO_F_EVENT_IDX);
    r->indirect = features & BIT(VIRTIO_F_INDIRECT);
    r->desc = window_at(w, desc, size * sizeof(struct vring_desc));
    r->avail = window_at(w, avail, VRING_AVAIL_BYTES(size));
    r->used = window_at(w, used, VRING_USED_BYTES(size));
    if (!r->desc || !r->avail || !r->used) return -EINVAL;
    r->broken = false;
    return 0;
}

/* Goes on with a ring that another back end has served, behind the last chain that was put into it.
 * The front end can write the index, as all else here. available() finds out if it is wrong. */
void vring_back_resume(struct vring_back *r) {
    u16 at;

    if (r->broken) return;
    at = __atomic_load_n(&r->used->idx, __ATOMIC_RELAXED);
    r->avail_next = r->avail_seen = at;
    r->used_next = r->used_shown = at;
}

/* Copies descriptor i. After the assembler line the compiler knows nothing about the two values any
 * more. So it cannot read the original again, which the front end may have changed meanwhile: what
 * was checked has to be what is used. */
static struct vring_desc snapshot(const u8 *table, u32 i) {
    u64 half[2];
    struct vring_desc d;

    _Static_assert(sizeof(half) == sizeof(d), "a descriptor is two words");
    __builtin_memcpy(half, table + i * sizeof(d), sizeof(d));
    __asm__ volatile("" : "+r"(half[0]), "+r"(half[1]));
    __builtin_memcpy(&d, half, sizeof(d));
    return d;
}

/* Adds the buffer of descriptor `d` to the chain. Returns false if the buffer is empty, does not
 * lie in the window, would be one too many, or stands in the wrong order. The lengths are summed up
 * with a check, because the front end could choose them so that the sum overflows. */
static inline bool add_segment(const struct takt_window *w, struct vring_chain *c,
                               struct vring_seg *seg, const struct vring_desc *d) {
    if (seg == c->seg + VRING_MAX_SEGS || !d->len || !in_window(w, d->addr, d->len)) return false;
    *seg = (struct vring_seg){ pa_to_ptr(w->base + d->addr), d->len };
    if (d->flags & VRING_DESC_WRITE) {
        c->nr_in++;
        return !__builtin_add_overflow(c->in_len, d->len, &c->in_len);
    }
    if (c->nr_in) return false; /* those that the device reads come first: 2.7.4.2 */
    c->nr_out++;
    return !__builtin_add_overflow(c->out_len, d->len, &c->out_len);
}

/* Reads the chain that begins with descriptor i. Returns false if it breaks the rules. The loop
 * ends even if the chain goes round in a circle: each turn but one adds a segment, and their number
 * is bounded. */
static bool walk(struct vring_back *r, struct vring_chain *c, u32 i) {
    const struct takt_window *w = r->window;
    struct vring_seg *seg = c->seg;
    const u8 *table = r->desc;
    u32 limit = r->size;
    struct vring_desc d;

    for (bool inside = false;; i = d.next) {
        if (i >= limit) return false;
        d = snapshot(table, i);
        /* Such a table must not be within another one, and has to be the last: 2.7.5.3. */
        if (d.flags & VRING_DESC_INDIRECT) {
            if (inside || !r->indirect || d.flags & VRING_DESC_NEXT || !d.len || d.len % sizeof(d))
                return false;
            table = window_at(w, d.addr, d.len);
            if (!table) return false;
            limit = d.len / sizeof(d);
            d.next = 0;
            inside = true;
            continue;
        }
        if (!add_segment(w, c, seg++, &d)) return false;
        if (!(d.flags & VRING_DESC_NEXT)) return true;
    }
}

/* Marks the ring as broken, because the front end has broken the rules: nothing more is taken from
 * it. Returns -EINVAL for the caller to return. */
static int vring_break(struct vring_back *r) {
    r->broken = true;
    return -EINVAL;
}

/* Returns how many chains there are to take; a negative number means that the ring is broken. */
static int available(struct vring_back *r) {
    if (r->broken) return -EINVAL;
    if (r->avail_next == r->avail_seen) {
        u16 seen = __atomic_load_n(&r->avail->idx, __ATOMIC_ACQUIRE);

        if ((u16)(seen - r->avail_next) > r->size) return vring_break(r);
        r->avail_seen = seen;
    }
    return (u16)(r->avail_seen - r->avail_next);
}

/* Takes the next chain. Returns 1, 0 if there is none, or -EINVAL if the ring is broken. The front
 * end may show us a chain at any moment; `avail_seen` is how far it had filled the ring when we
 * last looked. `size` is a power of two, so `&` finds the place in the ring even when the 16-bit
 * index wraps around. */
int vring_back_take(struct vring_back *r, struct vring_chain *c) {
    int n = available(r);

    if (n <= 0) return n;
    c->head = load16(&r->avail->ring[r->avail_next & (r->size - 1)]);
    c->nr_out = c->nr_in = 0;
    c->out_len = c->in_len = 0;
    if (!walk(r, c, c->head)) return vring_break(r);
    r->avail_next++;
    return 1;
}

bool vring_back_waiting(struct vring_back *r) { return available(r) > 0; }

void vring_back_untake(struct vring_back *r, u32 n) { r->avail_next = (u16)(r->avail_next - n); }

void vring_back_put(struct vring_back *r, u16 head, u32 len) {
    volatile struct vring_used_elem *e = &r->used->ring[r->used_next++ & (r->size - 1)];

    e->id = head;
    e->len = len;
}

/* Shows the front end the chains that were put since the last time. Returns whether it wants an
 * interrupt. The index is stored after the entries that it shows (RELEASE), so that the driver
 * never sees an entry that is half written. */
bool vring_back_flush(struct vring_back *r) {
    u16 old = r->used_shown, now = r->used_next;

    if (r->broken || old == now) return false;
    __atomic_store_n(&r->used->idx, now, __ATOMIC_RELEASE);
    r->used_shown = now;
    /* The driver writes what it wants to be told of, and then reads the index; here it is the other
     * way round. With a fence on both sides at least one of us sees what the other one has
     * written. */
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (r->event_idx) return vring_need_event(back_used_event(r), now, old);
    return !(load16(&r->avail->flags) & VRING_AVAIL_NO_IRQ);
}

/* Asks the front end to notify us of the next chain. Returns true if there is one already. First
 * says that it wants to be notified, and only then looks whether there is a chain. In the other
 * order, a chain that comes between the two steps would get no notification. */
bool vring_back_listen(struct vring_back *r) {
    if (r->broken) return false;
    if (r->event_idx)
        store16(back_avail_event(r), r->avail_next);
    else
        store16(&r->used->flags, 0);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    return available(r) != 0;
}

void vring_back_ignore(struct vring_back *r) {
    if (r->broken) return;
    if (r->event_idx)
        store16(back_avail_event(r), vring_no_event(r->avail_next));
    else
        store16(&r->used->flags, VRING_USED_NO_NOTIFY);
}

/* Copies bytes [offset, offset + len) of the segments to `to`. If `to` is NULL, copies from `from`
 * into them. Returns how many bytes there were. */
static u32 for_parts(const struct vring_seg *seg, u32 nr, u32 offset, u32 len, u8 *to,
                     const u8 *from) {
    u32 done = 0;

    for (u32 i = 0; i < nr && done < len; i++) {
        u32 n;

        if (offset >= seg[i].len) {
            offset -= seg[i].len;
            continue;
        }
        n = MIN(seg[i].len - offset, len - done);
        if (to)
            __builtin_memcpy(to + done, seg[i].p + offset, n);
        else
            __builtin_memcpy(seg[i].p + offset, from + done, n);
        done += n;
        offset = 0;
    }
    return done;
}

/* Returns whether the bytes lie within the first segment. That is so for nearly all copies, so it
 * is worth a fast way. */
static bool in_first(const struct vring_seg *seg, u32 nr, u32 offset, u32 len) {
    return nr && offset <= seg->len && len <= seg->len - offset;
}

u32 vring_copy_out(void *to, const struct vring_seg *seg, u32 nr, u32 offset, u32 len) {
    if (!in_first(seg, nr, offset, len)) return for_parts(seg, nr, offset, len, to, NULL);
    __builtin_memcpy(to, seg->p + offset, len);
    return len;
}

u32 vring_copy_in(const struct vring_seg *seg, u32 nr, u32 offset, const void *from, u32 len) {
    if (!in_first(seg, nr, offset, len)) return for_parts(seg, nr, offset, len, NULL, from);
    __builtin_memcpy(seg->p + offset, from, len);
    return len;
}
