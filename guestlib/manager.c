#include <guest/guest.h>
#include <guest/manager.h>
#include <guest/printf.h>
#include <guest/store.h>
#include <guest/string.h>
#include <guest/thread.h>
#include "drivers/collab/flush.h"

#define KEY 80 /* bytes of a path */

/* A device, and what it did. Written by the loop, read by the thread. */
struct device {
    const char *name;
    struct disk_model *model; /* NULL: free */
    u64 bytes;                /* begun until the last period ended */
    u64 used;                 /* bytes a second in the last period */
    u64 told;                 /* what the store has */
};

enum { DISK_FREE, DISK_NEW, DISK_WATCHED, DISK_LEAVING };

struct disk {
    u32 state; /* the loop makes it NEW from FREE, and LEAVING; the thread the rest */
    u32 vm, number;
    struct device *device;
    struct flush_disk seen; /* the thread's */
    u32 look;               /* atomic: its watch has fired */
};

static struct device devices[MANAGER_DEVICES];
static struct disk disks[MANAGER_DISKS];
static struct semaphore wanted = SEMAPHORE(0);
static u64 period, period_end;
static bool running;

/* ---- the thread ---- */

static void key_of(const struct disk *d, const char *name, char *path) {
    const char *slash = *name ? "/" : "";

    snprintf(path, KEY, "/local/domain/%u/io/disk/%u%s%s", d->vm, d->number, slash, name);
}

/* A key that is not there, or that is no number, is 0. */
static u64 read_key(const struct disk *d, const char *name) {
    char path[KEY];
    u64 value;

    key_of(d, name, path);
    return store_read_u64(0, path, &value) == 0 ? value : 0;
}

/* In the interrupt handler. */
static void on_change(void *ctx, const char *path) {
    __atomic_store_n(&((struct disk *)ctx)->look, 1, __ATOMIC_RELEASE);
    sem_up(&wanted);
}

/* The state goes first, so that a slot that the loop takes again meanwhile is not freed twice. */
static void follow(struct disk *d) {
    char path[KEY];
    u32 state = __atomic_load_n(&d->state, __ATOMIC_ACQUIRE), expected = DISK_NEW;

    key_of(d, "", path);
    if (state == DISK_NEW) {
        d->seen = (struct flush_disk){ 0 };
        if (store_watch(path, on_change, d) < 0) printf("manager: %s cannot be watched\n", path);
        __atomic_compare_exchange_n(&d->state, &expected, DISK_WATCHED, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_RELAXED);
    } else if (state == DISK_LEAVING) {
        store_unwatch(path, on_change, d);
        __atomic_store_n(&d->state, DISK_FREE, __ATOMIC_RELEASE);
    }
}

static void look_at(struct disk *d) {
    bool asked = d->seen.flush_now;

    if (!__atomic_exchange_n(&d->look, 0, __ATOMIC_ACQ_REL)) return;
    d->seen.nr = read_key(d, "nr");
    d->seen.has_dirty_pages = read_key(d, "has_dirty_pages") == 1;
    d->seen.flush_now = read_key(d, "flush_now") == 1;
    if (d->seen.flush_now && !asked) d->seen.asked = time_ns();
}

/* Has one VM of that device flush, if it is idle. True: other disks have dirty pages as well, and
 * wait for their turn. */
static bool decide(const struct device *dev) {
    struct flush_disk seen[MANAGER_DISKS];
    u32 which[MANAGER_DISKS], n = 0, chosen;
    bool idle = flush_device_idle(dev->used, dev->model->bandwidth), waiting = false;
    u64 now = time_ns();
    char path[KEY];

    for (u32 i = 0; i < MANAGER_DISKS; i++) {
        const struct flush_disk *s = &disks[i].seen;

        if (disks[i].state != DISK_WATCHED || disks[i].device != dev) continue;
        /* Once a period is enough for a guest that does as it is told, and all that one gets which
         * clears flush_now and writes nothing. */
        if (s->has_dirty_pages && !s->flush_now && s->asked && now - s->asked < period) {
            waiting = true;
            continue;
        }
        seen[n] = *s;
        which[n++] = i;
    }
    chosen = flush_choose(seen, n, idle, now);
    for (u32 i = 0; i < n; i++)
        if (i != chosen && seen[i].has_dirty_pages && !seen[i].flush_now) waiting = true;
    if (chosen == FLUSH_NOBODY) return waiting;
    key_of(&disks[which[chosen]], "flush_now", path);
    disks[which[chosen]].seen.flush_now = true;
    disks[which[chosen]].seen.asked = time_ns();
    if (store_write_u64(0, path, 1) < 0) disks[which[chosen]].seen.flush_now = false;
    return waiting;
}

static void tell(struct device *dev) {
    u64 used = dev->used;
    char path[KEY];

    if (used == dev->told) return;
    snprintf(path, sizeof(path), "io/device/%s/bytes_per_s", dev->name);
    if (store_write_u64(0, path, used) == 0) dev->told = used;
}

static void manage(void *arg) {
    for (bool waiting = false;;) {
        sem_down_until(&wanted, waiting ? time_ns() + period : FOREVER);
        while (sem_try(&wanted))
            ;
        for (u32 i = 0; i < MANAGER_DISKS; i++) {
            follow(&disks[i]);
            if (disks[i].state == DISK_WATCHED) look_at(&disks[i]);
        }
        waiting = false;
        for (u32 i = 0; i < MANAGER_DEVICES; i++) {
            if (!devices[i].model) continue;
            tell(&devices[i]);
            waiting |= decide(&devices[i]);
        }
    }
}

int manager_start(u64 period_ns) {
    int error = store_start();

    if (error) return error;
    period = period_ns;
    if (!thread_start(0, "manager", manage, NULL)) return -ENOMEM;
    running = true;
    return 0;
}

/* ---- the loop's side ---- */

static struct device *device_for(struct disk_model *model, const char *name) {
    for (struct device *d = devices; d < devices + MANAGER_DEVICES; d++) {
        if (d->model == model) return d;
        if (d->model) continue;
        *d = (struct device){ .name = name, .bytes = model->bytes, .told = ~0ull };
        __atomic_store_n(&d->model, model, __ATOMIC_RELEASE);
        return d;
    }
    return NULL;
}

void manager_add(u32 vm, u32 number, struct disk_model *model, const char *name) {
    struct device *device = running ? device_for(model, name) : NULL;
    struct disk *d = disks;

    while (d < disks + MANAGER_DISKS && d->state != DISK_FREE) d++;
    if (!device || d == disks + MANAGER_DISKS) return;
    d->vm = vm;
    d->number = number;
    d->device = device;
    __atomic_store_n(&d->state, DISK_NEW, __ATOMIC_RELEASE);
    sem_up(&wanted);
}

void manager_remove(u32 vm, u32 number) {
    for (struct disk *d = disks; d < disks + MANAGER_DISKS; d++) {
        if (d->state == DISK_FREE || d->vm != vm || d->number != number) continue;
        __atomic_store_n(&d->state, DISK_LEAVING, __ATOMIC_RELEASE);
        sem_up(&wanted);
    }
}

/* A device that moves nothing any more has one more period, which says so. */
u64 manager_run(u64 now) {
    bool moves = false;

    for (struct device *d = devices; d < devices + MANAGER_DEVICES && d->model; d++)
        moves |= d->model->bytes != d->bytes || d->used;
    if (!running || !moves) {
        period_end = 0;
        return ~0ull;
    }
    if (!period_end) period_end = now + period;
    if (now < period_end) return period_end;
    for (struct device *d = devices; d < devices + MANAGER_DEVICES && d->model; d++) {
        u64 ns = MAX(period + now - period_end, 1ull);

        d->used = (d->model->bytes - d->bytes) * NS_PER_MS / MAX(ns / 1000, 1ull);
        d->bytes = d->model->bytes;
    }
    period_end = now + period;
    sem_up(&wanted);
    thread_yield();
    return period_end;
}
