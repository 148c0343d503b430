/* Pools that change by themselves: how many turbo cores there are, by their load (vTurbo, section 3.1,
 * "future work"); which VMs are in a pool for I/O and how many pCPUs it has, by their label and the load
 * ("Coexisting scheduling policies", section 6). Once a window, at most one change is decided; it is
 * carried out in steps, as an administrator would do it.
 *
 *   turbo_max N:  one core more, up to N, if the load of the turbo pool was more than turbo_high % of its
 *                 cores; one less, down to one, if it was less than turbo_low % of the others
 *   auto_io 1:    I/O-intensive VMs move into this pool, the others back to Pool-0; pCPUs are divided
 *                 between the two by load, and one changes sides when the division is off by 0.75 of it
 *
 * The load of a pool is how many of its vCPUs run or want to, on average: it tells also what a full pool
 * lacks.
 */
#include <takt/errno.h>
#include "lib/printf.h"
#include "sched/core.h"
#include "sched/credit.h"
#include "sched/governor.h"

#define SAMPLES 100
#define SAMPLE  (9700 * NS_PER_US) /* not a multiple of what guests do things by */
#define RETRY   NS_PER_MS

static u64 next_sample;
static u32 nr_samples, load[SCHED_MAX_POOLS]; /* sums, in this window */
static struct {
    struct sched_pool *from, *to; /* from NULL: nothing is under way */
    u32 cpu;
    u32 dom; /* 0: the pCPU moves, else this VM, which is paused */
} move;

static struct sched_dom *find(struct sched_pool *p, u32 id) {
    list_for_each(d, &p->doms, struct sched_dom, in_pool)
        if (d->id == id) return d;
    return NULL;
}

static void move_dom(struct sched_dom *d) {
    struct param_values lost;
    int error = param_move_dom(move.to, d, &lost);

    if (error == -EAGAIN) return;
    for (u32 i = 0; !error && i < lost.nr; i++)
        log_warn("%s: pool %s does not keep its %s, which was %ld", d->name, move.to->name,
                 lost.of[i].param->name, lost.of[i].value);
    sched_unpause(d);
    move.from = NULL;
}

static void go_on(void) {
    if (move.dom) {
        struct sched_dom *d = find(move.from, move.dom);
        struct sched_pool *p = NULL;

        if (d) return move_dom(d);
        move.from = NULL; /* somebody else has moved or destroyed it meanwhile */
        while (!d && (p = sched_pool_next(p))) d = find(p, move.dom);
        if (d) sched_unpause(d);
        return;
    }
    int error = sched_pool_remove_cpu(move.from, move.cpu);

    if (error == -EAGAIN) return;
    if (!error) sched_pool_add_cpu(move.to, move.cpu);
    move.from = NULL;
}

static void move_cpu(struct sched_pool *from, struct sched_pool *to) {
    for (u32 cpu = 1; cpu < TAKT_MAX_CPUS; cpu++)
        if (cpumask_test(&from->cpus, cpu)) move.cpu = cpu; /* the last one; CPU 0 stays */
    move.from = from;
    move.to = to;
    move.dom = 0;
}

static void sample(const struct sched_pool *p) {
    list_for_each(d, &p->doms, struct sched_dom, in_pool)
        for_each_vcpu(v, d) load[p->id] += v->state == RS_RUNNING || v->state == RS_RUNNABLE;
}

static void turbo_cores(struct sched_pool *t) {
    const struct credit_knobs *k = &credit_pool(t)->knob;
    u32 n = cpumask_weight(&t->cpus), percent = load[t->id] * 100 / SAMPLES;

    if (percent > n * k->turbo_high && n < k->turbo_max && cpumask_weight(&t->regular->cpus) > 1)
        move_cpu(t->regular, t);
    else if (n > 1 && percent < (n - 1) * k->turbo_low)
        move_cpu(t, t->regular);
}

static bool labelled(const struct sched_dom *d) {
    return d->pool->policy == &credit_policy ? credit_dom(d)->io : d->io;
}

/* The first VM of `from` that belongs to the other side. */
static bool misplaced(struct sched_pool *from, struct sched_pool *to, bool io) {
    list_for_each(d, &from->doms, struct sched_dom, in_pool)
        if (labelled(d) == io && !d->peer && !cpumask_empty(&to->cpus)) {
            move.from = from;
            move.to = to;
            move.dom = d->id;
            sched_pause(d);
            return true;
        }
    return false;
}

static void io_pool(struct sched_pool *p) {
    struct sched_pool *rest = sched_pool_next(NULL);
    u32 n = cpumask_weight(&p->cpus), all = n + cpumask_weight(&rest->cpus);
    u32 loads = load[p->id] + load[rest->id], percent;

    if (misplaced(rest, p, true) || misplaced(p, rest, false) || !loads) return;
    percent = load[p->id] * all * 100 / loads; /* of a pCPU, which it should have */
    if (percent > n * 100 + 75 && all - n > 1)
        move_cpu(rest, p);
    else if (percent + 75 < n * 100 && n > 1)
        move_cpu(p, rest);
}

static void new_window(void) {
    nr_samples = 0;
    for (u32 i = 0; i < SCHED_MAX_POOLS; i++) load[i] = 0;
}

u64 governor_step(u64 now) {
    struct sched_pool *p = NULL;

    if (move.from) go_on();
    if (move.from) return now + RETRY;
    if (now < next_sample) return next_sample;
    next_sample = now + SAMPLE;
    while ((p = sched_pool_next(p))) sample(p);
    if (++nr_samples < SAMPLES) return next_sample;
    while (!move.from && (p = sched_pool_next(p))) {
        if (p->policy != &credit_policy) continue;
        if (p->regular && credit_pool(p)->knob.turbo_max) turbo_cores(p);
        if (p->id && !move.from && credit_pool(p)->knob.auto_io) io_pool(p);
    }
    new_window();
    return move.from ? now : next_sample;
}

void governor_reset(void) {
    next_sample = 0;
    move.from = NULL;
    new_window();
}
