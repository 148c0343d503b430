/* A page cache with write-behind over one block device: pages of 4 KiB, in memory that it is given
 * at the start.
 *
 * There are two kinds of context. Threads, on any vCPU, look pages up, copy and wait; they share a
 * lock under which they may sleep. The *bottom half* is one context, on the vCPU that takes the
 * device's interrupts, which is the turbo vCPU if there is one. It gives requests to the device and
 * ends them, and the end of one request issues the next (vTurbo, sections 1 and 2). The flusher is
 * a thread of that vCPU; it finds the pages that are to be written. Neither of these two takes a
 * lock that a thread may hold: the state of a page is a word that all change atomically. Otherwise
 * the turbo vCPU would wait for a vCPU that does not run.
 *
 * A write is in the cache when pagecache_write() returns. It goes to the device when too many pages
 * are dirty or the page is old. It is safe when a pagecache_sync() that began after it has returned
 * 0. A page that the device refuses stays dirty and is tried again; nothing is given up because it
 * failed.
 *
 * The cache knows neither threads nor the transport of requests: guest/disk.h provides both in a
 * guest.
 */
#ifndef GUEST_PAGECACHE_H
#define GUEST_PAGECACHE_H

#include <takt/types.h>
#include "drivers/virtio_blk.h"

/* the least pages: more than there are threads that use the cache */
#define PAGECACHE_MIN   64
#define PAGECACHE_RUN   VIRTIO_BLK_PARTS /* the most pages of a request */
#define PAGECACHE_AHEAD 64               /* the most pages that are read ahead */
/* How long a release lasts if the queue stays full. The device may have become crowded since then,
 * also by what this queue sends after its release, and others have to wait for that. */
#define PAGECACHE_RELEASE_NS (250 * NS_PER_MS)

struct pagecache;

/* What threads wait for. */
enum pagecache_event {
    PAGECACHE_PAGE = 1, /* a page's contents have come */
    PAGECACHE_ROOM = 2, /* a page has become free, or clean */
    PAGECACHE_SYNC = 4, /* a sync has ended */
};

/* Returns whether a thread that waits for `what` may go on. */
typedef bool (*pagecache_ready)(const struct pagecache *c, const void *what);

/* What the cache needs from its user. `arg` is the first argument of each function. */
struct pagecache_host {
    void *arg;
    u64 (*now_ns)(void *arg);
    /* Returns n zeroed pages that the device can reach; NULL: there is no memory. Called by
     * pagecache_init(). */
    void *(*pages)(void *arg, size_t n);
    /* As virtio_blk_submit(), to the ring of that socket. Called in the bottom half. */
    int (*submit)(void *arg, struct virtio_blk_request *q, u32 socket);
    /* Called in any context; must not wait. Lets threads that wait for any of `events` look
     * again. */
    void (*wake)(void *arg, u32 events);
    /* Called in any context; must not wait. Lets the flusher thread call pagecache_flusher(). */
    void (*flusher)(void *arg);
    /* The rest is called from threads. */
    /* Returns the socket on which the caller runs; NULL: all threads are on socket 0. */
    u32 (*socket)(void *arg);
    void (*lock)(void *arg);
    void (*unlock)(void *arg);
    /* Lets the bottom half call pagecache_run(). */
    void (*kick)(void *arg);
    /* Waits until ready(c, what). That may become true when wake() is called for `event`. */
    void (*wait)(void *arg, enum pagecache_event event, pagecache_ready ready,
                 const struct pagecache *c, const void *what);
};

struct pagecache_config {
    /* bytes of the device; a rest at its end that does not fill a page is not used */
    u64 capacity;
    u32 pages;      /* pages of the cache, PAGECACHE_MIN or more */
    u32 queue;      /* requests at a time, 4 or more; 0: 32 */
    u32 queue_most; /* pagecache_set_queue() may raise that to so many; 0: it stays */
    u32 max_parts;  /* pieces of memory of a request; 0: PAGECACHE_RUN */
    bool can_flush; /* the device has a cache, which a FLUSH request empties */
    u32 background; /* with more dirty pages than this per cent, the flusher writes; 0: 10 */
    /* with so many dirty pages or pages being written, writers wait; 0: 20 per cent */
    u32 dirty;
    u64 expire_ns;   /* a page is written after it has been dirty for so long; 0: 30 s */
    u64 interval_ns; /* how often the flusher looks for such pages; 0: 5 s */
    u32 ahead;       /* the most pages that are read ahead; 0: 32 */
    bool no_ahead;   /* no pages are read ahead */
    bool no_avoid;   /* the queue is never congested, however full it is */
};

/* Counters. Each is written in one context only; they may be read at any time. */
struct pagecache_stats {
    u64 hits;            /* pages that a thread wanted and that were in the cache */
    u64 misses;          /* pages that it had to wait for, or overwrote */
    u64 ahead;           /* pages that were read ahead */
    u64 ahead_congested; /* times that nothing was read ahead because of congestion */
    u64 evicted;
    u64 reads, writes, flushes; /* requests */
    u64 pages_read, pages_written;
    u64 errors;                  /* requests that failed */
    u64 passes, aged;            /* passes of the flusher; those that wrote old pages only */
    u64 throttled, throttled_ns; /* times that writers waited, and for how long */
    u64 short_of;                /* times that there was no page to evict */
    u64 congestions;             /* times that the queue became congested */
    u64 released;                /* times that pagecache_release() ended that */
    u64 flush_now;               /* calls of pagecache_flush_now() */
};

/* A page of the cache, and what is in it. */
struct pagecache_frame {
    /* which page of the device; written under the lock, while only the writer refers to it */
    u64 block;
    u64 since; /* when it became dirty, or the device refused it, ns */
    u32 flags; /* atomic */
    u32 pins;  /* threads that use it; atomic; raised under the lock */
    /* where the thread ran that asked for the page, or was the last to change it; atomic */
    u32 socket;
    u32 chain; /* the next frame in the bucket; under the lock */
};

struct pagecache_request {
    struct virtio_blk_request q;
    struct pagecache_request *next; /* in the list of free ones */
    struct pagecache *cache;
    u32 nr; /* of the frames that it moves */
    u32 frame[PAGECACHE_RUN];
};

/* A thread that waits for a sync; on its stack. */
struct pagecache_sync {
    struct pagecache_sync *next;
    int result;
    u32 done;
};

struct pagecache {
    /* set at the start, then constant */
    struct pagecache_host host;
    struct pagecache_config config;
    u64 blocks;            /* pages of the device */
    u32 background, limit; /* pages */
    u32 queue;             /* requests at a time */
    u32 congested_on;      /* with more requests in use than this, the queue becomes congested */
    u32 congested_off;     /* with fewer than this, it is congested no more */
    u32 mask;              /* one less than the number of buckets, and than the size of `reads` */
    u8 *data;
    struct pagecache_frame *frame;
    void (*on_dirty)(void *arg); /* set before tell_at, as is its argument */
    void *on_dirty_arg;
    void (*on_congestion)(void *arg); /* set after its argument; NULL: nobody wants to know */
    void *on_congestion_arg;
    /* under the lock */
    u32 *bucket; /* by hash of the block: the first frame of a chain */
    u32 hand;    /* the frame that the clock looks at next */
    /* Frames to read. Threads add them under the lock, the bottom half takes them. */
    u32 *reads, reads_tail, reads_head;
    /* atomic */
    u32 dirty;                    /* dirty frames; never less than there are */
    u32 writing;                  /* frames being written; only the bottom half changes it */
    u32 progress;                 /* changes when a frame may have become free */
    u32 starved;                  /* threads that wait for a frame */
    u32 wanted;                   /* pagecache_flush_now() was called */
    u32 release_wanted;           /* pagecache_release() was called */
    u32 tell_at;                  /* on_dirty is called with so many dirty frames; 0: it is not */
    bool stuck;                   /* the device has refused all that could be written */
    bool congested;               /* see pagecache_congested() */
    struct pagecache_sync *syncs; /* threads that wait for the next pass */
    /* These belong to the flusher while `pass` is 0, else to the bottom half. */
    u32 pass;                       /* enum pass; atomic */
    u32 *plan, plan_nr, plan_at;    /* the frames that the pass writes; the one that comes next */
    struct pagecache_sync *syncing; /* threads that wait for this pass */
    bool flush_sent, flush_ended;
    /* used by the flusher alone */
    u64 look; /* when to look for old pages, ns */
    /* used by the bottom half alone */
    /* not congested before that, ns; 0 as soon as fewer than congested_off requests are in use */
    u64 released_until;
    struct pagecache_request *free;
    u32 in_use, reading;    /* requests that are under way; those of them that read */
    u32 failures, reported; /* writes that failed; how many of them a sync has reported */
    u32 wakes;              /* events for host.wake() at the end of this turn */

    struct pagecache_stats stats;
};

/* Sets the cache up. `host` and `config` are copied. Returns 0, or
 *   -EINVAL  the configuration makes no sense
 *   -ENOMEM */
int pagecache_init(struct pagecache *c, const struct pagecache_host *host,
                   const struct pagecache_config *config);

/* ---- for threads; offsets and lengths are any number of bytes ---- */

/* Where one reader is, so that the pages that it will want can be read before it asks for them. */
struct pagecache_stream {
    u64 next;   /* the page after the last one that was read */
    u64 ahead;  /* the page after the last one that was asked for */
    u64 end;    /* the page where the stream ends */
    u32 window; /* how many pages are read ahead */
};
/* A stream that begins at `offset` and is `len` bytes long. */
static inline struct pagecache_stream pagecache_stream(u64 offset, u64 len) {
    u64 first = offset / PAGE_SIZE;

    return (struct pagecache_stream){ first, first, (offset + len + PAGE_SIZE - 1) / PAGE_SIZE, 0 };
}

/* Reads. If `s` is NULL, nothing is read ahead. Returns 0, or
 *   -EINVAL  that is beyond the device
 *   -EIO     the device cannot read it */
int pagecache_read(struct pagecache *c, struct pagecache_stream *s, u64 offset, void *to,
                   size_t len);
/* Writes to the cache; waits while too many pages are dirty. Returns 0, or
 *   -EINVAL  that is beyond the device
 *   -EIO     not all was written: the device refuses the pages that are dirty, or a page that is
 *            only partly overwritten cannot be read */
int pagecache_write(struct pagecache *c, u64 offset, const void *from, size_t len);
/* Waits until all that was written before is on the device, and will stay there. Returns 0, or -EIO
 * if the device has refused something since the last sync that returned -EIO. Threads that wait at
 * the same time get the same result. Pages that were refused are still dirty. */
int pagecache_sync(struct pagecache *c);
/* Drops all pages that are clean and not in use, so that they are read anew. Returns how many there
 * were. */
u32 pagecache_drop(struct pagecache *c);

/* Has fn(arg) called in the bottom half whenever pagecache_congested() has changed. Call this once,
 * from a thread. */
void pagecache_on_congestion(struct pagecache *c, void (*fn)(void *arg), void *arg);
/* Releases a congested queue (IOrchestra, section 3.2: release_request): it counts as congested no
 * more, and may be filled up to its limit until it has been below 13/16 once, or for
 * PAGECACHE_RELEASE_NS. Nothing happens if the queue is not congested. Call it from a thread. */
void pagecache_release(struct pagecache *c);

/* ---- for any context ---- */

/* Lets the flusher write all dirty pages now (IOrchestra, section 3.1: flush_now), and does not
 * wait for that. */
void pagecache_flush_now(struct pagecache *c);
/* Has fn(arg) called once, as soon as `n` pages (not 0) are dirty: perhaps at once, else from the
 * thread that makes the last of them dirty. A later call of this function takes the place of the
 * one before, and must have the same fn and arg. Call it from a thread. */
void pagecache_tell_at(struct pagecache *c, u32 n, void (*fn)(void *arg), void *arg);
/* Returns how many pages are dirty and are not being written. */
static inline u32 pagecache_dirty(const struct pagecache *c) {
    return __atomic_load_n(&c->dirty, __ATOMIC_RELAXED);
}
/* Returns whether the queue is congested. It becomes so when more than 7/8 of the requests are in
 * use, and remains so until fewer than 13/16 are (IOrchestra, section 3.2). Meanwhile nothing is
 * read ahead, and only pages are written that a thread waits for. */
static inline bool pagecache_congested(const struct pagecache *c) {
    return __atomic_load_n(&c->congested, __ATOMIC_RELAXED);
}
/* Returns whether a thread probably waits for the next request that ends. */
static inline bool pagecache_urgent(const struct pagecache *c) { return c->reading || c->syncing; }

/* For pagecache_init() and pagecache_set_queue(): sets the limit of requests, and what follows. */
void pagecache_limit_queue(struct pagecache *c, u32 requests);

/* ---- for tunable.h: `cache` is the struct pagecache; they return NULL, or why not ---- */

/* From a thread, with a value in the range that is given here. */
const char *pagecache_set_dirty(void *cache, u64 per_cent);      /* 1 to 90 */
const char *pagecache_set_background(void *cache, u64 per_cent); /* 1 to 89 */
const char *pagecache_set_ahead(void *cache, u64 pages);         /* 0 to PAGECACHE_AHEAD */
/* Requests at a time, from 4 to config.queue_most. Those that are beyond it still end. */
const char *pagecache_set_queue(void *cache, u64 requests);

/* ---- for the bottom half and the flusher ---- */

/* Submits requests to the device. Call it in the bottom half, after requests have ended and after
 * host.kick(). */
void pagecache_run(struct pagecache *c);
/* Looks for pages that are to be written, and calls host.kick() if there are some. Returns when it
 * has to be called again at the latest, ns. */
u64 pagecache_flusher(struct pagecache *c);

#endif
