/* The manager in the driver domain, which tunes disk I/O together with the guests (docs/collab.md):
 * it tells guests when to write their dirty pages, releases guests whose queue was full, and
 * publishes how busy each device is. Guests and manager talk through *keys*, nodes in the store.
 *
 * There are two sides. The *loop* of the driver domain, which serves requests, must never wait for
 * the store; it only counts and leaves flags. A *thread* reads and writes the keys. A *period* is
 * the time over which the use of a device is measured. */
#include <guest/coschedule.h>
#include <guest/guest.h>
#include <guest/manager.h>
#include <guest/printf.h>
#include <guest/store.h>
#include <guest/string.h>
#include <guest/thread.h>
#include "drivers/collab/claims.h"
#include "drivers/collab/congest.h"
#include "drivers/collab/flush.h"

#define KEY_MAX  80  /* bytes of a path, with its terminator; a disk's home has half of that */
#define LINE_MAX 240 /* bytes of what the monitor says of a period */

/* What the monitor found in one period. The loop writes it, and the thread publishes it. */
struct news {
    bool fresh; /* not published yet */
    struct monitor_period period;
};

/* A device under disks of VMs. Written by the loop and read by the thread. */
struct device {
    const char *name;
    const struct disk_load *load; /* NULL: free */
    u64 bytes, in_use;            /* begun, and ns in use, until the last period ended */
    u64 used;                     /* of `capacity`, in the last period */
    u64 capacity;                 /* bytes a second, or ns a second; 0: no limit */
    bool quiet;                   /* the last news said that nothing was done */
    bool full, slow;        /* congest_crowded() and congest_slow(), as of the loop's last turn */
    bool crowded;           /* one of them */
    struct congest congest; /* disks that wait until it is not crowded; used by the thread alone */
    struct monitor monitor;
    struct news news;
};

/* Keys that the manager reads when they change. Each has a watch of its own: a watch of all keys of
 * the disk would also fire for those that the manager itself sets for the guest. Hearing of its own
 * writes would cost as much as the decision. The manager reads flush_now, which it sets and the
 * guest clears, when one of these changes: the guest writes `nr` after it has cleared flush_now. */
enum { KEY_NR, KEY_DIRTY, KEY_CONGESTED, KEYS };
static const char *const key_names[KEYS] = { "nr", "has_dirty_pages", "congested" };
/* The key that coschedule.c watches is one more. */
_Static_assert(MANAGER_DISKS *(KEYS + 1) + 1 <= STORE_WATCHES,
               "each key has a watch, and io/collab");

enum { DISK_FREE, DISK_NEW, DISK_WATCHED, DISK_LEAVING };

struct disk {
    u32 state; /* atomic: the loop makes it NEW from FREE, and LEAVING; the thread the rest */
    u32 vm, number;
    char home[KEY_MAX / 2]; /* the path of its keys, without the last slash */
    u32 home_len;
    u64 pages;
    struct device *device;
    struct key {
        struct disk *disk;
        u32 bit;
    } keys[KEYS];
    u32 look;               /* atomic: keys that have changed, bits by key_names */
    struct flush_disk seen; /* used by the thread alone */
    bool congested;         /* what the key says; used by the thread alone */
    struct claims claims;   /* used by the thread alone, but for the changes that it counts */
    bool flood;             /* atomic: its keys change too often, and the log has yet to say so */
    bool announced;         /* the guest was told that there is a manager */
    bool deaf;              /* its keys are not watched until claims.deaf_until */
    bool idle_told;         /* device_idle, as published; used by the thread alone */
    bool conflict;          /* the log says that two functions wanted something else of it */
    struct monitor monitor; /* used by the loop alone */
    struct news news;
};

static struct device devices[MANAGER_DEVICES];
static struct disk disks[MANAGER_DISKS];
static u32 nr_disks;                           /* entries of disks[] from here on were never used */
static struct semaphore wanted = SEMAPHORE(0); /* there is something to do for the thread */
static struct manager_config config;
static u64 period_end;     /* 0: no period has begun */
static u64 monitor_end_of; /* when the monitors' period ends */
static bool running;

/* What can be switched while the manager runs: io/collab/NAME is 1 or 0. */
static struct function {
    const char *name;
    bool on;
} functions[MANAGER_FUNCTIONS] = {
    [MANAGER_FLUSH] = { "flush", false },
    [MANAGER_CONGESTION] = { "congestion", false },
    [MANAGER_DIF] = { "dif", false },
    [MANAGER_COSCHEDULE] = { "coschedule", false },
};
static u32 switched; /* atomic: the watch of io/collab has fired */

/* ---- keys; the rest of the thread ---- */

/* Returns whether the function is switched on. */
static bool is_on(enum manager_function f) { return functions[f].on; }

/* Returns how far the entry of a disk is; see `state`. */
static u32 disk_state(const struct disk *d) { return __atomic_load_n(&d->state, __ATOMIC_ACQUIRE); }

/* Writes the path of a disk's key. It is put together by copying, because formatting all of it for
 * each key costs as much as the store takes for it. */
static void key_of(const struct disk *d, const char *name, char *path) {
    memcpy(path, d->home, d->home_len);
    path[d->home_len] = '/';
    memcpy(path + d->home_len + 1, name, strlen(name) + 1);
}

/* Returns the number in a key of the disk; 0 if the key is not there or is no number. */
static u64 read_key(const struct disk *d, const char *name) {
    char path[KEY_MAX];
    u64 value;

    key_of(d, name, path);
    if (store_read_u64(0, path, &value)) return 0;
    return value;
}

/* Called in an interrupt handler when a key of a disk has changed. It only notes which one, and
 * wakes the thread, because the store may not be called here. */
static void manager_on_change(void *ctx, const char *path) {
    const struct key *k = ctx;
    struct disk *d = k->disk;

    if (claims_change(&d->claims, time_ns())) __atomic_store_n(&d->flood, true, __ATOMIC_RELEASE);
    __atomic_fetch_or(&d->look, k->bit, __ATOMIC_ACQ_REL);
    sem_up(&wanted);
}

/* The path of what the monitor says of a disk. */
static void news_path(const struct disk *d, char *path) {
    snprintf(path, KEY_MAX, "io/device/%s/%u-%u", d->device->name, d->vm, d->number);
}

/* Has the store tell of each change of the disk's keys. */
static void watch_keys(struct disk *d) {
    char path[KEY_MAX];

    for (u32 i = 0; i < KEYS; i++) {
        d->keys[i] = (struct key){ d, (u32)BIT(i) };
        key_of(d, key_names[i], path);
        if (store_watch(path, manager_on_change, &d->keys[i]) < 0)
            printf("manager: %s cannot be watched\n", path);
    }
}

/* Ends the watches of the disk's keys, so that their changes no longer interrupt. */
static void unwatch_keys(struct disk *d) {
    char path[KEY_MAX];

    for (u32 i = 0; i < KEYS; i++) {
        key_of(d, key_names[i], path);
        store_unwatch(path, manager_on_change, &d->keys[i]);
    }
}

/* Tells the guest that its disk has a manager. Without that it publishes nothing. The right to do
 * this comes from the hypervisor, perhaps a moment after this VM has begun to run. */
static void announce(struct disk *d) {
    char path[KEY_MAX];

    snprintf(path, sizeof(path), "/local/domain/%u/io/manager-%u", d->vm, d->number);
    d->announced = store_write_u64(0, path, takt_vm_id()) >= 0;
}

/* Does for a disk that has come or gone what has to be done in the store. For one that has gone,
 * the state is set to free last: from then on the loop may use the entry for another disk. */
static void follow(struct disk *d) {
    char path[KEY_MAX];
    u32 state = disk_state(d), expected = DISK_NEW;

    if (state == DISK_NEW) {
        d->seen = (struct flush_disk){ 0 };
        d->congested = d->conflict = d->flood = d->deaf = d->idle_told = d->announced = false;
        d->claims = (struct claims){ 0 };
        watch_keys(d);
        coschedule_watch(d->vm, d->number, &wanted);
        announce(d);
        __atomic_compare_exchange_n(&d->state, &expected, DISK_WATCHED, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_RELAXED);
    } else if (state == DISK_LEAVING) {
        unwatch_keys(d);
        coschedule_unwatch(d->vm, d->number);
        congest_forget(&d->device->congest, (u32)(d - disks));
        news_path(d, path);
        store_rm(0, path);
        __atomic_store_n(&d->state, DISK_FREE, __ATOMIC_RELEASE);
    }
}

/* Sets release_request: the queue of that disk may go on. */
static void manager_release(const struct disk *d) {
    char path[KEY_MAX];

    key_of(d, "release_request", path);
    if (store_write_u64(0, path, 1) < 0) printf("manager: %s cannot be written\n", path);
}

/* Reads `congested` of a disk, by which a guest says that its queue to the device is full, and
 * answers. If the device itself is not crowded, the guest is released at once; otherwise it has to
 * wait. */
static void congestion_look(struct disk *d) {
    struct device *dev = d->device;
    u32 i = (u32)(d - disks);

    d->congested = read_key(d, "congested") == 1;
    if (!d->congested || !is_on(MANAGER_CONGESTION))
        congest_forget(&dev->congest, i);
    else if (congest_ask(&dev->congest, i, dev->crowded) == CONGEST_RELEASE)
        manager_release(d);
}

/* Stops watching the keys of a disk for a second, because they change too often. The disk counts as
 * neither congested nor dirty meanwhile. Without the watches its changes do not interrupt this VM
 * either. */
static void go_deaf(struct disk *d) {
    unwatch_keys(d);
    congest_forget(&d->device->congest, (u32)(d - disks));
    d->congested = d->seen.has_dirty_pages = false;
    d->deaf = true;
    __atomic_store_n(&d->flood, false, __ATOMIC_RELEASE);
    printf("manager: VM %u, disk %u: more than %u changes of its keys in a second, so they are not "
           "looked at for a second\n",
           d->vm, d->number, CLAIMS_CHANGES);
}

/* Watches the keys of a disk again when it is time. A watch fires at once, so all are read. Returns
 * when it will be time, ns. */
static u64 listen(struct disk *d) {
    if (__atomic_load_n(&d->flood, __ATOMIC_ACQUIRE)) go_deaf(d);
    if (!d->announced) announce(d);
    if (!d->announced) return time_ns() + config.period_ns;
    if (!d->deaf) return FOREVER;
    if (time_ns() < d->claims.deaf_until) return d->claims.deaf_until;
    d->deaf = false;
    watch_keys(d);
    return FOREVER;
}

/* A disk that was asked to flush has changed its keys: looks whether it has cleared flush_now, by
 * which it says that it has flushed. */
static void flush_look(struct disk *d) {
    d->seen.flush_now = read_key(d, "flush_now") == 1;
    if (d->seen.flush_now) return;
    if (!claims_flushed(&d->claims, d->monitor.written, time_ns())) return;
    printf(
        "manager: VM %u, disk %u: claims dirty pages and does not write them, so it is not asked "
        "to flush for 10 seconds\n",
        d->vm, d->number);
}

/* Reads the keys of the disk that have changed. */
static void look_at(struct disk *d) {
    u32 what = __atomic_exchange_n(&d->look, 0, __ATOMIC_ACQ_REL);

    if (what & BIT(KEY_CONGESTED)) congestion_look(d); /* first: the guest waits for the answer */
    if (what & BIT(KEY_NR)) d->seen.nr = claims_pages(read_key(d, key_names[KEY_NR]), d->pages);
    if (what & BIT(KEY_DIRTY)) d->seen.has_dirty_pages = read_key(d, key_names[KEY_DIRTY]) == 1;
    if (what && d->seen.flush_now) flush_look(d);
}

/* ---- switches ---- */

/* Called in an interrupt handler when a node below io/collab has changed: wakes the thread, which
 * reads all of them. */
static void on_switch(void *ctx, const char *path) {
    __atomic_store_n(&switched, 1, __ATOMIC_RELEASE);
    sem_up(&wanted);
}

static void switch_path(const struct function *f, char *path) {
    snprintf(path, KEY_MAX, "io/collab/%s", f->name);
}

/* Reads the key that switches a function, and switches the function on or off. If the key is
 * neither 0 nor 1, or is not there, the function stays as it is, and the log says so. */
static void switch_look(struct function *f) {
    char path[KEY_MAX];
    u64 value = 2;

    switch_path(f, path);
    if (store_read_u64(0, path, &value) || value > 1) {
        printf("manager: %s is neither 0 nor 1: %s stays %s\n", path, f->name,
               f->on ? "on" : "off");
        return;
    }
    if (f->on == (value == 1)) return;
    f->on = value == 1;
    printf("manager: %s is %s\n", f->name, f->on ? "on" : "off");
}

/* Publishes which functions are on, and watches these nodes, so that an operator can change them.
 */
static void switches_begin(void) {
    char path[KEY_MAX];
    i64 error = 0;

    for (struct function *f = functions; f < functions + MANAGER_FUNCTIONS && error >= 0; f++) {
        switch_path(f, path);
        error = store_write_u64(0, path, f->on);
    }
    if (error >= 0) error = store_watch("io/collab", on_switch, NULL);
    if (error < 0) printf("manager: io/collab cannot be used, so nothing can be switched\n");
}

static void coschedule_begin(void) {
    coschedule_switch(is_on(MANAGER_COSCHEDULE));
    if (is_on(MANAGER_COSCHEDULE) && !coschedule_possible())
        printf("manager: there are no I/O cores, so coschedule does nothing\n");
}

/* A function that was switched on has all keys to look at: it did not look while it was off. */
static void switches_look(void) {
    bool was = is_on(MANAGER_CONGESTION), coscheduled = is_on(MANAGER_COSCHEDULE);

    for (struct function *f = functions; f < functions + MANAGER_FUNCTIONS; f++) switch_look(f);
    if (is_on(MANAGER_FLUSH) && is_on(MANAGER_DIF))
        printf("manager: flush is on, so dif does nothing\n");
    if (coscheduled != is_on(MANAGER_COSCHEDULE)) coschedule_begin();
    if (was == is_on(MANAGER_CONGESTION)) return;
    for (u32 i = 0; i < nr_disks; i++)
        __atomic_fetch_or(&disks[i].look, (u32)BIT(KEY_CONGESTED), __ATOMIC_ACQ_REL);
}

/* ---- congestion ---- */

/* Releases those that wait for the device, one after the other, when it is crowded no more. Returns
 * when the next one is due, ns. */
static u64 congestion_relieve(struct device *dev) {
    u32 who;

    for (;;) {
        who = congest_relieve(&dev->congest, dev->crowded, time_ns());
        if (who == CONGEST_NOBODY) return dev->congest.next;
        manager_release(&disks[who]);
    }
}

/* ---- flush ---- */

/* Says in the log, once for each disk, that the disk is not asked to flush because its queue is
 * full. Flush wants it to write more, and congestion wants it to wait. Congestion goes first,
 * because what is in the queue has to be written before anything else can be. */
static void conflict(struct disk *d) {
    if (!d->conflict)
        printf("manager: VM %u, disk %u: congested, so it is not asked to flush\n", d->vm,
               d->number);
    d->conflict = true;
}

/* Asks one VM to write its dirty pages to that device, if the device is idle. Returns whether
 * further disks have dirty pages and wait for their turn. */
static bool flush_decide(const struct device *dev) {
    struct flush_disk seen[MANAGER_DISKS];
    u32 which[MANAGER_DISKS], n = 0, chosen;
    bool idle = flush_device_idle(dev->used, dev->capacity), waiting = false;
    u64 now = time_ns();
    char path[KEY_MAX];

    for (u32 i = 0; i < nr_disks; i++) {
        const struct flush_disk *s = &disks[i].seen;

        if (disk_state(&disks[i]) != DISK_WATCHED || disks[i].device != dev) continue;
        if (disks[i].congested && is_on(MANAGER_CONGESTION)) { /* its queue is full already */
            conflict(&disks[i]);
            continue;
        }
        if (disks[i].deaf || now < disks[i].claims.doubt_until) continue;
        /* Once a period is enough for a guest that does as it is told, and it is all that one gets
         * which clears flush_now and writes nothing. */
        if (s->has_dirty_pages && !s->flush_now && s->asked && now - s->asked < config.period_ns) {
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
    claims_asked(&disks[which[chosen]].claims, seen[chosen].nr,
                 disks[which[chosen]].monitor.written);
    if (store_write_u64(0, path, 1) < 0) disks[which[chosen]].seen.flush_now = false;
    return waiting;
}

/* ---- disk idleness for guests, which decide themselves: the baseline DIF ---- */

/* Publishes whether the device is idle, to each disk on it, when that has changed. While flush is
 * on no guest is told, because both would have guests write at the same times. */
static void dif_tell(const struct device *dev) {
    bool idle = flush_device_idle(dev->used, dev->capacity);
    char path[KEY_MAX];

    if (!is_on(MANAGER_DIF) || is_on(MANAGER_FLUSH)) idle = false;
    for (struct disk *d = disks; d < disks + nr_disks; d++) {
        if (disk_state(d) != DISK_WATCHED || d->device != dev || d->idle_told == idle) continue;
        key_of(d, "device_idle", path);
        if (store_write_u64(0, path, idle) >= 0) d->idle_told = idle;
    }
}

/* ---- news ---- */

static u64 us_of(u64 ns) { return (ns + NS_PER_US / 2) / NS_PER_US; }

/* Writes what the monitor found in its last period to the node `path`, as a line of text. Does
 * nothing if that was done before. */
static void tell(struct news *n, const char *path) {
    struct monitor_period p;
    char line[LINE_MAX];
    int len;
    bool fresh;

    preempt_disable(); /* the loop must not write it meanwhile */
    p = n->period;
    fresh = n->fresh;
    n->fresh = false;
    preempt_enable();
    if (!fresh) return;
    len =
        snprintf(line, sizeof(line),
                 "read_bytes_per_s=%lu write_bytes_per_s=%lu reads=%lu writes=%lu others=%lu "
                 "mean_us=%lu p99_us=%lu p999_us=%lu depth_milli=%u busy_permille=%u period_ms=%lu",
                 p.bytes_per_s[MONITOR_READ], p.bytes_per_s[MONITOR_WRITE],
                 p.requests[MONITOR_READ], p.requests[MONITOR_WRITE], p.requests[MONITOR_OTHER],
                 us_of(p.latency_mean), us_of(p.latency_p99), us_of(p.latency_p999), p.depth_milli,
                 p.busy_permille, us_of(p.ns) / 1000);
    store_write(0, path, line, (u32)MIN(len, LINE_MAX - 1));
}

/* Publishes, for all devices and disks, what their monitors found in the last period. */
static void tell_all(void) {
    char path[KEY_MAX];

    for (struct device *d = devices; d < devices + MANAGER_DEVICES && d->load; d++) {
        if (!d->news.fresh) continue;
        snprintf(path, sizeof(path), "io/device/%s/all", d->name);
        tell(&d->news, path);
    }
    for (struct disk *d = disks; d < disks + nr_disks; d++) {
        if (disk_state(d) != DISK_WATCHED || !d->news.fresh) continue;
        news_path(d, path);
        tell(&d->news, path);
    }
}

/* ---- the thread ---- */

/* Returns whether a request of one page that came now would take much longer than on a device that
 * does nothing else. */
static bool device_slow(const struct device *d) {
    const struct disk_load *l = d->load;
    u64 now = time_ns(), waits = l->latency, page = 0;

    if (!l->in_queue) return false;
    if (l->bandwidth) page = PAGE_SIZE * NS_PER_S / l->bandwidth;
    if (l->ends > now) waits = MAX(waits, l->ends - now);
    return congest_slow(waits + page, l->latency + page, config.slow_pct, d->slow);
}

/* Finds out for each device whether it is crowded at the moment. If that has changed and disks wait
 * for the device, wakes the manager's thread. */
static void look_for_crowds(void) {
    for (struct device *d = devices; d < devices + MANAGER_DEVICES && d->load; d++) {
        struct congest_limits limits = { d->load->queue, config.busy_pct };
        u32 used_pct = 0;
        bool was = d->crowded;

        if (d->capacity) used_pct = (u32)(d->used * 100 / d->capacity);
        d->full = congest_crowded(&limits, d->load->in_queue, used_pct, d->full);
        d->slow = d->load->ends && device_slow(d);
        d->crowded = d->full || d->slow;
        if (d->crowded != was && d->congest.nr) sem_up(&wanted);
    }
}

/* Manages all disks, in an endless loop, as a thread: sleeps until a key changes, a period has
 * ended or a disk has to be released, and then does all that is due. */
static void manage(void *arg) {
    bool waiting = false, looked;
    u64 next = FOREVER;

    switches_begin();
    coschedule_begin();
    for (;;) {
        if (waiting) next = MIN(next, time_ns() + config.period_ns);
        sem_down_until(&wanted, next);
        while (sem_try(&wanted)) { /* one look is enough for all that happened until now */
        }
        looked = __atomic_exchange_n(&switched, 0, __ATOMIC_ACQ_REL);
        if (looked) switches_look();
        if (config.cores) look_for_crowds(); /* the loop sleeps while I/O cores work */
        next = FOREVER;
        for (u32 i = 0; i < nr_disks; i++) {
            follow(&disks[i]);
            if (disk_state(&disks[i]) != DISK_WATCHED) continue;
            next = MIN(next, listen(&disks[i]));
            look_at(&disks[i]);
        }
        waiting = false;
        for (u32 i = 0; i < MANAGER_DEVICES && devices[i].load; i++) {
            next = MIN(next, congestion_relieve(&devices[i]));
            if (is_on(MANAGER_FLUSH)) waiting |= flush_decide(&devices[i]);
            dif_tell(&devices[i]);
        }
        coschedule_run(looked);
        tell_all();
    }
}

/* Connects to the store and starts the manager's thread. Returns 0 or a negative errno. The store
 * comes first, because without it there is nothing to manage. */
int manager_start(const struct manager_config *c) {
    int error = store_start();

    if (error) return error;
    config = *c;
    for (u32 i = 0; i < MANAGER_FUNCTIONS; i++) functions[i].on = c->on[i];
    if (!thread_start(0, "manager", manage, NULL)) return -ENOMEM;
    running = true;
    return 0;
}

/* ---- the loop's side ---- */

/* Returns the entry of the device that `load` describes, and makes one called `name` if the device
 * is new. Returns NULL if there are too many devices. */
static struct device *device_for(const struct disk_load *load, const char *name) {
    for (struct device *d = devices; d < devices + MANAGER_DEVICES; d++) {
        if (d->load == load) return d;
        if (d->load) continue;
        *d = (struct device){ .name = name, .bytes = load->bytes, .quiet = true };
        monitor_init(&d->monitor, NULL, time_ns());
        d->monitor.shared = config.cores;
        d->congest = congest_begin(config.seed);
        __atomic_store_n(&d->load, load, __ATOMIC_RELEASE);
        return d;
    }
    return NULL;
}

/* Gives a device that has no disk of its own a monitor, and returns that. Returns NULL if there is
 * no manager, or no place for another device. */
struct monitor *manager_device(const struct disk_load *load, const char *name) {
    struct device *d = NULL;

    if (running) d = device_for(load, name);
    if (!d) return NULL;
    return &d->monitor;
}

/* Makes an entry for a disk, so that the thread follows its keys. Returns the monitor that is to be
 * told of the disk's requests, or NULL if there is no manager or no free entry. The entry is filled
 * in before its state is set, because the thread may look at it at once. */
struct monitor *manager_add(u32 vm, u32 number, u64 pages, const struct disk_load *load,
                            const char *name) {
    struct device *device = NULL;
    struct disk *d = disks;

    if (running) device = device_for(load, name);
    while (d < disks + MANAGER_DISKS && disk_state(d) != DISK_FREE) d++;
    if (!device || d == disks + MANAGER_DISKS) return NULL;
    nr_disks = MAX(nr_disks, (u32)(d - disks) + 1);
    d->vm = vm;
    d->number = number;
    d->home_len =
        (u32)snprintf(d->home, sizeof(d->home), "/local/domain/%u/io/disk/%u", vm, number);
    d->pages = pages;
    d->device = device;
    d->news.fresh = false;
    monitor_init(&d->monitor, &device->monitor, time_ns());
    __atomic_store_n(&d->state, DISK_NEW, __ATOMIC_RELEASE);
    sem_up(&wanted);
    return &d->monitor;
}

/* Marks the disk's entry as leaving. The thread removes what the store has of the disk, and frees
 * the entry. */
void manager_remove(u32 vm, u32 number) {
    for (struct disk *d = disks; d < disks + nr_disks; d++) {
        if (disk_state(d) == DISK_FREE || d->vm != vm || d->number != number) continue;
        __atomic_store_n(&d->state, DISK_LEAVING, __ATOMIC_RELEASE);
        sem_up(&wanted);
    }
}

/* Ends the period of one monitor, and keeps its result for the thread. */
static void cut(struct monitor *m, struct news *n, u64 now) {
    monitor_cut(m, now, &n->period);
    n->fresh = true;
}

/* Ends the period of the monitors of all devices that were used, and of the disks on them. A device
 * that has become idle gets one period more, so that its nodes say that nothing was done. */
static void cut_all(u64 now) {
    for (struct device *d = devices; d < devices + MANAGER_DEVICES && d->load; d++) {
        bool used = monitor_is_used(&d->monitor);

        if (!used && d->quiet) continue;
        preempt_disable();
        cut(&d->monitor, &d->news, now);
        for (struct disk *k = disks; k < disks + nr_disks; k++)
            if (k->device == d && disk_state(k) != DISK_FREE) cut(&k->monitor, &k->news, now);
        preempt_enable();
        d->quiet = !used;
    }
}

/* Computes how much of the device was used in the last `us` microseconds. */
static void measure(struct device *d, u64 us, u64 now) {
    u64 in_use = monitor_in_use(&d->monitor, now), bytes = d->load->bytes;

    d->used = (bytes - d->bytes) * (NS_PER_S / NS_PER_US) / us;
    d->capacity = d->load->bandwidth;
    if (d->load->by_time && !d->capacity) {
        d->used = (in_use - d->in_use) * (NS_PER_S / NS_PER_US) / us;
        d->capacity = NS_PER_S;
    }
    d->bytes = bytes;
    d->in_use = in_use;
}

/* Ends the manager's period: measures how much of each device was used in it. If the longer period
 * of the monitors is over as well, ends that too. */
static void end_period(u64 now) {
    u64 ns = MAX(config.period_ns + now - period_end, 1ull);

    for (struct device *d = devices; d < devices + MANAGER_DEVICES && d->load; d++)
        measure(d, MAX(ns / NS_PER_US, 1ull), now);
    if (now >= monitor_end_of) {
        cut_all(now);
        monitor_end_of = now + config.monitor_ns;
    }
}

/* Returns whether any device has something to do, or had something to do and the store does not say
 * yet that this is over. */
static bool is_active(void) {
    for (struct device *d = devices; d < devices + MANAGER_DEVICES && d->load; d++)
        if (d->load->bytes != d->bytes || d->used || !d->quiet || monitor_is_used(&d->monitor))
            return true;
    return false;
}

/* Ends the period if it is time, and wakes the manager's thread. Returns when it wants to be called
 * again, ns; ~0 means after the next request. The loop of the driver domain calls it in every turn.
 * While no device does anything there are no periods, so that an idle machine can sleep. */
u64 manager_run(u64 now) {
    look_for_crowds();
    if (!running || !is_active()) {
        period_end = 0;
        return ~0ull;
    }
    if (!period_end) {
        period_end = now + config.period_ns;
        monitor_end_of = now + config.monitor_ns;
    }
    if (now < period_end) return period_end;
    end_period(now);
    period_end = now + config.period_ns;
    sem_up(&wanted);
    thread_yield();
    return period_end;
}
