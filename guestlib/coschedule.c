/* Co-scheduling in a driver domain, which serves the disks of other VMs: guest/coschedule.h has the
 * contracts. A *socket* is a group of a VM's vCPUs, an *I/O core* a vCPU of the driver domain that
 * only polls rings, and a *lane* the ring of one socket of one disk. This file decides which I/O
 * core serves which lane, and with which share. S_i is the part of all I/O that belongs to disk i,
 * and S_SKT the part of that which belongs to one of its sockets (names of IOrchestra's paper). */
#include <guest/cores.h>
#include <guest/coschedule.h>
#include <guest/guest.h>
#include <guest/printf.h>
#include <guest/store.h>
#include <guest/string.h>
#include <guest/thread.h>

#define DEVICES  8
#define KEY_MAX  80 /* bytes of a path, with its terminator */
#define LIST_MAX (COSCHEDULE_VCPUS * 9)

static struct coschedule_disk *disks[COSCHEDULE_DISKS]; /* changed with preemption disabled */
static struct coschedule_latency latency[CORES_MOST];
static struct disk_core *places[DEVICES]; /* of the I/O cores at each device; they stay */
static u32 nr_places;
static struct semaphore *wanted;
static u32 nr_cores;
static u64 remote_ns;
static bool on;

bool coschedule_possible(void) { return nr_cores; }

void coschedule_init(u32 n, u64 remote) {
    nr_cores = n;
    remote_ns = remote;
}

/* ---- places and shares; preemption is disabled, so the disks stay what they are ---- */

/* Returns the I/O core that should serve a lane: that of its own socket if co-scheduling is on. The
 * baseline SDC takes the core of the VM's first socket for all of them. */
static u32 core_for(const struct coschedule_disk *d, const struct lane *l) {
    if (on) return l->socket;
    return d->socket; /* SDC knows one socket of a VM */
}

/* Returns how much longer the requests of a lane take if that I/O core serves it. */
static u64 penalty(const struct lane *l, u32 core) {
    if (core == l->socket) return 0;
    return remote_ns;
}

/* Moves the disk's lanes to the I/O cores that should serve them now. */
static void place(struct coschedule_disk *d) {
    for (u32 i = 0; i < d->nr; i++) {
        struct lane *l = &d->lane[i];
        u32 core = core_for(d, l);

        if (l->core != core) core_move(l, core, &d->place[core], penalty(l, core));
    }
}

/* Computes the share S_i of each disk, so that their sum is 1, and the share S_SKT of each of its
 * sockets. The names are those of docs/collab.md. */
static void compute_parts(void) {
    u64 share[COSCHEDULE_DISKS], whole[COSCHEDULE_DISKS];

    for (u32 i = 0; i < COSCHEDULE_DISKS; i++) {
        share[i] = 0;
        if (disks[i]) share[i] = disks[i]->share;
    }
    collab_divide(COLLAB_ONE, share, COSCHEDULE_DISKS, whole);
    for (u32 i = 0; i < COSCHEDULE_DISKS; i++)
        if (disks[i]) coschedule_parts(whole[i], &disks[i]->weights, disks[i]->nr, disks[i]->part);
}

/* Gives the rings of a disk static equal shares (SDC): each VM has the same share, and its rings
 * divide that equally. */
static void share_equally(struct coschedule_disk *d) {
    for (u32 i = 0; i < d->nr; i++) d->lane[i].ram.turn.share = DISK_TURNS_SHARE / d->nr;
}

/* Returns the largest part of any socket of any disk. The shares of all others are counted against
 * it. */
static u64 largest_part(void) {
    u64 largest = 0;

    for (u32 i = 0; i < COSCHEDULE_DISKS; i++)
        for (u32 k = 0; disks[i] && k < disks[i]->nr; k++)
            largest = MAX(largest, disks[i]->part[k]);
    return largest;
}

/* Sets the weights of the I/O cores at a device: the sums of the shares of their disks there. */
static void weigh_cores(struct disk_core *at) {
    u64 sum[CORES_MOST] = { 0 }, largest = 0;

    for (u32 i = 0; i < COSCHEDULE_DISKS; i++)
        for (u32 k = 0; disks[i] && disks[i]->place == at && k < disks[i]->nr; k++)
            sum[disks[i]->lane[k].core] += disks[i]->part[k];
    for (u32 c = 0; c < nr_cores; c++) largest = MAX(largest, sum[c]);
    if (!on) largest = 0; /* then all are equal */
    for (u32 c = 0; c < nr_cores; c++) at[c].turn.share = coschedule_turn(sum[c], largest);
}

/* Sets the shares of all lanes and the weights of all I/O cores anew, from the administrator's
 * shares and the weights that VMs have published. Under SDC all VMs have equal shares. The lock of
 * a device is held meanwhile, because its I/O cores use the shares. */
static void share_out(void) {
    u64 largest;

    compute_parts();
    largest = largest_part();
    for (u32 i = 0; i < COSCHEDULE_DISKS; i++) {
        struct coschedule_disk *d = disks[i];
        u64 f;

        if (!d) continue;
        f = irq_save();
        driver_lock(&d->turns->lock);
        for (u32 k = 0; on && k < d->nr; k++)
            d->lane[k].ram.turn.share = coschedule_turn(d->part[k], largest);
        if (!on) share_equally(d);
        weigh_cores(d->place);
        for (u32 c = 0; c < nr_cores; c++) disk_round_shares(&d->place[c].round);
        disk_round_shares(&d->turns->round);
        driver_unlock(&d->turns->lock);
        irq_restore(f);
    }
}

/* ---- the loop ---- */

/* Remembers where the I/O cores count what they do at a device, for look_at_cores(). A device that
 * is beyond DEVICES is served all the same, but its latencies are not seen. */
static void know_place(struct disk_core *place) {
    u32 i = 0;

    while (i < nr_places && places[i] != place) i++;
    if (i == DEVICES) return;
    places[i] = place;
    nr_places = MAX(nr_places, i + 1);
}

/* Places the lanes of a disk at their I/O cores, so that it is served. Returns 0, or -ENOSPC if
 * there are too many disks. The lanes take no turns yet, so core_move() may put them at any core
 * first. core_move() does not report that a core has no place for another disk, so l->ram.core is
 * compared afterwards. */
int coschedule_add(struct coschedule_disk *d) {
    u32 i = 0;

    while (i < COSCHEDULE_DISKS && disks[i]) i++;
    if (i == COSCHEDULE_DISKS) return -ENOSPC;
    preempt_disable();
    for (u32 k = 0; k < d->nr; k++) {
        struct lane *l = &d->lane[k];
        u32 core = core_for(d, l);

        core_move(l, core, &d->place[core], penalty(l, core));
        if (l->ram.core == &d->place[core]) continue;
        preempt_enable();
        return -ENOSPC;
    }
    disks[i] = d;
    know_place(d->place);
    share_out();
    preempt_enable();
    return 0;
}

void coschedule_remove(struct coschedule_disk *d) {
    preempt_disable();
    for (u32 i = 0; i < COSCHEDULE_DISKS; i++)
        if (disks[i] == d) disks[i] = NULL;
    share_out();
    preempt_enable();
}

/* ---- the manager's thread ---- */

/* Switches between co-scheduling and static equal shares. The lanes move first, because the weight
 * of an I/O core is the sum of the shares of the lanes that it serves. */
void coschedule_switch(bool now) {
    preempt_disable();
    on = now;
    for (u32 i = 0; i < COSCHEDULE_DISKS; i++)
        if (disks[i]) place(disks[i]);
    share_out();
    preempt_enable();
}

static struct coschedule_disk *coschedule_find(u32 vm, u32 number) {
    for (u32 i = 0; i < COSCHEDULE_DISKS; i++)
        if (disks[i] && disks[i]->vm == vm && disks[i]->number == number) return disks[i];
    return NULL;
}

static void weights_path(u32 vm, u32 number, char *path) {
    snprintf(path, KEY_MAX, "/local/domain/%u/io/disk/%u/weights", vm, number);
}

/* Notes that a VM has changed its weights; the store calls it in the interrupt handler. It only
 * notes whose they are, because reading the store may wait; coschedule_run() reads them. */
static void on_weights(void *ctx, const char *path) {
    for (u32 i = 0; i < COSCHEDULE_DISKS; i++) {
        char mine[KEY_MAX];

        if (!disks[i]) continue;
        weights_path(disks[i]->vm, disks[i]->number, mine);
        if (strcmp(path, mine) == 0) disks[i]->weights_wanted = true;
    }
    sem_up(wanted);
}

static void share_path(u32 vm, u32 number, char *path) {
    snprintf(path, KEY_MAX, "io/collab/share/%u-%u", vm, number);
}

/* Watches the weights that the VM of a disk writes into the store. Only a VM with several sockets
 * has weights to watch. With one socket all of its I/O goes to that one anyway. */
void coschedule_watch(u32 vm, u32 number, struct semaphore *raised) {
    const struct coschedule_disk *d = coschedule_find(vm, number);
    char path[KEY_MAX];

    wanted = raised;
    if (!d) return;
    share_path(vm, number, path);
    store_write_u64(0, path, d->share);
    weights_path(vm, number, path);
    if (d->nr > 1 && store_watch(path, on_weights, NULL) < 0)
        printf("manager: %s cannot be watched\n", path);
}

/* Ends what coschedule_watch() has begun, and removes the VM's share from the store. */
void coschedule_unwatch(u32 vm, u32 number) {
    char path[KEY_MAX];

    if (!nr_cores) return;
    weights_path(vm, number, path);
    store_unwatch(path, on_weights, NULL);
    share_path(vm, number, path);
    store_rm(0, path);
}

/* Reads the weights that the VM of that disk has published. Returns whether they have changed. A
 * call of the store may wait, and the disk may go meanwhile, so the disk is looked up again after
 * the call. */
static bool read_weights(u32 vm, u32 number) {
    struct coschedule_list new = { 0 };
    struct coschedule_disk *d;
    char path[KEY_MAX], text[LIST_MAX];
    bool changed = false;
    i64 len;

    weights_path(vm, number, path);
    len = store_read(0, path, text, sizeof(text));
    if (len > 0 && !coschedule_read(&new, text, (u32)len))
        printf("manager: %s is no list of numbers up to %u: equal weights are used\n", path,
               COSCHEDULE_WEIGHT);
    preempt_disable();
    d = coschedule_find(vm, number);
    if (d) changed = memcmp(&d->weights, &new, sizeof(new)) != 0;
    if (d) d->weights = new;
    preempt_enable();
    return changed;
}

/* Reads the administrator's share of a disk. Returns whether it has changed. Calls of the store may
 * wait, and the disk may go meanwhile, so it is looked up again. */
static bool read_share(u32 vm, u32 number) {
    struct coschedule_disk *d;
    char path[KEY_MAX];
    bool changed;
    u64 share;

    share_path(vm, number, path);
    if (store_read_u64(0, path, &share) < 0 || !share || share > 1000) {
        printf("manager: %s is not a number from 1 to 1000: the share stays as it was\n", path);
        return false;
    }
    preempt_disable();
    d = coschedule_find(vm, number);
    changed = d && d->share != share;
    if (d) d->share = (u32)share;
    preempt_enable();
    if (changed) printf("manager: VM %u, disk %u: share %lu\n", vm, number, share);
    return changed;
}

/* Follows the mean latency of each I/O core. A core has a place at each device, so the sums of all
 * devices count. */
static void look_at_cores(u64 now) {
    for (u32 c = 0; c < nr_cores; c++) {
        u64 ended = 0, ns = 0;

        for (u32 i = 0; i < nr_places; i++) {
            ended += places[i][c].ended;
            ns += places[i][c].latency_ns;
        }
        coschedule_look(&latency[c], ended, ns, now);
    }
}

/* Writes the weights of a VM's sockets as text, in thousandths. Returns the length of the text, or
 * 0 if there is nothing to publish: it is not time yet, or the numbers are those that were
 * published last. */
static u32 weights_to_tell(struct coschedule_disk *d, u64 now, char *text, size_t size) {
    u64 l[CORES_MOST] = { 0 }, weight[CORES_MOST];
    bool same = d->told_at;
    size_t len = 0;

    for (u32 i = 0; i < d->nr; i++) l[i] = latency[d->socket + i].mean;
    balance_weights(l, d->nr, weight);
    if (d->told_at && !balance_due(d->told, weight, d->nr, now - d->told_at)) return 0;
    for (u32 i = 0; i < d->nr; i++) {
        u64 thousandths = MAX(weight[i] * 1000 / COLLAB_ONE, 1ul);

        same &= weight[i] * 1000 / COLLAB_ONE == d->told[i] * 1000 / COLLAB_ONE;
        d->told[i] = weight[i];
        if (i) text[len++] = ' ';
        len += (size_t)snprintf(text + len, size - len, "%lu", thousandths);
    }
    d->told_at = now;
    if (same) return 0;
    return (u32)len;
}

/* Publishes the weights of the sockets of the VM that has entry `i` of disks[], if there is
 * something new. The store is written with preemption enabled, and the disk may go meanwhile, so
 * all that is needed of it is copied before. */
static void tell_weights(u32 i, u64 now) {
    char path[KEY_MAX], text[CORES_MOST * 6];
    struct coschedule_disk *d;
    u32 len = 0;

    preempt_disable();
    d = disks[i];
    if (d && d->nr > 1) {
        snprintf(path, sizeof(path), "/local/domain/%u/io/disk/%u/sockets", d->vm, d->number);
        len = weights_to_tell(d, now, text, sizeof(text));
    }
    preempt_enable();
    if (len) store_write(0, path, text, len);
}

/* Reads the weights that VMs have changed, computes shares, and publishes them in the store; the
 * manager's thread calls it. What other threads change (disks[] and the fields of a disk) is only
 * used with preemption disabled, and the store is only called with preemption enabled, because it
 * may wait. Therefore each disk is known by its VM and number between the two. */
void coschedule_run(bool shares) {
    struct coschedule_disk *d;
    bool changed = false;
    u64 now = time_ns();

    if (!nr_cores) return;
    for (u32 i = 0; i < COSCHEDULE_DISKS; i++) {
        bool weights = false;
        u32 vm, number;

        preempt_disable();
        d = disks[i];
        if (d) {
            vm = d->vm;
            number = d->number;
            weights = __atomic_exchange_n(&d->weights_wanted, false, __ATOMIC_ACQ_REL);
        }
        preempt_enable();
        if (!d) continue;
        if (shares) changed |= read_share(vm, number);
        if (weights) changed |= read_weights(vm, number);
    }
    preempt_disable();
    look_at_cores(now);
    if (changed) share_out();
    preempt_enable();
    for (u32 i = 0; on && i < COSCHEDULE_DISKS; i++)
        if (disks[i]) tell_weights(i, now);
}
