/* A guest's side of the tuning of disk I/O that the paper IOrchestra describes (docs/collab.md):
 * the guest publishes in the store how many dirty pages it has and whether its queue is full, and
 * does what the *manager*, in the driver domain, asks for. A *key* is a node in the store. One
 * thread of vCPU 0 writes and reads the keys; others only wake it: the page cache, and the watches
 * of the manager's keys. guest/collab.h has the contracts. */
#include <guest/collab.h>
#include <guest/guest.h>
#include <guest/printf.h>
#include <guest/store.h>
#include <guest/string.h>
#include <guest/thread.h>

#define LOOK_NS (100 * NS_PER_MS) /* while pages are dirty: how often their number is looked at */
#define DISKS   "io/disk"         /* the node of all disks of this guest */
#define NOTHING (~0ull)           /* as `nr`: nothing is published */

/* The manager's keys. Each has a watch of its own, because a watch of all of io/ would also fire
 * for what this guest writes there itself. */
enum { MANAGER = 1, FLUSH_NOW = 2, RELEASE_REQUEST = 4, DEVICE_IDLE = 8 };
static struct key {
    const char *name;
    u32 bit;
} keys[] = { { "flush_now", FLUSH_NOW },
             { "release_request", RELEASE_REQUEST },
             { "device_idle", DEVICE_IDLE } },
  manager_key = { "manager", MANAGER };

static struct collab {
    struct disk *disk;
    struct semaphore news; /* the thread has something to do */
    u32 changed;           /* atomic: a bit for each of the manager's keys */
    u64 manager;           /* the VM in which the manager is; 0: there is none */
    u64 nr;                /* as published, or NOTHING */
    bool congested;        /* as published */
    bool idle;             /* the manager says that the device is idle */
    struct collab_stats stats;
    void (*on_manager)(bool there); /* NULL: nobody wants to know */
    char home[16];
    u32 home_len;
} collab;

/* Returns the path of a key of this guest's disk. */
static const char *key(const char *name) {
    static char path[40]; /* one thread uses it */

    memcpy(path, collab.home, collab.home_len);
    path[collab.home_len] = '/';
    memcpy(path + collab.home_len + 1, name, strlen(name) + 1);
    return path;
}

/* Called in an interrupt handler when the manager has changed a key: notes which one, and wakes the
 * thread. */
static void collab_on_change(void *ctx, const char *path) {
    const struct key *k = ctx;

    __atomic_fetch_or(&collab.changed, k->bit, __ATOMIC_ACQ_REL);
    sem_up(&collab.news);
}

/* Wakes the thread. Called by the page cache, in any context. */
static void wake(void *arg) { sem_up(&collab.news); }

/* Returns whether the key is 1. */
static bool is_set(const char *name) {
    u64 value;

    return store_read_u64(0, key(name), &value) == 0 && value == 1;
}

/* ---- flush ---- */

/* `nr` is published when it becomes 0 or is no longer 0, and when it has doubled or halved. With
 * `always` it is published in any case. */
static void publish_dirty(bool always) {
    u64 nr = pagecache_dirty(&collab.disk->cache);
    bool edge = collab.nr == NOTHING || (nr != 0) != (collab.nr != 0);

    if (!always && !edge && nr < 2 * collab.nr && 2 * nr > collab.nr) return;
    if (!always && !edge && nr == collab.nr) return;
    if (store_write_u64(0, key("nr"), nr) < 0) return;
    if (edge && store_write_u64(0, key("has_dirty_pages"), nr != 0) < 0) return;
    collab.nr = nr;
}

/* The manager asks this guest to write its dirty pages. Clears the key when all are on the disk, by
 * which the manager sees that another guest may be asked. The manager looks for that when `nr` is
 * written, so `nr` is written after it, even if it is the same number. */
static void collab_flush(void) {
    if (!is_set("flush_now")) return;
    collab.stats.flushes++;
    pagecache_sync(&collab.disk->cache);
    store_write_u64(0, key("flush_now"), 0);
    publish_dirty(true);
}

/* Has the page cache write its dirty pages if the manager has said that the device is idle, and
 * does not wait for that. This is the baseline DIF, in which each guest decides for itself, without
 * knowing what other guests are about to do. */
static void flush_by_itself(void) {
    if (!collab.idle || !pagecache_dirty(&collab.disk->cache)) return;
    collab.stats.by_itself++;
    pagecache_flush_now(&collab.disk->cache);
}

/* ---- congestion ---- */

/* Publishes whether the disk's queue is congested, if that has changed. By setting `congested` the
 * guest asks the manager whether the device is crowded (docs/collab.md). It does not wait for the
 * answer: the queue slows down by itself. If the queue recovers by itself, the question is taken
 * back. */
static void publish_congested(void) {
    bool now = pagecache_congested(&collab.disk->cache);

    if (now == collab.congested) return;
    if (store_write_u64(0, key("congested"), now) < 0) return;
    collab.congested = now;
    if (now) collab.stats.asked++;
}

/* Lets the disk's queue go on, if the manager has released it. Clears `congested` first and then
 * release_request, and only then lets the queue go. In another order the manager could answer the
 * same question twice, or the next question not at all. */
static void collab_release(void) {
    if (!is_set("release_request")) return;
    if (store_write_u64(0, key("congested"), 0) < 0) return;
    collab.congested = false;
    if (store_write_u64(0, key("release_request"), 0) < 0) return;
    collab.stats.released++;
    pagecache_release(&collab.disk->cache);
}

/* ---- the thread ---- */

static const char *manager_path(void) {
    static char path[32]; /* one thread uses it */

    snprintf(path, sizeof(path), "io/manager-%u", collab.disk->index);
    return path;
}

/* Looks whether there is a manager. A node gets the rights of the node above it when it is made, so
 * what was made for the manager of another driver domain goes: the keys, and also the node above
 * them, which would pass the old rights on. */
static void look_for_manager(void) {
    u64 manager;

    if (store_read_u64(0, manager_path(), &manager)) manager = 0;
    if (manager == collab.manager) return;
    if (collab.on_manager && collab.manager) collab.on_manager(false);
    if (collab.manager) store_rm(0, DISKS);
    collab.manager = manager;
    collab.nr = NOTHING;
    collab.congested = collab.idle = false;
    if (collab.on_manager && manager) collab.on_manager(true);
}

/* Has the store tell of changes of the manager's keys. */
static i64 watch_all(void) {
    i64 error = store_watch(manager_path(), collab_on_change, &manager_key);

    for (u32 i = 0; i < ARRAY_SIZE(keys) && error >= 0; i++)
        error = store_watch(key(keys[i].name), collab_on_change, &keys[i]);
    return error;
}

/* Waits until a key has changed, the manager has come or gone, or the page cache has something to
 * tell. Returns false if it was woken by the clock, because the number of dirty pages has to be
 * looked at from time to time. Without a manager nobody wants to know that number, so the cache is
 * not asked for it. */
static bool wait_for_news(void) {
    u64 until = FOREVER, tell_at = 1;
    bool news;

    if (collab.nr && collab.nr != NOTHING) {
        until = time_ns() + LOOK_NS;
        tell_at = 2 * collab.nr;
    }
    if (collab.manager) pagecache_tell_at(&collab.disk->cache, (u32)tell_at, wake, NULL);
    news = sem_down_until(&collab.news, until);
    while (sem_try(&collab.news)) { /* one look is enough for all that happened until now */
    }
    return news;
}

/* Runs the guest's side of the collaboration, as a thread: waits for news, does what the keys that
 * have changed ask for, and publishes what the manager has to know. A release is answered first,
 * because the guest's queue stands still until then. */
static void collab_work(void *arg) {
    if (watch_all() < 0) {
        printf("collab: io/ cannot be watched\n");
        return;
    }
    for (;;) {
        bool looks = !wait_for_news();
        u32 changed = __atomic_exchange_n(&collab.changed, 0, __ATOMIC_ACQ_REL);

        if (changed & MANAGER) look_for_manager();
        if (!collab.manager) continue;
        if (changed & RELEASE_REQUEST) collab_release();
        publish_congested();
        if (changed & FLUSH_NOW) collab_flush();
        if (changed & DEVICE_IDLE) collab.idle = is_set("device_idle");
        if (looks || changed & DEVICE_IDLE) flush_by_itself();
        publish_dirty(false);
    }
}

/* Takes part in the collaboration for the disk `d`: connects to the store and starts the thread
 * that follows the manager. Returns 0 or a negative errno. If there is no manager, the thread only
 * waits for one to come. */
int collab_start(struct disk *d) {
    int error = store_start();

    if (error) return error;
    collab.disk = d;
    collab.nr = NOTHING;
    sem_init(&collab.news, 0);
    collab.home_len = (u32)snprintf(collab.home, sizeof(collab.home), DISKS "/%u", d->index);
    pagecache_on_congestion(&d->cache, wake, NULL);
    if (!thread_start(0, "collab", collab_work, NULL)) return -ENOMEM;
    return 0;
}

void collab_on_manager(void (*fn)(bool there)) { collab.on_manager = fn; }

const struct collab_stats *collab_stats(void) { return &collab.stats; }
