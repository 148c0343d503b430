/* A guest's side of IOrchestra: guest/collab.h. */
#include <guest/collab.h>
#include <guest/guest.h>
#include <guest/printf.h>
#include <guest/store.h>
#include <guest/string.h>
#include <guest/thread.h>

#define LOOK_NS (100 * NS_PER_MS) /* while pages are dirty: how often their number is looked at */

static struct collab {
    struct disk *disk;
    struct semaphore news;
    u32 changed; /* atomic: a watch has fired */
    u32 renew;   /* atomic: the rights on io/ may have changed */
    u64 flushes;
    u64 nr; /* as published; ~0: nothing is */
    char home[16];
} collab;

static const char *key(const char *name) {
    static char path[32]; /* one thread uses it */

    snprintf(path, sizeof(path), "%s/%s", collab.home, name);
    return path;
}

/* In the interrupt handler. */
static void on_change(void *ctx, const char *path) {
    if (!strcmp(path, "io")) __atomic_store_n(&collab.renew, 1, __ATOMIC_RELEASE);
    __atomic_store_n(&collab.changed, 1, __ATOMIC_RELEASE);
    sem_up(&collab.news);
}

static void on_dirty(void *arg) { sem_up(&collab.news); }

/* `nr` is published when it becomes 0 or is no longer 0, and when it has doubled or halved. */
static void publish(void) {
    u64 nr = pagecache_dirty(&collab.disk->cache);
    bool known = collab.nr != ~0ull;
    bool edge = !known || (nr != 0) != (collab.nr != 0);

    if (!edge && nr < 2 * collab.nr && 2 * nr > collab.nr) return;
    if (!edge && nr == collab.nr) return;
    if (store_write_u64(0, key("nr"), nr) < 0) return;
    if (edge && store_write_u64(0, key("has_dirty_pages"), nr != 0) < 0) return;
    collab.nr = nr;
}

static void flush(void) {
    u64 wanted;

    if (store_read_u64(0, key("flush_now"), &wanted) || wanted != 1) return;
    collab.flushes++;
    pagecache_sync(&collab.disk->cache);
    publish();
    store_write_u64(0, key("flush_now"), 0);
}

/* A driver domain that is new has the right to keys made from now on, as they get the rights of
 * io/. So those of before go. */
static void renew(void) {
    store_rm(0, collab.home);
    collab.nr = ~0ull;
}

static void work(void *arg) {
    if (store_watch("io", on_change, NULL) < 0) {
        printf("collab: io/ cannot be watched\n");
        return;
    }
    for (;;) {
        bool dirty = collab.nr && collab.nr != ~0ull;

        pagecache_tell_at(&collab.disk->cache, dirty ? 2 * (u32)collab.nr : 1, on_dirty, NULL);
        sem_down_until(&collab.news, dirty ? time_ns() + LOOK_NS : FOREVER);
        if (__atomic_exchange_n(&collab.renew, 0, __ATOMIC_ACQ_REL)) renew();
        if (__atomic_exchange_n(&collab.changed, 0, __ATOMIC_ACQ_REL)) flush();
        publish();
    }
}

int collab_start(struct disk *d) {
    int error = store_start();

    if (error) return error;
    collab.disk = d;
    collab.nr = ~0ull;
    sem_init(&collab.news, 0);
    snprintf(collab.home, sizeof(collab.home), "io/disk/%u", d->index);
    return thread_start(disk_thread_vcpu(), "collab", work, NULL) ? 0 : -ENOMEM;
}

u64 collab_flushes(void) { return collab.flushes; }
