/* Bounded queues between one producer and one consumer, without a lock. If the vCPU of one side is
 * off its pCPU for a while, the other side does not wait for it. `head` and `tail` are not reduced
 * to the size of the queue. They wrap at 2^32, and the size is a power of two, so an index modulo
 * the size is always right. */
#ifndef NETSTACK_SPSC_H
#define NETSTACK_SPSC_H

#include <takt/types.h>

/* A queue of pointers. */
struct spsc {
    void **slot;
    u32 size;
    u32 head; /* only the consumer writes it */
    u32 tail; /* only the producer writes it */
};

/* Either side: how many entries there are. */
static inline u32 spsc_count(const struct spsc *q) {
    return __atomic_load_n(&q->tail, __ATOMIC_ACQUIRE) -
           __atomic_load_n(&q->head, __ATOMIC_ACQUIRE);
}

/* Producer: adds an entry. Returns false if the queue is full. */
static inline bool spsc_push(struct spsc *q, void *p) {
    u32 tail = q->tail;

    if (tail - __atomic_load_n(&q->head, __ATOMIC_ACQUIRE) == q->size) return false;
    q->slot[tail & (q->size - 1)] = p;
    __atomic_store_n(&q->tail, tail + 1, __ATOMIC_RELEASE);
    return true;
}

/* Consumer: returns the first entry and leaves it in the queue; NULL if the queue is empty. */
static inline void *spsc_peek(const struct spsc *q) {
    u32 head = q->head;

    if (__atomic_load_n(&q->tail, __ATOMIC_ACQUIRE) == head) return NULL;
    return q->slot[head & (q->size - 1)];
}

/* Consumer: removes the first entry. */
static inline void spsc_pop(struct spsc *q) {
    __atomic_store_n(&q->head, q->head + 1, __ATOMIC_RELEASE);
}

/* A queue of bytes. */
struct byte_ring {
    u8 *data;
    u32 size;
    u32 head; /* only the consumer writes it; bytes before it may be overwritten */
    u32 tail; /* only the producer writes it */
};

/* Either side: how many bytes there are. */
static inline u32 byte_ring_count(const struct byte_ring *r) {
    return __atomic_load_n(&r->tail, __ATOMIC_ACQUIRE) -
           __atomic_load_n(&r->head, __ATOMIC_ACQUIRE);
}

/* Producer: returns how many bytes may be written at *at, in one piece. */
static inline u32 byte_ring_room(struct byte_ring *r, u8 **at) {
    u32 tail = r->tail, free = r->size - (tail - __atomic_load_n(&r->head, __ATOMIC_ACQUIRE));

    *at = r->data + (tail & (r->size - 1));
    return MIN(free, r->size - (tail & (r->size - 1)));
}

/* Producer: the next `n` bytes are written; the consumer may see them. */
static inline void byte_ring_written(struct byte_ring *r, u32 n) {
    __atomic_store_n(&r->tail, r->tail + n, __ATOMIC_RELEASE);
}

/* Consumer: returns how many bytes may be read at *at, in one piece, beginning at index `from`
 * (head <= from <= tail). */
static inline u32 byte_ring_piece(const struct byte_ring *r, u32 from, u8 **at) {
    u32 n = __atomic_load_n(&r->tail, __ATOMIC_ACQUIRE) - from;

    *at = r->data + (from & (r->size - 1));
    return MIN(n, r->size - (from & (r->size - 1)));
}

/* Consumer: the first `n` bytes are no longer needed. */
static inline void byte_ring_done(struct byte_ring *r, u32 n) {
    __atomic_store_n(&r->head, r->head + n, __ATOMIC_RELEASE);
}

#endif
