/* A video server's disk: streams=N (4) threads each read a file of their own from its beginning to
 * its end, chunk by chunk and at a fixed rate, while one more thread writes what is being uploaded.
 *
 * Command line: file_kib=K (512) of each stream, and of the place that is written; chunk_kib=K
 * (16); period_ms=T (20) from one chunk of a stream to the next; write_kib=K (0) of one upload, and
 * write_ms=T (50) from one upload to the next; run_ms=T (2000) for how long. An
 * upload writes every other page, so that each is a request of its own. collab: takes part in
 * docs/collab.md. And what guest/disk.h has. The exit code is 0 if all that was read was right.
 *
 * The latency of a chunk is the time from when it was due until it is there. A stream that is late
 * asks for its next chunks as soon as it can, and their lateness counts as well: otherwise one that
 * stands still would have few bad values, because it asks for little. */
#include <guest/collab.h>
#include <guest/disk.h>
#include <guest/guest.h>
#include <guest/mem.h>
#include <guest/printf.h>
#include <guest/thread.h>
#include <guest/vcpu.h>
#include <takt/seed.h>
#include "common/hist.h"

#define MOST  8
#define WORDS (PAGE_SIZE / sizeof(u64))

static struct disk disk;
static struct hist latency; /* threads of one vCPU add to it, with preemption off */
static u64 file, chunk, end;
static u64 read_bytes, written_bytes, wrong;

static struct stream {
    u64 at;    /* where its file begins, bytes */
    u64 phase; /* when its first chunk is due, ns */
    u8 *buffer;
    struct thread *thread;
} streams[MOST];

static u64 word_of(u64 offset) { return (offset + 1) * SEED_STEP; }

static void fill(u8 *p, u64 offset, u64 len) {
    for (u64 i = 0; i < len; i += sizeof(u64)) *(u64 *)(p + i) = word_of(offset + i);
}

static u64 count_wrong(const u8 *p, u64 offset, u64 len) {
    u64 n = 0;

    for (u64 i = 0; i < len; i += PAGE_SIZE) n += *(const u64 *)(p + i) != word_of(offset + i);
    return n;
}

/* Writes [at, at + file) to the disk itself. */
static void make_file(u64 at, u8 *buffer) {
    for (u64 done = 0; done < file; done += chunk) {
        fill(buffer, at + done, chunk);
        if (pagecache_write(&disk.cache, at + done, buffer, chunk))
            guest_panic("video: the file at %lu cannot be written", at);
    }
}

static void reader(void *arg) {
    struct stream *s = arg;
    u64 period = cmdline_u64("period_ms", 20) * NS_PER_MS, due = s->phase, offset = 0;
    struct pagecache_stream ahead = pagecache_stream(s->at, file);

    for (; due < end; due += period) {
        sleep_until(due);
        if (pagecache_read(&disk.cache, &ahead, s->at + offset, s->buffer, chunk))
            guest_panic("video: %lu cannot be read", s->at + offset);
        preempt_disable();
        hist_add(&latency, time_ns() - due);
        read_bytes += chunk;
        preempt_enable();
        wrong += count_wrong(s->buffer, s->at + offset, chunk);
        offset += chunk;
        if (offset < file) continue;
        offset = 0;
        ahead = pagecache_stream(s->at, file);
    }
}

static void writer(void *arg) {
    struct stream *s = arg;
    u64 period = cmdline_u64("write_ms", 50) * NS_PER_MS, each = cmdline_u64("write_kib", 0) * 1024;

    for (u64 due = s->phase, offset = 0; each && due < end; due += period) {
        sleep_until(due);
        for (u64 done = 0; done < each; done += PAGE_SIZE) {
            fill(s->buffer, s->at + offset, PAGE_SIZE);
            if (pagecache_write(&disk.cache, s->at + offset, s->buffer, PAGE_SIZE))
                guest_panic("video: %lu cannot be written", s->at + offset);
            offset = (offset + 2 * PAGE_SIZE) % file;
        }
        written_bytes += each;
    }
}

static void say(void) {
    const struct pagecache_stats *c = &disk.cache.stats;
    const struct collab_stats *collab = collab_stats();

    printf("video: read %lu KiB, wrote %lu KiB; chunks=%lu mean_us=%lu p99_us=%lu p999_us=%lu "
           "max_us=%lu wrong=%lu\n",
           read_bytes / 1024, written_bytes / 1024, latency.count,
           latency.sum / MAX(latency.count, 1ul) / 1000, hist_percentile(&latency, 990) / 1000,
           hist_percentile(&latency, 999) / 1000, latency.max / 1000, wrong);
    printf("video: cache ahead=%lu ahead_congested=%lu congestions=%lu throttled=%lu asked=%lu "
           "released=%lu flush_asked=%lu\n",
           c->ahead, c->ahead_congested, c->congestions, c->throttled, collab->asked,
           collab->released, collab->flushes);
}

static void serve(void *arg) {
    u32 n = (u32)MIN(cmdline_u64("streams", 4), (u64)MOST - 1);
    u64 rng = takt_seed(), begin;

    for (u32 i = 0; i <= n; i++) {
        streams[i].at = i * file;
        streams[i].buffer = guest_env.pages((chunk + PAGE_SIZE - 1) / PAGE_SIZE);
        if (!streams[i].buffer) guest_panic("video: no memory");
        make_file(streams[i].at, streams[i].buffer);
    }
    if (pagecache_sync(&disk.cache)) guest_panic("video: the files cannot be made safe");
    pagecache_drop(&disk.cache);
    begin = time_ns() + 20 * NS_PER_MS;
    end = begin + cmdline_u64("run_ms", 2000) * NS_PER_MS;
    for (u32 i = 0; i <= n; i++) {
        void (*fn)(void *) = reader;

        if (i == n) fn = writer;
        streams[i].phase = begin + seed_below(seed_next(&rng), 20 * NS_PER_MS);
        streams[i].thread = thread_start(disk_thread_vcpu(), "stream", fn, &streams[i]);
        if (!streams[i].thread) guest_panic("video: no memory");
    }
    for (u32 i = 0; i <= n; i++) thread_join(streams[i].thread);
    say();
}

int main(void) {
    struct thread *t;
    int error;

    vcpu_start_all();
    file = cmdline_u64("file_kib", 512) * 1024;
    chunk = cmdline_u64("chunk_kib", 16) * 1024;
    error = disk_open(&disk, 0);
    if (error) guest_panic("video: no disk: %d", error);
    if (cmdline_has("collab")) {
        error = collab_start(&disk);
        if (error) guest_panic("video: no store: %d", error);
    }
    t = thread_start(disk_thread_vcpu(), "server", serve, NULL);
    if (!t) guest_panic("video: no memory");
    thread_join(t);
    return wrong != 0;
}
