/* A page cache, as pagecache.h describes it: pages of a disk, kept in *frames* of memory. Threads
 * read and write pages. The *bottom half*, in interrupt handlers, gives requests to the disk and
 * ends them. The *flusher*, a thread, chooses which pages are written back.
 *
 * The flags of a frame say in which state its page is. BUSY: its contents are on their way, from
 * the device or from a thread that overwrites all of the page; after that the page is VALID, unless
 * reading failed. Threads set DIRTY after they have changed the contents; the bottom half clears it
 * before the device reads them. So a change during WRITING makes the page dirty again. A frame is
 * taken for another page only if none of BUSY, DIRTY and WRITING is set and no thread has pinned it
 * (a thread pins a frame while it copies to or from it).
 *
 * Frames are evicted by the clock algorithm: a hand goes round and takes the first frame that was
 * not used since it last came by (USED is clear); it clears USED of the others.
 *
 * A *pass* of the flusher writes a list of frames, the plan, in the order of the disk. There is one
 * pass at a time, and it ends when all frames were written. A pass that threads wait for (a sync)
 * takes all dirty pages, and then empties the device's own cache. */
#include <guest/pagecache.h>
#include <guest/string.h>
#include <takt/errno.h>
#include "guestlib/pagecache_private.h"

#define NONE        (~0u)
#define NOWHERE     (~0ull)
#define AHEAD_FIRST 4u /* pages */
#define READ_TRIES  2

/* ---- the start ---- */

/* Returns memory for that many bytes, in whole pages. */
static void *pages_for(struct pagecache *c, size_t bytes) {
    return c->host.pages(c->host.arg, (bytes + PAGE_SIZE - 1) / PAGE_SIZE);
}

/* Sets the cache up: checks the configuration, fills in defaults for what is 0, and allocates
 * frames and tables. Returns 0, -EINVAL or -ENOMEM. At most 90 % of the frames may be dirty: if all
 * could be, a thread that needs a frame might wait for ever. */
int pagecache_init(struct pagecache *c, const struct pagecache_host *host,
                   const struct pagecache_config *config) {
    struct pagecache_request *requests;
    u32 n = config->pages, size = 1;

    *c = (struct pagecache){ .host = *host, .config = *config };
    if (!c->config.queue) c->config.queue = 32;
    c->config.queue_most = MAX(c->config.queue, c->config.queue_most);
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
    pagecache_limit_queue(c, c->config.queue);
    while (size < n) size *= 2;
    c->mask = size - 1;
    c->data = pages_for(c, n * PAGE_SIZE);
    c->frame = pages_for(c, n * sizeof(*c->frame));
    c->bucket = pages_for(c, size * sizeof(u32));
    c->reads = pages_for(c, size * sizeof(u32));
    c->plan = pages_for(c, n * sizeof(u32));
    requests = pages_for(c, c->config.queue_most * sizeof(*requests));
    if (!c->data || !c->frame || !c->bucket || !c->reads || !c->plan || !requests) return -ENOMEM;
    for (u32 i = 0; i < size; i++) c->bucket[i] = NONE;
    for (u32 i = 0; i < n; i++) c->frame[i].block = NOWHERE;
    for (u32 i = 0; i < c->config.queue_most; i++) {
        requests[i].cache = c;
        requests[i].next = c->free;
        c->free = &requests[i];
    }
    c->look = cache_now(c) + c->config.interval_ns;
    return 0;
}

/* ---- frames; under the lock ---- */

/* Returns the head of the chain of frames to which that page of the device belongs, by a hash of
 * its number. */
static u32 *pagecache_bucket_of(struct pagecache *c, u64 block) {
    return &c->bucket[block * 0x9e3779b97f4a7c15ull >> 32 & c->mask];
}

/* Returns the frame that has the page, or NULL if the page is not in the cache. */
static struct pagecache_frame *lookup(struct pagecache *c, u64 block) {
    for (u32 i = *pagecache_bucket_of(c, block); i != NONE; i = c->frame[i].chain)
        if (c->frame[i].block == block) return &c->frame[i];
    return NULL;
}

/* Takes the frame out of the chain of its bucket, because it has no page any more. */
static void frame_forget(struct pagecache *c, struct pagecache_frame *f) {
    u32 *at = pagecache_bucket_of(c, f->block), i = (u32)(f - c->frame);

    while (*at != i) at = &c->frame[*at].chain;
    *at = f->chain;
    f->block = NOWHERE;
    flags_clear(f, ~0u);
}

/* Returns whether the frame must keep its page for now. */
static bool frame_in_use(const struct pagecache_frame *f) {
    return count_load(&f->flags) & (BUSY | DIRTY | WRITING) || count_load(&f->pins);
}

/* Takes a frame for page `block` of the device, and evicts the page that it had. The frame has no
 * valid contents yet. Returns NULL if all frames are in use. The hand of the clock goes round twice
 * at most, because in the first round it may only clear USED. */
static struct pagecache_frame *new_frame(struct pagecache *c, u64 block) {
    for (u32 n = 0; n < 2 * c->config.pages; n++) {
        struct pagecache_frame *f = &c->frame[c->hand];
        u32 *b = pagecache_bucket_of(c, block);

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

/* Notes that the next request for this frame belongs to the socket on which the caller runs: to
 * read the page, or to write it. */
static void set_socket(struct pagecache *c, struct pagecache_frame *f) {
    if (!c->host.socket) return;
    __atomic_store_n(&f->socket, c->host.socket(c->host.arg), __ATOMIC_RELAXED);
}

/* Asks the bottom half to read the page of this frame. The frame is new, or no other context uses
 * it. */
static void queue_read(struct pagecache *c, struct pagecache_frame *f) {
    flags_set(f, BUSY);
    set_socket(c, f);
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

static bool may_write(const struct pagecache *c, const void *what) {
    return below_limit(c) || is_stuck(c);
}

static bool is_synced(const struct pagecache *c, const void *what) {
    return count_load(&((const struct pagecache_sync *)what)->done);
}

/* Waits for an event until ready() is true; does not sleep if it is true already. */
static void pagecache_wait_for(struct pagecache *c, enum pagecache_event event,
                               pagecache_ready ready, const void *what) {
    if (!ready(c, what)) c->host.wait(c->host.arg, event, ready, c, what);
}

/* Waits until a frame may have become free; every frame was in use when c->progress was `seen`. One
 * will, because not all frames can be dirty (`limit`): the others are being read or are pinned, and
 * both end. */
static void wait_for_frame(struct pagecache *c, u32 seen) {
    __atomic_fetch_add(&c->stats.short_of, 1, __ATOMIC_RELAXED);
    count_add(&c->starved, 1);
    c->host.flusher(c->host.arg);
    pagecache_wait_for(c, PAGECACHE_ROOM, progressed, &seen);
    count_sub(&c->starved, 1);
}

/* Ends the calling thread's use of the frame. If threads wait for any frame, they look again. */
static void unpin(struct pagecache *c, struct pagecache_frame *f) {
    count_sub(&f->pins, 1);
    if (!count_load(&c->starved)) return;
    count_add(&c->progress, 1);
    c->host.wake(c->host.arg, PAGECACHE_ROOM);
}

/* ---- threads: pages ---- */

/* Finds the page or takes a frame for it, and pins the frame into *out. The frame is then VALID; or
 * BUSY, if `overwrite` (the caller is going to write the whole page, so that it need not be read
 * first), and the caller fills it. Returns 0, or -EIO if the page cannot be read. */
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
        if (asked || flags & BUSY) pagecache_wait_for(c, PAGECACHE_PAGE, is_there, f);
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

/* Begins to read `nr` pages from `first` on for a thread. Has those that are not in the cache read
 * together, because one request for several pages is faster than several. If the stream goes on
 * where it was, further pages are read ahead: a window that doubles each time, and the next one is
 * asked for when half of the last one is left. */
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

/* Returns whether the bytes go beyond the end of the disk. */
static bool outside(const struct pagecache *c, u64 offset, size_t len) {
    u64 size = c->blocks * PAGE_SIZE;

    return offset > size || len > size - offset;
}

/* Reads `len` bytes from byte `offset` of the device, through the cache. Returns 0, -EINVAL or
 * -EIO. It copies page by page. At the first page of a group of up to PAGECACHE_RUN pages, all that
 * are missing in the group are asked for, so that one request brings them. */
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

/* Marks a page dirty whose contents a thread has changed, and calls the flusher if too much is
 * dirty now. */
static void make_dirty(struct pagecache *c, struct pagecache_frame *f) {
    u32 old;

    set_socket(c, f);
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

/* Waits while too much is dirty, so that a writer cannot fill the cache faster than the disk
 * empties it. Returns 0, or -EIO if the disk refuses all pages that are dirty, because then waiting
 * would not end. */
static int throttle(struct pagecache *c) {
    u64 since;

    if (below_limit(c)) return 0;
    since = cache_now(c);
    while (!below_limit(c) && !is_stuck(c)) {
        c->host.flusher(c->host.arg);
        pagecache_wait_for(c, PAGECACHE_ROOM, may_write, NULL);
    }
    __atomic_fetch_add(&c->stats.throttled, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&c->stats.throttled_ns, cache_now(c) - since, __ATOMIC_RELAXED);
    if (is_stuck(c) && !below_limit(c)) return -EIO;
    return 0;
}

/* Writes `len` bytes to the cache, at byte `offset` of the device; the disk gets them later.
 * Returns 0, -EINVAL or -EIO. It copies page by page. A page that is overwritten as a whole need
 * not be read before. */
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

/* Adds itself to the list of syncs without a lock, since the flusher takes the whole list at once;
 * then waits until a pass that began after this has ended. */
int pagecache_sync(struct pagecache *c) {
    struct pagecache_sync me = { .next = __atomic_load_n(&c->syncs, __ATOMIC_RELAXED) };

    while (!__atomic_compare_exchange_n(&c->syncs, &me.next, &me, false, __ATOMIC_SEQ_CST,
                                        __ATOMIC_RELAXED)) {
        /* me.next is now what c->syncs was: try again with that */
    }
    c->host.flusher(c->host.arg);
    pagecache_wait_for(c, PAGECACHE_SYNC, is_synced, &me);
    return me.result;
}

/* Frames that are in use keep their pages. */
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
