/* The driver's side of a virtio split ring, which has three parts in memory. Each *descriptor*
 * names a buffer, and a *chain* of them is one request. In the *available* ring the driver names
 * the chains that it gives to the device; in the *used* ring the device names those that it is done
 * with. An index in each of them says how far it is filled. The device is another VM's program and
 * may write anything, so what it writes is checked. vring_front.h has the contracts. */
#include "drivers/vring_front.h"
#include <takt/errno.h>

/* Returns where the driver says after which used chain it wants an interrupt (the event index). */
static u16 *front_used_event(struct vring_front *r) { return &r->avail->ring[r->size]; }

/* Returns after which available chain the device wants to be notified (its event index). */
static u16 front_avail_event(struct vring_front *r) {
    return __atomic_load_n((u16 *)&r->used->ring[r->size], __ATOMIC_RELAXED);
}

/* Allocates a ring of `size` descriptors. Returns 0, -EINVAL if the size is wrong, or -ENOMEM. One
 * allocation holds everything: the three parts of the ring, the tables of indirect descriptors if
 * there are any, and our notes on each slot. The device sees all of it but the notes. */
int vring_front_init(struct vring_front *r, const struct driver_env *env, u32 size, u64 features) {
    u64 desc = size * sizeof(*r->desc), avail = ALIGN_UP(VRING_AVAIL_BYTES(size), 16),
        used = ALIGN_UP(VRING_USED_BYTES(size), 16), table = 0;
    u8 *p;

    *r = (struct vring_front){ .env = env, .size = (u16)size };
    if (!size || size > TAKT_QUEUE_MAX || size & (size - 1)) return -EINVAL;
    r->event_idx = features & BIT(VIRTIO_F_EVENT_IDX);
    r->indirect = features & BIT(VIRTIO_F_INDIRECT);
    if (r->indirect) table = size * VRING_INDIRECT * sizeof(*r->table);
    r->pages = (desc + avail + used + table + size * sizeof(*r->slot) + PAGE_SIZE - 1) / PAGE_SIZE;
    p = env->pages(r->pages);
    if (!p) return -ENOMEM;
    r->desc = (void *)p;
    r->avail = (void *)(p + desc);
    r->used = (void *)(p + desc + avail);
    r->table = (void *)(p + desc + avail + used);
    r->slot = (void *)(p + desc + avail + used + table);
    for (u32 i = 0; i < size; i++) r->slot[i].next = (u16)(i + 1);
    r->nr_free = r->size;
    return 0;
}

void vring_front_fini(struct vring_front *r) {
    if (r->desc) r->env->pages_free(r->desc, r->pages);
    *r = (struct vring_front){ 0 };
}

/* Makes a descriptor of a chain. `write` says that the device writes to the buffer. `next` is not
 * used in the last descriptor. */
static struct vring_desc desc_of(const struct vring_sg *sg, bool write, u16 next, bool last) {
    struct vring_desc d = { .addr = sg->addr, .len = sg->len };

    if (write) d.flags |= VRING_DESC_WRITE;
    if (!last) {
        d.flags |= VRING_DESC_NEXT;
        d.next = next;
    }
    return d;
}

/* Writes the chain of `n` buffers into the table of its own that belongs to slot `head`, and makes
 * the one descriptor in the ring point to that table. */
static void add_indirect(struct vring_front *r, u16 head, const struct vring_sg *sg, u32 nr_out,
                         u32 n) {
    struct vring_desc *t = r->table + head * VRING_INDIRECT;

    for (u32 i = 0; i < n; i++) t[i] = desc_of(&sg[i], i >= nr_out, (u16)(i + 1), i + 1 == n);
    r->desc[head] =
        (struct vring_desc){ r->env->dma_addr(t), (u32)(n * sizeof(*t)), VRING_DESC_INDIRECT, 0 };
}

/* Adds a chain of nr_out buffers that the device reads, and then nr_in buffers that it writes.
 * Returns 0, -ENOSPC if the ring is full, or -EINVAL. With indirect descriptors a chain takes only
 * one place in the ring. The device sees the chain after vring_front_publish(), so that many chains
 * need only one notification. */
int vring_front_add(struct vring_front *r, const struct vring_sg *sg, u32 nr_out, u32 nr_in,
                    void *token) {
    u32 n = nr_out + nr_in, count;
    bool indirect = r->indirect && n > 1 && n <= VRING_INDIRECT;
    u16 head = r->free, at = head, last = head;

    if (!n || n > r->size || !token) return -EINVAL;
    count = n;
    if (indirect) count = 1;
    if (r->broken || count > r->nr_free) return -ENOSPC;
    if (indirect) add_indirect(r, head, sg, nr_out, n);
    for (u32 i = 0; i < count; i++) {
        last = at;
        at = r->slot[at].next;
        if (!indirect) r->desc[last] = desc_of(&sg[i], i >= nr_out, at, i + 1 == n);
    }
    r->free = r->slot[last].next;
    r->nr_free = (u16)(r->nr_free - count);
    r->slot[head].token = token;
    r->slot[head].count = (u16)count;
    r->avail->ring[r->avail_next++ & (r->size - 1)] = head;
    return 0;
}

/* Shows the device the chains that were added since the last time. Returns whether it wants to be
 * notified. The index is stored after the chains that it shows (RELEASE), so that the device never
 * sees a chain that is half written. */
bool vring_front_publish(struct vring_front *r) {
    u16 old = r->avail_shown, now = r->avail_next;

    if (old == now) return false;
    __atomic_store_n(&r->avail->idx, now, __ATOMIC_RELEASE);
    r->avail_shown = now;
    /* The device writes what it wants to be told of, and then reads the index; here it is the other
     * way round. With a fence on both sides at least one of us sees what the other one has
     * written. */
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (r->event_idx) return vring_need_event(front_avail_event(r), now, old);
    return !(__atomic_load_n(&r->used->flags, __ATOMIC_RELAXED) & VRING_USED_NO_NOTIFY);
}

/* Puts the descriptors of a chain back into the free list. Returns the token of the chain. */
static void *free_chain(struct vring_front *r, u32 head) {
    void *token = r->slot[head].token;
    u16 last = (u16)head;

    for (u32 i = 1; i < r->slot[head].count; i++) last = r->slot[last].next;
    r->slot[last].next = r->free;
    r->free = (u16)head;
    r->nr_free = (u16)(r->nr_free + r->slot[head].count);
    r->slot[head].token = NULL;
    return token;
}

/* Takes a chain that the device is done with. Returns its token, or NULL if there is none. The back
 * end may write anything into its part of the ring. An index or a descriptor that cannot be right
 * makes the ring broken, and nothing more is taken from it. */
void *vring_front_take(struct vring_front *r, u32 *len) {
    u16 idx = __atomic_load_n(&r->used->idx, __ATOMIC_ACQUIRE);
    const struct vring_used_elem *e;
    u32 id;

    if (r->broken || idx == r->used_next) return NULL;
    e = &r->used->ring[r->used_next & (r->size - 1)];
    id = __atomic_load_n(&e->id, __ATOMIC_RELAXED);
    *len = __atomic_load_n(&e->len, __ATOMIC_RELAXED);
    if ((u16)(idx - r->used_next) > r->size || id >= r->size || !r->slot[id].token) {
        r->broken = true;
        return NULL;
    }
    r->used_next++;
    return free_chain(r, id);
}

/* Asks for an interrupt when the device is done with the next `after` chains. Returns true if it is
 * done with them already. First says that it wants an interrupt, and only then looks whether the
 * chains are done. In the other order, a chain that is done between the two steps would raise no
 * interrupt. */
bool vring_front_listen(struct vring_front *r, u16 after) {
    if (r->event_idx)
        __atomic_store_n(front_used_event(r), (u16)(r->used_next + after - 1), __ATOMIC_RELAXED);
    else
        __atomic_store_n(&r->avail->flags, 0, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    return (u16)(__atomic_load_n(&r->used->idx, __ATOMIC_ACQUIRE) - r->used_next) >= after;
}

/* Asks the device for no interrupts. With an event index, an index is named that has just passed,
 * so it is reached only after all 65,536 others. */
void vring_front_ignore(struct vring_front *r) {
    if (r->event_idx)
        __atomic_store_n(front_used_event(r), vring_no_event(r->used_next), __ATOMIC_RELAXED);
    else
        __atomic_store_n(&r->avail->flags, VRING_AVAIL_NO_IRQ, __ATOMIC_RELAXED);
}

/* Tokens are given back in the order of slots, not in the order in which they were added. */
void *vring_front_drain(struct vring_front *r) {
    for (u32 i = 0; i < r->size; i++)
        if (r->slot[i].token) return free_chain(r, i);
    return NULL;
}

u32 vring_front_outstanding(const struct vring_front *r) {
    u32 n = 0;

    for (u32 i = 0; i < r->size; i++)
        if (r->slot[i].token) n++;
    return n;
}
