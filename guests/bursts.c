/* Writes a file in bursts. In the pauses between them the disk could write what is still dirty. How
 * fast the next burst is depends on how many dirty pages of the burst before are left.
 *
 * Command line: kib=N (400) is the size of a burst, bursts=N (6) their number, pause_ms=T (200) the
 * pause between them. With `vary`, each pause is from half of that to one and a half times as long,
 * as the VM's seed says. With `gaps`, only every other page is written, so that each is a request
 * of its own. Bursts write two places in turn, because a burst that only changes pages that are
 * dirty already would not make new ones. guest/workload.h says what `collab` does and what is
 * printed; guest/disk.h has more words. The exit code is 0 if the last burst is read back as it was
 * written.
 *
 * The disk refuses everything while its back end is gone. The guest then does what a program does
 * that must not lose its file: it tries to write a page until it is taken, and if the file cannot
 * be made safe, it writes the last burst again, because it does not know what of it was lost.
 *
 * The latency of a page is the time from the beginning of its burst until the page is in the cache.
 * So a page that waits because the page before it waits is not left out. */
#include <guest/guest.h>
#include <guest/printf.h>
#include <guest/workload.h>
#include <takt/seed.h>

#define TRIES    300 /* to write a page, or to make the file safe, before the guest gives up */
#define RETRY_NS (10 * NS_PER_MS)

static u8 page[PAGE_SIZE] __attribute__((aligned(8)));
static u64 bursts, pages, stride; /* how many; pages of a burst; bytes from one page to the next */

/* Returns where page `i` of a burst is on the disk, in bytes. Two places take turns. */
static u64 place_of(u64 burst, u64 i) { return (burst % 2 * pages + i) * stride; }

/* Writes page i of a burst. If the disk refuses it, tries again a few times, because its back end
 * may be gone for a while. */
static void write_page(u64 burst, u64 i) {
    u32 tries = 0;

    workload_fill(page, burst, i * PAGE_SIZE, PAGE_SIZE);
    while (pagecache_write(&workload_disk.cache, place_of(burst, i), page, PAGE_SIZE)) {
        if (++tries == TRIES) guest_panic("bursts: page %lu cannot be written", i);
        sleep_ns(RETRY_NS);
    }
}

/* Writes a burst, all pages of which are due now. */
static void write_burst(u64 burst) {
    struct workload_request r = { .due = time_ns() };

    for (u64 i = 0; i < pages; i++) {
        write_page(burst, i);
        workload_done(&r, WORKLOAD_WRITE, PAGE_SIZE);
    }
}

/* Returns when the burst, which is the last one, is on the disk. */
static void make_safe(u64 burst) {
    for (u32 tries = 0; pagecache_sync(&workload_disk.cache); tries++) {
        if (tries == TRIES) guest_panic("bursts: the file cannot be made safe");
        sleep_ns(RETRY_NS);
        for (u64 i = 0; i < pages; i++) write_page(burst, i);
    }
}

/* Reads the burst back from the disk, and not from the cache. */
static void check_burst(u64 burst) {
    pagecache_drop(&workload_disk.cache);
    for (u64 i = 0; i < pages; i++) {
        if (pagecache_read(&workload_disk.cache, NULL, place_of(burst, i), page, PAGE_SIZE))
            guest_panic("bursts: page %lu cannot be read", i);
        workload_wrong(workload_check(page, burst, i * PAGE_SIZE, PAGE_SIZE));
    }
}

/* Returns how long to wait before the next burst, ns. */
static u64 next_pause(u64 *rng) {
    u64 pause = cmdline_u64("pause_ms", 200) * NS_PER_MS;

    if (!cmdline_has("vary")) return pause;
    return pause / 2 + seed_below(seed_next(rng), pause);
}

/* Writes all bursts, as a thread. Prints how much of its time was not spent in pauses. */
static void writer(void *number) {
    u64 rng = takt_seed(), writing = 0;

    for (u64 i = 0; i < bursts; i++) {
        u64 since;

        if (i) sleep_ns(next_pause(&rng));
        since = time_ns();
        write_burst(i);
        writing += time_ns() - since;
    }
    printf("bursts: writing_us=%lu\n", writing / 1000);
}

/* Writes the bursts, and then checks the last one on the disk. */
static void serve(void) {
    bursts = cmdline_u64("bursts", 6);
    pages = cmdline_u64("kib", 400) * 1024 / PAGE_SIZE;
    stride = PAGE_SIZE;
    if (cmdline_has("gaps")) stride = 2 * PAGE_SIZE;
    workload_threads(1, writer);
    make_safe(bursts - 1);
    check_burst(bursts - 1);
}

int main(void) { return workload_main("bursts", serve); }
