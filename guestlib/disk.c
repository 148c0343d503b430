/* Runs a page cache in a guest; guest/disk.h says what for.
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
#include <guest/vcpu.h>

#define VCPU 0   /* the vCPU of the bottom half */
#define RING 512 /* requests that the ring holds */

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

static void disk_run(struct disk *d) {
    u32 n;

    do {
        if (d->up) virtio_blk_poll(&d->blk);
        pagecache_run(&d->cache);
        if (!d->up) return;
        virtio_blk_flush_ring(&d->blk);
        /* If a thread waits for the disk, interrupt for each request that ends. If none waits,
         * interrupt when half of them have ended, which saves exits. */
        n = d->blk.in_flight / 2;
        if (pagecache_urgent(&d->cache)) n = 1;
    } while (d->blk.in_flight && virtio_blk_listen(&d->blk, n));
}

static int disk_submit(void *arg, struct virtio_blk_request *q) {
    struct disk *d = arg;

    if (!d->up) return -EIO;
    return virtio_blk_submit(&d->blk, q);
}

static void on_disk_used(u32 port, void *arg) {
    struct disk *d = arg;

    d->interrupts++;
    disk_run(d);
}

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

static void disk_kick(void *arg) {
    struct disk *d = arg;
    u64 f = irq_save();

    if (this_vcpu()->id == VCPU)
        disk_run(d);
    else
        call_vcpu0(&d->run_wanted);
    irq_restore(f);
}

static void disk_lock(void *arg) { mutex_lock(&((struct disk *)arg)->lock); }
static void disk_unlock(void *arg) { mutex_unlock(&((struct disk *)arg)->lock); }

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

static void flusher(void *arg) {
    struct disk *d = arg;

    for (;;) sem_down_until(&d->flush, pagecache_flusher(&d->cache));
}

static void on_disk_config(u32 port, void *arg) { sem_up(&((struct disk *)arg)->changed); }

static int disk_reopen(struct disk *d) {
    int error = device_open(&d->dev, VIRTIO_ID_BLOCK, d->index, FOREVER / 2);

    if (error) return error;
    return virtio_blk_start(&d->blk, &d->dev, RING);
}

static void disk_go(struct disk *d) {
    u64 f = irq_save();

    d->up = true;
    device_on_used(&d->dev, VCPU, on_disk_used, d);
    device_on_config(&d->dev, VCPU, on_disk_config, d);
    disk_run(d);
    irq_restore(f);
}

/* The thread that waits for the back end to go, and then for another one to come. */
static void disk_watch(void *arg) {
    struct disk *d = arg;

    for (;;) {
        u64 f;

        sem_down(&d->changed);
        if (virtio_alive(&d->dev)) continue;
        printf("disk: the device is gone\n");
        f = irq_save();
        d->up = false;
        if (virtio_blk_stop(&d->blk)) guest_panic("disk: the device does not let go");
        disk_run(d);
        irq_restore(f);
        if (disk_reopen(d) || d->blk.capacity * VIRTIO_BLK_SECTOR < d->cache.blocks * PAGE_SIZE)
            guest_panic("disk: the device does not come back as it was");
        disk_go(d);
        printf("disk: the device is back\n");
    }
}

/* ---- the start ---- */

static u64 disk_now(void *arg) { return time_ns(); }
static void *disk_pages(void *arg, size_t n) { return guest_env.pages(n); }

int disk_open(struct disk *d, u32 index) {
    struct pagecache_host host = { .arg = d,
                                   .now_ns = disk_now,
                                   .pages = disk_pages,
                                   .submit = disk_submit,
                                   .wake = disk_wake,
                                   .flusher = flusher_wanted,
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
    config.capacity = d->blk.capacity * VIRTIO_BLK_SECTOR;
    config.max_parts = d->blk.max_parts;
    config.can_flush = d->blk.can_flush;
    error = pagecache_init(&d->cache, &host, &config);
    if (error) return error;
    irq_set_handler(VECTOR_DISK, on_disk_bell, NULL);
    f = irq_save();
    d->next = disks;
    disks = d;
    irq_restore(f);
    if (!thread_start(VCPU, "flusher", flusher, d) || !thread_start(VCPU, "disk", disk_watch, d))
        return -ENOMEM;
    disk_go(d);
    return 0;
}
