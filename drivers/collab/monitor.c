#include "drivers/collab/monitor.h"

void monitor_init(struct monitor *m, struct monitor *device, u64 now) {
    *m = (struct monitor){
        .device = device, .shared = device && device->shared, .at = now, .began = now
    };
}

static void enter(struct monitor *m) {
    if (m->shared) driver_lock(&m->lock);
}

static void leave(struct monitor *m) {
    if (m->shared) driver_unlock(&m->lock);
}

/* Counts the time since the number of requests last changed. Another vCPU may have looked at its
 * clock earlier, and come here later. */
static void count_time(struct monitor *m, u64 now) {
    u64 ns = now - m->at;

    if (now < m->at) return;
    if (m->under_way) {
        m->busy += ns;
        m->in_use += ns;
    }
    m->queue += m->under_way * ns;
    m->at = now;
}

void monitor_begin(struct monitor *m, u64 now) {
    for (; m; m = m->device) {
        enter(m);
        count_time(m, now);
        m->under_way++;
        leave(m);
    }
}

void monitor_end(struct monitor *m, enum monitor_kind kind, u64 bytes, u64 begun, u64 now) {
    for (; m; m = m->device) {
        enter(m);
        count_time(m, now);
        m->under_way--;
        m->requests[kind]++;
        m->bytes[kind] += bytes;
        if (kind == MONITOR_WRITE) m->written += bytes;
        hist_add(&m->latency, now - begun);
        leave(m);
    }
}

void monitor_give_up(struct monitor *m, u32 nr, u64 now) {
    for (; m; m = m->device) {
        enter(m);
        count_time(m, now);
        m->under_way -= nr;
        leave(m);
    }
}

/* `n` a second, where that many happened in `ns`. Computes in units of 1 us, so that nothing
 * overflows below 2^44 bytes. */
static u64 per_second(u64 n, u64 ns) {
    return n * (NS_PER_S / NS_PER_US) / MAX(ns / NS_PER_US, 1ull);
}

u64 monitor_in_use(struct monitor *m, u64 now) {
    u64 ns;

    enter(m);
    count_time(m, now);
    ns = m->in_use;
    leave(m);
    return ns;
}

/* Ends the period of a monitor at the time `now`, stores the figures of the period in *p, and
 * begins the next one. Requests that are under way, and the sums since the beginning, go over into
 * the new period. */
void monitor_cut(struct monitor *m, u64 now, struct monitor_period *p) {
    u64 ns = MAX(now - m->began, 1ull), us = MAX(ns / NS_PER_US, 1ull);
    struct monitor next;

    enter(m);
    count_time(m, now);
    next =
        (struct monitor){ .device = m->device, .under_way = m->under_way, .at = now, .began = now };
    next.shared = m->shared;
    next.lock = m->lock;
    next.written = m->written;
    next.in_use = m->in_use;
    *p = (struct monitor_period){ .ns = ns };
    for (u32 k = 0; k < MONITOR_KINDS; k++) {
        p->requests[k] = m->requests[k];
        p->bytes_per_s[k] = per_second(m->bytes[k], ns);
    }
    if (m->latency.count) p->latency_mean = m->latency.sum / m->latency.count;
    p->latency_p99 = hist_percentile(&m->latency, 990);
    p->latency_p999 = hist_percentile(&m->latency, 999);
    p->depth_milli = (u32)(m->queue / us);
    p->busy_permille = (u32)(m->busy / us);
    *m = next;
    leave(m);
}
