/* A benchmark of one file, in the manner of iozone. There is no file system: the file is the part
 * of the virtio block device that begins at at_kib=K (0) and has kib=K (1024) KiB. Records of
 * record_kib=K (4) are written and read by the tests that tests=LETTERS (wWrRio) names, one after
 * the other:
 *
 *   w  writes the records in order          W  writes them again
 *   r  drops the cache, then reads them     R  reads them again
 *   i  drops the cache, reads at random     o  writes at random; seed=S (1) for both
 *   m  puts a mark behind the file, which tells that all of it has been written, and syncs
 *   v  before anything is written: if the mark is there, verifies what an earlier machine has left
 *      on the disk
 *   p  pauses for a second
 *
 * With `fsync`, the sync after each test that writes counts as a part of the test. Each test prints
 * MB/s (of 10^6 bytes) and how the latencies of records are distributed. At the end come counters
 * of the cache. What is read is compared with what belongs there; that time does not count. With
 * `busy` or busy=P, one more thread computes on the vCPU of the thread that writes and reads
 * (guest/background.h). guest/disk.h has more words for the command line. The exit code is 0 if
 * nothing was wrong. */
#include <guest/background.h>
#include <guest/disk.h>
#include <guest/guest.h>
#include <guest/mem.h>
#include <guest/printf.h>
#include <guest/sort.h>
#include <guest/string.h>
#include <guest/thread.h>
#include <guest/vcpu.h>

static struct disk disk;
static u64 base, size, record, nr; /* base, size and record in bytes; nr: the number of records */
static u64 rng;
static u64 *buffer;
static u32 *latency; /* of each record, in ns */
static u8 *written;  /* for each record, how many times it was written */
static u32 wrong;

/* Returns a random number below n. */
static u64 noise(u64 n) {
    rng = rng * 6364136223846793005ull + 1442695040888963407ull;
    return (rng >> 33) % n;
}

/* The word at place `at` of record `i` when it is written for the round-th time. INVERSE is the
 * inverse of FACTOR modulo 2^64, so the round can be read from a word. */
#define FACTOR  0x9e3779b97f4a7c15ull
#define INVERSE 0xf1de83e19937733dull
static u64 word_of(u64 i, u64 round, u64 at) { return (i << 40 | round << 32 | at) * FACTOR; }
static u64 round_of(u64 word) { return (u8)(word * INVERSE >> 32); }

static int write_record(struct pagecache_stream *s, u64 i) {
    u64 round = ++written[i];

    for (u64 k = 0; k < record / 8; k++) buffer[k] = word_of(i, round, k);
    return pagecache_write(&disk.cache, base + i * record, buffer, record);
}

static int read_record(struct pagecache_stream *s, u64 i) {
    return pagecache_read(&disk.cache, s, base + i * record, buffer, record);
}

static void check(u64 i) {
    for (u64 k = 0; k < record / 8; k++)
        if (buffer[k] != word_of(i, written[i], k)) {
            wrong++;
            return;
        }
}

static void put_mark(void) {
    u64 mark = word_of(nr, 1, 0);

    if (pagecache_write(&disk.cache, base + size, &mark, sizeof(mark)) ||
        pagecache_sync(&disk.cache))
        guest_panic("iozone: the mark cannot be read or written");
}

/* Compares each record with what belongs there. A machine that died while it wrote may have left a
 * part of a record as it was before, but never as it was not: each word has to be that of some
 * round. */
static void verify(void) {
    u64 mark;

    if (pagecache_read(&disk.cache, NULL, base + size, &mark, sizeof(mark)))
        guest_panic("iozone: the mark cannot be read or written");
    if (mark != word_of(nr, 1, 0)) {
        printf("iozone: nothing to verify\n");
        return;
    }
    for (u64 i = 0; i < nr; i++) {
        bool right = read_record(NULL, i) == 0;

        for (u64 k = 0; k < record / 8; k++) {
            u64 round = round_of(buffer[k]);

            right = right && round && buffer[k] == word_of(i, round, k);
        }
        wrong += !right;
    }
    printf("iozone: verified %lu KiB, %u wrong\n", size >> 10, wrong);
}

/* Prints the rate, and percentiles of the latencies of records. Sorts the latencies. */
static void report(const char *name, u64 ns) {
    u64 rate = ns ? size * 100000 / ns : 0; /* MB/s, in hundredths */

    sort_u32(latency, nr);
    printf("iozone: %s %lu KiB in records of %lu KiB: %lu.%02lu MB/s, latency ns p50 %u p90 %u p99 "
           "%u max %u\n",
           name, size >> 10, record >> 10, rate / 100, rate % 100, latency[(nr - 1) / 2],
           latency[(nr * 9 - 1) / 10], latency[(nr * 99 - 1) / 100], latency[nr - 1]);
}

/* Runs one test: `nr` records, in order or at random. Comparing what was read does not count as
 * time. `name` is for what it prints. */
static void run(const char *name, bool writes, bool at_random, bool with_sync) {
    struct pagecache_stream s = pagecache_stream(base, size);
    u64 start = time_ns(), ns, checking = 0;

    for (u64 i = 0; i < nr; i++) {
        u64 which = i, began, ended;
        int error;

        if (at_random) which = noise(nr);
        began = time_ns();
        if (writes)
            error = write_record(&s, which);
        else
            error = read_record(&s, which);
        ended = time_ns();
        latency[i] = (u32)MIN(ended - began, 0xffffffffull);
        if (error) guest_panic("iozone: %s of record %lu failed: error %d", name, which, error);
        if (writes) continue;
        check(which);
        checking += time_ns() - ended;
    }
    if (with_sync && pagecache_sync(&disk.cache))
        guest_panic("iozone: the file cannot be synced after %s", name);
    ns = time_ns() - start - checking;
    if (writes && pagecache_sync(&disk.cache))
        guest_panic("iozone: the file cannot be synced after %s", name);
    report(name, ns);
}

/* Runs the tests in the order of their letters, as a thread, and then prints the counters of the
 * cache and of the disk. */
static void worker(void *arg) {
    const struct pagecache_stats *c = &disk.cache.stats;
    char tests[64];
    bool with_sync = cmdline_has("fsync");

    if (!cmdline_str("tests", tests, sizeof(tests))) memcpy(tests, "wWrRio", 7);
    for (const char *t = tests; *t; t++) {
        if (*t == 'r' || *t == 'i') pagecache_drop(&disk.cache);
        switch (*t) {
        case 'w': run("write", true, false, with_sync); break;
        case 'W': run("rewrite", true, false, with_sync); break;
        case 'r': run("read", false, false, false); break;
        case 'R': run("reread", false, false, false); break;
        case 'i': run("random read", false, true, false); break;
        case 'o': run("random write", true, true, with_sync); break;
        case 'm': put_mark(); break;
        case 'v': verify(); break;
        case 'p': sleep_ns(NS_PER_S); break;
        default: guest_panic("iozone: no test is called %c", *t);
        }
    }
    printf("iozone: cache hits=%lu misses=%lu ahead=%lu evicted=%lu throttled=%lu throttled_us=%lu "
           "wrong=%u\n",
           c->hits, c->misses, c->ahead, c->evicted, c->throttled, c->throttled_ns / 1000, wrong);
    printf(
        "iozone: disk reads=%lu pages_read=%lu writes=%lu pages_written=%lu flushes=%lu passes=%lu "
        "congestions=%lu interrupts=%lu\n",
        c->reads, c->pages_read, c->writes, c->pages_written, c->flushes, c->passes, c->congestions,
        disk.interrupts);
}

/* Opens the disk and runs the tests. The tests run in a thread of the last vCPU, because vCPU 0
 * takes the interrupts of the disk. */
int main(void) {
    struct thread *t;
    int error;

    vcpu_start_all();
    base = cmdline_u64("at_kib", 0) << 10;
    size = cmdline_u64("kib", 1024) << 10;
    record = MAX(cmdline_u64("record_kib", 4), 1ull) << 10;
    rng = cmdline_u64("seed", 1);
    nr = size / record;
    error = disk_open(&disk, 0);
    if (error) guest_panic("iozone: there is no disk (error %d)", error);
    if (!nr || base + size + PAGE_SIZE > disk.cache.blocks * PAGE_SIZE)
        guest_panic("iozone: the file is not within the disk");
    size = nr * record;
    buffer = malloc(record);
    latency = calloc(nr, sizeof(*latency));
    written = calloc(nr, sizeof(*written));
    t = thread_start(disk_thread_vcpu(), "worker", worker, NULL);
    if (!buffer || !latency || !written || !t) guest_panic("iozone: there is no memory");
    background_start(disk_thread_vcpu());
    thread_join(t);
    return wrong != 0;
}
