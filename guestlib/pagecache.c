/* The page cache: see guest/pagecache.h.
 *
 * The flags of a frame say in which state its page is. BUSY: its contents are on their way, from
 * the device or from a thread that overwrites all of the page; after that the page is VALID, unless
 * reading failed. Threads set DIRTY after they have changed the contents; the bottom half clears it
 * before the device reads them. So a change during WRITING makes the page dirty again. A frame is
 * taken for another page only if it is BUSY, DIRTY or WRITING no more and no thread has pinned it.
 *
 * Frames are evicted by the clock algorithm: a hand goes round and takes the first frame that was
 * not used since it last came by (USED is clear); it clears USED of the others.
 *
 * A pass of the flusher writes a list of frames in the order of the disk. There is one pass at a
 * time, and it ends when all frames were written. A pass that threads wait for takes all dirty
 * pages, and then empties the device's own cache.
 */
#include <guest/pagecache.h>
#include <guest/string.h>
#include <takt/errno.h>

#define NONE        (~0u)
#define NOWHERE     (~0ull)
#define AHEAD_FIRST 4u /* pages */
#define READ_TRIES  2

enum {
    BUSY = 1,
    VALID = 2,
    DIRTY = 4,
    WRITING = 8,
    USED = 16,
    REFUSED = 32, /* the last transfer failed: the next request has this page alone */
};

enum pass { PASS_NONE, PASS_AGE, PASS_BACKGROUND, PASS_ALL, PASS_SYNC };

static u32 count_load(const u32 *p) { return __atomic_load_n(p, __ATOMIC_SEQ_CST); }
static void flags_set(struct pagecache_frame *f, u32 bits) {
    __atomic_fetch_or(&f->flags, bits, __ATOMIC_SEQ_CST);
}
static void flags_clear(struct pagecache_frame *f, u32 bits) {
    __atomic_fetch_and(&f->flags, ~bits, __ATOMIC_SEQ_CST);
}
static void count_add(u32 *p, u32 n) { __atomic_fetch_add(p, n, __ATOMIC_SEQ_CST); }
static void count_sub(u32 *p, u32 n) { __atomic_fetch_sub(p, n, __ATOMIC_SEQ_CST); }

static u64 cache_now(const struct pagecache *c) { return c->host.now_ns(c->host.arg); }

static void *frame_contents(const struct pagecache *c, const struct pagecache_frame *f) {
    return c->data + (u64)(f - c->frame) * PAGE_SIZE;
}

/* ---- the start ---- */

static void *pages_for(struct pagecache *c, size_t bytes) {
    return c->host.pages(c->host.arg, (bytes + PAGE_SIZE - 1) / PAGE_SIZE);
}

int pagecache_init(struct pagecache *c, const struct pagecache_host *host,
                   const struct pagecache_config *config) {
    struct pagecache_request *requests;
    u32 n = config->pages, size = 1;

    *c = (struct pagecache){ .host = *host, .config = *config };
    if (!c->config.queue) c->config.queue = 32;
    if (!c->config.max_parts || c->config.max_parts > PAGECACHE_RUN)
        c->config.max_parts = PAGECACHE_RUN;
    if (!c->config.background) c->config.background = 10;
    if (!c->config.dirty) c->config.dirty = 20;
    if (!c->config.expire_ns) c->config.expire_ns = 30 * NS_PER_S;
    if (!c->config.interval_ns) c->config.interval_ns = 5 * NS_PER_S;
    if (!c->config.ahead) c->config.ahead = 32;
    c->config.ahead = MIN(c->config.ahead, (u32)PAGECACHE_AHEAD);
    c->blocks = config->capacity / PAGE_SIZE;
    c->background = (u32)((u64)n * c->config.background / 100);
    c->limit = (u32)((u64)n * c->config.dirty / 100);
    if (n < PAGECACHE_MIN || n > BIT(31) || !c->blocks || c->config.queue < 4 ||
        c->config.dirty > 90 || c->background >= c->limit)
        return -EINVAL;
    c->congested_on = c->config.queue - c->config.queue / 8;
    c->congested_off = (u32)((u64)c->config.queue * 13 / 16);
    while (size < n) size *= 2;
    c->mask = size - 1;
    c->data = pages_for(c, n * PAGE_SIZE);
    c->frame = pages_for(c, n * sizeof(*c->frame));
    c->bucket = pages_for(c, size * sizeof(u32));
    c->reads = pages_for(c, size * sizeof(u32));
    c->plan = pages_for(c, n * sizeof(u32));
    requests = pages_for(c, c->config.queue * sizeof(*requests));
    if (!c->data || !c->frame || !c->bucket || !c->reads || !c->plan || !requests) return -ENOMEM;
    for (u32 i = 0; i < size; i++) c->bucket[i] = NONE;
    for (u32 i = 0; i < n; i++) c->frame[i].block = NOWHERE;
    for (u32 i = 0; i < c->config.queue; i++) {
        requests[i].cache = c;
        requests[i].next = c->free;
        c->free = &requests[i];
    }
    c->look = cache_now(c) + c->config.interval_ns;
    return 0;
}

/* ---- frames; under the lock ---- */

static u32 *bucket_of(struct pagecache *c, u64 block) {
    return &c->bucket[block * 0x9e3779b97f4a7c15ull >> 32 & c->mask];
}

static struct pagecache_frame *lookup(struct pagecache *c, u64 block) {
    for (u32 i = *bucket_of(c, block); i != NONE; i = c->frame[i].chain)
        if (c->frame[i].block == block) return &c->frame[i];
    return NULL;
}

static void frame_forget(struct pagecache *c, struct pagecache_frame *f) {
    u32 *at = bucket_of(c, f->block), i = (u32)(f - c->frame);

    while (*at != i) at = &c->frame[*at].chain;
    *at = f->chain;
    f->block = NOWHERE;
    flags_clear(f, ~0u);
}

static bool frame_in_use(const struct pagecache_frame *f) {
    return count_load(&f->flags) & (BUSY | DIRTY | WRITING) || count_load(&f->pins);
}

/* Takes a frame for that page, without contents. NULL: all frames are in use. */
static struct pagecache_frame *new_frame(struct pagecache *c, u64 block) {
    for (u32 n = 0; n < 2 * c->config.pages; n++) {
        struct pagecache_frame *f = &c->frame[c->hand];
        u32 *b = bucket_of(c, block);

        c->hand = (c->hand + 1) % c->config.pages;
        if (frame_in_use(f)) continue;
        if (count_load(&f->flags) & USED) {
            flags_clear(f, USED);
            continue;
        }
        if (f->block != NOWHERE) {
            frame_forget(c, f);
            c->stats.evicted++;
        }
        f->block = block;
        /* otherwise a page that is read ahead could be evicted before it is used */
        flags_set(f, USED);
        f->chain = *b;
        *b = (u32)(f - c->frame);
        return f;
    }
    return NULL;
}

/* Has the frame read, which is new or not in use. */
static void queue_read(struct pagecache *c, struct pagecache_frame *f) {
    flags_set(f, BUSY);
    c->reads[c->reads_tail & c->mask] = (u32)(f - c->frame);
    __atomic_store_n(&c->reads_tail, c->reads_tail + 1, __ATOMIC_SEQ_CST);
}

/* ---- threads: waiting ---- */

static bool is_there(const struct pagecache *c, const void *what) {
    return !(count_load(&((const struct pagecache_frame *)what)->flags) & BUSY);
}

static bool is_stuck(const struct pagecache *c) {
    return __atomic_load_n(&c->stuck, __ATOMIC_SEQ_CST);
}

static bool progressed(const struct pagecache *c, const void *what) {
    return count_load(&c->progress) != *(const u32 *)what;
}

static bool below_limit(const struct pagecache *c) {
    return count_load(&c->dirty) + count_load(&c->writing) < c->limit;
}
static bool may_write(const struct pagecache *c, const void *what) {
    return below_limit(c) || is_stuck(c);
}

static bool is_synced(const struct pagecache *c, const void *what) {
    return count_load(&((const struct pagecache_sync *)what)->done);
}

static void wait_for(struct pagecache *c, enum pagecache_event event, pagecache_ready ready,
                     const void *what) {
    if (!ready(c, what)) c->host.wait(c->host.arg, event, ready, c, what);
}

/* Every frame was in use when c->progress was `seen`. Waits until a frame may have become free. One
 * will, because not all frames can be dirty (`limit`): the others are being read or are pinned, and
 * both end. */
static void wait_for_frame(struct pagecache *c, u32 seen) {
    __atomic_fetch_add(&c->stats.short_of, 1, __ATOMIC_RELAXED);
    count_add(&c->starved, 1);
    c->host.flusher(c->host.arg);
    wait_for(c, PAGECACHE_ROOM, progressed, &seen);
    count_sub(&c->starved, 1);
}

static void unpin(struct pagecache *c, struct pagecache_frame *f) {
    count_sub(&f->pins, 1);
    if (!count_load(&c->starved)) return;
    count_add(&c->progress, 1);
    c->host.wake(c->host.arg, PAGECACHE_ROOM);
}

/* ---- threads: pages ---- */

/* *out becomes the frame of that page, pinned. It is VALID; or BUSY, if `overwrite`, and the caller
 * fills it. Returns 0, or -EIO if the page cannot be read. */
static int get_frame(struct pagecache *c, u64 block, bool overwrite, struct pagecache_frame **out) {
    for (u32 tries = 0;;) {
        u32 seen = count_load(&c->progress), flags;
        struct pagecache_frame *f;
        bool asked = false;

        c->host.lock(c->host.arg);
        f = lookup(c, block);
        if (!f) f = new_frame(c, block);
        if (!f) {
            c->host.unlock(c->host.arg);
            wait_for_frame(c, seen);
            continue;
        }
        count_add(&f->pins, 1);
        flags = count_load(&f->flags);
        if (!tries) { /* counted once, not again after waiting */
            if (flags & VALID)
                c->stats.hits++;
            else
                c->stats.misses++;
        }
        if (!(flags & (BUSY | VALID))) { /* no other context brings its contents */
            if (overwrite) {
                flags_set(f, BUSY);
            } else if (tries++ < READ_TRIES) {
                queue_read(c, f);
                asked = true;
            }
        }
        flags_set(f, USED);
        c->host.unlock(c->host.arg);
        *out = f;
        if (flags & VALID || (overwrite && !(flags & BUSY))) return 0;
        if (asked) c->host.kick(c->host.arg);
        if (asked || flags & BUSY) wait_for(c, PAGECACHE_PAGE, is_there, f);
        if (count_load(&f->flags) & VALID) return 0;
        unpin(c, f);
        if (!asked && !(flags & BUSY)) return -EIO;
    }
}

/* Starts reading the pages [from, to) that are not in the cache, as far as there are frames.
 * Returns how many. */
static u32 queue_reads(struct pagecache *c, u64 from, u64 to) {
    u32 n = 0;

    c->host.lock(c->host.arg);
    for (; from < to; from++) {
        struct pagecache_frame *f;

        if (lookup(c, from)) continue;
        f = new_frame(c, from);
        if (!f) break;
        queue_read(c, f);
        n++;
    }
    c->host.unlock(c->host.arg);
    if (n) c->host.kick(c->host.arg);
    return n;
}

/* A thread wants `nr` pages from `first` on. Has those read together that are not in the cache. If
 * the stream goes on where it was, pages behind them are read ahead: a window that doubles, the
 * next one when half of the last one is left. */
static void start_reading(struct pagecache *c, struct pagecache_stream *s, u64 first, u32 nr) {
    u64 to = first + nr, from = first;

    if (s && !c->config.no_ahead) {
        bool goes_on = first == s->next || first + 1 == s->next;

        if (!goes_on) {
            s->ahead = first;
            s->window = 0;
        }
        s->next = to;
        from = MAX(s->ahead, first);
        if (goes_on && to + s->window / 2 >= s->ahead) {
            if (pagecache_congested(c)) {
                __atomic_fetch_add(&c->stats.ahead_congested, 1, __ATOMIC_RELAXED);
            } else {
                s->window = MIN(MAX(2 * s->window, AHEAD_FIRST), c->config.ahead);
                to = MAX(to, MIN(MAX(s->ahead, to) + s->window, MIN(s->end, c->blocks)));
            }
        }
        s->ahead = MAX(s->ahead, to);
    }
    if (to > from + 1 || to > first + nr) {
        u32 n = queue_reads(c, from, to);

        if (to > first + nr)
            __atomic_fetch_add(&c->stats.ahead, MIN(n, to - first - nr), __ATOMIC_RELAXED);
    }
}

static bool outside(const struct pagecache *c, u64 offset, size_t len) {
    u64 size = c->blocks * PAGE_SIZE;

    return offset > size || len > size - offset;
}

int pagecache_read(struct pagecache *c, struct pagecache_stream *s, u64 offset, void *to,
                   size_t len) {
    u64 asked = 0; /* pages before this one were asked for */

    if (outside(c, offset, len)) return -EINVAL;
    for (size_t done = 0, n; done < len; done += n) {
        u64 at = offset + done, block = at / PAGE_SIZE, last = (offset + len - 1) / PAGE_SIZE;
        struct pagecache_frame *f;
        int error;

        n = MIN(len - done, PAGE_SIZE - at % PAGE_SIZE);
        if (block >= asked) {
            u32 nr = (u32)MIN(last + 1 - block, (u64)PAGECACHE_RUN);

            start_reading(c, s, block, nr);
            asked = block + nr;
        }
        error = get_frame(c, block, false, &f);
        if (error) return error;
        memcpy((u8 *)to + done, (u8 *)frame_contents(c, f) + at % PAGE_SIZE, n);
        unpin(c, f);
    }
    return 0;
}

/* Calls on_dirty if as many frames are dirty as it was to be called for. */
static void tell_dirty(struct pagecache *c) {
    u32 at = count_load(&c->tell_at);

    if (!at || count_load(&c->dirty) < at) return;
    if (__atomic_exchange_n(&c->tell_at, 0, __ATOMIC_SEQ_CST)) c->on_dirty(c->on_dirty_arg);
}

void pagecache_tell_at(struct pagecache *c, u32 n, void (*fn)(void *arg), void *arg) {
    c->on_dirty = fn;
    c->on_dirty_arg = arg;
    __atomic_store_n(&c->tell_at, n, __ATOMIC_SEQ_CST);
    tell_dirty(c);
}

/* Marks a page dirty whose contents a thread has changed. */
static void make_dirty(struct pagecache *c, struct pagecache_frame *f) {
    u32 old;

    if (!(count_load(&f->flags) & DIRTY))
        __atomic_store_n(&f->since, cache_now(c), __ATOMIC_RELAXED);
    /* before the page can be written: otherwise the count could go below 0 */
    count_add(&c->dirty, 1);
    old = __atomic_fetch_or(&f->flags, DIRTY | VALID, __ATOMIC_SEQ_CST);
    if (old & DIRTY) count_sub(&c->dirty, 1);
    if (old & BUSY) {
        flags_clear(f, BUSY);
        c->host.wake(c->host.arg, PAGECACHE_PAGE);
    }
    if (old & DIRTY) return;
    tell_dirty(c);
    /* this one may be taken */
    if (is_stuck(c)) __atomic_store_n(&c->stuck, false, __ATOMIC_SEQ_CST);
    if (count_load(&c->dirty) > c->background && count_load(&c->pass) == PASS_NONE)
        c->host.flusher(c->host.arg);
}

/* Waits while too much is dirty. */
static int throttle(struct pagecache *c) {
    u64 since;

    if (below_limit(c)) return 0;
    since = cache_now(c);
    while (!below_limit(c) && !is_stuck(c)) {
        c->host.flusher(c->host.arg);
        wait_for(c, PAGECACHE_ROOM, may_write, NULL);
    }
    __atomic_fetch_add(&c->stats.throttled, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&c->stats.throttled_ns, cache_now(c) - since, __ATOMIC_RELAXED);
    if (!below_limit(c)) return -EIO;
    return 0;
}

int pagecache_write(struct pagecache *c, u64 offset, const void *from, size_t len) {
    if (outside(c, offset, len)) return -EINVAL;
    for (size_t done = 0, n; done < len; done += n) {
        u64 at = offset + done;
        struct pagecache_frame *f;
        int error;

        n = MIN(len - done, PAGE_SIZE - at % PAGE_SIZE);
        error = throttle(c);
        if (!error) error = get_frame(c, at / PAGE_SIZE, n == PAGE_SIZE, &f);
        if (error) return error;
        memcpy((u8 *)frame_contents(c, f) + at % PAGE_SIZE, (const u8 *)from + done, n);
        make_dirty(c, f);
        unpin(c, f);
    }
    return 0;
}

int pagecache_sync(struct pagecache *c) {
    struct pagecache_sync me = { .next = __atomic_load_n(&c->syncs, __ATOMIC_RELAXED) };

    while (!__atomic_compare_exchange_n(&c->syncs, &me.next, &me, false, __ATOMIC_SEQ_CST,
                                        __ATOMIC_RELAXED)) {
        /* me.next is now what c->syncs was: try again with that */
    }
    c->host.flusher(c->host.arg);
    wait_for(c, PAGECACHE_SYNC, is_synced, &me);
    return me.result;
}

void pagecache_on_congestion(struct pagecache *c, void (*fn)(void *arg), void *arg) {
    c->on_congestion_arg = arg;
    __atomic_store_n(&c->on_congestion, fn, __ATOMIC_RELEASE);
}

void pagecache_release(struct pagecache *c) {
    __atomic_store_n(&c->release_wanted, 1, __ATOMIC_SEQ_CST);
    c->host.kick(c->host.arg);
}

u32 pagecache_drop(struct pagecache *c) {
    u32 n = 0;

    c->host.lock(c->host.arg);
    for (struct pagecache_frame *f = c->frame; f < c->frame + c->config.pages; f++) {
        if (f->block == NOWHERE || frame_in_use(f)) continue;
        frame_forget(c, f);
        n++;
    }
    c->host.unlock(c->host.arg);
    return n;
}

void pagecache_flush_now(struct pagecache *c) {
    __atomic_fetch_add(&c->stats.flush_now, 1, __ATOMIC_RELAXED);
    __atomic_store_n(&c->wanted, 1, __ATOMIC_SEQ_CST);
    c->host.flusher(c->host.arg);
}

/* ---- the bottom half: requests ---- */

static void set_congested(struct pagecache *c, bool on) {
    void (*fn)(void *arg) = __atomic_load_n(&c->on_congestion, __ATOMIC_ACQUIRE);

    __atomic_store_n(&c->congested, on, __ATOMIC_RELAXED);
    if (fn) fn(c->on_congestion_arg);
}

static void count_request(struct pagecache *c, int change) {
    bool may_avoid = !c->released && !c->config.no_avoid;

    c->in_use += (u32)change;
    if (!c->congested && c->in_use > c->congested_on && may_avoid) {
        c->stats.congestions++;
        set_congested(c, true);
    } else if (c->in_use < c->congested_off) {
        c->released = false;
        if (c->congested) set_congested(c, false);
    }
}

/* Does what pagecache_release() asks for. */
static void release_queue(struct pagecache *c) {
    if (!__atomic_exchange_n(&c->release_wanted, 0, __ATOMIC_SEQ_CST) || !c->congested) return;
    c->released = true;
    c->stats.released++;
    set_congested(c, false);
}

static void read_done(struct pagecache *c, struct pagecache_frame *f, int error) {
    u32 over = BUSY; /* flags that are cleared, after those that are set */

    if (error) {
        flags_set(f, REFUSED);
    } else {
        flags_set(f, VALID);
        over |= REFUSED;
    }
    flags_clear(f, over);
    c->wakes |= PAGECACHE_PAGE;
}

static void write_done(struct pagecache *c, struct pagecache_frame *f, int error) {
    u32 over = WRITING;

    if (error) {
        __atomic_store_n(&f->since, cache_now(c), __ATOMIC_RELAXED);
        count_add(&c->dirty, 1);
        if (__atomic_fetch_or(&f->flags, DIRTY | REFUSED, __ATOMIC_SEQ_CST) & DIRTY)
            count_sub(&c->dirty, 1);
    } else {
        __atomic_store_n(&c->stuck, false, __ATOMIC_SEQ_CST);
        over |= REFUSED;
    }
    flags_clear(f, over);
    count_sub(&c->writing, 1);
    if (below_limit(c)) c->wakes |= PAGECACHE_ROOM;
}

static void on_done(struct virtio_blk_request *q, int error) {
    struct pagecache_request *r = container_of(q, struct pagecache_request, q);
    struct pagecache *c = r->cache;

    if (error) c->stats.errors++;
    if (error && q->type != VIRTIO_BLK_IN) c->failures++;
    if (q->type == VIRTIO_BLK_FLUSH) c->flush_ended = true;
    if (q->type == VIRTIO_BLK_IN) c->reading--;
    for (u32 i = 0; i < r->nr; i++) {
        struct pagecache_frame *f = &c->frame[r->frame[i]];

        if (q->type == VIRTIO_BLK_IN)
            read_done(c, f, error);
        else
            write_done(c, f, error);
    }
    count_add(&c->progress, 1);
    if (count_load(&c->starved)) c->wakes |= PAGECACHE_ROOM;
    r->next = c->free;
    c->free = r;
    count_request(c, -1);
}

/* Submits the request. False: the device's ring is full, and `r` is still the caller's. */
static bool submit_request(struct pagecache *c, struct pagecache_request *r) {
    struct virtio_blk_request *q = &r->q;
    int error;

    q->done = on_done;
    q->nr = 0;
    q->sector = 0;
    if (r->nr) q->sector = c->frame[r->frame[0]].block * (PAGE_SIZE / VIRTIO_BLK_SECTOR);
    for (u32 i = 0; i < r->nr; i++) {
        u8 *p = frame_contents(c, &c->frame[r->frame[i]]);

        if (q->nr && (u8 *)q->part[q->nr - 1].p + q->part[q->nr - 1].len == p) {
            q->part[q->nr - 1].len += PAGE_SIZE;
            continue;
        }
        q->part[q->nr].p = p;
        q->part[q->nr++].len = PAGE_SIZE;
    }
    error = c->host.submit(c->host.arg, q);
    if (error == -ENOSPC) return false;
    c->free = r->next;
    count_request(c, 1);
    if (q->type == VIRTIO_BLK_IN) c->reading++;
    if (error) on_done(q, error);
    return true;
}

/* Whether b is the page after a, and both may be in one request. */
static bool follows(const struct pagecache_frame *a, const struct pagecache_frame *b) {
    return b->block == a->block + 1 && !((count_load(&a->flags) | count_load(&b->flags)) & REFUSED);
}

/* Submits reads, before writes: threads wait for them. */
static void read_more(struct pagecache *c) {
    u32 tail = count_load(&c->reads_tail);

    while (c->reads_head != tail && c->free) {
        struct pagecache_request *r = c->free;

        r->q.type = VIRTIO_BLK_IN;
        for (r->nr = 0; r->nr < c->config.max_parts && c->reads_head + r->nr != tail; r->nr++) {
            r->frame[r->nr] = c->reads[(c->reads_head + r->nr) & c->mask];
            if (r->nr && !follows(&c->frame[r->frame[r->nr - 1]], &c->frame[r->frame[r->nr]]))
                break;
        }
        /* Before it is submitted, because a request that ends at once may ask for further
         * frames. */
        c->reads_head += r->nr;
        c->stats.reads++;
        c->stats.pages_read += r->nr;
        if (submit_request(c, r)) continue;
        c->reads_head -= r->nr;
        c->stats.reads--;
        c->stats.pages_read -= r->nr;
        return;
    }
}

/* Writes the next frames of the plan, as many as one request takes. False: the rest has to wait. */
static bool write_run(struct pagecache *c) {
    struct pagecache_request *r = c->free;

    r->q.type = VIRTIO_BLK_OUT;
    for (r->nr = 0; r->nr < c->config.max_parts && c->plan_at + r->nr < c->plan_nr; r->nr++) {
        r->frame[r->nr] = c->plan[c->plan_at + r->nr];
        if (r->nr && !follows(&c->frame[r->frame[r->nr - 1]], &c->frame[r->frame[r->nr]])) break;
    }
    for (u32 i = 0; i < r->nr; i++) {
        /* first: a frame with neither flag could be evicted */
        flags_set(&c->frame[r->frame[i]], WRITING);
        flags_clear(&c->frame[r->frame[i]], DIRTY);
    }
    count_add(&c->writing, r->nr);
    count_sub(&c->dirty, r->nr);
    c->plan_at += r->nr;
    c->stats.writes++;
    c->stats.pages_written += r->nr;
    if (submit_request(c, r)) return true;
    c->plan_at -= r->nr;
    c->stats.writes--;
    c->stats.pages_written -= r->nr;
    for (u32 i = 0; i < r->nr; i++) {
        struct pagecache_frame *f = &c->frame[r->frame[i]];

        count_add(&c->dirty, 1);
        if (__atomic_fetch_or(&f->flags, DIRTY, __ATOMIC_SEQ_CST) & DIRTY) count_sub(&c->dirty, 1);
        flags_clear(f, WRITING);
    }
    count_sub(&c->writing, r->nr);
    return false;
}

/* ---- the bottom half: passes ---- */

static bool flush_device(struct pagecache *c) {
    struct pagecache_request *r = c->free;

    if (!r) return false;
    r->q.type = VIRTIO_BLK_FLUSH;
    r->nr = 0;
    c->flush_sent = true; /* before it is submitted, because it may end at once */
    c->flush_sent = submit_request(c, r);
    if (c->flush_sent) c->stats.flushes++;
    return c->flush_sent;
}

/* Ends the syncs that waited for this pass, and lets the flusher begin another one. */
static void end_pass(struct pagecache *c) {
    struct pagecache_sync *s = c->syncing, *next;
    int result = 0;

    if (c->failures != c->reported) result = -EIO;
    if (s) {
        c->reported = c->failures;
        c->wakes |= PAGECACHE_SYNC;
    }
    for (; s; s = next) {
        /* read first: *s is on the stack of a thread that goes on when `done` is set */
        next = s->next;
        s->result = result;
        __atomic_store_n(&s->done, 1, __ATOMIC_SEQ_CST);
    }
    c->syncing = NULL;
    __atomic_store_n(&c->pass, PASS_NONE, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&c->syncs, __ATOMIC_SEQ_CST) || count_load(&c->wanted) ||
        count_load(&c->starved) || count_load(&c->dirty) > c->background)
        c->host.flusher(c->host.arg);
}

static void write_more(struct pagecache *c) {
    u32 pass = count_load(&c->pass);

    if (pass == PASS_NONE) return;
    while (c->plan_at < c->plan_nr) {
        if (pass == PASS_BACKGROUND && count_load(&c->dirty) <= c->background &&
            !count_load(&c->starved)) {
            c->plan_nr = c->plan_at;
            break;
        }
        if (!c->free || (c->congested && pass != PASS_SYNC && !count_load(&c->starved))) return;
        if (!write_run(c)) return;
    }
    if (c->writing) return;
    if (pass == PASS_SYNC && c->config.can_flush) {
        if (!c->flush_sent && !flush_device(c)) return;
        if (!c->flush_ended) return;
    }
    end_pass(c);
}

void pagecache_run(struct pagecache *c) {
    release_queue(c);
    read_more(c);
    write_more(c);
    if (c->wakes) c->host.wake(c->host.arg, c->wakes);
    c->wakes = 0;
}

/* ---- the flusher ---- */

static enum pass choose(struct pagecache *c, u64 time) {
    if (c->syncing) return PASS_SYNC;
    if (count_load(&c->wanted)) return PASS_ALL;
    if (count_load(&c->dirty) > c->background || count_load(&c->starved)) return PASS_BACKGROUND;
    if (time >= c->look) return PASS_AGE;
    return PASS_NONE;
}

/* Whether the pass is to write this frame. A page that was refused is tried again when it is old,
 * or when a thread asks for it. */
static bool belongs(const struct pagecache *c, const struct pagecache_frame *f, enum pass pass,
                    u64 time) {
    u32 flags = count_load(&f->flags);
    bool old = time - __atomic_load_n(&f->since, __ATOMIC_RELAXED) >= c->config.expire_ns;

    if (!(flags & DIRTY)) return false;
    if (pass == PASS_AGE || (flags & REFUSED && pass == PASS_BACKGROUND)) return old;
    return true;
}

/* Sorts frames by their place on the disk (Shell's sort). They are mostly in order already, because
 * frames are taken in order. */
static void sort_by_block(struct pagecache *c, u32 *a, u32 n) {
    u32 gap = n / 2;

    while (gap) {
        for (u32 i = gap; i < n; i++) {
            u32 v = a[i], j = i;

            for (; j >= gap && c->frame[a[j - gap]].block > c->frame[v].block; j -= gap)
                a[j] = a[j - gap];
            a[j] = v;
        }
        if (gap == 2)
            gap = 1; /* 2 * 5 / 11 would be 0, and skip the last round */
        else
            gap = gap * 5 / 11;
    }
}

u64 pagecache_flusher(struct pagecache *c) {
    u64 time = cache_now(c);
    enum pass pass;
    u32 n = 0;

    if (count_load(&c->pass) != PASS_NONE)
        return time + c->config.interval_ns; /* end_pass() calls us again */
    c->syncing = __atomic_exchange_n(&c->syncs, NULL, __ATOMIC_SEQ_CST);
    pass = choose(c, time);
    if (pass == PASS_ALL) __atomic_store_n(&c->wanted, 0, __ATOMIC_SEQ_CST);
    if (time >= c->look) c->look = time + c->config.interval_ns;
    if (pass == PASS_NONE) return c->look;
    for (u32 i = 0; i < c->config.pages; i++)
        if (belongs(c, &c->frame[i], pass, time)) c->plan[n++] = i;
    if (!n && pass != PASS_SYNC) {
        /* Threads that wait for room would wait for ever: all dirty pages were refused. */
        if (pass == PASS_BACKGROUND && count_load(&c->dirty) > c->background) {
            __atomic_store_n(&c->stuck, true, __ATOMIC_SEQ_CST);
            c->host.wake(c->host.arg, PAGECACHE_ROOM);
        }
        return c->look;
    }
    __atomic_store_n(&c->stuck, false, __ATOMIC_SEQ_CST);
    sort_by_block(c, c->plan, n);
    c->plan_nr = n;
    c->plan_at = 0;
    c->flush_sent = c->flush_ended = false;
    c->stats.passes++;
    c->stats.aged += pass == PASS_AGE;
    __atomic_store_n(&c->pass, pass, __ATOMIC_SEQ_CST);
    c->host.kick(c->host.arg);
    return c->look;
}
