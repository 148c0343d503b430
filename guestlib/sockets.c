/* A guest on several sockets: guest/sockets.h has the contracts. A *socket* is a group of the VM's
 * vCPUs that has a ring of the disk to itself. The manager in the driver domain writes into the
 * store how much I/O each socket should do (`sockets`); this guest moves its I/O threads
 * accordingly, and writes the sum of their weights on each vCPU (`weights`). One thread of vCPU 0
 * reads and writes these keys. */
#include <guest/guest.h>
#include <guest/printf.h>
#include <guest/sockets.h>
#include <guest/store.h>
#include <guest/thread.h>
#include <guest/vcpu.h>
#include "drivers/collab/place.h"

#define LIST_MAX (COSCHEDULE_VCPUS * 9) /* bytes of a list of numbers */

static u32 weight[SOCKETS_THREADS], vcpu_of[SOCKETS_THREADS]; /* vcpu_of: atomic */
static u32 nr_threads, nr_rings, moves;
static char home[32], manager_path[32];
static struct semaphore news = SEMAPHORE(0); /* the manager is new, or has said something */
static bool look_alone; /* nobody else removes the keys of a manager that is gone */
static u32 managed;     /* atomic: there is a manager; only without look_alone */

int sockets_add(u32 w, u32 vcpu) {
    if (nr_threads == SOCKETS_THREADS) return -ENOSPC;
    weight[nr_threads] = w;
    vcpu_of[nr_threads] = vcpu;
    return (int)nr_threads++;
}

u32 sockets_vcpu(u32 thread) { return __atomic_load_n(&vcpu_of[thread], __ATOMIC_RELAXED); }

u32 sockets_moves(void) { return moves; }

static void on_news(void *ctx, const char *path) { sem_up(&news); }

/* Looks whether there is another manager. Keys get the rights of io/ when they are made, so those
 * that were made for the manager of another driver domain go. */
static void look_for_manager(void) {
    static u64 before;
    u64 manager;

    if (store_read_u64(0, manager_path, &manager)) manager = 0;
    if (before && manager != before) store_rm(0, "io/disk");
    before = manager;
}

/* Publishes the sum of the weights of the threads of each vCPU. The manager divides the disk's
 * share among the sockets by them. */
static void publish(void) {
    u32 sum[COSCHEDULE_VCPUS] = { 0 }, len = 0;
    char path[48], text[LIST_MAX] = "";

    for (u32 i = 0; i < nr_threads; i++) sum[vcpu_of[i]] += weight[i];
    for (u32 k = 0; k < vcpu_count(); k++) {
        if (k) text[len++] = ' ';
        len += (u32)snprintf(text + len, sizeof(text) - len, "%u", sum[k]);
    }
    snprintf(path, sizeof(path), "%s/weights", home);
    store_write(0, path, text, len);
}

/* Reads how the manager wants the I/O divided among the VM's sockets, and chooses a vCPU for each
 * thread by that. The threads go there themselves. If the list in the store makes no sense, nothing
 * changes. */
static void spread(void) {
    struct coschedule_list socket = { 0 };
    u32 to[SOCKETS_THREADS];
    char path[48], text[LIST_MAX] = "";
    i64 len;

    snprintf(path, sizeof(path), "%s/sockets", home);
    len = store_read(0, path, text, sizeof(text));
    if (len <= 0 || !coschedule_read(&socket, text, (u32)len) || socket.nr != nr_rings) return;
    place_threads(weight, nr_threads, &socket, vcpu_count(), to);
    for (u32 i = 0; i < nr_threads; i++) {
        moves += to[i] != vcpu_of[i];
        __atomic_store_n(&vcpu_of[i], to[i], __ATOMIC_RELAXED);
    }
}

void sockets_manager(bool there) {
    __atomic_store_n(&managed, there, __ATOMIC_SEQ_CST);
    sem_up(&news);
}

static bool has_manager(void) { return __atomic_load_n(&managed, __ATOMIC_SEQ_CST); }

/* Publishes the weights if another part of the guest says that there is a manager. If it goes while
 * they are written, what was written goes again: its rights would be those of the old manager. */
static void publish_if_managed(void) {
    if (!has_manager()) return;
    publish();
    if (!has_manager()) store_rm(0, "io/disk");
}

/* Follows the manager, as a thread: when the manager has published how the I/O is to be divided,
 * chooses vCPUs for the threads anew, and publishes the weights of the vCPUs. With `look_alone` no
 * other part of the guest looks whether there is a manager, so this thread does. A watch fires once
 * when it is made, so the weights are published once before anything has changed. */
static void follow_manager(void *arg) {
    char sockets[48];

    snprintf(manager_path, sizeof(manager_path), "io/manager-%u", *(const u32 *)arg);
    snprintf(sockets, sizeof(sockets), "%s/sockets", home);
    if ((look_alone && store_watch(manager_path, on_news, NULL) < 0) ||
        store_watch(sockets, on_news, NULL) < 0) {
        printf("sockets: io/ cannot be watched\n");
        return;
    }
    for (;;) {
        sem_down(&news);
        while (sem_try(&news)) { /* one look is enough for all that happened until now */
        }
        if (look_alone) look_for_manager();
        spread();
        if (look_alone)
            publish();
        else
            publish_if_managed();
    }
}

/* Starts the thread that follows the manager, for disk `index`, which has `rings` rings. Returns 0,
 * or a negative error. */
int sockets_start(u32 index, u32 rings, bool alone) {
    static u32 disk;
    int error = 0;

    if (alone) error = store_start(); /* else there is a connection already, which is in use */
    if (error) return error;
    disk = index;
    look_alone = alone;
    nr_rings = rings;
    snprintf(home, sizeof(home), "io/disk/%u", index);
    if (!thread_start(0, "sockets", follow_manager, &disk)) return -ENOMEM;
    return 0;
}
