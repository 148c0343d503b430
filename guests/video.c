/* A video server's disk: streams=N (4) threads each read a file of their own from its beginning to
 * its end, chunk by chunk and at a fixed rate, while one more thread writes what is being uploaded.
 *
 * Command line: file_kib=K (512) of each stream, and of the place that is written; chunk_kib=K
 * (16); period_ms=T (20) from one chunk of a stream to the next; write_kib=K (0) of one upload, and
 * write_ms=T (50) from one upload to the next; run_ms=T (2000) for how long. An upload writes every
 * other page, so that each is a request of its own. guest/workload.h says what `collab` does and
 * what is printed; guest/disk.h has more words. The exit code is 0 if all that was read was right.
 *
 * The latency of a chunk is the time from when it was due until it is there. A stream that is late
 * asks for its next chunks as soon as it can, and their lateness counts as well: otherwise one that
 * stands still would have few bad values, because it asks for little. */
#include <guest/guest.h>
#include <guest/workload.h>
#include <takt/seed.h>

#define MOST 8

static u64 file, chunk, end;
static u32 nr_streams;

static struct stream {
    u64 at;    /* where its file begins, bytes */
    u64 phase; /* when its first chunk is due, ns */
    u8 *buffer;
} streams[MOST];

/* Writes [at, at + file) to the disk itself. */
static void make_file(u64 at, u8 *buffer) {
    for (u64 done = 0; done < file; done += chunk) {
        workload_fill(buffer, 0, at + done, chunk);
        if (pagecache_write(&workload_disk.cache, at + done, buffer, chunk))
            guest_panic("video: the file at %lu cannot be written", at);
    }
}

/* Reads a chunk when it is due, again from the beginning when the file ends. */
static void reader(struct stream *s) {
    u64 period = cmdline_u64("period_ms", 20) * NS_PER_MS, offset = 0;
    struct workload_request r = { .due = s->phase };
    struct pagecache_stream ahead = pagecache_stream(s->at, file);

    for (; r.due < end; r.due += period) {
        sleep_until(r.due);
        if (pagecache_read(&workload_disk.cache, &ahead, s->at + offset, s->buffer, chunk))
            guest_panic("video: %lu cannot be read", s->at + offset);
        workload_done(&r, WORKLOAD_READ, chunk);
        workload_wrong(workload_check(s->buffer, 0, s->at + offset, chunk));
        offset += chunk;
        if (offset < file) continue;
        offset = 0;
        ahead = pagecache_stream(s->at, file);
    }
}

/* Writes an upload when it is due. The latency counts until its last page is in the cache. */
static void writer(struct stream *s) {
    u64 period = cmdline_u64("write_ms", 50) * NS_PER_MS, each = cmdline_u64("write_kib", 0) * 1024;
    struct workload_request r = { .due = s->phase };

    for (u64 offset = 0; each && r.due < end; r.due += period) {
        sleep_until(r.due);
        for (u64 done = 0; done < each; done += PAGE_SIZE) {
            workload_fill(s->buffer, 0, s->at + offset, PAGE_SIZE);
            if (pagecache_write(&workload_disk.cache, s->at + offset, s->buffer, PAGE_SIZE))
                guest_panic("video: %lu cannot be written", s->at + offset);
            offset = (offset + 2 * PAGE_SIZE) % file;
        }
        workload_done(&r, WORKLOAD_WRITE, each);
    }
}

/* Reads a stream, as a thread; the last thread writes one. */
static void stream(void *number) {
    u64 i = (u64)number;

    if (i == nr_streams)
        writer(&streams[i]);
    else
        reader(&streams[i]);
}

/* Makes the files, empties the cache, and starts the streams at random times within 20 ms. */
static void serve(void) {
    u64 rng = takt_seed(), begin;

    file = cmdline_u64("file_kib", 512) * 1024;
    chunk = cmdline_u64("chunk_kib", 16) * 1024;
    nr_streams = (u32)MIN(cmdline_u64("streams", 4), (u64)MOST - 1);
    for (u32 i = 0; i <= nr_streams; i++) {
        streams[i].at = i * file;
        streams[i].buffer = guest_env.pages((chunk + PAGE_SIZE - 1) / PAGE_SIZE);
        if (!streams[i].buffer) guest_panic("video: there is no memory");
        make_file(streams[i].at, streams[i].buffer);
    }
    if (pagecache_sync(&workload_disk.cache)) guest_panic("video: the files cannot be made safe");
    pagecache_drop(&workload_disk.cache);
    begin = time_ns() + 20 * NS_PER_MS;
    end = begin + cmdline_u64("run_ms", 2000) * NS_PER_MS;
    for (u32 i = 0; i <= nr_streams; i++)
        streams[i].phase = begin + seed_below(seed_next(&rng), 20 * NS_PER_MS);
    workload_threads(nr_streams + 1, stream);
}

int main(void) { return workload_main("video", serve); }
