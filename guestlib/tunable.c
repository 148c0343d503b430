/* Numbers of a guest that the store can change, such as the length of a queue: guest/tunable.h has
 * the contracts. Each number has a key (a node) below io/tune. One thread of vCPU 0 writes and
 * reads the keys; one watch of io/tune tells it which have changed. */
#include <guest/guest.h>
#include <guest/printf.h>
#include <guest/store.h>
#include <guest/string.h>
#include <guest/thread.h>
#include <guest/tunable.h>

#define HOME "io/tune"

/* FREE becomes NEW, and LIVE becomes LEAVING, by tunable_add() and tunable_remove(); the thread
 * does the rest. */
enum { TUNABLE_FREE, TUNABLE_NEW, TUNABLE_LIVE, TUNABLE_LEAVING };

static struct entry {
    u32 state;   /* atomic */
    u32 changed; /* atomic: the key was written */
    struct tunable t;
} table[TUNABLES];

static struct semaphore tune_wanted = SEMAPHORE(0); /* there is something to do for the thread */
static bool tune_runs;

static u32 state_of(const struct entry *e) { return __atomic_load_n(&e->state, __ATOMIC_ACQUIRE); }

/* Goes from one state to another, unless the entry is in a third one by now. */
static void move(struct entry *e, u32 from, u32 to) {
    __atomic_compare_exchange_n(&e->state, &from, to, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

/* Writes the path of the entry's key. */
static void path_to(const struct entry *e, char *path, u32 size) {
    snprintf(path, size, HOME "/%s", e->t.name);
}

/* Writes to the key what the value is. */
static void tune_publish(const struct entry *e) {
    char path[sizeof(HOME) + TUNABLE_NAME];

    path_to(e, path, sizeof(path));
    if (store_write_u64(0, path, e->t.value) < 0) printf("tune: %s cannot be written\n", path);
}

/* Notes which key has changed; the store calls it in the interrupt handler. A path that is none of
 * a key is that of the watch: it fires once at the start, and instead of many single events. */
static void tune_on_change(void *ctx, const char *path) {
    bool all = strlen(path) < sizeof(HOME);

    for (struct entry *e = table; e < table + TUNABLES; e++)
        if (state_of(e) == TUNABLE_LIVE && (all || !strcmp(path + sizeof(HOME), e->t.name)))
            __atomic_store_n(&e->changed, 1, __ATOMIC_RELEASE);
    sem_up(&tune_wanted);
}

/* Sets the value. Returns NULL, or why it is refused. tunable_remove() must not come in between. */
static const char *try_value(struct entry *e, u64 value) {
    const char *why = NULL;

    preempt_disable();
    if (state_of(e) == TUNABLE_LIVE) why = e->t.set(e->t.arg, value);
    preempt_enable();
    return why;
}

/* Takes the value that the key has now, which somebody may have set before this VM began, or gives
 * the key its old value back. */
static void tune_look(struct entry *e) {
    char path[sizeof(HOME) + TUNABLE_NAME], range[64];
    const char *why = range;
    u64 value;
    i64 error;

    path_to(e, path, sizeof(path));
    snprintf(range, sizeof(range), "a number from %lu to %lu is expected", e->t.least, e->t.most);
    error = store_read_u64(0, path, &value);
    if (error == -ENOENT) {
        tune_publish(e);
        return;
    }
    if (error && error != -EINVAL) {
        printf("tune: %s cannot be read (error %ld); it stays %lu\n", path, -error, e->t.value);
        return;
    }
    if (!error && value == e->t.value) return;
    if (!error && value >= e->t.least && value <= e->t.most) why = try_value(e, value);
    if (!why) {
        e->t.value = value;
        printf("tune: %s is %lu\n", path, value);
        return;
    }
    printf("tune: the new value of %s is refused: %s; it stays %lu\n", path, why, e->t.value);
    tune_publish(e);
}

/* Removes the key of a number that is gone, and frees its entry. */
static void tune_leave(struct entry *e) {
    char path[sizeof(HOME) + TUNABLE_NAME];

    path_to(e, path, sizeof(path));
    store_rm(0, path);
    __atomic_store_n(&e->state, TUNABLE_FREE, __ATOMIC_RELEASE);
}

/* Serves all tunables, as a thread: publishes the keys of those that are new, removes the keys of
 * those that are gone, and takes the values that were written to keys. */
static void tune_work(void *arg) {
    int error = store_start();

    if (!error) error = (int)store_watch(HOME, tune_on_change, NULL);
    if (error) {
        printf("tune: there is no store (error %d), so nothing can be tuned\n", -error);
        return;
    }
    for (;;) {
        sem_down(&tune_wanted);
        while (sem_try(&tune_wanted)) { /* one look is enough for all that happened until now */
        }
        for (struct entry *e = table; e < table + TUNABLES; e++) {
            u32 state = state_of(e);

            if (state == TUNABLE_NEW) {
                move(e, TUNABLE_NEW, TUNABLE_LIVE);
                tune_look(e);
            } else if (state == TUNABLE_LEAVING) {
                tune_leave(e);
            } else if (__atomic_exchange_n(&e->changed, 0, __ATOMIC_ACQ_REL)) {
                tune_look(e);
            }
        }
    }
}

bool tunables_on(void) { return on_takt() && cmdline_has("tune"); }

/* Makes the number changeable by a key in the store. If the guest was not started with `tune`, or
 * if there is no room, the number just stays as it is. */
void tunable_add(const struct tunable *t) {
    struct entry *e = table;

    if (!tunables_on()) return;
    while (e < table + TUNABLES && state_of(e) != TUNABLE_FREE) e++;
    if (e == table + TUNABLES) {
        printf("tune: there is no room for " HOME "/%s\n", t->name);
        return;
    }
    e->t = *t;
    e->changed = 0;
    __atomic_store_n(&e->state, TUNABLE_NEW, __ATOMIC_RELEASE);
    if (!tune_runs && !thread_start(0, "tune", tune_work, NULL))
        printf("tune: there is no memory for a thread\n");
    tune_runs = true;
    sem_up(&tune_wanted);
}

/* Has all numbers with that `arg` removed from the store; the thread of tune_work() removes their
 * keys later. */
void tunable_remove(const void *arg) {
    for (struct entry *e = table; e < table + TUNABLES; e++) {
        if (e->t.arg != arg) continue;
        move(e, TUNABLE_NEW, TUNABLE_LEAVING);
        move(e, TUNABLE_LIVE, TUNABLE_LEAVING);
    }
    if (tune_runs) sem_up(&tune_wanted);
}
