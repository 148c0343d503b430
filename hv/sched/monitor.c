/* The I/O monitor: which VMs are I/O-intensive ("Workload-aware credit scheduler", section 4.1), the one
 * classifier of shared credit, ACA, vSlicer's inference and dynamic pools. For a VM that others raised n
 * events for in a window of t:
 *
 *   rate = (1 - s) n / t + s rate       s: io_smoothing
 *   I/O-intensive from rate > theta on, until rate <= (1 - h) theta
 *
 * A VM's driver may count, too, and say that it is I/O-intensive (section 4.1): it counts receive and
 * transmit clean-ups, of which an interrupt is at most one of each. So half of theta does while it says so,
 * and a VM that says so, or reports events that nobody saw, is named in the log if it does not get as many.
 *
 * theta: io_threshold, h: io_hysteresis; the paper has 500/s, a second, s = h = 0. Our reading: it counts for
 * the VM, all vCPUs together; "exceeds", not the "reaches" of another place. What a VM raises to itself does
 * not count, nor what it unmasks; no rate is above MOST, so that smoothing does not keep a lie for long.
 *
 * Counting takes no lock. Windows are a pool's own timer, not the policy's, and only a change of a label is
 * an input of recordings: a replay needs no counts.
 */
#include "lib/printf.h"
#include "sched/core.h"
#include "sched/machine.h"

#define UNIT  1000 /* one event a second, as rates are kept */
#define MOST  (1000000ull * UNIT)
#define DOUBT 3000000 /* us: a driver that looks once a second has taken back what is over */

void sched_io_events(struct sched_dom *d, u32 n) { __atomic_fetch_add(&d->io_events, n, __ATOMIC_RELAXED); }

void sched_io_report(struct sched_dom *d, u32 n) { __atomic_fetch_add(&d->io_report, n, __ATOMIC_RELAXED); }

void sched_io_says(struct sched_dom *d, bool io) { __atomic_store_n(&d->io_says, io, __ATOMIC_RELAXED); }

static void set_label(struct sched_pool *p, struct sched_dom *d, bool io) {
    record_input(p, IN_LABEL, d->id << 16, io, 0);
    sched_trace(p, NULL, TRC_LABEL, d->id, io, d->io_rate / UNIT);
    d->io = io;
    if (p->policy->label) p->policy->label(p, d);
    param_changed(p, d, "class");
}

void sched_label(struct sched_dom *d, bool io) {
    struct sched_pool *p = sched_enter(&d->pool);

    if (!p) return;
    set_label(p, d, io);
    spin_unlock(&p->lock);
}

static u64 rate_of(u64 *count, u64 us) {
    u64 n = __atomic_exchange_n(count, 0, __ATOMIC_RELAXED);

    return MIN(MIN(n, 0xffffffffu) * UNIT * 1000000 / us, MOST);
}

/* A claim that nothing bears out for so long is told. */
static void doubt(struct sched_dom *d, bool doubtful, u64 seen, u64 us) {
    u64 before = d->io_doubt;

    d->io_doubt = doubtful ? before + us : 0;
    if (before < DOUBT && d->io_doubt >= DOUBT)
        log_warn("%s: says that it is I/O-intensive, but gets %lu events a second", d->name, seen / UNIT);
}

static void measure(struct sched_pool *p, struct sched_dom *d, u64 us) {
    u64 seen = rate_of(&d->io_events, us), told = rate_of(&d->io_report, us);
    u64 rate = MIN(seen + told, MOST), limit = (u64)p->io_threshold * UNIT;
    bool says = __atomic_load_n(&d->io_says, __ATOMIC_RELAXED);

    doubt(d, (says || rate > limit) && 2 * seen <= limit, seen, us);
    if (says) limit /= 2;
    d->io_rate = (d->io_rate * p->io_smoothing + rate * (100 - p->io_smoothing)) / 100;
    if (d->io ? d->io_rate <= limit - limit * p->io_hysteresis / 100 : d->io_rate > limit)
        set_label(p, d, !d->io);
}

static u64 window_end(const struct sched_pool *p) { return p->window_start + p->io_window_ms * NS_PER_MS; }

/* The pool may have changed or be gone since it was set. */
static void window_over(struct timer *t, u64 now) {
    struct sched_pool *p = container_of(t, struct sched_pool, window);

    sched_enter(&p);
    if (p->now >= window_end(p)) {
        u64 us = (p->now - p->window_start) / NS_PER_US;

        p->window_start = p->now;
        if (p->policy)
            list_for_each(d, &p->doms, struct sched_dom, in_pool) measure(p, d, us);
    }
    if (!cpumask_empty(&p->cpus)) sched_monitor_start(p, cpumask_next(&p->cpus, 0));
    spin_unlock(&p->lock);
}

void sched_monitor_init(struct sched_pool *p) {
    p->io_threshold = 500;
    p->io_window_ms = 1000;
    p->io_smoothing = p->io_hysteresis = 0;
    p->window_start = p->now;
    if (!p->window.fn) timer_init(&p->window, window_over);
}

void sched_monitor_start(struct sched_pool *p, u32 cpu) {
    if (!p->window.queued) machine_timer_set(cpu, &p->window, window_end(p));
}
