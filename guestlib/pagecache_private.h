/* What the two halves of the page cache share: pagecache.c, which threads call, and pagecache_io.c,
 * which talks to the disk. pagecache.c explains the flags of a frame. */
#ifndef GUESTLIB_PAGECACHE_PRIVATE_H
#define GUESTLIB_PAGECACHE_PRIVATE_H

#include <guest/pagecache.h>

enum {
    BUSY = 1,
    VALID = 2,
    DIRTY = 4,
    WRITING = 8,
    USED = 16,
    REFUSED = 32, /* the last transfer failed: the next request has this page alone */
};

enum pass { PASS_NONE, PASS_AGE, PASS_BACKGROUND, PASS_ALL, PASS_SYNC };

static inline u32 count_load(const u32 *p) { return __atomic_load_n(p, __ATOMIC_SEQ_CST); }
static inline void flags_set(struct pagecache_frame *f, u32 bits) {
    __atomic_fetch_or(&f->flags, bits, __ATOMIC_SEQ_CST);
}
static inline void flags_clear(struct pagecache_frame *f, u32 bits) {
    __atomic_fetch_and(&f->flags, ~bits, __ATOMIC_SEQ_CST);
}
static inline void count_add(u32 *p, u32 n) { __atomic_fetch_add(p, n, __ATOMIC_SEQ_CST); }
static inline void count_sub(u32 *p, u32 n) { __atomic_fetch_sub(p, n, __ATOMIC_SEQ_CST); }

static inline u64 cache_now(const struct pagecache *c) { return c->host.now_ns(c->host.arg); }

static inline void *frame_contents(const struct pagecache *c, const struct pagecache_frame *f) {
    return c->data + (u64)(f - c->frame) * PAGE_SIZE;
}

/* Returns whether writers may go on: fewer pages than the limit are dirty or being written. */
static inline bool below_limit(const struct pagecache *c) {
    return count_load(&c->dirty) + count_load(&c->writing) < c->limit;
}

#endif
