/* Measures what IOrchestra's functions cost (docs/collab.md), and prints lines `BENCH name value`:
 * medians in TSC ticks, which are instructions where the TSC counts them.
 *
 * Command line: n=N (1000) is how many times each decision is made. Each of them is about DISKS
 * disks. With `trips`, the guest measures the way to the manager and back instead, N times: it sets
 * a key of its disk, and waits until its watch says that the manager has answered. The driver
 * domain that serves its disk 0 runs a manager, and that disk is on a shared device. Between two
 * trips there is a pause, in which the manager and this guest fall asleep. */
#include <guest/guest.h>
#include <guest/printf.h>
#include <guest/sort.h>
#include <guest/store.h>
#include <guest/string.h>
#include <guest/thread.h>
#include "drivers/collab/balance.h"
#include "drivers/collab/claims.h"
#include "drivers/collab/congest.h"
#include "drivers/collab/flush.h"
#include "drivers/collab/monitor.h"
#include "drivers/collab/share.h"
#include "drivers/disk_turns.h"

#define MAX_N   1000
#define DISKS   16
#define SOCKETS 4
/* Longer than the period in which the manager asks a disk to flush once, and so long that the
 * changes of keys are no flood (CLAIMS_CHANGES). */
#define PAUSE (123 * NS_PER_MS + 457 * NS_PER_US)

static u32 sample[MAX_N], times;

/* Prints the median of the samples. */
static void report(const char *name) {
    sort_u32(sample, times);
    printf("BENCH %s %u\n", name, sample[times / 2]);
}

#define MEASURE(name, operation)                                                                   \
    do {                                                                                           \
        for (u32 i_ = 0; i_ < times; i_++) {                                                       \
            u64 t_ = rdtsc();                                                                      \
            operation;                                                                             \
            sample[i_] = (u32)(rdtsc() - t_);                                                      \
        }                                                                                          \
        report(name);                                                                              \
    } while (0)

/* ---- decisions ---- */

/* Measures choosing the disk that has to flush. */
static void flush_decisions(void) {
    struct flush_disk disks[DISKS];
    volatile u32 chosen = 0;

    for (u32 i = 0; i < DISKS; i++)
        disks[i] = (struct flush_disk){ .has_dirty_pages = true, .nr = i };
    MEASURE("collab_flush", chosen = flush_choose(disks, DISKS, true, NS_PER_S));
    if (chosen != DISKS - 1) guest_panic("collabbench: disk %u is to flush", chosen);
}

/* Measures decisions about congestion: whether a device is crowded, the answer to a disk that asks
 * again while all disks wait, and the release of the next disk that waits. */
static void congestion_decisions(void) {
    struct congest c = congest_begin(1);
    struct congest_limits limits = { .queue = 64 };
    volatile bool crowded = false;
    u64 now = 0;

    MEASURE("collab_crowded", crowded = congest_crowded(&limits, 60, 50, false));
    for (u32 i = 0; i < DISKS; i++) congest_ask(&c, i, crowded);
    MEASURE("collab_ask", congest_ask(&c, DISKS - 1, true));
    MEASURE("collab_relieve", {
        congest_relieve(&c, false, now);
        if (c.next != ~0ull) now = c.next;
        if (!c.nr) congest_ask(&c, i_ % DISKS, true);
    });
}

/* Measures dividing a device among sockets, and balancing weights among I/O cores. */
static void share_decisions(void) {
    u32 weight[DISKS], socket[DISKS];
    u64 share[SOCKETS], latency[SOCKETS] = { 1000, 2000, 3000, 4000 };

    for (u32 i = 0; i < DISKS; i++) {
        weight[i] = i + 1;
        socket[i] = i % SOCKETS;
    }
    MEASURE("collab_share", share_by_socket(COLLAB_ONE, weight, socket, DISKS, SOCKETS, share));
    MEASURE("collab_balance", balance_weights(latency, SOCKETS, share));
}

/* Measures choosing the next request by deficit round robin: a request of each disk waits, and one
 * of them begins. */
static void turn_decisions(void) {
    static struct disk_model model;
    static struct disk_turns turns;
    static struct disk_turn disks[DISKS];
    static struct disk_request request[DISKS];
    u64 now = 0;

    disk_model_init(&model, "bw=1G queue=1 sched=drr");
    disk_turns_init(&turns, &model);
    for (u32 i = 0; i < DISKS; i++) {
        disks[i].share = i + 1;
        disk_round_add(&turns.round, &disks[i]);
        request[i].type = VIRTIO_BLK_OUT;
        request[i].bytes = PAGE_SIZE;
        disk_round_wait(&turns.round, &disks[i], &request[i]);
    }
    for (u32 i = 0; i < times; i++) {
        struct disk_request *q;
        u64 began;

        now += NS_PER_MS;
        began = rdtsc();
        q = disk_turns_next(&turns, now);
        sample[i] = (u32)(rdtsc() - began);
        if (!q) guest_panic("collabbench: no request begins");
        disk_round_wait(&turns.round, q->turn, q);
    }
    report("collab_turn");
}

/* Measures counting a request, ending a period, and looking for a flood of changes. */
static void monitor_decisions(void) {
    static struct monitor device, disk;
    static struct monitor_period period;
    static struct claims claims;
    volatile bool flood = false;
    u64 now = 0;

    monitor_init(&device, NULL, 0);
    monitor_init(&disk, &device, 0);
    MEASURE("collab_monitor", {
        monitor_begin(&disk, now);
        monitor_end(&disk, MONITOR_WRITE, PAGE_SIZE, now, now + NS_PER_US);
        now += NS_PER_MS;
    });
    MEASURE("collab_period", monitor_cut(&disk, now, &period));
    MEASURE("collab_claims", flood = claims_change(&claims, now += 10 * NS_PER_MS));
    if (flood) guest_panic("collabbench: 100 changes a second are a flood");
}

/* ---- trips ---- */

static struct semaphore answered = SEMAPHORE(0);
static u64 arrived;

static void on_change(void *ctx, const char *path) {
    arrived = rdtsc();
    sem_up(&answered);
}

static void put(const char *path, u64 value) {
    if (store_write_u64(0, path, value) < 0) guest_panic("collabbench: %s cannot be written", path);
}

/* Measures from the write of `ask` until `answer` is set. Both are cleared afterwards, first
 * `answer` and then `ask`, because the manager looks at `answer` when it hears that `ask` has
 * changed. */
static void trip(const char *name, const char *ask, const char *answer) {
    i64 error = store_watch(answer, on_change, NULL);

    if (error < 0) guest_panic("collabbench: %s has no watch: error %ld", answer, -error);
    for (u32 i = 0; i < times; i++) {
        u64 began;

        sleep_ns(PAUSE);
        while (sem_try(&answered)) { /* what this guest cleared fired the watch, too */
        }
        began = rdtsc();
        put(ask, 1);
        if (!sem_down_until(&answered, time_ns() + NS_PER_S))
            guest_panic("collabbench: %s was set, and the manager does not set %s", ask, answer);
        sample[i] = (u32)(arrived - began);
        put(answer, 0);
        put(ask, 0);
    }
    report(name);
}

/* Measures what the command line names: the decisions alone, or with `trips` the way through the
 * store. */
int main(void) {
    times = (u32)MIN(cmdline_u64("n", MAX_N), (u64)MAX_N);
    if (cmdline_has("trips")) {
        if (store_start()) guest_panic("collabbench: there is no store");
        sleep_ns(PAUSE); /* the manager finds the disk */
        trip("trip_congestion", "io/disk/0/congested", "io/disk/0/release_request");
        /* So few that the manager does not doubt the claim, although none of them is written. */
        put("io/disk/0/nr", 3);
        trip("trip_flush", "io/disk/0/has_dirty_pages", "io/disk/0/flush_now");
    } else {
        flush_decisions();
        congestion_decisions();
        share_decisions();
        turn_decisions();
        monitor_decisions();
    }
    printf("BENCH collab_end 0\n");
    return 0;
}
