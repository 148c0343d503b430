/* The disk of a web server: requests read whole files, and after every tenth one a thread appends
 * to a log. The smaller one of two random files is read, so that some are read more often.
 *
 * Command line: files=N (64) files of 4 KiB to twice file_kib=K (16) KiB, which are written before
 * the first request; log_kib=K (16) is what is appended, log_ring_kib=K (256) how long the log is
 * before it begins anew. guest/workload.h says when requests are due, and what is printed; a
 * request that appends ends when that is in the cache. guest/disk.h has more words. The exit code
 * is 0 if all that was read was right. */
#include <guest/extents.h>
#include <guest/guest.h>
#include <guest/mem.h>
#include <guest/workload.h>
#include <takt/seed.h>

#define LOG_EVERY 10

static struct extents space;
static struct extent *files, ring;
static u32 nr_files, largest; /* largest: pages */
static u32 logged;            /* pages; atomic */
static u8 **buffers;          /* for each thread, as long as the largest file */

/* Reads file i from its beginning to its end, and checks it. */
static void read_file(u32 i, u8 *buffer) {
    u64 at = (u64)files[i].first * PAGE_SIZE, len = (u64)files[i].nr * PAGE_SIZE;
    struct pagecache_stream s = pagecache_stream(at, len);

    if (pagecache_read(&workload_disk.cache, &s, at, buffer, len))
        guest_panic("webfiles: file %u cannot be read", i);
    workload_wrong(workload_check(buffer, i, 0, len));
}

/* Writes so many pages to the end of the log, which is a ring of pages. */
static void append(u32 pages, u8 *buffer) {
    while (pages--) {
        u32 page = ring.first + __atomic_fetch_add(&logged, 1, __ATOMIC_RELAXED) % ring.nr;

        workload_fill(buffer, page, 0, PAGE_SIZE);
        if (pagecache_write(&workload_disk.cache, (u64)page * PAGE_SIZE, buffer, PAGE_SIZE))
            guest_panic("webfiles: the log cannot be written");
    }
}

/* Reads a file for each request, as a thread, or appends to the log instead, once after each
 * LOG_EVERY requests. */
static void worker(void *number) {
    u32 log_pages = (u32)(cmdline_u64("log_kib", 16) * 1024 / PAGE_SIZE);
    u8 *buffer = buffers[(u64)number];
    struct workload_request r;

    while (workload_next(&r)) {
        u64 one = seed_below(seed_next(&r.rng), nr_files),
            two = seed_below(seed_next(&r.rng), nr_files);
        u32 i = (u32)MIN(one, two);

        if (r.number % (LOG_EVERY + 1) == LOG_EVERY) {
            append(log_pages, buffer);
            workload_done(&r, WORKLOAD_WRITE, (u64)log_pages * PAGE_SIZE);
        } else {
            read_file(i, buffer);
            workload_done(&r, WORKLOAD_READ, (u64)files[i].nr * PAGE_SIZE);
        }
    }
}

/* Writes all files, of random lengths, makes them safe and empties the cache, so that reads go to
 * the disk. */
static void make_files(u8 *buffer) {
    u64 rng = takt_seed();

    for (u32 i = 0; i < nr_files; i++) {
        u64 len;

        files[i] = extents_take(&space, 1 + (u32)seed_below(seed_next(&rng), largest));
        len = (u64)files[i].nr * PAGE_SIZE;
        workload_fill(buffer, i, 0, len);
        if (!len ||
            pagecache_write(&workload_disk.cache, (u64)files[i].first * PAGE_SIZE, buffer, len))
            guest_panic("webfiles: the disk has no room for file %u", i);
    }
    if (pagecache_sync(&workload_disk.cache)) guest_panic("webfiles: the disk refuses a sync");
    pagecache_drop(&workload_disk.cache);
}

/* Lays out the disk, makes the files, and has the threads answer all requests. */
static void serve(void) {
    u32 threads = workload_thread_count();
    u64 pages = workload_disk.cache.blocks;
    u8 *used = malloc(pages);

    nr_files = (u32)MAX(cmdline_u64("files", 64), 1ull);
    largest = (u32)MAX(2 * cmdline_u64("file_kib", 16) * 1024 / PAGE_SIZE, 1ull);
    files = calloc(nr_files, sizeof(*files));
    buffers = calloc(threads, sizeof(u8 *));
    if (!used || !files || !buffers) guest_panic("webfiles: there is no memory");
    for (u32 i = 0; i < threads; i++) {
        buffers[i] = guest_env.pages(largest);
        if (!buffers[i]) guest_panic("webfiles: there is no memory");
    }
    extents_init(&space, used, (u32)pages);
    ring = extents_take(&space, MAX((u32)cmdline_u64("log_ring_kib", 256) / 4, 1u));
    make_files(buffers[0]);
    workload_threads(threads, worker);
}

int main(void) { return workload_main("webfiles", serve); }
