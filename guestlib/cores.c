/* I/O cores. guest/cores.h explains them.
 *
 * What a core serves is changed by that core alone, so its loop needs no lock: vCPU 0 has it call a
 * function in an interrupt (vcpu_call()). Interrupts are on only between two rounds of the loop. */
#include <guest/cores.h>
#include <guest/event.h>
#include <guest/guest.h>
#include <guest/thread.h>
#include <guest/vcpu.h>

static struct lane *lanes[CORES_MOST]; /* of each I/O core; changed by that core alone */

static u32 sleeper;   /* atomic: vCPU 0 wants to be told of the next request */
static int wake_port; /* bound to port_of_0, for which vCPU 0 waits among others */
static int port_of_0;

/* Tells vCPU 0 that there are requests again, if it wants to know. */
static void wake_sleeper(const struct lane *l) {
    if (!l->blk.nr || !__atomic_load_n(&sleeper, __ATOMIC_RELAXED)) return;
    if (__atomic_exchange_n(&sleeper, 0, __ATOMIC_SEQ_CST)) event_send((u32)wake_port);
}

/* Takes the interrupts that wait. STI lets interrupts in only after the next instruction, which
 * must not be CLI. */
static void let_interrupts_in(void) {
    irq_enable();
    __asm__ volatile("nop" : : : "memory");
    irq_disable();
}

/* Serves the disks of an I/O core in an endless loop, as its thread. It never waits: another round
 * begins at once, and interrupts, by which vCPU 0 changes what the core serves, come only between
 * two rounds. */
static void core_poll(void *arg) {
    struct lane **mine = arg;

    irq_disable();
    for (;;) {
        for (struct lane *l = *mine; l; l = l->next) {
            back_blk_serve(&l->blk, time_ns());
            back_blk_flush(&l->blk);
            wake_sleeper(l);
        }
        let_interrupts_in();
    }
}

/* Starts n I/O cores. Returns 0, or a negative error. vCPU 0 sleeps until one of its events comes.
 * An event channel from this VM to itself lets an I/O core wake it (cores_wake_me()). */
int cores_start(u32 n) {
    if (!n || n > CORES_MOST || vcpu_count() < n + 1 || vcpu_start_all() < n + 1) return -EINVAL;
    port_of_0 = event_alloc(takt_vm_id());
    if (port_of_0 < 0) return -ENOMEM;
    wake_port = event_bind(takt_vm_id(), (u32)port_of_0);
    if (wake_port < 0) return -ENOMEM;
    for (u32 i = 0; i < n; i++)
        if (!thread_start(i + 1, "I/O core", core_poll, &lanes[i])) return -ENOMEM;
    return 0;
}

/* ---- on the I/O core ---- */

static void link(void *arg) {
    struct lane *l = arg;

    l->next = lanes[l->core];
    lanes[l->core] = l;
}

static void unlink(void *arg) {
    struct lane **at = &lanes[((struct lane *)arg)->core];

    while (*at && *at != arg) at = &(*at)->next;
    if (*at) *at = (*at)->next;
}

static void begin(void *arg) {
    struct lane *l = arg;

    back_blk_start(&l->blk, l->front);
    link(l);
}

static void end(void *arg) {
    struct lane *l = arg;

    unlink(l);
    monitor_give_up(l->blk.monitor, l->blk.nr, time_ns());
    back_blk_stop(&l->blk);
}

/* ---- on vCPU 0 ---- */

/* Runs fn(l) on an I/O core, between two rounds of its loop, and waits for the end. A thread of
 * this vCPU must not be switched away while it waits for the core: another one that wants to call a
 * core would wait for it in vain. */
static void core_call(u32 core, void (*fn)(void *), struct lane *l) {
    preempt_disable();
    vcpu_call(core + 1, fn, l);
    preempt_enable();
}

void cores_awake(void) { event_take((u32)port_of_0); }

void cores_wake_me(void) { __atomic_store_n(&sleeper, 1, __ATOMIC_SEQ_CST); }

void core_begin(struct lane *l, const struct takt_front *f) {
    l->front = f;
    core_call(l->core, begin, l);
}

void core_end(struct lane *l) { core_call(l->core, end, l); }

/* Has another I/O core serve the lane (the ring of one socket of one disk). The old core lets go of
 * the lane before the new one begins, so that never two serve it. Requests that come between wait
 * in the ring. */
void core_move(struct lane *l, u32 core, struct disk_core *place, u64 remote_ns) {
    bool served = l->blk.dev.live;
    u64 f;

    if (served) core_call(l->core, unlink, l);
    f = irq_save();
    if (disk_ram_set_core(&l->ram, place, remote_ns)) l->core = core;
    irq_restore(f);
    if (served) core_call(l->core, link, l);
}

void lane_fini(struct lane *l) {
    u64 f = irq_save();

    disk_ram_leave(&l->ram);
    irq_restore(f);
    back_blk_fini(&l->blk);
}

/* Returns what was counted for all rings of a disk, as if it had a single ring. */
struct back_blk lanes_sum(const struct lane *l, u32 nr) {
    struct back_blk sum = { .nr = 0 };

    for (; nr; nr--, l++) {
        const struct back_blk *b = &l->blk;

        sum.reads += b->reads;
        sum.writes += b->writes;
        sum.flushes += b->flushes;
        sum.discards += b->discards;
        sum.bytes += b->bytes;
        sum.errors += b->errors;
        sum.nr_most = MAX(sum.nr_most, b->nr_most);
        sum.dev.irqs += b->dev.irqs;
    }
    return sum;
}
