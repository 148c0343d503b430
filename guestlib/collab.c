/* A guest's side of IOrchestra: guest/collab.h. One thread of vCPU 0 writes and reads the keys.
 * Others only wake it: the page cache, and the watch of io/. */
#include <guest/collab.h>
#include <guest/guest.h>
#include <guest/printf.h>
#include <guest/store.h>
#include <guest/string.h>
#include <guest/thread.h>

#define LOOK_NS (100 * NS_PER_MS) /* while pages are dirty: how often their number is looked at */
#define NOTHING (~0ull)           /* as `nr`: nothing is published */

/* What the watch of io/ has seen. */
enum { FLUSH_NOW = 1, RELEASE_REQUEST = 2, RIGHTS = 4, DEVICE_IDLE = 8 };

static struct collab {
    struct disk *disk;
    struct semaphore news; /* the thread has something to do */
    u32 changed;           /* atomic: FLUSH_NOW ... */
    u64 nr;                /* as published, or NOTHING */
    bool congested;        /* as published */
    bool idle;             /* the manager says that the device is idle */
    struct collab_stats stats;
    char home[16];
} collab;

static const char *key(const char *name) {
    static char path[32]; /* one thread uses it */

    snprintf(path, sizeof(path), "%s/%s", collab.home, name);
    return path;
}

static bool ends_with(const char *path, const char *name) {
    size_t len = strlen(path), part = strlen(name);

    return len > part && strcmp(path + len - part, name) == 0;
}

/* In the interrupt handler. The keys that this guest writes itself wake nobody. */
static void on_change(void *ctx, const char *path) {
    u32 what = 0;

    if (ends_with(path, "/flush_now")) what = FLUSH_NOW;
    if (ends_with(path, "/release_request")) what = RELEASE_REQUEST;
    if (ends_with(path, "/device_idle")) what = DEVICE_IDLE;
    if (strcmp(path, "io") == 0) what = RIGHTS | FLUSH_NOW | RELEASE_REQUEST | DEVICE_IDLE;
    if (!what) return;
    __atomic_fetch_or(&collab.changed, what, __ATOMIC_ACQ_REL);
    sem_up(&collab.news);
}

static void wake(void *arg) { sem_up(&collab.news); }

static bool is_set(const char *name) {
    u64 value;

    return store_read_u64(0, key(name), &value) == 0 && value == 1;
}

/* ---- flush ---- */

/* `nr` is published when it becomes 0 or is no longer 0, and when it has doubled or halved. */
static void publish_dirty(void) {
    u64 nr = pagecache_dirty(&collab.disk->cache);
    bool edge = collab.nr == NOTHING || (nr != 0) != (collab.nr != 0);

    if (!edge && nr < 2 * collab.nr && 2 * nr > collab.nr) return;
    if (!edge && nr == collab.nr) return;
    if (store_write_u64(0, key("nr"), nr) < 0) return;
    if (edge && store_write_u64(0, key("has_dirty_pages"), nr != 0) < 0) return;
    collab.nr = nr;
}

static void flush(void) {
    if (!is_set("flush_now")) return;
    collab.stats.flushes++;
    pagecache_sync(&collab.disk->cache);
    publish_dirty();
    store_write_u64(0, key("flush_now"), 0);
}

/* The baseline DIF: this guest knows that the device is idle, and not what others do with it. Has
 * its dirty pages written, and does not wait for that. */
static void flush_by_itself(void) {
    if (!collab.idle || !pagecache_dirty(&collab.disk->cache)) return;
    collab.stats.by_itself++;
    pagecache_flush_now(&collab.disk->cache);
}

/* ---- congestion ---- */

/* The queue slows down by itself, and asks at the same time (docs/collab.md). It also recovers by
 * itself, and then takes the question back. */
static void publish_congested(void) {
    bool now = pagecache_congested(&collab.disk->cache);

    if (now == collab.congested) return;
    if (store_write_u64(0, key("congested"), now) < 0) return;
    collab.congested = now;
    if (now) collab.stats.asked++;
}

/* First `congested`, then release_request, then the queue goes on. In another order the manager
 * could answer the same question twice, or the next question not at all. */
static void release(void) {
    if (!is_set("release_request")) return;
    if (store_write_u64(0, key("congested"), 0) < 0) return;
    collab.congested = false;
    if (store_write_u64(0, key("release_request"), 0) < 0) return;
    collab.stats.released++;
    pagecache_release(&collab.disk->cache);
}

/* ---- the thread ---- */

/* A driver domain that is new has the right to keys made from now on, as they get the rights of
 * io/. So those of before go, and are published again. */
static void renew(void) {
    store_rm(0, collab.home);
    collab.nr = NOTHING;
    collab.congested = false;
}

static void work(void *arg) {
    struct pagecache *c = &collab.disk->cache;

    if (store_watch("io", on_change, NULL) < 0) {
        printf("collab: io/ cannot be watched\n");
        return;
    }
    for (;;) {
        bool dirty = collab.nr && collab.nr != NOTHING, looks;
        u64 until = FOREVER, tell_at = 1;
        u32 changed;

        if (dirty) {
            until = time_ns() + LOOK_NS;
            tell_at = 2 * collab.nr;
        }
        pagecache_tell_at(c, (u32)tell_at, wake, NULL);
        looks = !sem_down_until(&collab.news, until);
        while (sem_try(&collab.news)) { /* one look is enough for all that happened until now */
        }
        changed = __atomic_exchange_n(&collab.changed, 0, __ATOMIC_ACQ_REL);
        if (changed & RIGHTS) renew();
        if (changed & RELEASE_REQUEST) release();
        publish_congested();
        if (changed & FLUSH_NOW) flush();
        if (changed & DEVICE_IDLE) collab.idle = is_set("device_idle");
        if (looks || changed & DEVICE_IDLE) flush_by_itself();
        publish_dirty();
    }
}

int collab_start(struct disk *d) {
    int error = store_start();

    if (error) return error;
    collab.disk = d;
    collab.nr = NOTHING;
    sem_init(&collab.news, 0);
    snprintf(collab.home, sizeof(collab.home), "io/disk/%u", d->index);
    pagecache_on_congestion(&d->cache, wake, NULL);
    if (!thread_start(0, "collab", work, NULL)) return -ENOMEM;
    return 0;
}

const struct collab_stats *collab_stats(void) { return &collab.stats; }
