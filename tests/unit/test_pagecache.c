/* The page cache of the guest library: when it writes what, for what a reader waits, and what an
 * error does. */
#include "cache_disk.h"

#define MS NS_PER_MS

static u8 buf[DISK_SIZE], want[DISK_SIZE];

static struct pagecache_config config;

static int set_up(void **state) {
    disk_fresh();
    config = (struct pagecache_config){ .pages = 80,
                                        .queue = 32,
                                        .can_flush = true,
                                        .background = 10,
                                        .dirty = 50,
                                        .expire_ns = 100 * MS,
                                        .interval_ns = 10 * MS };
    return 0;
}

static void start(void) { cache_start(config); }

static void write_pages(u64 block, u32 n, u8 with) {
    memset(buf, with, n * PAGE_SIZE);
    assert_int_equal(pagecache_write(&cache, block * PAGE_SIZE, buf, n * PAGE_SIZE), 0);
}

static int read_page(u64 block) {
    return pagecache_read(&cache, NULL, block * PAGE_SIZE, buf, PAGE_SIZE);
}

static bool on_disk(const u8 *where, u64 block, u8 with) {
    for (u32 i = 0; i < PAGE_SIZE; i++)
        if (where[block * PAGE_SIZE + i] != with) return false;
    return true;
}

static void refused(void **state) {
    struct pagecache_config bad[] = { config, config, config, config };

    start();
    bad[0].pages = PAGECACHE_MIN - 1;
    bad[1].queue = 3;
    bad[2].background = 50;
    bad[3].dirty = 91;
    for (u32 i = 0; i < ARRAY_SIZE(bad); i++) {
        struct pagecache c;

        bad[i].capacity = DISK_SIZE;
        assert_int_equal(pagecache_init(&c, &cache.host, &bad[i]), -EINVAL);
    }
    assert_int_equal(pagecache_read(&cache, NULL, DISK_SIZE - 1, buf, 2), -EINVAL);
    assert_int_equal(pagecache_write(&cache, DISK_SIZE, buf, 1), -EINVAL);
    assert_int_equal(pagecache_write(&cache, ~0ull, buf, 2), -EINVAL);
    assert_int_equal(pagecache_read(&cache, NULL, DISK_SIZE, buf, 0), 0);
}

/* A page is read on the socket of the thread that wants it, also if it is read ahead, and written
 * on the socket of the thread that changed it last. The flusher may run anywhere. */
static void sockets(void **state) {
    struct pagecache_stream s = pagecache_stream(0, DISK_SIZE);

    start();
    my_socket = 3;
    assert_int_equal(pagecache_read(&cache, &s, 0, buf, PAGE_SIZE), 0);
    assert_int_equal(disk.socket[0], 3);
    my_socket = 1;
    assert_int_equal(pagecache_write(&cache, 0, buf, 10), 0);
    my_socket = 2;
    assert_int_equal(pagecache_write(&cache, 20, buf, 10), 0);
    my_socket = 0;
    assert_int_equal(pagecache_sync(&cache), 0);
    assert_int_equal(disk.socket[1], 2);
    assert_int_equal(pagecache_read(&cache, NULL, 100 * PAGE_SIZE, buf, PAGE_SIZE), 0);
    assert_int_equal(disk.socket[0], 0);
}

/* Compares reads and writes at any offset and of any length with a plain array, through a cache
 * that is smaller than the disk. */
static void bytes(void **state) {
    start();
    memcpy(want, disk.cached, DISK_SIZE);
    for (u32 i = 0; i < 3000; i++) {
        u32 at = rnd(DISK_SIZE), most = rnd(4) ? 5000 : 200000,
            n = rnd(MIN(DISK_SIZE - at, most) + 1);

        if (rnd(2)) {
            for (u32 k = 0; k < n; k++) want[at + k] = buf[k] = (u8)rnd(256);
            assert_int_equal(pagecache_write(&cache, at, buf, n), 0);
        } else {
            assert_int_equal(pagecache_read(&cache, NULL, at, buf, n), 0);
            assert_memory_equal(buf, want + at, n);
        }
    }
    assert_int_equal(pagecache_sync(&cache), 0);
    assert_memory_equal(disk.stable, want, DISK_SIZE);
    assert_true(cache.stats.evicted > 100);
}

/* A write is over when the cache has the data. Pages are written to the disk when they are old, and
 * not before. */
static void written_when_old(void **state) {
    start();
    write_pages(3, 2, 0xaa);
    disk_pass(95 * MS);
    assert_int_equal(disk.writes, 0);
    assert_int_equal(disk.reads, 0); /* nothing to keep of a page that is overwritten */
    assert_int_equal(pagecache_dirty(&cache), 2);
    write_pages(9, 1, 0xbb);
    disk_pass(25 * MS);
    assert_int_equal(disk.writes, 1);
    assert_true(on_disk(disk.cached, 3, 0xaa) && on_disk(disk.cached, 4, 0xaa) &&
                !on_disk(disk.cached, 9, 0xbb));
    assert_int_equal(cache.stats.aged, 1);
    disk_pass(200 * MS);
    assert_true(on_disk(disk.cached, 9, 0xbb));
    assert_int_equal(pagecache_dirty(&cache), 0);
    assert_int_equal(disk.flushes, 0);
}

/* When more pages are dirty than the background ratio allows, the flusher writes until the ratio is
 * kept. */
static void written_when_many(void **state) {
    start();
    write_pages(0, 8, 1);
    disk_settle();
    assert_int_equal(disk.writes, 0);
    /* None of these pages is beside another one on the disk. */
    for (u32 i = 0; i < 5; i++) write_pages(20 + 2 * i, 1, 2);
    disk_settle();
    /* The flusher wrote the first eight, in the order of the disk, in one request. */
    assert_int_equal(pagecache_dirty(&cache), 5);
    assert_int_equal(disk.writes, 1);
    assert_int_equal(disk.longest, 8);
}

/* When as many pages are dirty or under way as the dirty ratio allows, a thread that writes has to
 * wait. */
static void throttled(void **state) {
    start();
    disk.ring = 0; /* takes nothing */
    for (u32 i = 0; i < 40; i++) write_pages(i, 1, 1);
    assert_int_equal(cache.stats.throttled, 0);
    disk.ring = 64;
    for (u32 i = 40; i < BLOCKS; i++) {
        write_pages(i, 1, 1);
        assert_true(cache.dirty + cache.writing <= 40);
    }
    assert_true(cache.stats.throttled > 0);
}

static void sync_is_stable(void **state) {
    start();
    for (u32 i = 0; i < 8; i++) write_pages(i, 1, (u8)i);
    assert_int_equal(pagecache_sync(&cache), 0);
    for (u32 i = 0; i < 8; i++) assert_true(on_disk(disk.stable, i, (u8)i));
    assert_int_equal(disk.flushes, 1);
    assert_int_equal(pagecache_dirty(&cache), 0);
    /* A sync also flushes what an earlier pass has left in the device's own cache. */
    write_pages(50, 1, 9);
    pagecache_flush_now(&cache);
    disk_settle();
    assert_true(on_disk(disk.cached, 50, 9) && !on_disk(disk.stable, 50, 9));
    assert_int_equal(pagecache_sync(&cache), 0);
    assert_true(on_disk(disk.stable, 50, 9));
    config.can_flush = false;
    start();
    write_pages(60, 1, 9);
    assert_int_equal(pagecache_sync(&cache), 0);
    assert_int_equal(disk.flushes, 0);
}

/* flush_now writes everything, and no thread waits for it. */
static void flush_now(void **state) {
    start();
    for (u32 i = 0; i < 4; i++) write_pages(i * 3, 1, 5);
    pagecache_flush_now(&cache);
    assert_int_equal(disk.writes, 0);
    disk_settle();
    assert_int_equal(disk.writes, 4);
    assert_int_equal(pagecache_dirty(&cache), 0);
    assert_int_equal(cache.stats.flush_now, 1);
    pagecache_flush_now(&cache);
    disk_settle();
    assert_int_equal(disk.writes, 4);
}

/* pagecache_tell_at() calls a function once, when so many pages are dirty. Pages that were dirty
 * already do not count again. If there are so many when it is asked, it calls at once. */
static u32 told;
static void count_told(void *arg) { ++*(u32 *)arg; }
static void tell_at(void **state) {
    start();
    told = 0;
    pagecache_tell_at(&cache, 3, count_told, &told);
    write_pages(1, 1, 5);
    write_pages(2, 1, 5);
    write_pages(2, 1, 6);
    assert_int_equal(told, 0);
    write_pages(3, 1, 5);
    assert_int_equal(told, 1);
    write_pages(4, 1, 5);
    assert_int_equal(told, 1);
    pagecache_tell_at(&cache, 3, count_told, &told);
    assert_int_equal(told, 2);
}

/* A page that changes while it is being written is written again. */
static void changed_meanwhile(void **state) {
    start();
    write_pages(7, 1, 1);
    pagecache_flush_now(&cache);
    while (!disk.nr) disk_step();
    assert_int_equal(pagecache_dirty(&cache), 0);
    write_pages(7, 1, 2);
    assert_int_equal(pagecache_dirty(&cache), 1);
    disk_store(disk.in_flight[0], disk.cached, false); /* the device had read half of it */
    memset(disk.cached + 7 * PAGE_SIZE, 1, 2048);
    disk.in_flight[0]->done(disk.in_flight[0], 0);
    disk.nr = 0;
    pagecache_run(&cache);
    assert_int_equal(pagecache_sync(&cache), 0);
    assert_true(on_disk(disk.stable, 7, 2));
}

/* Pages are written in the order of the disk, and neighbours together. */
static void in_order(void **state) {
    static const u32 blocks[] = { 90, 12, 11, 40, 10, 41, 70, 13 };

    start();
    for (u32 i = 0; i < ARRAY_SIZE(blocks); i++) write_pages(blocks[i], 1, 1);
    pagecache_flush_now(&cache);
    while (flusher_wanted) disk_step();
    pagecache_run(&cache);
    assert_int_equal(disk.nr, 4);
    for (u32 i = 0, before = 0; i < disk.nr; i++) {
        assert_true(first_block(disk.in_flight[i]) > before);
        before = (u32)first_block(disk.in_flight[i]);
    }
    assert_int_equal(blocks_of(disk.in_flight[0]), 4);
    disk_settle();
}

/* ---- reading ---- */

static void read_ahead(void **state) {
    struct pagecache_stream s = pagecache_stream(0, DISK_SIZE), other = s;
    u32 waited = 0;

    start();
    for (u32 i = 0; i < 64; i++) {
        u64 before = cache.stats.misses;

        assert_int_equal(pagecache_read(&cache, &s, i * PAGE_SIZE, buf, PAGE_SIZE), 0);
        assert_memory_equal(buf, disk.cached + i * PAGE_SIZE, PAGE_SIZE);
        waited += cache.stats.misses > before;
        if (i == 40) assert_true(s.ahead - i <= 64 && s.ahead - i >= 16);
        disk_settle();
    }
    assert_int_equal(waited, 1); /* for the first page alone */
    assert_true(disk.reads <= 8);
    assert_int_equal(disk.longest, 32);
    for (u32 i = 64; i < BLOCKS; i++) pagecache_read(&cache, &s, i * PAGE_SIZE, buf, PAGE_SIZE);
    disk_settle();
    assert_int_equal(cache.stats.pages_read, BLOCKS); /* each once; none beyond the end */
    start();
    s = pagecache_stream(10 * PAGE_SIZE, 9 * PAGE_SIZE + 1);
    for (u32 i = 10; i < 20; i++) pagecache_read(&cache, &s, i * PAGE_SIZE, buf, 1);
    disk_settle();
    assert_int_equal(cache.stats.pages_read, 10);
    /* With random reads the cache reads what was asked for, and nothing ahead. */
    config.pages = PAGECACHE_MIN;
    start();
    for (u32 i = 0; i < 20; i++)
        pagecache_read(&cache, &other, (i * 37 % 60 * 2 + 1) * PAGE_SIZE, buf, PAGE_SIZE);
    disk_settle();
    assert_int_equal(cache.stats.pages_read, 20);
    assert_int_equal(cache.stats.ahead, 0);
    start();
    pagecache_read(&cache, NULL, 10 * PAGE_SIZE, buf, 12 * PAGE_SIZE);
    assert_int_equal(disk.reads, 1);
    assert_int_equal(disk.longest, 12);
}

/* A page that is used now and then survives a stream of those that are used once. */
static void clock_keeps_what_is_used(void **state) {
    u64 waited = 0;

    start();
    for (u32 round = 0; round < 4; round++)
        for (u32 i = 1; i < BLOCKS; i++) {
            read_page(i);
            if (i % 8) continue;
            u64 before = cache.stats.misses;
            read_page(0);
            waited += cache.stats.misses - before;
        }
    assert_true(cache.stats.pages_read >= 4 * (BLOCKS - 80));
    assert_int_equal(waited, 1);
}

static void drop(void **state) {
    start();
    write_pages(1, 1, 1);
    read_page(2);
    assert_int_equal(pagecache_drop(&cache), 1);
    read_page(2);
    assert_int_equal(disk.reads, 2);
    read_page(1);
    assert_int_equal(disk.reads, 2);
    assert_int_equal(pagecache_sync(&cache), 0);
    assert_int_equal(pagecache_drop(&cache), 2);
    assert_int_equal(pagecache_drop(&cache), 0);
}

/* ---- numbers that change while the cache is used ---- */

/* What is refused has to leave the old value in force: 80 pages, 10 and 50 per cent. */
static void ratios_change(void **state) {
    start();
    assert_non_null(pagecache_set_dirty(&cache, 10));
    assert_non_null(pagecache_set_background(&cache, 50));
    assert_int_equal(cache.limit, 40);
    assert_int_equal(cache.background, 8);
    assert_null(pagecache_set_dirty(&cache, 80));
    assert_null(pagecache_set_background(&cache, 75));
    for (u32 i = 0; i < 60; i++) write_pages(2 * i, 1, 1);
    disk_settle();
    assert_int_equal(disk.writes, 0);
    assert_int_equal(cache.stats.throttled, 0);
    assert_null(pagecache_set_background(&cache, 5)); /* the flusher looks at once */
    disk_settle();
    assert_int_equal(pagecache_dirty(&cache), 4);
}

/* Fewer requests are under way at a time, and the queue is congested sooner. */
static void queue_changes(void **state) {
    config.queue_most = 64;
    start();
    assert_null(pagecache_set_queue(&cache, 8));
    for (u32 i = 0; i < 30; i++) write_pages(2 * i, 1, 1);
    assert_int_equal(pagecache_sync(&cache), 0); /* which congestion does not hold back */
    assert_in_range(disk.most, 1, 8);
    assert_true(cache.stats.congestions > 0);
    assert_null(pagecache_set_queue(&cache, 64));
    cache.stats.congestions = 0;
    for (u32 i = 0; i < 30; i++) write_pages(2 * i, 1, 2);
    assert_int_equal(pagecache_sync(&cache), 0);
    assert_int_equal(cache.stats.congestions, 0);
    assert_in_range(disk.most, 9, 64);
}

static void ahead_changes(void **state) {
    struct pagecache_stream s = pagecache_stream(0, 60 * PAGE_SIZE);

    start();
    assert_null(pagecache_set_ahead(&cache, 0));
    for (u32 i = 0; i < 8; i++) pagecache_read(&cache, &s, i * PAGE_SIZE, buf, PAGE_SIZE);
    assert_int_equal(cache.stats.ahead, 0);
    assert_null(pagecache_set_ahead(&cache, 4));
    for (u32 i = 8; i < 16; i++) pagecache_read(&cache, &s, i * PAGE_SIZE, buf, PAGE_SIZE);
    assert_in_range(cache.stats.ahead, 4, 12);
}

/* ---- congestion: 32 requests, on above 28, off below 26 ---- */

static void congestion(void **state) {
    struct pagecache_stream s;

    config.dirty = 90;
    start();
    for (u32 i = 0; i < 45; i++) write_pages(2 * i, 1, 1);
    flusher_wanted = false;
    pagecache_flusher(&cache);
    pagecache_run(&cache);
    assert_int_equal(disk.nr, 29); /* the background stops when it comes on */
    assert_true(pagecache_congested(&cache));
    assert_int_equal(cache.stats.congestions, 1);
    for (u32 left = 28; left >= 26; left--) {
        disk_end(0);
        pagecache_run(&cache);
        assert_true(pagecache_congested(&cache));
        assert_int_equal(disk.nr, left);
    }
    u64 before = cache.stats.ahead;
    disk_end(0);
    assert_false(pagecache_congested(&cache));
    pagecache_run(&cache);
    assert_int_equal(disk.nr, 29); /* and goes on when it is off */
    assert_true(pagecache_congested(&cache));
    assert_int_equal(cache.stats.congestions, 2);
    assert_int_equal(cache.stats.ahead, before);
    /* A reader is served all the same, but nothing is read ahead. */
    run_wanted = flusher_wanted = false;
    s = pagecache_stream(101 * PAGE_SIZE, DISK_SIZE);
    cache.config.ahead = 8;
    assert_true(pagecache_congested(&cache));
    assert_int_equal(pagecache_read(&cache, &s, 101 * PAGE_SIZE, buf, PAGE_SIZE), 0);
    assert_int_equal(cache.stats.ahead_congested, 1);
    assert_int_equal(cache.stats.ahead, before);
    disk_settle();
    assert_false(pagecache_congested(&cache));
}

/* A release lets the queue fill up to its limit, once: until it has been below 13/16 again. */
static void released(void **state) {
    config.dirty = 90;
    start();
    told = 0;
    /* Nothing is congested, so this releases nothing, neither now nor later. */
    pagecache_release(&cache);
    pagecache_run(&cache);
    pagecache_on_congestion(&cache, count_told, &told);
    for (u32 i = 0; i < 60; i++) write_pages(2 * i, 1, 1);
    flusher_wanted = false;
    pagecache_flusher(&cache);
    pagecache_run(&cache);
    assert_int_equal(disk.nr, 29);
    assert_int_equal(told, 1);
    pagecache_release(&cache);
    run_wanted = false;
    pagecache_run(&cache);
    assert_false(pagecache_congested(&cache));
    assert_int_equal(disk.nr, 32);
    assert_int_equal(told, 2);
    assert_int_equal(cache.stats.released, 1);
    for (u32 i = 0; i < 6; i++) {
        disk_end(0); /* 26 are left, which is not below 13/16 */
        assert_false(pagecache_congested(&cache));
    }
    pagecache_run(&cache);
    assert_int_equal(disk.nr, 32);
    for (u32 i = 0; i < 7; i++) disk_end(0);
    pagecache_run(&cache);
    /* The queue has been below 13/16, so the rule holds again. */
    assert_true(pagecache_congested(&cache));
    assert_int_equal(disk.nr, 29);
    assert_int_equal(told, 3);
    disk_settle();
    assert_false(pagecache_congested(&cache));
}

/* A release ends after its time also if the queue stays full: the device may be crowded by now. */
static void release_ends(void **state) {
    config.dirty = 90;
    start();
    for (u32 i = 0; i < 60; i++) write_pages(2 * i, 1, 1);
    pagecache_flusher(&cache);
    pagecache_run(&cache);
    pagecache_release(&cache);
    pagecache_run(&cache);
    assert_int_equal(disk.nr, 32);
    disk_time += PAGECACHE_RELEASE_NS - 1;
    disk_end(0);
    pagecache_run(&cache);
    assert_false(pagecache_congested(&cache));
    assert_int_equal(disk.nr, 32);
    disk_time++;
    disk_end(0); /* 31 are left, which is still above 7/8 */
    assert_true(pagecache_congested(&cache));
    disk_settle();
    assert_false(pagecache_congested(&cache));
}

/* Another thread makes pages dirty as soon as there is room for some. */
static void another_writer(void) {
    if (cache.dirty + cache.writing >= cache.limit) return;
    disk_on_now = NULL;
    cache.dirty += cache.limit;
}

/* A writer that waited for room does not fail because another one was quicker: the disk refuses
 * nothing. */
static void room_is_taken(void **state) {
    start();
    for (u32 i = 0; i < cache.limit; i++) write_pages(2 * i, 1, 1);
    disk_on_now = another_writer;
    memset(buf, 2, PAGE_SIZE);
    assert_int_equal(pagecache_write(&cache, PAGE_SIZE, buf, PAGE_SIZE), 0);
    assert_null(disk_on_now);
    assert_int_equal(cache.stats.throttled, 1);
    cache.dirty -= cache.limit;
    disk_settle();
}

/* Without avoidance there is no congestion, only the limit. */
static void without_avoidance(void **state) {
    config.dirty = 90;
    config.no_avoid = true;
    start();
    for (u32 i = 0; i < 45; i++) write_pages(2 * i, 1, 1);
    flusher_wanted = false;
    pagecache_flusher(&cache);
    pagecache_run(&cache);
    assert_int_equal(disk.nr, 32);
    assert_false(pagecache_congested(&cache));
    disk_settle();
    assert_int_equal(cache.stats.congestions, 0);
}

/* If a thread waits for a sync, the sync may use the whole queue. */
static void sync_through_congestion(void **state) {
    config.dirty = 90;
    start();
    for (u32 i = 0; i < 40; i++) write_pages(2 * i, 1, 1);
    flusher_wanted = false;
    struct pagecache_sync me = { 0 };
    cache.syncs = &me;
    pagecache_flusher(&cache);
    pagecache_run(&cache);
    assert_int_equal(disk.nr, 32);
    disk_settle();
    assert_true(me.done && !me.result);
}

/* ---- errors ---- */

static void sync_tells_once(void **state) {
    start();
    write_pages(5, 3, 1);
    disk.bad[6] = true;
    assert_int_equal(pagecache_sync(&cache), -EIO);
    assert_int_equal(pagecache_sync(&cache), -EIO); /* tried again, and refused again */
    /* The neighbours of the bad page are written all the same. */
    assert_true(on_disk(disk.stable, 5, 1) && on_disk(disk.stable, 7, 1));
    assert_int_equal(pagecache_dirty(&cache), 1);
    disk.bad[6] = false;
    assert_int_equal(pagecache_sync(&cache), 0);
    assert_true(on_disk(disk.stable, 6, 1));
    /* A write in the background fails. The next sync reports it, although that sync itself could
     * write the page. */
    disk.bad[6] = true;
    write_pages(6, 1, 2);
    pagecache_flush_now(&cache);
    disk_settle();
    disk.bad[6] = false;
    assert_int_equal(pagecache_sync(&cache), -EIO);
    assert_int_equal(pagecache_sync(&cache), 0);
    assert_true(on_disk(disk.stable, 6, 2));
    /* The flush of the device's own cache fails. */
    write_pages(8, 1, 2);
    disk.bad_flush = true;
    assert_int_equal(pagecache_sync(&cache), -EIO);
    disk.bad_flush = false;
    assert_int_equal(pagecache_sync(&cache), 0);
    assert_true(on_disk(disk.stable, 8, 2));
}

/* Two threads that wait for the same pass are told the same result. */
static void sync_tells_all(void **state) {
    struct pagecache_sync a = { 0 }, b = { .next = &a };

    start();
    write_pages(5, 1, 1);
    disk.bad[5] = true;
    cache.syncs = &b;
    assert_int_equal(pagecache_sync(&cache), -EIO);
    assert_true(a.done && b.done);
    assert_int_equal(a.result, -EIO);
    assert_int_equal(b.result, -EIO);
}

/* What is refused is kept, so that writers have to be refused when there is no room; and they go
 * on when the device does. */
static void device_refuses(void **state) {
    u32 taken = 0;
    int error = 0;

    config.expire_ns = 10 * NS_PER_S;
    start();
    memset(disk.bad, true, sizeof(disk.bad));
    memset(buf, 3, PAGE_SIZE);
    for (; !error && taken < BLOCKS; taken += !error)
        error = pagecache_write(&cache, taken * PAGE_SIZE, buf, PAGE_SIZE);
    assert_int_equal(error, -EIO);
    assert_int_equal(taken, 40);
    assert_int_equal(pagecache_dirty(&cache), 40);
    assert_int_equal(read_page(0), 0);
    assert_int_equal(pagecache_sync(&cache), -EIO);
    u64 errors = cache.stats.errors;
    disk_pass(NS_PER_S); /* not again and again */
    assert_int_equal(cache.stats.errors, errors);
    memset(disk.bad, false, sizeof(disk.bad));
    disk_pass(10 * NS_PER_S + 20 * MS);
    assert_int_equal(pagecache_dirty(&cache), 0);
    write_pages(100, 20, 3);
    /* An earlier sync has reported the error, and the data was written since. */
    assert_int_equal(pagecache_sync(&cache), 0);
    for (u32 i = 0; i < 40; i++) assert_true(on_disk(disk.stable, i, 3));
}

static int others_error;

static void reads_12(void) {
    u8 page[PAGE_SIZE];

    other_thread = NULL;
    others_error = pagecache_read(&cache, NULL, 12 * PAGE_SIZE, page, PAGE_SIZE);
}

/* A bad block costs its neighbours in the same request nothing. */
static void unreadable(void **state) {
    start();
    disk.bad[12] = true;
    assert_int_equal(pagecache_read(&cache, NULL, 10 * PAGE_SIZE, buf, 8 * PAGE_SIZE), -EIO);
    assert_int_equal(pagecache_read(&cache, NULL, 10 * PAGE_SIZE, buf, 2 * PAGE_SIZE), 0);
    assert_memory_equal(buf, disk.cached + 10 * PAGE_SIZE, 2 * PAGE_SIZE);
    assert_int_equal(pagecache_read(&cache, NULL, 13 * PAGE_SIZE, buf, 5 * PAGE_SIZE), 0);
    assert_memory_equal(buf, disk.cached + 13 * PAGE_SIZE, 5 * PAGE_SIZE);
    /* A write of one byte fails, because the rest of the page cannot be read. A write of the whole
     * page does not need it. */
    assert_int_equal(pagecache_write(&cache, 12 * PAGE_SIZE + 1, buf, 1), -EIO);
    assert_int_equal(pagecache_write(&cache, 12 * PAGE_SIZE, buf, PAGE_SIZE), 0);
    assert_int_equal(read_page(12), 0);
    disk.bad[12] = false;
    assert_int_equal(pagecache_sync(&cache), 0);
    /* Another thread asks for the bad page, which becomes part of the same request. */
    pagecache_drop(&cache);
    disk.bad[12] = true;
    other_thread = reads_12;
    assert_int_equal(read_page(11), 0);
    assert_int_equal(others_error, -EIO);
    assert_int_equal(disk.longest, 8);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(refused, set_up),
        cmocka_unit_test_setup(sockets, set_up),
        cmocka_unit_test_setup(bytes, set_up),
        cmocka_unit_test_setup(written_when_old, set_up),
        cmocka_unit_test_setup(written_when_many, set_up),
        cmocka_unit_test_setup(throttled, set_up),
        cmocka_unit_test_setup(sync_is_stable, set_up),
        cmocka_unit_test_setup(flush_now, set_up),
        cmocka_unit_test_setup(tell_at, set_up),
        cmocka_unit_test_setup(changed_meanwhile, set_up),
        cmocka_unit_test_setup(in_order, set_up),
        cmocka_unit_test_setup(read_ahead, set_up),
        cmocka_unit_test_setup(clock_keeps_what_is_used, set_up),
        cmocka_unit_test_setup(drop, set_up),
        cmocka_unit_test_setup(congestion, set_up),
        cmocka_unit_test_setup(released, set_up),
        cmocka_unit_test_setup(room_is_taken, set_up),
        cmocka_unit_test_setup(release_ends, set_up),
        cmocka_unit_test_setup(without_avoidance, set_up),
        cmocka_unit_test_setup(sync_through_congestion, set_up),
        cmocka_unit_test_setup(sync_tells_once, set_up),
        cmocka_unit_test_setup(sync_tells_all, set_up),
        cmocka_unit_test_setup(ratios_change, set_up),
        cmocka_unit_test_setup(queue_changes, set_up),
        cmocka_unit_test_setup(ahead_changes, set_up),
        cmocka_unit_test_setup(device_refuses, set_up),
        cmocka_unit_test_setup(unreadable, set_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
