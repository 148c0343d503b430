/* Pools that change by themselves: how many turbo cores there are, by their load (vTurbo,
 * section 3.1, "future work"); which VMs are in a pool for I/O, by their label, and how many
 * pCPUs it has, by load ("Coexisting scheduling policies", section 6). At the end of each window
 * at most one change is decided. It is then carried out in steps, by the same calls that an
 * administrator's commands make.
 *
 *   turbo_max N:  a turbo pool gets one more core, up to N, if its load was more than turbo_high
 *                 % of its cores. It loses one, but never the last, if the load was less than
 *                 turbo_low % of what the other cores could carry.
 *   auto_io 1:    I/O-intensive VMs move into this pool, the others back to Pool-0. pCPUs are
 *                 divided between the two pools by load; one changes sides when a pool has 0.75
 *                 of a pCPU more or less than its load would give it.
 *
 * The load of a pool is the average number of its vCPUs that run or want to run. So it also
 * tells how much a pool lacks whose pCPUs are all busy. */
#include <takt/errno.h>
#include "lib/log.h"
#include "sched/core.h"
#include "sched/governor.h"

#define SAMPLES       100                /* in a window */
#define SAMPLE_PERIOD (9700 * NS_PER_US) /* not a multiple of the periods that guests use */
#define RETRY         NS_PER_MS          /* from one step of a change to the next */
#define SLACK         75 /* % of a pCPU that the division between two pools may be off */

static u64 next_sample;                       /* ns */
static u32 nr_samples, load[SCHED_MAX_POOLS]; /* load: the sum of this window's samples */
/* The change that is under way. */
static struct {
    struct sched_pool *from, *to; /* If `from` is NULL, no change is under way. */
    u32 cpu;
    u32 vm; /* the VM that moves, which is paused; 0 means that the pCPU moves */
} change;

/* Returns the VM with this id if it is in the pool; NULL otherwise. */
static struct sched_vm *vm_in(struct sched_pool *p, u32 id) {
    list_for_each(d, &p->vms, struct sched_vm, in_pool)
        if (d->id == id) return d;
    return NULL;
}

/* Unpauses a VM that was about to be moved, and that the operator has moved to another pool
 * meanwhile. A VM that was destroyed is not found, and nothing is to be done for it. */
static void let_go_of_vm(u32 id) {
    for (struct sched_pool *p = sched_pool_next(NULL); p; p = sched_pool_next(p)) {
        struct sched_vm *d = vm_in(p, id);

        if (!d) continue;
        sched_unpause(d);
        return;
    }
}

/* Tries to move the VM. While a pCPU still holds the state of one of its vCPUs, it tries again at
 * the next step. The VM keeps its parameters; those that the new pool does not have are named in
 * the log. */
static void go_on_with_vm(void) {
    struct sched_vm *d = vm_in(change.from, change.vm);
    struct param_values lost;
    int error;

    if (!d) {
        change.from = NULL;
        let_go_of_vm(change.vm);
        return;
    }
    error = param_move_vm(change.to, d, &lost);
    if (error == -EAGAIN) return;
    for (u32 i = 0; !error && i < lost.nr; i++)
        log_warn("%s: pool %s does not keep its %s, which was %ld", d->name, change.to->name,
                 lost.of[i].param->name, lost.of[i].value);
    sched_unpause(d);
    change.from = NULL;
}

/* Tries to move the pCPU. As long as it still runs a vCPU, it tries again at the next step. */
static void go_on_with_cpu(void) {
    int error = sched_pool_remove_cpu(change.from, change.cpu);

    if (error == -EAGAIN) return;
    if (!error) sched_pool_add_cpu(change.to, change.cpu);
    change.from = NULL;
}

/* Does the next step of the change that is under way. */
static void go_on(void) {
    if (change.vm)
        go_on_with_vm();
    else
        go_on_with_cpu();
}

/* Begins to move the pCPU of `from` that has the highest number. CPU 0 stays where it is: it is the
 * housekeeping pCPU. */
static void begin_cpu(struct sched_pool *from, struct sched_pool *to) {
    for (u32 cpu = 1; cpu < TAKT_MAX_CPUS; cpu++)
        if (cpumask_test(&from->cpus, cpu)) change.cpu = cpu;
    change.from = from;
    change.to = to;
    change.vm = 0;
}

/* Begins to move a VM, which is paused until it has been moved: only then does no pCPU hold the
 * state of one of its vCPUs. */
static void begin_vm(struct sched_pool *from, struct sched_pool *to, struct sched_vm *d) {
    change.from = from;
    change.to = to;
    change.vm = d->id;
    sched_pause(d);
}

/* Adds how many vCPUs of the pool run or want to run now. */
static void governor_sample(const struct sched_pool *p) {
    list_for_each(d, &p->vms, struct sched_vm, in_pool)
        for_each_vcpu(v, d)
            if (v->state == RS_RUNNING || v->state == RS_RUNNABLE) load[p->id]++;
}

/* Gives the turbo pool one more core, or takes one away, if its load asks for that. The regular
 * pool always keeps one pCPU. */
static void turbo_cores(struct sched_pool *t, const struct sched_wishes *w) {
    u32 n = t->nr_cpus;
    u32 percent = load[t->id] * 100 / SAMPLES; /* of one core */

    if (percent > n * w->turbo_high && n < w->turbo_max && t->regular->nr_cpus > 1)
        begin_cpu(t->regular, t);
    else if (n > 1 && percent < (n - 1) * w->turbo_low)
        begin_cpu(t, t->regular);
}

/* Returns whether the VM counts as I/O-intensive. The VM's policy decides, by the label and by what
 * the administrator says. If the policy does not decide, the label does. */
static bool is_io(const struct sched_vm *d) {
    if (d->pool->policy->is_io) return d->pool->policy->is_io(d);
    return d->io;
}

/* Begins to move the first VM of `from` that belongs to `to`, which is the case if it is
 * I/O-intensive and `io` is true, or neither. A VM with a turbo vCPU stays. Returns whether there
 * is one. */
static bool begin_misplaced(struct sched_pool *from, struct sched_pool *to, bool io) {
    if (cpumask_empty(&to->cpus)) return false;
    list_for_each(d, &from->vms, struct sched_vm, in_pool)
        if (is_io(d) == io && !d->peer) {
            begin_vm(from, to, d);
            return true;
        }
    return false;
}

/* Begins one change between a pool for I/O and Pool-0, which has all other VMs. First VMs that are
 * in the wrong pool move, and only then pCPUs, because their number follows from the load of the
 * right VMs. */
static void io_pool(struct sched_pool *p) {
    struct sched_pool *rest = sched_pool_next(NULL); /* Pool-0 */
    u32 n = p->nr_cpus, all = n + rest->nr_cpus;
    u32 loads = load[p->id] + load[rest->id], percent;

    if (begin_misplaced(rest, p, true) || begin_misplaced(p, rest, false) || !loads) return;
    percent = load[p->id] * all * 100 / loads; /* what p should have, in % of a pCPU */
    if (percent > n * 100 + SLACK && all - n > 1)
        begin_cpu(rest, p);
    else if (percent + SLACK < n * 100 && n > 1)
        begin_cpu(p, rest);
}

/* Begins the change that the pool needs, if it needs one. */
static void govern(struct sched_pool *p) {
    struct sched_wishes wishes;

    if (!p->policy->wishes) return;
    p->policy->wishes(p, &wishes);
    if (p->regular && wishes.turbo_max) turbo_cores(p, &wishes);
    if (p->id && !change.from && wishes.auto_io) io_pool(p);
}

/* Forgets what was measured. */
static void new_window(void) {
    nr_samples = 0;
    for (u32 i = 0; i < SCHED_MAX_POOLS; i++) load[i] = 0;
}

/* Moves pCPUs and VMs between the pools as their load asks for. Returns when it wants to be called
 * again (ns). As long as a change is under way, no load is measured, because it would be the load
 * of pools that are changing. */
u64 governor_step(u64 now) {
    if (change.from) go_on();
    if (change.from) return now + RETRY;
    if (now < next_sample) return next_sample;
    next_sample = now + SAMPLE_PERIOD;
    for (struct sched_pool *p = sched_pool_next(NULL); p; p = sched_pool_next(p))
        governor_sample(p);
    if (++nr_samples < SAMPLES) return next_sample;
    for (struct sched_pool *p = sched_pool_next(NULL); p && !change.from; p = sched_pool_next(p))
        govern(p);
    new_window();
    if (change.from) return now;
    return next_sample;
}

/* Forgets what was measured and any change that is under way. Tests call it, because each of them
 * begins with no change under way. */
void governor_reset(void) {
    next_sample = 0;
    change.from = NULL;
    new_window();
}
