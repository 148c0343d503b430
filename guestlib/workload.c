/* guest/workload.h has the contracts. */
#include <guest/arrivals.h>
#include <guest/collab.h>
#include <guest/guest.h>
#include <guest/mem.h>
#include <guest/printf.h>
#include <guest/sockets.h>
#include <guest/vcpu.h>
#include <guest/workload.h>
#include <takt/seed.h>

#define LINE 64 /* bytes of which one word is compared */

struct disk workload_disk;

/* What was answered, by kind. */
static struct answered {
    const char *name;
    struct hist latency;
    u64 bytes;
} answered[WORKLOAD_KINDS] = { { .name = "read" }, { .name = "write" } };

static struct mutex lock = MUTEX; /* guards what follows, and `answered` */
static struct arrivals arrivals;
static u64 rate, nr, most, most_bytes, began, end, last, wrong;
static struct bursts bursts; /* all 0: there are none */

static const char *title;
static void (*serve)(void);

/* ---- threads of a VM on several sockets ---- */

#define WEIGHT 10 /* of each thread, as I/O threads of a VM on several sockets */

/* The threads, if they may be given other vCPUs. */
static struct thread **movable;
static u32 nr_movable;
static u32 followed; /* how often one of them has gone to another vCPU */

/* Goes to the vCPU on which this thread belongs. One of the guest's own threads stays where it is.
 */
static void go_home(void) {
    u32 n = __atomic_load_n(&nr_movable, __ATOMIC_ACQUIRE);

    for (u32 i = 0; i < n; i++) {
        if (movable[i] != thread_self()) continue;
        if (sockets_vcpu(i) != movable[i]->vcpu) __atomic_fetch_add(&followed, 1, __ATOMIC_RELAXED);
        thread_move(sockets_vcpu(i));
    }
}

/* Lets the manager say on which sockets the threads do their I/O, if the VM is on several. */
static void co_schedule(struct thread **t, u32 n) {
    if (!cmdline_has("collab") || workload_disk.nr_rings < 2 || n > SOCKETS_THREADS) return;
    for (u32 i = 0; i < n; i++) sockets_add(WEIGHT, t[i]->vcpu);
    if (sockets_start(workload_disk.index, workload_disk.nr_rings, false))
        guest_panic("%s: there is no memory to follow the manager", title);
    movable = t;
    __atomic_store_n(&nr_movable, n, __ATOMIC_RELEASE);
}

/* ---- when requests are due ---- */

/* Returns the machine's time, which all VMs share. A VM's own clock begins with the VM. */
static u64 machine_ns(void) {
    if (!on_takt()) return time_ns();
    return hypercall0(TAKT_HC_TIME);
}

/* Starts the clock of the requests, and reads from the command line when they are due and when they
 * end. */
void workload_begin(void) {
    bool bounded = cmdline_has("count") || cmdline_has("kib");
    u64 burst = cmdline_u64("burst_ms", 0) * NS_PER_MS, now = time_ns();

    began = MAX(now, cmdline_u64("start_ms", 0) * NS_PER_MS);
    rate = cmdline_u64("rate", 0);
    if (burst) {
        bursts = bursts_of(rate, burst);
        began += bursts_wait(&bursts, machine_ns() + (began - now));
    }
    last = began;
    most = cmdline_u64("count", ~0ull);
    most_bytes = cmdline_u64("kib", ~0ull >> 10) << 10;
    end = ~0ull;
    if (cmdline_has("run_ms") || !bounded) end = began + cmdline_u64("run_ms", 2000) * NS_PER_MS;
    arrivals = arrivals_begin(takt_seed(), rate, began);
}

/* Returns when request `number` is due. It is called once for each, in order. */
static u64 due_at(u64 number) {
    u64 due = arrivals.next;

    if (!rate) return MAX(time_ns(), began);
    if (bursts.burst) return began + bursts_due(&bursts, number);
    arrivals_advance(&arrivals);
    return due;
}

static u64 moved(void) { return answered[WORKLOAD_READ].bytes + answered[WORKLOAD_WRITE].bytes; }

/* Waits until the next request is due. Returns false when there are no more. */
bool workload_next(struct workload_request *r) {
    bool more = false;

    mutex_lock(&lock);
    if (nr < most && moved() < most_bytes) {
        r->number = nr;
        r->due = due_at(nr);
        r->rng = seed_of(takt_seed(), nr);
        more = r->due < end;
        nr += more;
    }
    mutex_unlock(&lock);
    if (more && r->due > time_ns()) sleep_until(r->due);
    return more;
}

/* Counts a request that was answered, and how long that took since it was due. */
void workload_done(const struct workload_request *r, enum workload_kind kind, u64 bytes) {
    u64 now = time_ns();

    mutex_lock(&lock);
    hist_add(&answered[kind].latency, now - r->due);
    answered[kind].bytes += bytes;
    last = MAX(last, now);
    mutex_unlock(&lock);
    go_home();
}

void workload_wrong(u64 bad) {
    if (bad) __atomic_fetch_add(&wrong, bad, __ATOMIC_RELAXED);
}

/* ---- threads ---- */

u32 workload_thread_count(void) { return (u32)MAX(cmdline_u64("threads", vcpu_count()), 1ull); }

/* Runs n copies of fn as threads on all vCPUs but vCPU 0, and waits until all have ended. */
void workload_threads(u32 n, void (*fn)(void *number)) {
    u32 vcpus = vcpu_count() - 1;
    struct thread **t;

    if (!n) n = workload_thread_count();
    t = malloc(n * sizeof(struct thread *));
    if (!t) guest_panic("%s: there is no memory", title);
    workload_begin();
    for (u64 i = 0; i < n; i++) {
        u32 vcpu = 0;

        if (vcpus) vcpu = 1 + i % vcpus;
        t[i] = thread_start(vcpu, "workload", fn, (void *)i);
        if (!t[i]) guest_panic("%s: there is no memory for %u threads", title, n);
    }
    co_schedule(t, n);
    for (u32 i = 0; i < n; i++) thread_join(t[i]);
    nr_movable = 0;
    free(t);
}

/* ---- contents ---- */

static u64 word_of(u64 version, u64 offset) { return (offset + 1) * SEED_STEP ^ version; }

void workload_fill(void *p, u64 version, u64 offset, u64 len) {
    for (u64 i = 0; i < len; i += sizeof(u64)) *(u64 *)((u8 *)p + i) = word_of(version, offset + i);
}

u64 workload_check(const void *p, u64 version, u64 offset, u64 len) {
    u64 bad = 0;

    for (u64 i = 0; i < len; i += LINE)
        bad += *(const u64 *)((const u8 *)p + i) != word_of(version, offset + i);
    return bad;
}

/* ---- start and report ---- */

/* Prints the counters of the page cache, of the collaboration, and of the disk's rings. */
static void say_cache(void) {
    const struct pagecache_stats *c = &workload_disk.cache.stats;
    const struct collab_stats *g = collab_stats();

    printf("%s: throttled=%lu throttled_us=%lu pages_read=%lu pages_written=%lu ahead=%lu "
           "ahead_congested=%lu\n",
           title, c->throttled, c->throttled_ns / 1000, c->pages_read, c->pages_written, c->ahead,
           c->ahead_congested);
    printf("%s: congestions=%lu asked=%lu released=%lu flush_asked=%lu by_itself=%lu\n", title,
           c->congestions, g->asked, g->released, g->flushes, g->by_itself);
    if (workload_disk.nr_rings < 2) return;
    printf("%s: rings=%u moves=%u followed=%u", title, workload_disk.nr_rings, sockets_moves(),
           followed);
    for (u32 i = 0; i < workload_disk.nr_rings; i++)
        printf(" ring%u=%lu", i, workload_disk.ring[i].requests);
    printf("\n");
}

/* Says how many requests there were, and their latency, of one kind or of all. */
static void say_latency(const char *number, const char *name, const struct hist *h, u64 bytes,
                        u64 took) {
    printf("%s: %s=%lu %s_kib=%lu %s_mean_us=%lu %s_p99_us=%lu %s_p999_us=%lu %s_max_us=%lu "
           "%s_kib_per_s=%lu\n",
           title, number, h->count, name, bytes / 1024, name, h->sum / MAX(h->count, 1ul) / 1000,
           name, hist_percentile(h, 990) / 1000, name, hist_percentile(h, 999) / 1000, name,
           h->max / 1000, name, bytes / 1024 * 1000000 / took);
}

/* Prints what was measured: how long it took, how many requests there were, their latencies by
 * kind, and the counters of the page cache. */
static void say(void) {
    static struct hist all; /* too big for the stack */
    u64 cpu = 0, took = MAX((last - began) / 1000, 1ul);

    for (u32 i = 0; i < vcpu_count(); i++) cpu += vcpu_times(i).run_ns;
    printf("%s: took_us=%lu requests=%lu wrong=%lu cpu_us=%lu\n", title, took, nr, wrong,
           cpu / 1000);
    if (bursts.burst && on_takt())
        printf("%s: first_burst_us=%lu burst_requests=%lu\n", title,
               (hypercall0(TAKT_HC_TIME) - time_ns() + began) / 1000, bursts.requests);
    for (struct answered *a = answered; a < answered + WORKLOAD_KINDS; a++) {
        char name[16];

        snprintf(name, sizeof(name), "%ss", a->name);
        say_latency(name, a->name, &a->latency, a->bytes, took);
        hist_merge(&all, &a->latency);
    }
    say_latency("all", "all", &all, moved(), took);
    if (workload_disk.cache.blocks) say_cache();
}

static void run(void *arg) {
    serve();
    say();
}

/* Runs fn() as a thread, for a guest without a disk, and prints what was measured. Returns 1 if
 * data was wrong, else 0. */
int workload_run(const char *name, void (*fn)(void)) {
    struct thread *t;

    title = name;
    serve = fn;
    vcpu_start_all();
    t = thread_start(disk_thread_vcpu(), name, run, NULL);
    if (!t) guest_panic("%s: there is no memory", name);
    thread_join(t);
    return wrong != 0;
}

/* Opens the disk, takes part in the collaboration if the command line says so, and runs fn().
 * Returns the guest's exit code. */
int workload_main(const char *name, void (*fn)(void)) {
    int error;

    vcpu_start_all();
    error = disk_open(&workload_disk, 0);
    if (error) guest_panic("%s: there is no disk (error %d)", name, error);
    if (cmdline_has("collab")) {
        if (workload_disk.nr_rings > 1) collab_on_manager(sockets_manager);
        error = collab_start(&workload_disk);
        if (error) guest_panic("%s: there is no store (error %d)", name, error);
    }
    return workload_run(name, fn);
}
