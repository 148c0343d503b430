/* Writes a file in bursts. In the pauses between them the disk could write what is still dirty. How
 * fast the next burst is depends on how many dirty pages of the burst before are left.
 *
 * Command line: kib=N (400) is the size of a burst, bursts=N (6) their number, pause_ms=T (200) the
 * pause between them. With `vary`, each pause is from half of that to one and a half times as long,
 * as the VM's seed says. With `gaps`, only every other page is written, so that each is a request
 * of its own. With `collab`, dirty pages are flushed when the driver domain says so
 * (docs/collab.md). guest/disk.h has more words. Bursts write two places in turn, because a burst
 * that only changes pages that are dirty already would not make new ones. The exit code is 0 if the
 * last burst is read back as it was written.
 *
 * The latency of a page is the time from the beginning of its burst until the page is in the cache.
 * So a page that waits because the page before it waits is not left out. */
#include <guest/collab.h>
#include <guest/disk.h>
#include <guest/guest.h>
#include <guest/printf.h>
#include <guest/thread.h>
#include <guest/vcpu.h>
#include <takt/seed.h>
#include "common/hist.h"

#define WORDS (PAGE_SIZE / sizeof(u64))

static struct disk disk;
static u64 page[WORDS];
static u32 wrong;
static struct hist latency;

/* Where a burst is in the file, and what belongs at word `at` of it. */
/* Where page `i` of a burst is on the disk. */
static u64 place_of(u64 burst, u64 pages, u64 i) {
    u64 stride = PAGE_SIZE;

    if (cmdline_has("gaps")) stride = 2 * PAGE_SIZE;
    return (burst % 2 * pages + i) * stride;
}

static u64 word_of(u64 burst, u64 at) { return burst << 48 ^ at * 0x9e3779b97f4a7c15ull; }

/* `since`: when the burst began, ns. */
static void write_burst(u64 burst, u64 pages, u64 since) {
    for (u64 i = 0; i < pages; i++) {
        for (u64 k = 0; k < WORDS; k++) page[k] = word_of(burst, i * WORDS + k);
        if (pagecache_write(&disk.cache, place_of(burst, pages, i), page, PAGE_SIZE))
            guest_panic("bursts: page %lu cannot be written", i);
        hist_add(&latency, time_ns() - since);
    }
}

static void check_burst(u64 burst, u64 pages) {
    pagecache_drop(&disk.cache);
    for (u64 i = 0; i < pages; i++) {
        if (pagecache_read(&disk.cache, NULL, place_of(burst, pages, i), page, PAGE_SIZE))
            guest_panic("bursts: page %lu cannot be read", i);
        for (u64 k = 0; k < WORDS; k++) wrong += page[k] != word_of(burst, i * WORDS + k);
    }
}

/* How long to wait before the next burst, ns. */
static u64 next_pause(u64 *rng) {
    u64 pause = cmdline_u64("pause_ms", 200) * NS_PER_MS;

    if (!cmdline_has("vary")) return pause;
    return pause / 2 + seed_below(seed_next(rng), pause);
}

/* Runs as a thread of the vCPU that disk.h names. */
static void worker(void *arg) {
    u64 kib = cmdline_u64("kib", 400), pages = kib * 1024 / PAGE_SIZE,
        bursts = cmdline_u64("bursts", 6);
    u64 rng = takt_seed(), began, writing = 0, took;
    const struct pagecache_stats *c = &disk.cache.stats;

    began = time_ns();
    for (u64 i = 0; i < bursts; i++) {
        u64 since;

        if (i) sleep_ns(next_pause(&rng));
        since = time_ns();
        write_burst(i, pages, since);
        writing += time_ns() - since;
    }
    took = time_ns() - began;
    if (pagecache_sync(&disk.cache)) guest_panic("bursts: the file cannot be made safe");
    check_burst(bursts - 1, pages);
    printf("bursts: wrote %lu KiB in %lu us, of that writing %lu us; throttled=%lu flush_asked=%lu "
           "pages_written=%lu by_itself=%lu wrong=%u mean_us=%lu p999_us=%lu\n",
           bursts * kib, took / 1000, writing / 1000, c->throttled, collab_stats()->flushes,
           c->pages_written, collab_stats()->by_itself, wrong, latency.sum / latency.count / 1000,
           hist_percentile(&latency, 999) / 1000);
}

int main(void) {
    struct thread *t;
    int error;

    vcpu_start_all();
    error = disk_open(&disk, 0);
    if (error) guest_panic("bursts: no disk: %d", error);
    if (cmdline_has("collab")) {
        error = collab_start(&disk);
        if (error) guest_panic("bursts: no store: %d", error);
    }
    t = thread_start(disk_thread_vcpu(), "worker", worker, NULL);
    if (!t) guest_panic("bursts: no memory");
    thread_join(t);
    return wrong != 0;
}
