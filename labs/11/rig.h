/* What surrounds the guest in this lab: a store with watches, a page cache of which only the number
 * of dirty pages is there, and time. The guest's thread runs until it waits; then the test goes on.
 * So only one of them runs at any time. All that the guest does is noted in `story`. */
#ifndef LAB11_RIG_H
#define LAB11_RIG_H

#include <guest/collab.h>
#include <guest/store.h>
#include <pthread.h>
#include <takt/errno.h>
#include "check.h"

#define NODES 16u
#define DISK  "io/disk/0/"
#define AT    "io/manager-0"

static struct node {
    char path[40]; /* "": this entry is free */
    u64 value;
} nodes[NODES];
static struct watch {
    const char *path;
    void (*fn)(void *ctx, const char *path);
    void *ctx;
    char copy[40];
} watches[NODES];
static u32 nr_watches;

static struct disk disk;
static char story[400]; /* what the guest did since tell() */
static u64 now;
static u32 wakes;         /* how often the guest's thread went on after it had waited */
static bool in_interrupt; /* the guest's interrupt handler runs */
static bool disk_refuses; /* pages stay dirty */
static void (*while_it_syncs)(void);

static inline void note(const char *format, const char *what, u64 value) {
    size_t at = strlen(story);

    if (at) snprintf(story + at, sizeof(story) - at, " ");
    at = strlen(story);
    snprintf(story + at, sizeof(story) - at, format, what, (unsigned long long)value);
}

static inline const char *or_nothing(const char *text) { return *text ? text : "nothing"; }

/* Compares what the guest did with what it should have done, and begins a new story. */
static inline void tell(const char *what, const char *expected) {
    if (strcmp(story, expected) != 0) differs(what, or_nothing(expected), or_nothing(story));
    story[0] = '\0';
}

/* ---- the guest's thread ---- */

static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turn_changed = PTHREAD_COND_INITIALIZER;
static bool guest_s_turn, guest_ended;
static struct semaphore *waits;
static u64 waits_until;
static void (*thread_fn)(void *arg);

static inline void give_turn(bool to_guest) {
    guest_s_turn = to_guest;
    pthread_cond_broadcast(&turn_changed);
    while (guest_s_turn == to_guest && !(to_guest && guest_ended))
        pthread_cond_wait(&turn_changed, &one);
}

static inline void *thread_main(void *arg) {
    pthread_mutex_lock(&one);
    while (!guest_s_turn) pthread_cond_wait(&turn_changed, &one);
    thread_fn(arg);
    guest_ended = true;
    guest_s_turn = false;
    pthread_cond_broadcast(&turn_changed);
    pthread_mutex_unlock(&one);
    return NULL;
}

struct thread *thread_start(unsigned vcpu, const char *name, void (*fn)(void *), void *arg) {
    static struct thread t;
    pthread_t p;

    thread_fn = fn;
    if (pthread_create(&p, NULL, thread_main, arg)) return NULL;
    return &t;
}

/* The guest runs until it has nothing to do. */
static inline void guest_runs(void) {
    for (;;) {
        bool ready = !waits || waits->count || now >= waits_until;

        if (guest_ended || !ready) return;
        if (waits) wakes++;
        give_turn(true);
    }
}

/* Time passes, and the guest runs when it wanted to. */
static inline void pass(u64 ns) {
    u64 end = now + ns;

    guest_runs();
    while (!guest_ended && waits_until <= end) {
        now = MAX(now, waits_until);
        guest_runs();
    }
    now = end;
}

void sem_init(struct semaphore *s, u32 count) { s->count = count; }
void sem_up(struct semaphore *s) { s->count++; }

bool sem_try(struct semaphore *s) {
    if (!s->count) return false;
    s->count--;
    return true;
}

bool sem_down_until(struct semaphore *s, u64 deadline) {
    expect("that an interrupt handler does not wait", in_interrupt, false);
    while (!s->count && now < deadline) {
        waits = s;
        waits_until = deadline;
        give_turn(false);
    }
    waits = NULL;
    waits_until = 0;
    return sem_try(s);
}

void sem_down(struct semaphore *s) { sem_down_until(s, FOREVER); }
u64 time_ns(void) { return now; }

/* ---- the store ---- */

static inline struct node *node_at(const char *path) {
    for (struct node *n = nodes; n < nodes + NODES; n++)
        if (n->path[0] && strcmp(n->path, path) == 0) return n;
    return NULL;
}

static inline bool is_below(const char *path, const char *top) {
    size_t n = strlen(top);

    return strncmp(path, top, n) == 0 && (path[n] == '\0' || path[n] == '/');
}

/* The guest's interrupt handler hears of a node. */
static inline void fire(const char *path) {
    char copy[40];

    snprintf(copy, sizeof(copy), "%s", path);
    in_interrupt = true;
    for (u32 i = 0; i < nr_watches; i++)
        if (is_below(copy, watches[i].path)) watches[i].fn(watches[i].ctx, copy);
    in_interrupt = false;
}

static inline void node_write(const char *path, u64 value) {
    struct node *n = node_at(path);

    for (struct node *free = nodes; !n && free < nodes + NODES; free++)
        if (!free->path[0]) n = free;
    snprintf(n->path, sizeof(n->path), "%s", path);
    n->value = value;
    fire(path);
}

static inline void node_rm(const char *path) {
    for (struct node *n = nodes; n < nodes + NODES; n++) {
        if (!n->path[0] || !is_below(n->path, path)) continue;
        fire(n->path);
        n->path[0] = '\0';
    }
}

/* Returns a number that lies there, or `otherwise`. */
static inline u64 stored(const char *path, u64 otherwise) {
    const struct node *n = node_at(path);

    if (!n) return otherwise;
    return n->value;
}

static inline const char *short_name(const char *path) {
    if (strncmp(path, DISK, strlen(DISK)) == 0) return path + strlen(DISK);
    return path;
}

static inline void may_call_the_store(void) {
    expect("that an interrupt handler asks nothing of the store", in_interrupt, false);
}

int store_start(void) { return 0; }

i64 store_read_u64(u32 tx, const char *path, u64 *value) {
    const struct node *n = node_at(path);

    may_call_the_store();
    if (!n) return -ENOENT;
    *value = n->value;
    return 0;
}

i64 store_write_u64(u32 tx, const char *path, u64 value) {
    may_call_the_store();
    note("%s=%llu", short_name(path), value);
    node_write(path, value);
    return 0;
}

i64 store_rm(u32 tx, const char *path) {
    may_call_the_store();
    note("rm:%s", path, 0);
    node_rm(path);
    return 0;
}

i64 store_watch(const char *path, void (*fn)(void *ctx, const char *path), void *ctx) {
    struct watch *w = &watches[nr_watches];

    may_call_the_store();
    if (nr_watches == NODES) return -ENOSPC;
    *w = (struct watch){ .fn = fn, .ctx = ctx };
    snprintf(w->copy, sizeof(w->copy), "%s", path);
    w->path = w->copy;
    nr_watches++;
    in_interrupt = true;
    fn(ctx, w->path);
    in_interrupt = false;
    return 0;
}

/* ---- the page cache ---- */

static void (*tell_fn)(void *arg);
static void *tell_arg;
static u32 tell_from; /* 0: never */

static inline void tell_if_dirty(void) {
    if (!tell_from || disk.cache.dirty < tell_from) return;
    tell_from = 0;
    tell_fn(tell_arg);
}

/* So many pages are dirty now, and the guest runs. */
static inline void dirty(u32 pages) {
    disk.cache.dirty = pages;
    tell_if_dirty();
    guest_runs();
}

void pagecache_tell_at(struct pagecache *c, u32 n, void (*fn)(void *arg), void *arg) {
    tell_from = n;
    tell_fn = fn;
    tell_arg = arg;
    tell_if_dirty();
}

int pagecache_sync(struct pagecache *c) {
    may_call_the_store();
    note("sync", "", 0);
    if (!disk_refuses) disk.cache.dirty = 0;
    if (while_it_syncs) while_it_syncs();
    return disk_refuses ? -EIO : 0;
}

void pagecache_flush_now(struct pagecache *c) {
    note("flush-in-background", "", 0);
    if (!disk_refuses) disk.cache.dirty = 0;
}

void pagecache_release(struct pagecache *c) { note("release", "", 0); }
void pagecache_on_congestion(struct pagecache *c, void (*fn)(void *arg), void *arg) {}

/* ---- the manager ---- */

static inline void manager_sets(const char *key, u64 value) {
    char path[40];

    snprintf(path, sizeof(path), DISK "%s", key);
    node_write(path, value);
}

/* The manager is in VM `id`, and comes, or takes the place of another. */
static inline void manager_comes(u64 id) { node_write(AT, id); }

/* The manager's VM ends: what it has made is gone. */
static inline void manager_goes(void) {
    node_rm(DISK "flush_now");
    node_rm(DISK "release_request");
    node_rm(DISK "device_idle");
    node_rm(AT);
}

/* Starts the guest. */
static inline void begin(void) {
    pthread_mutex_lock(&one);
    expect_result("collab_start", collab_start(&disk), 0);
    guest_runs();
}

/* Starts it, with a manager and no dirty page. */
static inline void begin_managed(void) {
    begin();
    manager_comes(1);
    guest_runs();
    story[0] = '\0';
}

#endif
