/* Measures what the store costs a guest, and prints lines `BENCH name value`: medians in TSC ticks,
 * and in ns for a watch.
 *
 * Command line: n=N (1000) is how many times each operation is done. Alone, the guest reads a value
 * of 16 bytes, writes one, and prints how many reads a second it can do. With watcher=VM it writes
 * N times to a node of that VM. That VM runs this guest with `watch` and writer=VM, and prints the
 * time from the beginning of the write to its callback, in the hypervisor's time. Its vCPU slept
 * before each of them. */
#include <guest/guest.h>
#include <guest/printf.h>
#include <guest/sort.h>
#include <guest/store.h>
#include <guest/thread.h>

#define MAX_N 1000
#define PAUSE (5 * NS_PER_MS)

static u32 sample[MAX_N], times, seen;
static struct semaphore done = SEMAPHORE(0);

static u32 median(void) {
    sort_u32(sample, times);
    return sample[times / 2];
}

/* Ends the guest with a sentence if an operation of the store failed. */
static void must(const char *what, i64 result) {
    if (result < 0) guest_panic("storebench: %s failed: error %ld", what, -result);
}

/* Measures reads and writes of this VM's own node. */
static void alone(void) {
    char value[16] = "0123456789abcde";
    u64 start;

    must("write", store_write(0, "data/value", value, sizeof(value)));
    for (u32 i = 0; i < times; i++) {
        start = rdtsc();
        store_read(0, "data/value", value, sizeof(value));
        sample[i] = (u32)(rdtsc() - start);
    }
    printf("BENCH store_read %u\n", median());
    for (u32 i = 0; i < times; i++) {
        start = rdtsc();
        store_write(0, "data/value", value, sizeof(value));
        sample[i] = (u32)(rdtsc() - start);
    }
    printf("BENCH store_write %u\n", median());
    start = time_ns();
    for (u32 i = 0; i < times; i++) store_read(0, "data/value", value, sizeof(value));
    printf("BENCH store_reads_per_s %u\n", (u32)(times * NS_PER_S / (time_ns() - start)));
}

/* ---- the watcher: its node contains the time at which the write began ---- */

static u64 called;

static void on_change(void *ctx, const char *path) {
    called = (u64)hypercall0(TAKT_HC_TIME);
    sem_up(&done);
}

/* Measures how long it takes from a write by another VM, number `writer`, until the callback of
 * this VM's watch runs. The writer puts the time at which it begins into the value that it writes;
 * it may write this one node of ours. */
static void watch(u64 writer) {
    u64 began;
    char perms[32];

    must("write", store_write_u64(0, "data/began", 0));
    int n = snprintf(perms, sizeof(perms), "n%u%cb%lu", takt_vm_id(), 0, writer) + 1;
    must("perms", store_set_perms(0, "data/began", perms, (u32)n));
    must("watch", store_watch("data/began", on_change, NULL));
    sem_down(&done); /* setting a watch calls the callback once at once */
    while (seen < times) {
        sem_down(&done);
        must("read", store_read_u64(0, "data/began", &began));
        if (began) sample[seen++] = (u32)(called - began);
    }
    printf("BENCH store_watch %u\n", median());
}

/* Writes the time to the watcher's node. A write that is refused, because the watcher is not ready
 * yet, is tried again. */
static void write(u64 watcher) {
    char path[48];

    snprintf(path, sizeof(path), "/local/domain/%lu/data/began", watcher);
    for (u32 i = 0; i < times;) {
        sleep_ns(PAUSE); /* meanwhile the watcher goes to sleep */
        if (store_write_u64(0, path, (u64)hypercall0(TAKT_HC_TIME)) == 0) i++;
    }
}

/* Measures what the command line names. */
int main(void) {
    int error = store_start();

    times = (u32)cmdline_u64("n", MAX_N);
    if (times > MAX_N) times = MAX_N;
    if (error) guest_panic("storebench: there is no store (error %d)", -error);
    if (cmdline_has("watch"))
        watch(cmdline_u64("writer", 0));
    else if (cmdline_has("watcher"))
        write(cmdline_u64("watcher", 0));
    else
        alone();
    return 0;
}
