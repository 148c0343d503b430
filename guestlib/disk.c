/* Runs a page cache (pagecache.c) on a virtio disk in a guest. guest/disk.h says what for. The
 * *bottom half* is the code that gives requests to the disk and ends them; it runs on vCPU 0 only,
 * in interrupt handlers. The *flusher* is a thread there that decides when changed pages are
 * written.
 *
 * Threads and the bottom half call each other by an interrupt, VECTOR_DISK, and a word that says
 * why. So the lock of a semaphore, and the lock of a vCPU's threads, is always taken on the
 * thread's own vCPU. Otherwise vCPU 0 might wait for a lock whose holder does not run. */
#include <guest/disk.h>
#include <guest/guest.h>
#include <guest/lapic.h>
#include <guest/mem.h>
#include <guest/printf.h>
#include <guest/string.h>
#include <guest/tunable.h>
#include <guest/vcpu.h>
#include "drivers/collab/coschedule.h"

#define VCPU 0   /* the vCPU of the bottom half */
#define RING 512 /* requests that a ring holds */
/* With tunables: the most requests at a time. Each takes memory. */
#define QUEUE_MOST 128

/* A thread that waits for an event of the page cache. */
struct waiter {
    struct waiter *next;
    u32 event;
    struct semaphore sem;
};

/* What the threads of each vCPU wait for. */
static struct bell {
    struct waiter *waiters; /* used on that vCPU only, with interrupts off */
    /* waited: events that threads wait for; rung: events that have happened; both atomic. */
    u32 waited, rung;
} bells[TAKT_MAX_VCPUS];

static struct disk *disks; /* used on vCPU 0 only, with interrupts off */

u32 disk_thread_vcpu(void) { return vcpu_count() - 1; }

/* ---- the bottom half: vCPU 0, interrupts off ---- */

/* Asks for an interrupt when requests of this ring have ended. Returns whether some have already;
 * then none may come. If a thread waits for the disk, interrupt for each request that ends. If none
 * waits, interrupt when half of them have ended, which saves exits. */
static bool ring_listen(const struct disk *d, struct virtio_blk *b) {
    u32 n = b->in_flight / 2;

    if (pagecache_urgent(&d->cache)) n = 1;
    return b->in_flight && virtio_blk_listen(b, n);
}

/* Does the work of the disk's bottom half: ends the requests that the disk is done with, lets the
 * cache submit new ones, and shows them to the disk. It repeats that until an interrupt is sure to
 * come for the next request that ends. */
static void disk_run(struct disk *d) {
    bool again = true;

    while (again) {
        for (u32 i = 0; d->up && i < d->nr_rings; i++) virtio_blk_poll(&d->ring[i]);
        pagecache_run(&d->cache);
        if (!d->up) return;
        again = false;
        for (u32 i = 0; i < d->nr_rings; i++) {
            virtio_blk_flush_ring(&d->ring[i]);
            again |= ring_listen(d, &d->ring[i]);
        }
    }
}

/* Submits a request of the cache by the ring of that socket. Returns 0, or a negative error. The
 * device may have had more rings when the page was asked for, behind another back end. */
static int disk_submit(void *arg, struct virtio_blk_request *q, u32 socket) {
    struct disk *d = arg;

    if (!d->up) return -EIO;
    return virtio_blk_submit(&d->ring[MIN(socket, d->nr_rings - 1)], q);
}

/* Handles the interrupt by which the disk says that it is done with requests. */
static void on_disk_used(u32 port, void *arg) {
    struct disk *d = arg;

    d->interrupts++;
    disk_run(d);
}

/* Does in the interrupt handler of VECTOR_DISK what other vCPUs want of this one. Wakes the threads
 * of this vCPU whose events have happened; on vCPU 0 also does what threads have asked the bottom
 * half or the flusher to do. */
static void on_disk_bell(void *arg) {
    struct bell *b = &bells[this_vcpu()->id];
    u32 events = __atomic_exchange_n(&b->rung, 0, __ATOMIC_SEQ_CST);

    for (struct waiter *w = b->waiters; w && events; w = w->next)
        if (w->event & events) sem_up(&w->sem);
    if (this_vcpu()->id != VCPU) return;
    for (struct disk *d = disks; d; d = d->next) {
        if (__atomic_exchange_n(&d->run_wanted, 0, __ATOMIC_SEQ_CST)) disk_run(d);
        if (__atomic_exchange_n(&d->flush_wanted, 0, __ATOMIC_SEQ_CST)) sem_up(&d->flush);
    }
}

/* ---- calls from anywhere ---- */

/* Has the threads that wait for `events` woken; the cache calls it. Only vCPUs that have a thread
 * waiting for one of them are interrupted. */
static void disk_wake(void *arg, u32 events) {
    for (u32 i = 0; i < vcpu_count(); i++) {
        u32 which = __atomic_load_n(&bells[i].waited, __ATOMIC_SEQ_CST) & events;

        if (!which) continue;
        __atomic_fetch_or(&bells[i].rung, which, __ATOMIC_SEQ_CST);
        lapic_ipi(i, VECTOR_DISK);
    }
}

/* Sends an interrupt, unless one was sent that has not been taken yet. */
static void call_vcpu0(u32 *wanted) {
    if (!__atomic_exchange_n(wanted, 1, __ATOMIC_SEQ_CST)) lapic_ipi(VCPU, VECTOR_DISK);
}

static void flusher_wanted(void *arg) { call_vcpu0(&((struct disk *)arg)->flush_wanted); }

/* ---- calls from threads ---- */

/* Has the bottom half look at the cache, because a thread has given it work. On vCPU 0 the bottom
 * half can be called directly, with interrupts off. */
static void disk_kick(void *arg) {
    struct disk *d = arg;
    u64 f = irq_save();

    if (this_vcpu()->id == VCPU)
        disk_run(d);
    else
        call_vcpu0(&d->run_wanted);
    irq_restore(f);
}

static u32 disk_socket(void *arg) {
    const struct disk *d = arg;

    return coschedule_socket(thread_self()->vcpu, vcpu_count(), d->nr_rings);
}

static void disk_lock(void *arg) { mutex_lock(&((struct disk *)arg)->lock); }
static void disk_unlock(void *arg) { mutex_unlock(&((struct disk *)arg)->lock); }

/* Waits until ready() is true. The thread is in the list of its vCPU before it looks, so that an
 * event in between is not missed. At the end it leaves the list, and the vCPU then waits only for
 * what its other threads wait for. */
static void disk_wait(void *arg, enum pagecache_event event, pagecache_ready ready,
                      const struct pagecache *c, const void *what) {
    struct bell *b = &bells[thread_self()->vcpu];
    struct waiter me = { .event = event, .sem = SEMAPHORE(0) }, **at;
    u32 left = 0;
    u64 f = irq_save();

    me.next = b->waiters;
    b->waiters = &me;
    __atomic_fetch_or(&b->waited, event, __ATOMIC_SEQ_CST);
    irq_restore(f);
    while (!ready(c, what)) sem_down(&me.sem);
    f = irq_save();
    at = &b->waiters;
    while (*at != &me) at = &(*at)->next;
    *at = me.next;
    for (struct waiter *w = b->waiters; w; w = w->next) left |= w->event;
    __atomic_store_n(&b->waited, left, __ATOMIC_SEQ_CST);
    irq_restore(f);
}

/* ---- threads of the library, on vCPU 0 ---- */

/* Writes changed pages, as a thread: it sleeps until the time that the cache names, or until it is
 * asked. */
static void disk_flusher(void *arg) {
    struct disk *d = arg;

    for (;;) sem_down_until(&d->flush, pagecache_flusher(&d->cache));
}

static void on_disk_config(u32 port, void *arg) { sem_up(&((struct disk *)arg)->changed); }

/* Waits for the device, practically for ever, and sets it up. */
static int disk_reopen(struct disk *d) {
    int error = device_open(&d->dev, VIRTIO_ID_BLOCK, d->index, FOREVER / 2);

    if (error) return error;
    error = virtio_blk_start_queues(d->ring, TAKT_MAX_QUEUES, &d->dev, RING);
    if (error < 0) return error;
    d->nr_rings = (u32)error;
    return 0;
}

/* Lets requests go to the device from now on. The cache may hold work that came while there was no
 * device, so the bottom half runs once. */
static void disk_go(struct disk *d) {
    u64 f = irq_save();

    d->up = true;
    device_on_used(&d->dev, VCPU, on_disk_used, d);
    device_on_config(&d->dev, VCPU, on_disk_config, d);
    disk_run(d);
    irq_restore(f);
}

/* Waits, as a thread, for the back end to go, and then for another one to come. */
static void disk_watch(void *arg) {
    struct disk *d = arg;

    for (;;) {
        u64 f;

        sem_down(&d->changed);
        if (virtio_alive(&d->dev)) continue;
        printf("disk: the device is gone\n");
        f = irq_save();
        d->up = false;
        if (virtio_blk_stop_queues(d->ring, d->nr_rings))
            guest_panic("disk: the device does not let go");
        disk_run(d);
        irq_restore(f);
        if (disk_reopen(d) || d->ring[0].capacity * VIRTIO_BLK_SECTOR < d->cache.blocks * PAGE_SIZE)
            guest_panic("disk: the device does not come back as it was");
        disk_go(d);
        /* While the device was gone it refused pages. Without this they would be dirty until they
         * are old, which is half a minute, and threads that have too many could write no others. */
        pagecache_flush_now(&d->cache);
        printf("disk: the device is back\n");
    }
}

/* ---- the start ---- */

static u64 disk_now(void *arg) { return time_ns(); }
static void *disk_pages(void *arg, size_t n) { return guest_env.pages(n); }

/* Makes the keys io/tune/disk<n>/dirty and so on, by which the store can change what the command
 * line has set. */
static void disk_tunables(struct disk *d) {
    const struct pagecache_config *c = &d->cache.config;
    u64 ahead = c->ahead;

    if (c->no_ahead) ahead = 0;
    const struct {
        const char *name;
        struct tunable t;
    } all[] = {
        { "dirty", { .least = 1, .most = 90, .value = c->dirty, .set = pagecache_set_dirty } },
        { "background",
          { .least = 1, .most = 89, .value = c->background, .set = pagecache_set_background } },
        { "ahead", { .most = PAGECACHE_AHEAD, .value = ahead, .set = pagecache_set_ahead } },
        { "queue",
          { .least = 4, .most = c->queue_most, .value = c->queue, .set = pagecache_set_queue } },
    };

    for (u32 i = 0; i < ARRAY_SIZE(all); i++) {
        struct tunable t = all[i].t;

        t.arg = &d->cache;
        snprintf(t.name, sizeof(t.name), "disk%u/%s", d->index, all[i].name);
        tunable_add(&t);
    }
}

/* Opens block device `index` of the VM, with a page cache as the command line describes it, and
 * starts its threads: the flusher, and one that watches for another back end. Returns 0 or a
 * negative errno. Words of the command line that are missing or 0 get the cache's defaults. The
 * threads are started when all that they use is there. */
int disk_open(struct disk *d, u32 index) {
    struct pagecache_host host = { .arg = d,
                                   .now_ns = disk_now,
                                   .pages = disk_pages,
                                   .submit = disk_submit,
                                   .wake = disk_wake,
                                   .flusher = flusher_wanted,
                                   .socket = disk_socket,
                                   .lock = disk_lock,
                                   .unlock = disk_unlock,
                                   .kick = disk_kick,
                                   .wait = disk_wait };
    struct pagecache_config config = { .pages = (u32)cmdline_u64("cache", 256),
                                       .queue = (u32)cmdline_u64("queue", 0),
                                       .background = (u32)cmdline_u64("background", 0),
                                       .dirty = (u32)cmdline_u64("dirty", 0),
                                       .expire_ns = cmdline_u64("expire_ms", 0) * NS_PER_MS,
                                       .interval_ns = cmdline_u64("interval_ms", 0) * NS_PER_MS,
                                       .ahead = (u32)cmdline_u64("ahead", 32),
                                       .no_ahead = cmdline_u64("ahead", 32) == 0,
                                       .no_avoid = cmdline_u64("avoid", 1) == 0 };
    u64 f;
    int error;

    *d = (struct disk){ .index = index };
    mutex_init(&d->lock);
    sem_init(&d->changed, 0);
    sem_init(&d->flush, 0);
    error = disk_reopen(d);
    if (error) return error;
    if (!d->ring[0].capacity) {
        printf("disk: the driver domain has no room for disk %u of this VM; its own messages say "
               "why\n",
               index);
        return -ENOSPC;
    }
    config.capacity = d->ring[0].capacity * VIRTIO_BLK_SECTOR;
    config.max_parts = d->ring[0].max_parts;
    config.can_flush = d->ring[0].can_flush;
    if (tunables_on()) config.queue_most = QUEUE_MOST;
    error = pagecache_init(&d->cache, &host, &config);
    if (error) return error;
    irq_set_handler(VECTOR_DISK, on_disk_bell, NULL);
    f = irq_save();
    d->next = disks;
    disks = d;
    irq_restore(f);
    if (!thread_start(VCPU, "flusher", disk_flusher, d) ||
        !thread_start(VCPU, "disk", disk_watch, d))
        return -ENOMEM;
    disk_go(d);
    disk_tunables(d);
    return 0;
}
