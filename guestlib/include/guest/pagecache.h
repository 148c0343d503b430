/* A page cache with write-behind over one block device: pages of 4 KiB, in memory that is given at the start.
 *
 * There are two kinds of context. Threads, on whatever vCPU, look pages up, copy and wait; they share a lock
 * that may sleep. The *bottom half* is one context, on the vCPU that takes the device's interrupts, the turbo
 * vCPU where there is one: it gives requests to the device and ends them, and completion of one issues the
 * next (vTurbo, sections 1 and 2). The flusher is a thread of that vCPU; it finds what is to be written. Both
 * take no lock that a thread may hold: a page's state is a word that all change atomically, so that the turbo
 * vCPU never waits for a vCPU that is off its pCPU.
 *
 * What becomes of a write: it is in the cache when pagecache_write() returns, on its way to the device when
 * too much is dirty or it is old, and safe when a pagecache_sync() that began after it has returned 0. A page
 * that the device refuses stays dirty and is tried again; nothing is forgotten because it failed.
 *
 * The engine knows neither threads nor the transport: guest/disk.h runs it in a guest.
 */
#ifndef GUEST_PAGECACHE_H
#define GUEST_PAGECACHE_H

#include <takt/types.h>
#include "drivers/virtio_blk.h"

#define PAGECACHE_MIN   64               /* pages, more than threads that use it */
#define PAGECACHE_RUN   VIRTIO_BLK_PARTS /* pages of a request at most */
#define PAGECACHE_AHEAD 64               /* pages of read-ahead at most */

struct pagecache;

/* What threads wait for. */
enum pagecache_event {
    PAGECACHE_PAGE = 1, /* a page's contents have come */
    PAGECACHE_ROOM = 2, /* a page has become free, or clean */
    PAGECACHE_SYNC = 4,
};

typedef bool (*pagecache_ready)(const struct pagecache *c, const void *what);

/* What the cache needs of who runs it. `arg` comes first everywhere. */
struct pagecache_host {
    void *arg;
    u64 (*now_ns)(void *arg);
    void *(*pages)(void *arg, size_t n); /* at the start: n zeroed pages that the device may reach; NULL */
    /* In the bottom half: as virtio_blk_submit(). */
    int (*submit)(void *arg, struct virtio_blk_request *q);
    /* Calls of these two return at once, from anywhere: threads that wait for any of `events` look again; the
     * flusher thread is to call pagecache_flusher(). */
    void (*wake)(void *arg, u32 events);
    void (*flusher)(void *arg);
    /* From threads. kick: pagecache_run() is wanted in the bottom half. wait: until ready(c, what), which may
     * have become so when wake() was called for that event. */
    void (*lock)(void *arg);
    void (*unlock)(void *arg);
    void (*kick)(void *arg);
    void (*wait)(void *arg, enum pagecache_event event, pagecache_ready ready, const struct pagecache *c,
                 const void *what);
};

struct pagecache_config {
    u64 capacity;    /* of the device, bytes; what does not fill a page at its end is not used */
    u32 pages;       /* of the cache, PAGECACHE_MIN or more */
    u32 queue;       /* requests at a time, 4 or more; 0: 32 */
    u32 max_parts;   /* pieces of memory of a request; 0: PAGECACHE_RUN */
    bool can_flush;  /* the device has a cache that a FLUSH request empties */
    u32 background;  /* per cent of the pages: with more dirty ones the flusher writes; 0: 10 */
    u32 dirty;       /* per cent: with so many dirty or being written, writers wait; 0: 20 */
    u64 expire_ns;   /* a page that has been dirty for so long is written; 0: 30 s */
    u64 interval_ns; /* how often the flusher looks for those; 0: 5 s */
    u32 ahead;       /* pages of read-ahead at most; 0: 32 */
    bool no_ahead;
};

/* Counters. Each is written in one context; read them whenever you like. */
struct pagecache_stats {
    u64 hits, misses;           /* pages that a thread wanted: there; to be waited for, or overwritten */
    u64 ahead, ahead_congested; /* pages read ahead; times that it was left because of congestion */
    u64 evicted;
    u64 reads, pages_read, writes, pages_written, flushes; /* requests, pages */
    u64 errors;                                            /* requests that failed */
    u64 passes, aged;                      /* of the flusher; those for nothing but the age of pages */
    u64 throttled, throttled_ns, short_of; /* times that writers waited; that there was no page to evict */
    u64 congestions;                       /* times that the queue became congested */
    u64 flush_now;                         /* times that it was asked for */
};

struct pagecache_frame {
    u64 block; /* which page of the device; written under the lock while nobody else refers to it */
    u64 since; /* dirty since, or when the device refused it */
    u32 flags; /* atomic */
    u32 pins;  /* atomic; raised under the lock */
    u32 chain; /* under the lock */
};

struct pagecache_request {
    struct virtio_blk_request q;
    struct pagecache_request *next; /* free */
    struct pagecache *cache;
    u32 nr;
    u32 frame[PAGECACHE_RUN];
};

/* Who waits for a sync: on that thread's stack. */
struct pagecache_sync {
    struct pagecache_sync *next;
    int result;
    u32 done;
};

struct pagecache {
    /* set at the start, then constant */
    struct pagecache_host host;
    struct pagecache_config config;
    u64 blocks;
    u32 background, limit; /* pages */
    u32 congested_on, congested_off;
    u32 mask; /* of buckets and of `reads` */
    u8 *data;
    struct pagecache_frame *frame;
    /* under the lock */
    u32 *bucket;
    u32 hand;
    /* frames to read: threads add, under the lock, the bottom half takes */
    u32 *reads, reads_tail, reads_head;
    /* atomic */
    u32 dirty;    /* frames; never less than there are */
    u32 writing;  /* the bottom half writes it */
    u32 progress; /* changes when a frame may have become free */
    u32 starved;  /* threads that wait for a frame */
    u32 wanted;   /* flush_now */
    bool stuck;   /* all that could be written was refused */
    bool congested;
    struct pagecache_sync *syncs; /* who waits for the next pass */
    /* the flusher's while pass is 0, else the bottom half's */
    u32 pass; /* atomic */
    u32 *plan, plan_nr, plan_at;
    struct pagecache_sync *syncing;
    bool flush_sent, flush_ended;
    /* the flusher's */
    u64 look; /* when to look for old pages */
    /* the bottom half's */
    struct pagecache_request *free;
    u32 in_use, reading; /* requests; those of them that read */
    u32 failures, reported;
    u32 wakes; /* events to tell at the end of the turn */

    struct pagecache_stats stats;
};

/* -EINVAL: the configuration makes no sense; -ENOMEM. The structures need not stay. */
int pagecache_init(struct pagecache *c, const struct pagecache_host *host,
                   const struct pagecache_config *config);

/* ---- threads; offsets and lengths in bytes, any ---- */

/* Where one reader is, so that its next pages can be read before it asks. */
struct pagecache_stream {
    u64 next, ahead; /* pages: after the last one read; after the last one asked for */
    u64 end;         /* what it reads ends there */
    u32 window;
};
/* It is about to read `len` bytes from `offset` on. */
static inline struct pagecache_stream pagecache_stream(u64 offset, u64 len) {
    u64 first = offset / PAGE_SIZE;

    return (struct pagecache_stream){ first, first, (offset + len + PAGE_SIZE - 1) / PAGE_SIZE, 0 };
}

/* 0; -EINVAL: beyond the device; -EIO: it cannot be read. `s` NULL: nothing is read ahead. */
int pagecache_read(struct pagecache *c, struct pagecache_stream *s, u64 offset, void *to, size_t len);
/* 0; -EINVAL; -EIO: not all was taken, because the device refuses what it would have to take first, or a page
 * that is written in part cannot be read. */
int pagecache_write(struct pagecache *c, u64 offset, const void *from, size_t len);
/* All that was written before is on the device and will stay there: 0. -EIO: something was refused since the
 * last call that told so; who waits at the same time is told the same. What was refused is still dirty. */
int pagecache_sync(struct pagecache *c);
/* Forgets what is clean and nobody uses: how many pages. Reads are fresh after that. */
u32 pagecache_drop(struct pagecache *c);

/* ---- anybody ---- */

/* All that is dirty is to be written now (IOrchestra, section 3.1: flush_now); does not wait. */
void pagecache_flush_now(struct pagecache *c);
/* Pages that are dirty, and not on their way. */
static inline u32 pagecache_dirty(const struct pagecache *c) {
    return __atomic_load_n(&c->dirty, __ATOMIC_RELAXED);
}
/* More than 7/8 of the requests are in use, or were and it is not less than 13/16 yet (IOrchestra, section
 * 3.2). Meanwhile nothing is read ahead, and of writing only what somebody waits for goes on. */
static inline bool pagecache_congested(const struct pagecache *c) {
    return __atomic_load_n(&c->congested, __ATOMIC_RELAXED);
}
/* Is somebody likely to wait for the next request that ends? */
static inline bool pagecache_urgent(const struct pagecache *c) { return c->reading || c->syncing; }

/* ---- the bottom half and the flusher ---- */

/* Gives the device what there is for it. After requests have ended, and when kick() asks. */
void pagecache_run(struct pagecache *c);
/* Looks for what is to be written, and has pagecache_run() called for it. Returns when it wants to be called
 * again, if nobody does before. */
u64 pagecache_flusher(struct pagecache *c);

#endif
