/* The page cache among real threads: some read, write and sync, one is the bottom half with the
 * device, and one is the flusher. The machine's scheduler decides at which points they meet. Each
 * thread has bytes of its own, in pages of its own and in pages of all. It has to find there what
 * it wrote, and after a sync the disk has it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>
#include <guest/pagecache.h>
#include <takt/errno.h>

#define THREADS 4
/* In the second half of the disk each page belongs to one thread, in the first half each unit
 * does. */
#define BLOCKS    256
#define DISK_SIZE (BLOCKS * PAGE_SIZE)
#define UNIT      64
#define UNITS     (DISK_SIZE / UNIT)
#define QUEUE     12
#define STEPS     4000

static struct pagecache cache;
static u8 disk[DISK_SIZE];
static u32 version[UNITS]; /* whose thread has it */
static u32 wrong, ended;

static pthread_mutex_t cache_lock = PTHREAD_MUTEX_INITIALIZER,
                       bell_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t bell = PTHREAD_COND_INITIALIZER;
static bool run_wanted, flusher_wanted; /* under bell_lock */

/* The bottom half's. */
static struct virtio_blk_request *in_flight[QUEUE];
static u32 nr;

static u64 now(void *arg) {
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (u64)t.tv_sec * NS_PER_S + (u64)t.tv_nsec;
}

static void *pages(void *arg, size_t n) {
    void *p = aligned_alloc(PAGE_SIZE, n * PAGE_SIZE);

    return p ? memset(p, 0, n * PAGE_SIZE) : NULL;
}

static int submit(void *arg, struct virtio_blk_request *q, u32 socket) {
    if (nr == QUEUE) return -ENOSPC;
    in_flight[nr++] = q;
    return 0;
}

static void ring(bool *what) {
    pthread_mutex_lock(&bell_lock);
    if (what) *what = true;
    pthread_cond_broadcast(&bell);
    pthread_mutex_unlock(&bell_lock);
}

static void wake(void *arg, u32 events) { ring(NULL); }
static void flusher(void *arg) { ring(&flusher_wanted); }
static void kick(void *arg) { ring(&run_wanted); }
static void lock(void *arg) { pthread_mutex_lock(&cache_lock); }
static void unlock(void *arg) { pthread_mutex_unlock(&cache_lock); }

static void wait(void *arg, enum pagecache_event event, pagecache_ready ready,
                 const struct pagecache *c, const void *what) {
    pthread_mutex_lock(&bell_lock);
    while (!ready(c, what)) pthread_cond_wait(&bell, &bell_lock);
    pthread_mutex_unlock(&bell_lock);
}

/* Takes a flag; waits for it for up to a millisecond. */
static bool taken(bool *flag) {
    struct timespec until;
    bool was;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += NS_PER_MS;
    if (until.tv_nsec >= (long)NS_PER_S) {
        until.tv_sec++;
        until.tv_nsec -= NS_PER_S;
    }
    pthread_mutex_lock(&bell_lock);
    if (!*flag) pthread_cond_timedwait(&bell, &bell_lock, &until);
    was = *flag;
    *flag = false;
    pthread_mutex_unlock(&bell_lock);
    return was;
}

/* What a device does with memory is not the language's affair: a page may change while it is
 * written. */
__attribute__((no_sanitize("thread"))) static void copy(u8 *to, const u8 *from, u32 n) {
    for (u32 i = 0; i < n; i++) ((volatile u8 *)to)[i] = ((const volatile u8 *)from)[i];
}

/* A thread's own bytes on the disk: others of the page may be under way. */
__attribute__((no_sanitize("thread"))) static bool on_disk(const u64 *at, u64 want) {
    return *(const volatile u64 *)at == want;
}

static void end_request(u32 i) {
    struct virtio_blk_request *q = in_flight[i];
    u8 *at = disk + q->sector * VIRTIO_BLK_SECTOR;

    in_flight[i] = in_flight[--nr];
    for (u32 k = 0; q->type != VIRTIO_BLK_FLUSH && k < q->nr; at += q->part[k++].len) {
        if (q->type == VIRTIO_BLK_OUT)
            copy(at, q->part[k].p, q->part[k].len);
        else
            memcpy(q->part[k].p, at, q->part[k].len);
    }
    q->done(q, 0);
}

static void *bottom_half(void *arg) {
    u32 rng = 1;

    while (__atomic_load_n(&ended, __ATOMIC_SEQ_CST) < THREADS) {
        taken(&run_wanted);
        rng = rng * 1664525 + 1013904223;
        for (u32 n = rng >> 28; n && nr; n--) end_request((rng >> 8) % nr);
        pagecache_run(&cache);
        if (nr) ring(&run_wanted);
    }
    return NULL;
}

static void *flusher_thread(void *arg) {
    while (__atomic_load_n(&ended, __ATOMIC_SEQ_CST) < THREADS) {
        taken(&flusher_wanted);
        pagecache_flusher(&cache);
    }
    return NULL;
}

/* ---- those that use it ---- */

static u32 owner(u32 unit) {
    return unit < UNITS / 2 ? unit % THREADS : unit / (PAGE_SIZE / UNIT) % THREADS;
}
static u64 word_of(u32 unit, u32 v) { return ((u64)v << 32 | unit) * 0x9e3779b97f4a7c15ull; }

static void write_units(u32 unit, u32 n) {
    u64 buf[PAGE_SIZE / 8];

    for (u32 i = 0; i < n; i++) {
        version[unit + i]++;
        for (u32 k = 0; k < UNIT / 8; k++)
            buf[i * UNIT / 8 + k] = word_of(unit + i, version[unit + i]);
    }
    if (pagecache_write(&cache, (u64)unit * UNIT, buf, n * UNIT))
        __atomic_fetch_add(&wrong, 1, __ATOMIC_SEQ_CST);
}

static void read_units(struct pagecache_stream *s, u32 unit, u32 n) {
    u64 buf[PAGE_SIZE / 8];

    if (pagecache_read(&cache, s, (u64)unit * UNIT, buf, n * UNIT))
        __atomic_fetch_add(&wrong, 1, __ATOMIC_SEQ_CST);
    for (u32 i = 0; i < n * UNIT / 8; i++)
        if (buf[i] != word_of(unit + i / 8, version[unit + i / 8]))
            __atomic_fetch_add(&wrong, 1, __ATOMIC_SEQ_CST);
}

static void check_disk(u32 me) {
    if (pagecache_sync(&cache)) __atomic_fetch_add(&wrong, 1, __ATOMIC_SEQ_CST);
    for (u32 u = 0; u < UNITS; u++)
        if (owner(u) == me && !on_disk((u64 *)(disk + u * UNIT), word_of(u, version[u])))
            __atomic_fetch_add(&wrong, 1, __ATOMIC_SEQ_CST);
}

static void *user(void *arg) {
    u32 me = (u32)(size_t)arg, rng = me + 1;
    struct pagecache_stream s = pagecache_stream(0, DISK_SIZE);

    for (u32 i = 0; i < STEPS; i++) {
        u32 unit, n = 1;

        rng = rng * 1664525 + 1013904223;
        unit = (rng >> 8) % UNITS;
        if (unit >= UNITS / 2) { /* a whole page */
            unit = unit / (PAGE_SIZE / UNIT * THREADS) * (PAGE_SIZE / UNIT * THREADS) +
                   me * (PAGE_SIZE / UNIT);
            n = PAGE_SIZE / UNIT;
        } else {
            unit = unit / THREADS * THREADS + me;
        }
        switch (rng >> 29) {
        case 0 ... 3: write_units(unit, n); break;
        case 4 ... 6: read_units(rng >> 28 & 1 ? &s : NULL, unit, n); break;
        case 7:
            if (i % 16 == 0)
                check_disk(me);
            else if (i % 16 == 1)
                pagecache_flush_now(&cache);
            else if (i % 16 == 2)
                pagecache_drop(&cache);
            break;
        }
    }
    check_disk(me);
    __atomic_fetch_add(&ended, 1, __ATOMIC_SEQ_CST);
    return NULL;
}

static void threads(void **state) {
    struct pagecache_host host = { .now_ns = now,
                                   .pages = pages,
                                   .submit = submit,
                                   .wake = wake,
                                   .flusher = flusher,
                                   .lock = lock,
                                   .unlock = unlock,
                                   .kick = kick,
                                   .wait = wait };
    struct pagecache_config config = { .capacity = DISK_SIZE,
                                       .pages = PAGECACHE_MIN,
                                       .queue = 16,
                                       .can_flush = true,
                                       .background = 10,
                                       .dirty = 50,
                                       .expire_ns = 5 * NS_PER_MS,
                                       .interval_ns = NS_PER_MS };
    pthread_t t[THREADS], half, flush;

    for (u32 u = 0; u < UNITS; u++)
        for (u32 k = 0; k < UNIT / 8; k++) ((u64 *)(disk + u * UNIT))[k] = word_of(u, 0);
    assert_int_equal(pagecache_init(&cache, &host, &config), 0);
    pthread_create(&half, NULL, bottom_half, NULL);
    pthread_create(&flush, NULL, flusher_thread, NULL);
    for (u32 i = 0; i < THREADS; i++) pthread_create(&t[i], NULL, user, (void *)(size_t)i);
    for (u32 i = 0; i < THREADS; i++) pthread_join(t[i], NULL);
    pthread_join(half, NULL);
    pthread_join(flush, NULL);
    assert_int_equal(wrong, 0);
    assert_int_equal(cache.dirty + cache.writing + cache.starved, 0);
    for (u32 i = 0; i < cache.config.pages; i++) assert_int_equal(cache.frame[i].pins, 0);
    assert_true(cache.stats.evicted > 1000);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(threads) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
