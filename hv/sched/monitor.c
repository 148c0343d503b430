/* The I/O monitor: says which VMs are I/O-intensive, that is, get many events (interrupts of their
 * devices, messages of other VMs), and gives them a label ("Workload-aware credit scheduler",
 * section 4.1). Shared credit, ACA, vSlicer's inference and the governor all go by its labels. For
 * a VM that others raised n events for in a window of length t:
 *
 *   rate = (1 - s) n / t + s rate       s: io_smoothing
 *   it becomes I/O-intensive when rate > theta, and ceases to be when rate <= (1 - h) theta
 *
 * theta is io_threshold and h is io_hysteresis. In the paper theta is 500 a second, t a second, s =
 * h = 0.
 *
 * A VM's driver may count as well, and may say that its VM is I/O-intensive (section 4.1). It
 * counts receive and transmit clean-ups, and an interrupt leads to at most one of each. So while a
 * driver says so, half of theta is enough. A VM that says so, or that reports events which nobody
 * saw, is named in the log if Takt does not see as many.
 *
 * How we read the paper where it leaves something open: the rate is that of the VM, of all its
 * vCPUs together. A rate has to exceed theta; in another place the paper says that it has to reach
 * it. Events that a VM raises for itself, or by unmasking, do not count. No rate is above RATE_MAX:
 * otherwise smoothing would keep one absurd report for many windows.
 *
 * Counting takes no lock. The windows are a timer of the pool and not of its policy. Recordings
 * contain only changes of a label, so a replay needs no counts. */
#include "lib/log.h"
#include "sched/core.h"
#include "sched/machine.h"

#define EVENTS_PER_S 1000 /* rates are kept in events per 1000 s; so much is one a second */
#define RATE_MAX     (1000000ull * EVENTS_PER_S)
/* The values that a new pool begins with, which are those of the paper's example. */
#define THRESHOLD 500  /* io_threshold: events a second */
#define WINDOW_MS 1000 /* io_window_ms */
/* How long a VM's claim may be in doubt before the log says so. A driver that looks once a second
 * has taken a wrong claim back by then. */
#define DOUBT_US 3000000

void sched_io_events(struct sched_vm *d, u32 n) {
    __atomic_fetch_add(&d->io_events, n, __ATOMIC_RELAXED);
}

void sched_io_report(struct sched_vm *d, u32 n) {
    __atomic_fetch_add(&d->io_report, n, __ATOMIC_RELAXED);
}

void sched_io_says(struct sched_vm *d, bool io) {
    __atomic_store_n(&d->io_says, io, __ATOMIC_RELAXED);
}

/* Changes the label of a VM, and tells the policy and the store's watches. The caller holds the
 * pool's lock. */
static void label_locked(struct sched_pool *p, struct sched_vm *d, bool io) {
    ASSERT_HELD(&p->lock);
    record_input(p, IN_LABEL, d->id << 16, io, 0);
    sched_trace(p, NULL, TRC_LABEL, d->id, io, d->io_rate / EVENTS_PER_S);
    d->io = io;
    if (p->policy->label) p->policy->label(p, d);
    param_changed(p, d, "class");
}

/* Labels a VM as I/O-intensive, or as one that is not. */
void sched_label(struct sched_vm *d, bool io) {
    struct sched_pool *p = sched_enter(&d->pool);

    if (!p) return;
    label_locked(p, d, io);
    spin_unlock(&p->lock);
}

/* Takes what was counted in the last `us` and returns the rate. The count begins again at 0. */
static u64 take_rate(u64 *count, u64 us) {
    u64 n = __atomic_exchange_n(count, 0, __ATOMIC_RELAXED);

    return MIN(MIN(n, 0xffffffffu) * EVENTS_PER_S * 1000000 / us, RATE_MAX);
}

/* Notes for how long (in us) a VM has claimed without a break to be more I/O-intensive than Takt
 * sees. Once that has lasted long, says so in the log: the driver may be wrong, or want more CPU
 * time than is its due. */
static void doubt(struct sched_vm *d, bool doubtful, u64 seen, u64 us) {
    u64 before = d->io_doubt;

    d->io_doubt = 0;
    if (doubtful) d->io_doubt = before + us;
    if (before < DOUBT_US && d->io_doubt >= DOUBT_US)
        log_warn("%s: says that it is I/O-intensive, but gets %lu events a second", d->name,
                 seen / EVENTS_PER_S);
}

/* Returns whether a VM with this label and rate gets the other label. The limit for losing the
 * label is lower than that for getting it, so that a rate near the limit does not change it all the
 * time. */
static bool label_changes(const struct sched_pool *p, const struct sched_vm *d, u64 limit) {
    if (d->io) return d->io_rate <= limit - limit * p->io_hysteresis / 100;
    return d->io_rate > limit;
}

/* Takes what was counted for a VM in the last `us` microseconds, and changes its label if the rate
 * asks for that. While the VM's driver says that it is I/O-intensive, half the limit is enough. A
 * VM that says so, or whose reports go beyond the limit, is in doubt if Takt itself has seen no
 * more than half the limit. */
static void measure(struct sched_pool *p, struct sched_vm *d, u64 us) {
    u64 seen = take_rate(&d->io_events, us), told = take_rate(&d->io_report, us);
    u64 rate = MIN(seen + told, RATE_MAX), limit = (u64)p->io_threshold * EVENTS_PER_S;
    bool says = __atomic_load_n(&d->io_says, __ATOMIC_RELAXED);

    doubt(d, (says || rate > limit) && 2 * seen <= limit, seen, us);
    if (says) limit /= 2;
    d->io_rate = (d->io_rate * p->io_smoothing + rate * (100 - p->io_smoothing)) / 100;
    if (label_changes(p, d, limit)) label_locked(p, d, !d->io);
}

/* Returns when the pool's window (the time for which it counts the events of its VMs) ends, in
 * ns. */
static u64 window_end(const struct sched_pool *p) {
    return p->window_start + p->io_window_ms * NS_PER_MS;
}

/* The time for which events are counted has ended: measures all VMs of the pool and begins the next
 * such window. The pool may have changed or be gone since the timer was set. */
static void window_over(struct timer *t, u64 now) {
    struct sched_pool *p = container_of(t, struct sched_pool, window);

    sched_enter(&p);
    if (p->now >= window_end(p)) {
        u64 us = (p->now - p->window_start) / NS_PER_US;

        p->window_start = p->now;
        if (p->policy)
            list_for_each(d, &p->vms, struct sched_vm, in_pool) measure(p, d, us);
    }
    if (!cpumask_empty(&p->cpus)) sched_monitor_start(p, cpumask_next(&p->cpus, 0));
    spin_unlock(&p->lock);
}

/* Prepares the I/O monitor of a new pool. A pool's place in the table may have been used before, so
 * its timer may be there already. */
void sched_monitor_init(struct sched_pool *p) {
    p->io_threshold = THRESHOLD;
    p->io_window_ms = WINDOW_MS;
    p->io_smoothing = p->io_hysteresis = 0;
    p->window_start = p->now;
    if (!p->window.fn) timer_init(&p->window, window_over);
}

/* Sets the timer for the end of the time for which the pool counts events, on `cpu`, unless it is
 * set already. */
void sched_monitor_start(struct sched_pool *p, u32 cpu) {
    ASSERT_HELD(&p->lock);
    if (!p->window.queued) machine_timer_set(cpu, &p->window, window_end(p));
}
