/* Takes part in Takt's tuning of disk I/O (docs/collab.md) for a Linux VM: tells the manager in the
 * driver domain how many dirty pages Linux has, and has Linux write them when the manager asks for
 * that.
 *
 *   takt-collab [-n DISK]
 *
 * DISK (0) is the number of the VM's disk. Linux counts the dirty pages of all disks together, so
 * this is meant for a VM with one disk. The program ends only when the store fails.
 *
 * There is nothing about congestion in here: Linux has had no congestion of block devices since
 * version 5.18, so there would be nothing to release. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "store.h"

#define LOOK_MS  100 /* Linux tells nobody of its dirty pages, so this looks so often */
#define PAGE_KIB 4
#define NOTHING  (-1L) /* as `published`: the manager knows nothing yet */

enum { MANAGER = 1, FLUSH_NOW = 2 }; /* which watch has fired */

static struct {
    struct store store;
    unsigned disk;
    long manager;   /* the VM in which the manager is; 0: there is none */
    long published; /* dirty pages, as the manager knows */
    unsigned flushes;
} agent = { .published = NOTHING };

/* Ends the program if the result of an operation is an error. */
static int checked(int result, const char *what) {
    if (result >= 0) return result;
    fprintf(stderr, "takt-collab: %s: %s\n", what, strerror(-result));
    exit(1);
}

/* Returns the path of a key of the disk. */
static const char *key(const char *name) {
    static char path[64];

    snprintf(path, sizeof(path), "io/disk/%u/%s", agent.disk, name);
    return path;
}

static const char *manager_key(void) {
    static char path[64];

    snprintf(path, sizeof(path), "io/manager-%u", agent.disk);
    return path;
}

/* Returns the number that a node holds; 0 if there is no such node, or none that may be read. */
static long number(const char *path) {
    char text[32];
    int r = store_read(&agent.store, path, text, sizeof(text));

    if (r == -ENOENT || r == -EACCES) return 0;
    checked(r, path);
    return strtol(text, NULL, 10);
}

static void publish(const char *name, long value) {
    char text[32];

    snprintf(text, sizeof(text), "%ld", value);
    checked(store_write(&agent.store, key(name), text), key(name));
}

/* Returns how many pages of Linux's page cache are not on a disk yet, and are not being written. */
static long dirty_pages(void) {
    FILE *f = fopen("/proc/meminfo", "r");
    long kib = -1;
    char line[128];

    if (!f) return checked(-errno, "/proc/meminfo");
    while (kib < 0 && fgets(line, sizeof(line), f))
        if (sscanf(line, "Dirty: %ld kB", &kib) != 1) kib = -1;
    fclose(f);
    if (kib < 0) checked(-EPROTO, "/proc/meminfo has no line \"Dirty:\"");
    return kib / PAGE_KIB;
}

/* Publishes the number of dirty pages when it becomes 0 or is no longer 0, and when it has doubled
 * or halved; with `always` in any case. */
static void publish_dirty(int always) {
    long nr = dirty_pages();
    int edge = agent.published == NOTHING || (nr != 0) != (agent.published != 0);

    if (!always && !edge && nr < 2 * agent.published && 2 * nr > agent.published) return;
    if (!always && !edge && nr == agent.published) return;
    publish("nr", nr);
    if (edge) publish("has_dirty_pages", nr != 0);
    agent.published = nr;
}

/* Looks whether there is a manager. What was made for the manager of an earlier driver domain has
 * the rights of that one, so it goes. */
static void look_for_manager(void) {
    long manager = number(manager_key());

    if (manager == agent.manager) return;
    if (agent.manager) store_rm(&agent.store, "io/disk");
    agent.manager = manager;
    agent.published = NOTHING;
    printf("takt-collab: the manager is in VM %ld\n", manager);
}

static double now_ms(void) {
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* Writes all dirty pages if the manager asks for that. When flush_now is 0 again, the manager may
 * ask another VM. It looks for that when `nr` is written, so `nr` is written after it, even if it
 * is the same number. */
static void flush_if_asked(void) {
    double begin = now_ms();
    long before;

    if (number(key("flush_now")) != 1) return;
    before = dirty_pages();
    sync();
    agent.flushes++;
    printf("takt-collab: flush %u: %ld dirty pages, %.1f ms\n", agent.flushes, before,
           now_ms() - begin);
    publish("flush_now", 0);
    publish_dirty(1);
}

/* Waits until a watch has fired or it is time to look how many pages are dirty. Without a manager
 * nobody wants to know that number, so the wait has no limit then. Takes all events that are there,
 * and returns which watches have fired. */
static unsigned wait_for_news(void) {
    char path[STORE_MAX];
    unsigned fired = 0;
    int ms = LOOK_MS, r;

    if (!agent.manager) ms = -1;
    do {
        r = store_wait(&agent.store, ms, path);
        if (r == -EOVERFLOW)
            fired = MANAGER | FLUSH_NOW;
        else if (checked(r, "the store") && strstr(path, "manager"))
            fired |= MANAGER;
        else if (r)
            fired |= FLUSH_NOW;
        ms = 0;
    } while (r);
    return fired;
}

/* Follows the keys of the manager for ever, and publishes Linux's number of dirty pages. */
int main(int argc, char **argv) {
    int option;

    while ((option = getopt(argc, argv, "n:")) != -1) {
        if (option != 'n') return 2;
        agent.disk = (unsigned)strtoul(optarg, NULL, 10);
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    checked(store_open(&agent.store), "the store cannot be reached");
    checked(store_watch(&agent.store, manager_key()), manager_key());
    checked(store_watch(&agent.store, key("flush_now")), key("flush_now"));
    for (;;) {
        unsigned fired = wait_for_news();

        if (fired & MANAGER) look_for_manager();
        if (!agent.manager) continue;
        if (fired & FLUSH_NOW) flush_if_asked();
        publish_dirty(0);
    }
}
