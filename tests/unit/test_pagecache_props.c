/* Random reads, writes, syncs, errors and crashes against a plain array, while another thread
 * reads and writes. After a sync that returned 0 all that was written is on the stable disk;
 * after a crash every piece is as it was at the last such sync, or as some write since left it.
 *
 * That holds with the functions of collaboration on (guestlib/collab.c), which flush, release the
 * queue and ask to be called at any time, and stop when the manager is gone. It also holds when the
 * driver domain, which is the disk's back end, is destroyed at any step and comes back.
 *
 * TAKT_SEED=n runs that seed alone, TAKT_SCHEDULES=n so many. */
#include "cache_disk.h"

#define UNIT  64 /* bytes that are written at once, and found whole: a sector is never torn */
#define UNITS (DISK_SIZE / UNIT)
#define MOST  (12 * PAGE_SIZE / UNIT) /* units of an operation */

static u32 version[UNITS], synced[UNITS]; /* the last one written; the one that has to survive */
static u32 next_version;
static u64 running; /* the seed */
static u64 syncs, sync_errors, crashes, errors, deaths;
static u64 flushes, releases, calls; /* of collaboration */
static bool managed;                 /* a manager is there */
static u32 seen, told; /* failed writes and flushes; those that no sync has told yet */

static u64 word_of(u64 unit, u32 v, u32 i) {
    return ((u64)v << 32 | unit << 3 | i) * 0x9e3779b97f4a7c15ull;
}

static void fill(u64 *p, u64 unit, u32 v) {
    for (u32 i = 0; i < UNIT / 8; i++) p[i] = word_of(unit, v, i);
}

static bool holds(const u64 *p, u64 unit, u32 v) {
    for (u32 i = 0; i < UNIT / 8; i++)
        if (p[i] != word_of(unit, v, i)) return false;
    return true;
}

static void restart(void) {
    cache_start((struct pagecache_config){ .pages = PAGECACHE_MIN + rnd(60),
                                           .queue = 4 + rnd(40),
                                           .max_parts = 1 + rnd(PAGECACHE_RUN),
                                           .can_flush = true,
                                           .background = 1 + rnd(20),
                                           .dirty = 30 + rnd(60),
                                           .expire_ns = 1 + rnd(50) * NS_PER_MS,
                                           .interval_ns = (1 + rnd(20)) * NS_PER_MS,
                                           .ahead = 1 + rnd(PAGECACHE_AHEAD),
                                           .no_ahead = rnd(4) == 0 });
    disk.ring = 3 + rnd(60);
}

static void check_synced(const u8 *where) {
    for (u32 u = 0; u < UNITS; u++)
        assert_true(holds((const u64 *)(where + u * UNIT), u, version[u]));
}

static void crash(void) {
    crashes++;
    errors += cache.stats.errors;
    memset(disk.bad, 0, sizeof(disk.bad));
    disk.bad_flush = false;
    disk_crash();
    for (u32 u = 0; u < UNITS; u++) {
        const u64 *p = (const u64 *)(disk.cached + u * UNIT);
        u32 v = (u32)(p[0] * 0xf1de83e19937733dull >> 32); /* the inverse of word_of() */

        assert_true(holds(p, u, v));
        assert_true(v >= synced[u] && v <= version[u]);
        version[u] = synced[u] = v;
    }
    restart();
}

/* The units of a read or write that waits, while another thread reads or writes. */
static u32 busy_first, busy_end;

/* Chooses some units that the other thread does not use. If bad blocks are among them, an operation
 * may end with -EIO. */
static bool span(u32 *first, u32 *n) {
    do {
        *first = rnd(UNITS);
        *n = 1 + rnd(rnd(3) ? 80 : MOST);
        *n = MIN(*n, UNITS - *first);
    } while (*first < busy_end && busy_first < *first + *n);
    if (disk.mortal || disk.gone) return false;
    for (u32 b = *first * UNIT / PAGE_SIZE; b <= (*first + *n - 1) * UNIT / PAGE_SIZE; b++)
        if (disk.bad[b]) return false;
    return true;
}

static void wait_and(void (*other)(void), u32 first, u32 n) {
    busy_first = first;
    busy_end = other ? first + n : first;
    other_thread = other;
}

static void other(void);

static void read_some(struct pagecache_stream *s, bool alone) {
    u64 buf[MOST * UNIT / 8];
    u32 first, n;
    bool sound = span(&first, &n);
    int error;

    if (!alone) wait_and(other, first, n);
    error = pagecache_read(&cache, rnd(4) ? s : NULL, first * UNIT, buf, n * UNIT);

    if (!alone) wait_and(NULL, 0, 0);
    assert_true(error == 0 || (error == -EIO && !sound));
    for (u32 i = 0; !error && i < n; i++)
        assert_true(holds(buf + i * UNIT / 8, first + i, version[first + i]));
}

/* Writes page by page. A page that fails is not changed at all. */
static void write_some(bool bad, bool alone) {
    u64 buf[MOST * UNIT / 8];
    u32 first, n;

    span(&first, &n);
    for (u32 part; n; first += part, n -= part) {
        u32 v = ++next_version;
        int error;

        part = bad ? MIN(n, (u32)(PAGE_SIZE / UNIT - first % (PAGE_SIZE / UNIT))) : n;
        for (u32 i = 0; i < part; i++) fill(buf + i * UNIT / 8, first + i, v);
        if (!alone) wait_and(other, first, part);
        error = pagecache_write(&cache, first * UNIT, buf, part * UNIT);
        if (!alone) wait_and(NULL, 0, 0);
        assert_true(error == 0 || (error == -EIO && bad));
        assert_true(cache.dirty + cache.writing <= cache.limit + 1); /* two threads */
        for (u32 i = 0; !error && i < part; i++) version[first + i] = v;
    }
}

static bool any_bad(void) {
    bool any = disk.bad_flush || disk.mortal || disk.gone;

    for (u32 b = 0; b < BLOCKS; b++) any |= disk.bad[b];
    return any;
}

/* ---- collaboration ---- */

static void on_dirty(void *arg) { calls++; }

/* The manager has asked for a flush, and the thread of guestlib/collab.c does that by a sync. What
 * the sync told is told, as far as the other syncs are concerned. */
static void collab_flush(void) {
    flushes++;
    pagecache_sync(&cache);
    seen = cache.failures;
    told = 0;
}

/* The manager finds the device free while the guest's queue is congested. */
static void collab_release(void) {
    if (!managed || !cache.congested || rnd(4)) return;
    releases++;
    pagecache_release(&cache);
}

/* One step of the manager and the guest's thread together. A manager may end at any time, and the
 * next one begins with no keys. */
static void collab_step(void) {
    if (rnd(6) == 0) managed = !managed;
    if (!managed) return;
    switch (rnd(3)) {
    case 0: collab_flush(); break;
    case 1: pagecache_tell_at(&cache, rnd(cache.config.pages), on_dirty, NULL); break;
    case 2: pagecache_flush_now(&cache); break;
    }
}

/* While one waits: it may be for the page that this one has just asked for, or to write. */
static void other(void) {
    other_thread = NULL;
    if (rnd(4) == 0)
        collab_step();
    else if (rnd(2))
        read_some(NULL, true);
    else
        write_some(any_bad(), true);
    if (rnd(2)) other_thread = other; /* and once more when it waits again */
}

static void sync_all(bool bad) {
    u32 before = cache.failures;
    int error = pagecache_sync(&cache);

    assert_true(error == 0 || bad || told);
    if (error) {
        sync_errors++;
        seen = cache.failures;
        told = 0;
        return;
    }
    assert_int_equal(cache.failures, before); /* none of its own is kept secret, */
    assert_int_equal(told, 0);                /* nor one from before */
    syncs++;
    memcpy(synced, version, sizeof(synced));
    check_synced(disk.stable);
}

static void count_errors(void) {
    told += cache.failures - seen;
    seen = cache.failures;
}

static void schedule(u64 seed) {
    struct pagecache_stream s = pagecache_stream(0, rnd(2) * DISK_SIZE);

    running = seed;
    managed = true;
    each_step = collab_release;
    rng = seed * 2654435761u + 1;
    for (int i = 0; i < 10; i++) rnd(2);
    memset(&disk, 0, sizeof(disk));
    memset(version, 0, sizeof(version));
    memset(synced, 0, sizeof(synced));
    next_version = 0;
    seen = told = 0;
    for (u32 u = 0; u < UNITS; u++) fill((u64 *)(disk.cached + u * UNIT), u, 0);
    memcpy(disk.stable, disk.cached, DISK_SIZE);
    restart();
    for (u32 i = 0; i < 400; i++) {
        bool bad;

        if (seed % 3 == 1) disk.mortal = rnd(4) == 0;
        bad = any_bad();

        count_errors();
        switch (rnd(17)) {
        case 0 ... 4: read_some(&s, false); break;
        case 5 ... 10: write_some(bad, false); break;
        case 11: sync_all(bad); break;
        case 12: pagecache_flush_now(&cache); break;
        case 13: disk_pass(rnd(30) * NS_PER_MS); break;
        case 14:
            if (seed % 2)
                disk.bad[rnd(BLOCKS)] = !bad || rnd(2);
            else
                pagecache_drop(&cache);
            if (bad && rnd(3) == 0) memset(disk.bad, 0, sizeof(disk.bad));
            disk.bad_flush = seed % 2 && rnd(8) == 0;
            break;
        case 15:
            if (rnd(6) == 0) {
                crash();
                seen = told = 0;
            } else {
                for (u32 k = rnd(20); k; k--) disk_step();
            }
            break;
        case 16: collab_step(); break;
        }
    }
    errors += cache.stats.errors;
    memset(disk.bad, 0, sizeof(disk.bad));
    disk.bad_flush = disk.mortal = false;
    if (disk.gone) {
        disk_returns();
        disk_settle();
        assert_int_equal(cache.dirty + cache.writing, 0); /* the new back end got all of it */
    }
    deaths += disk.deaths;
    count_errors();
    if (pagecache_sync(&cache)) assert_int_equal(pagecache_sync(&cache), 0);
    check_synced(disk.stable);
    disk_settle();
    assert_int_equal(cache.dirty + cache.writing + cache.in_use + cache.reading + cache.starved, 0);
    for (u32 i = 0; i < cache.config.pages; i++) assert_int_equal(cache.frame[i].pins, 0);
}

static void random_schedules(void **state) {
    const char *seed = getenv("TAKT_SEED"), *count = getenv("TAKT_SCHEDULES");
    u64 n = count ? strtoull(count, NULL, 10) : 300;

    if (seed) {
        schedule(strtoull(seed, NULL, 10));
        return;
    }
    for (u64 i = 0; i < n; i++) {
        schedule(i);
    }
    print_message("%lu syncs, %lu told of errors, %lu requests failed, %lu crashes\n", syncs,
                  sync_errors, errors, crashes);
    print_message("%lu deaths of the driver domain; %lu flushes, %lu releases, %lu calls\n", deaths,
                  flushes, releases, calls);
    assert_true(syncs > n && crashes > n && sync_errors > n / 4);
    assert_true(deaths > n && flushes > n && releases > n / 4 && calls > n);
}

static int tell(void **state) {
    print_message("last seed %lu\n", running);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test_teardown(random_schedules, tell) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
