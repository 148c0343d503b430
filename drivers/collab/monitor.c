#include "drivers/collab/monitor.h"

void monitor_init(struct monitor *m, struct monitor *device, u64 now) {
    *m = (struct monitor){ .device = device, .at = now, .of_period.began = now };
    if (device) m->shared = device->shared;
}

/* Counts the time since the number of requests last changed. Another vCPU may have looked at its
 * clock earlier, and come here later. */
static void count_time(struct monitor *m, u64 now) {
    u64 ns = now - m->at;

    if (now < m->at) return;
    if (m->under_way) {
        m->of_period.busy += ns;
        m->in_use += ns;
    }
    m->of_period.queue += m->under_way * ns;
    m->at = now;
}

/* Begins a look at the monitor, or a change of it, at the time `now`. leave() ends it. */
static void enter(struct monitor *m, u64 now) {
    if (m->shared) driver_lock(&m->lock);
    count_time(m, now);
}

static void leave(struct monitor *m) {
    if (m->shared) driver_unlock(&m->lock);
}

void monitor_begin(struct monitor *m, u64 now) {
    for (; m; m = m->device) {
        enter(m, now);
        m->under_way++;
        leave(m);
    }
}

void monitor_end(struct monitor *m, enum monitor_kind kind, u64 bytes, u64 begun, u64 now) {
    for (; m; m = m->device) {
        enter(m, now);
        m->under_way--;
        m->of_period.requests[kind]++;
        m->of_period.bytes[kind] += bytes;
        if (kind == MONITOR_WRITE) m->written += bytes;
        hist_add(&m->of_period.latency, now - begun);
        leave(m);
    }
}

void monitor_give_up(struct monitor *m, u32 nr, u64 now) {
    for (; m; m = m->device) {
        enter(m, now);
        m->under_way -= nr;
        leave(m);
    }
}

u64 monitor_in_use(struct monitor *m, u64 now) {
    u64 ns;

    enter(m, now);
    ns = m->in_use;
    leave(m);
    return ns;
}

/* Returns how many a second are `n` in `us`. Nothing overflows below 2^44 bytes. */
static u64 per_second(u64 n, u64 us) { return n * (NS_PER_S / NS_PER_US) / us; }

/* Ends the period of a monitor at the time `now`, stores the figures of the period in *p, and
 * begins the next one. Requests that are under way, and the sums since the beginning, go over into
 * the new period. */
void monitor_cut(struct monitor *m, u64 now, struct monitor_period *p) {
    struct monitor_counts *c = &m->of_period;
    u64 us;

    enter(m, now);
    *p = (struct monitor_period){ .ns = MAX(now - c->began, 1ull) };
    us = MAX(p->ns / NS_PER_US, 1ull);
    for (u32 k = 0; k < MONITOR_KINDS; k++) {
        p->requests[k] = c->requests[k];
        p->bytes_per_s[k] = per_second(c->bytes[k], us);
    }
    if (c->latency.count) p->latency_mean = c->latency.sum / c->latency.count;
    p->latency_p99 = hist_percentile(&c->latency, 990);
    p->latency_p999 = hist_percentile(&c->latency, 999);
    p->depth_milli = (u32)(c->queue / us);
    p->busy_permille = (u32)(c->busy / us);
    *c = (struct monitor_counts){ .began = now };
    leave(m);
}
