/* A block device in memory for tests of the page cache. It has a cache of its own, which is lost
 * in a crash. It ends requests when and in the order that the test says, and refuses those that
 * touch a bad block. It can lose its back end and get another one, as guestlib/disk.c has it. The
 * test sets the time. */
#ifndef TESTS_CACHE_DISK_H
#define TESTS_CACHE_DISK_H

#include <guest/pagecache.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <takt/errno.h>

#define BLOCKS    128
#define DISK_SIZE (BLOCKS * PAGE_SIZE)

static struct {
    u8 stable[DISK_SIZE], cached[DISK_SIZE], snapshot[DISK_SIZE];
    struct virtio_blk_request *in_flight[256];
    u32 nr, ring;
    bool bad[BLOCKS], bad_flush;
    bool mortal, gone; /* the back end may go at any step; it is gone, and refuses everything */
    u32 deaths;
    u32 reads, writes, flushes, longest; /* requests; pages */
    u32 most;                            /* requests at a time */
    u32 socket[2];                       /* of the last read and of the last write */
} disk;

static struct pagecache cache;
static u64 disk_time, rng = 1;
static bool run_wanted, flusher_wanted;
static u64 flusher_at;
static void *memory[16];
static u32 nr_memory, locked;
static void (*other_thread)(void); /* what another does while one waits, if it is set */
static void (*each_step)(void);    /* called at each step of the disk, if it is set; may not wait */

static inline u32 rnd(u32 n) {
    rng = rng * 6364136223846793005ull + 1442695040888963407ull;
    return (u32)(rng >> 33) % n;
}

static inline u64 first_block(const struct virtio_blk_request *q) { return q->sector / 8; }

static inline u32 blocks_of(const struct virtio_blk_request *q) {
    u32 bytes = 0;

    for (u32 i = 0; i < q->nr; i++) bytes += q->part[i].len;
    return bytes / PAGE_SIZE;
}

static inline int disk_submit(void *arg, struct virtio_blk_request *q, u32 socket) {
    if (disk.gone) return -EIO;
    if (disk.nr == disk.ring) return -ENOSPC;
    if (q->type != VIRTIO_BLK_FLUSH) {
        assert_true(q->nr && q->nr <= cache.config.max_parts && blocks_of(q));
        assert_true(first_block(q) + blocks_of(q) <= BLOCKS);
        disk.longest = MAX(disk.longest, blocks_of(q));
    }
    if (q->type == VIRTIO_BLK_FLUSH) memcpy(disk.snapshot, disk.cached, DISK_SIZE);
    disk.reads += q->type == VIRTIO_BLK_IN;
    disk.writes += q->type == VIRTIO_BLK_OUT;
    disk.flushes += q->type == VIRTIO_BLK_FLUSH;
    if (q->type == VIRTIO_BLK_IN) disk.socket[0] = socket;
    if (q->type == VIRTIO_BLK_OUT) disk.socket[1] = socket;
    if (q->type == VIRTIO_BLK_FLUSH) assert_int_equal(socket, 0);
    disk.in_flight[disk.nr++] = q;
    disk.most = MAX(disk.most, disk.nr);
    return 0;
}

/* Sectors of a write reach `to`: all, or some. */
static inline void disk_store(const struct virtio_blk_request *q, u8 *to, bool some) {
    u64 at = q->sector * 512;

    for (u32 i = 0; i < q->nr; i++)
        for (u32 k = 0; k < q->part[i].len; k += 512, at += 512)
            if (!some || rnd(2)) memcpy(to + at, (u8 *)q->part[i].p + k, 512);
}

static inline void disk_end(u32 i) {
    struct virtio_blk_request *q = disk.in_flight[i];
    int error = 0;

    disk.in_flight[i] = disk.in_flight[--disk.nr];
    if (q->type == VIRTIO_BLK_FLUSH) {
        error = disk.bad_flush ? -EIO : 0;
        if (!error) memcpy(disk.stable, disk.snapshot, DISK_SIZE);
    } else {
        for (u64 b = first_block(q); b < first_block(q) + blocks_of(q); b++)
            if (disk.bad[b]) error = -EIO;
    }
    if (q->type == VIRTIO_BLK_OUT) disk_store(q, disk.cached, error != 0);
    for (u64 p = 0, at = q->sector * 512; q->type == VIRTIO_BLK_IN && p < q->nr;
         at += q->part[p++].len)
        memcpy(q->part[p].p, disk.cached + at, q->part[p].len);
    q->done(q, error);
}

/* The power fails. What was not flushed is there, or not, sector by sector. */
static inline void disk_crash(void) {
    for (u32 i = 0; i < disk.nr; i++)
        if (disk.in_flight[i]->type == VIRTIO_BLK_OUT)
            disk_store(disk.in_flight[i], disk.cached, true);
    disk.nr = 0;
    for (u32 at = 0; at < DISK_SIZE; at += 512)
        if (rnd(2)) memcpy(disk.cached + at, disk.stable + at, 512);
    memcpy(disk.stable, disk.cached, DISK_SIZE);
}

/* The back end is destroyed. What it had not ended is on the disk, or not, sector by sector. */
static inline void disk_dies(void) {
    disk.gone = true;
    disk.deaths++;
    while (disk.nr) {
        struct virtio_blk_request *q = disk.in_flight[--disk.nr];

        if (q->type == VIRTIO_BLK_OUT) disk_store(q, disk.cached, true);
        q->done(q, -EIO);
    }
    run_wanted = true;
}

/* There is another back end, for the same disk. */
static inline void disk_returns(void) {
    disk.gone = false;
    run_wanted = true;
    pagecache_flush_now(&cache);
}

/* ---- who runs the cache ---- */

/* Called whenever the cache asks for the time. At these places another thread could do something.
 * NULL: nothing happens. */
static void (*disk_on_now)(void);

static inline u64 disk_now(void *arg) {
    if (disk_on_now) disk_on_now();
    return disk_time;
}

static inline void *disk_pages(void *arg, size_t n) {
    memory[nr_memory] = aligned_alloc(PAGE_SIZE, n * PAGE_SIZE);
    memset(memory[nr_memory], 0, n * PAGE_SIZE);
    return memory[nr_memory++];
}

static inline void disk_wake(void *arg, u32 events) {}
static inline void disk_flusher(void *arg) { flusher_wanted = true; }
static inline void disk_kick(void *arg) { run_wanted = true; }
static inline void disk_lock(void *arg) { assert_int_equal(locked++, 0); }
static inline void disk_unlock(void *arg) { assert_int_equal(--locked, 0); }

/* Whatever may happen next. False: nothing but time. */
static inline bool disk_step(void) {
    u32 what = rnd(4);

    if (each_step) each_step();
    if (disk.mortal && !disk.gone && rnd(100) == 0) {
        disk_dies();
    } else if (disk.gone && rnd(10) == 0) {
        disk_returns();
    } else if (flusher_wanted && (what || !disk.nr)) {
        flusher_wanted = false;
        flusher_at = pagecache_flusher(&cache);
    } else if (run_wanted && (what > 1 || !disk.nr)) {
        run_wanted = false;
        pagecache_run(&cache);
    } else if (disk.nr) {
        disk_end(rnd(disk.nr));
        run_wanted = true;
    } else if (disk.gone) {
        disk_returns();
    } else {
        return false;
    }
    return true;
}

static inline void disk_settle(void) {
    while (disk_step())
        ;
}

/* Time passes, the flusher's timer with it. */
static inline void disk_pass(u64 ns) {
    u64 end = disk_time + ns;

    disk_settle();
    while (flusher_at <= end) {
        disk_time = MAX(disk_time, flusher_at);
        flusher_wanted = true;
        disk_settle();
    }
    disk_time = end;
}

/* Where the thread runs that uses the cache. */
static u32 my_socket;
static inline u32 disk_socket(void *arg) { return my_socket; }

static inline void disk_wait(void *arg, enum pagecache_event event, pagecache_ready ready,
                             const struct pagecache *c, const void *what) {
    assert_int_equal(locked, 0);
    if (other_thread) other_thread();
    for (u32 i = 0; !ready(c, what); i++) {
        assert_true(i < 100000); /* nobody ever calls */
        if (!disk_step()) disk_pass(NS_PER_MS);
    }
}

/* A cache on the disk as it is. */
static inline void cache_start(struct pagecache_config config) {
    struct pagecache_host host = { .now_ns = disk_now,
                                   .pages = disk_pages,
                                   .submit = disk_submit,
                                   .wake = disk_wake,
                                   .flusher = disk_flusher,
                                   .lock = disk_lock,
                                   .unlock = disk_unlock,
                                   .socket = disk_socket,
                                   .kick = disk_kick,
                                   .wait = disk_wait };

    while (nr_memory) free(memory[--nr_memory]);
    config.capacity = DISK_SIZE;
    disk.nr = disk.reads = disk.writes = disk.flushes = disk.longest = 0;
    disk.gone = run_wanted = false;
    assert_int_equal(pagecache_init(&cache, &host, &config), 0);
    flusher_at = pagecache_flusher(&cache);
}

static inline void disk_fresh(void) {
    memset(&disk, 0, sizeof(disk));
    for (u32 i = 0; i < DISK_SIZE; i++) disk.cached[i] = (u8)(i * 7 + i / PAGE_SIZE);
    memcpy(disk.stable, disk.cached, DISK_SIZE);
    disk.ring = 64;
}

#endif
