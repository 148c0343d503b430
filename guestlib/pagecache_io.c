/* The side of the page cache that talks to the disk: the bottom half, which gives requests to the
 * disk and ends them, and the flusher, which chooses the pages that are written. pagecache.c is the
 * side that threads call, and explains how both work together. */
#include <guest/pagecache.h>
#include <guest/string.h>
#include <takt/errno.h>
#include "guestlib/pagecache_private.h"

/* ---- the bottom half: requests ---- */

/* Notes whether the device's queue is nearly full, and tells the function that wants to know. */
static void set_congested(struct pagecache *c, bool on) {
    void (*fn)(void *arg) = __atomic_load_n(&c->on_congestion, __ATOMIC_ACQUIRE);

    __atomic_store_n(&c->congested, on, __ATOMIC_RELAXED);
    if (fn) fn(c->on_congestion_arg);
}

/* Counts a request that was submitted (change 1) or has ended (-1). The queue becomes congested
 * above one number of requests and stops being so below a smaller one; with a single limit it would
 * change with every request. */
static void count_request(struct pagecache *c, int change) {
    bool may_avoid = !c->congested && !c->config.no_avoid;

    c->in_use += (u32)change;
    if (c->in_use > c->congested_on && may_avoid && cache_now(c) >= c->released_until) {
        c->stats.congestions++;
        set_congested(c, true);
    } else if (c->in_use < c->congested_off) {
        c->released_until = 0;
        if (c->congested) set_congested(c, false);
    }
}

/* Lets the threads that wait because the queue of requests is congested go on for
 * PAGECACHE_RELEASE_NS, if pagecache_release() has asked for that. */
static void release_queue(struct pagecache *c) {
    if (!__atomic_exchange_n(&c->release_wanted, 0, __ATOMIC_SEQ_CST) || !c->congested) return;
    c->released_until = cache_now(c) + PAGECACHE_RELEASE_NS;
    c->stats.released++;
    set_congested(c, false);
}

/* Sets the state of a page whose read has ended, with `error` or without. If the page could not be
 * read, it gets the flag REFUSED: the next request has this page alone, so that one bad page does
 * not spoil its neighbours. */
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

/* Sets the state of a page whose write has ended, with `error` or without. If the page could not be
 * written, it is dirty again, as if it had been changed now. */
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

/* Handles the end of a request; the disk's driver calls it. The pages of the request get their new
 * state, c->wakes notes which threads have to be woken, and the request can be used again. */
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

/* Submits the request, to the ring of the socket whose threads want its first page. Neighbouring
 * frames become one part of it. Returns false if that ring is full; then `r` is still the caller's.
 */
static bool submit_request(struct pagecache *c, struct pagecache_request *r) {
    struct virtio_blk_request *q = &r->q;
    u32 socket = 0;
    int error;

    q->done = on_done;
    q->nr = 0;
    q->sector = 0;
    if (r->nr) {
        const struct pagecache_frame *f = &c->frame[r->frame[0]];

        q->sector = f->block * (PAGE_SIZE / VIRTIO_BLK_SECTOR);
        socket = __atomic_load_n(&f->socket, __ATOMIC_RELAXED);
    }
    for (u32 i = 0; i < r->nr; i++) {
        u8 *p = frame_contents(c, &c->frame[r->frame[i]]);

        if (q->nr && (u8 *)q->part[q->nr - 1].p + q->part[q->nr - 1].len == p) {
            q->part[q->nr - 1].len += PAGE_SIZE;
            continue;
        }
        q->part[q->nr].p = p;
        q->part[q->nr++].len = PAGE_SIZE;
    }
    error = c->host.submit(c->host.arg, q, socket);
    if (error == -ENOSPC) return false;
    c->free = r->next;
    count_request(c, 1);
    if (q->type == VIRTIO_BLK_IN) c->reading++;
    if (error) on_done(q, error);
    return true;
}

/* Returns whether b is the page after a on the disk, and both may be in one request. */
static bool follows(const struct pagecache_frame *a, const struct pagecache_frame *b) {
    return b->block == a->block + 1 && !((count_load(&a->flags) | count_load(&b->flags)) & REFUSED);
}

/* Returns a request that is not in use, or NULL if as many requests are in use as may be. */
static struct pagecache_request *free_request(const struct pagecache *c) {
    if (c->in_use >= count_load(&c->queue)) return NULL;
    return c->free;
}

/* Submits the reads that threads have asked for, as many pages in one request as follow each other.
 * It runs before writes are submitted, because threads wait for reads. */
static void read_more(struct pagecache *c) {
    u32 tail = count_load(&c->reads_tail);

    struct pagecache_request *r;

    while (c->reads_head != tail && (r = free_request(c))) {
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

/* Writes the next frames of the plan, as many as one request takes. Returns false if the device's
 * ring is full; then the frames are dirty again, and the rest has to wait. */
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

/* Asks the disk to empty its own cache. Returns false if there is no free request, or no room in
 * the ring. */
static bool flush_device(struct pagecache *c) {
    struct pagecache_request *r = free_request(c);

    if (!r) return false;
    r->q.type = VIRTIO_BLK_FLUSH;
    r->nr = 0;
    c->flush_sent = true; /* before it is submitted, because it may end at once */
    c->flush_sent = submit_request(c, r);
    if (c->flush_sent) c->stats.flushes++;
    return c->flush_sent;
}

/* Ends the syncs that waited for this pass. They report writes that failed since the last sync; the
 * caller wakes their threads, as `wakes` says. Then another pass may begin, and the flusher is
 * woken if there is a reason for one: another sync (`syncs`), pagecache_flush_now() (`wanted`), a
 * thread that found no free frame (`starved`), or too many dirty pages. The reasons are looked at
 * only after `pass` has been set: whoever gives a reason later finds that there is no pass, and
 * wakes the flusher itself. */
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

/* Goes on with the flusher's pass: writes the frames that its plan still has, as far as there are
 * free requests. When all of them are written, and for a sync the device has flushed its own cache
 * too, the pass ends. While the queue is congested only syncs write, because no thread waits for
 * the other passes. */
static void write_more(struct pagecache *c) {
    u32 pass = count_load(&c->pass);

    if (pass == PASS_NONE) return;
    while (c->plan_at < c->plan_nr) {
        if (pass == PASS_BACKGROUND && count_load(&c->dirty) <= c->background &&
            !count_load(&c->starved)) {
            c->plan_nr = c->plan_at;
            break;
        }
        if (!free_request(c) || (c->congested && pass != PASS_SYNC && !count_load(&c->starved)))
            return;
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

/* Returns which pass is due: a sync that threads wait for comes first, then what
 * pagecache_flush_now() has asked for, then too many dirty pages, then pages that are old. */
static enum pass choose(struct pagecache *c, u64 time) {
    if (c->syncing) return PASS_SYNC;
    if (count_load(&c->wanted)) return PASS_ALL;
    if (count_load(&c->dirty) > c->background || count_load(&c->starved)) return PASS_BACKGROUND;
    if (time >= c->look) return PASS_AGE;
    return PASS_NONE;
}

/* Returns whether the pass has to write this frame. A page that the disk has refused is tried again
 * when it is old, or when a thread asks for it. */
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
        if (gap == 2) gap = 3; /* 2 * 5 / 11 would be 0, and skip the last round */
        gap = gap * 5 / 11;
    }
}

/* Begins another pass if there is a reason for one: makes its plan, a list of the frames to be
 * written in the order of the disk. The bottom half carries it out. Returns the time at which it
 * wants to be called again, ns. The flusher's thread calls it. */
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
