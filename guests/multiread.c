/* Threads read a file each, again and again from its beginning to its end, a record at a time and
 * without pauses. With compute_us=T each thread computes for T us after each record, as a program
 * does that scans a database. With hogs=N, N more threads only compute, on the last vCPUs.
 *
 * Command line: file_kib=K (512) is the length of each file, record_kib=K (16) that of a record; a
 * file has a whole number of them. The files are written first, and should be larger than the cache
 * altogether, else they are read from the disk only once. guest/workload.h has the number of
 * threads, and when they end; guest/disk.h has more words. The exit code is 0 if all that was read
 * was right. */
#include <guest/compute.h>
#include <guest/guest.h>
#include <guest/mem.h>
#include <guest/vcpu.h>
#include <guest/workload.h>

static u64 file, record; /* bytes */

/* Allocates a buffer for one record. */
static void *buffer_new(void) {
    void *p = guest_env.pages((record + PAGE_SIZE - 1) / PAGE_SIZE);

    if (!p) guest_panic("multiread: there is no memory");
    return p;
}

/* Writes a file for each of n threads, makes them safe and empties the cache, so that reads go to
 * the disk. */
static void write_files(u32 n) {
    void *buffer = buffer_new();

    for (u64 at = 0; at < n * file; at += record) {
        workload_fill(buffer, 0, at, record);
        if (pagecache_write(&workload_disk.cache, at, buffer, record))
            guest_panic("multiread: the disk has no room for %u files", n);
    }
    if (pagecache_sync(&workload_disk.cache)) guest_panic("multiread: the disk refuses a sync");
    pagecache_drop(&workload_disk.cache);
}

/* Reads the file of thread `number` a record at a time, again and again, and checks each record. */
static void reader(void *number) {
    u64 base = (u64)number * file, offset = 0, compute = cmdline_u64("compute_us", 0) * 1000;
    struct pagecache_stream s = pagecache_stream(base, file);
    void *buffer = buffer_new();
    struct workload_request r;

    while (workload_next(&r)) {
        if (pagecache_read(&workload_disk.cache, &s, base + offset, buffer, record))
            guest_panic("multiread: the file at %lu cannot be read", base);
        workload_done(&r, WORKLOAD_READ, record);
        workload_wrong(workload_check(buffer, 0, base + offset, record));
        if (compute) delay_ns(compute);
        offset += record;
        if (offset < file) continue;
        offset = 0;
        s = pagecache_stream(base, file);
    }
}

/* Computes until the VM ends, in turns so short that a reader on the same vCPU that has been woken
 * does not wait for long. Linux lets such a thread run at once. */
static void hog(void *arg) {
    for (;;) {
        u64 end = time_ns() + NS_PER_MS;

        for (u64 now; (now = time_ns()) < end;) compute_some(end - now);
        thread_yield();
    }
}

static void start_hogs(void) {
    u32 n = (u32)cmdline_u64("hogs", 0), vcpus = vcpu_count();

    if (n > vcpus) guest_panic("multiread: hogs=%u is more than there are vCPUs", n);
    for (u32 i = 0; i < n; i++)
        if (!thread_start(vcpus - 1 - i, "hog", hog, NULL))
            guest_panic("multiread: there is no memory");
}

/* Writes the files, and has one thread read each of them. */
static void serve(void) {
    u32 n = workload_thread_count();

    record = MAX(cmdline_u64("record_kib", 16), 1ull) * 1024;
    file = cmdline_u64("file_kib", 512) * 1024;
    if (file % record) guest_panic("multiread: file_kib has to be a multiple of record_kib");
    write_files(n);
    start_hogs();
    workload_threads(n, reader);
}

int main(void) { return workload_main("multiread", serve); }
