/* A model of a disk, which says when each request ends: a latency that several requests may spend
 * side by side, and then a bus with a limited rate, one request after the other. Nothing is read or
 * written here. disk_model.h has the contracts. */
#include "drivers/disk_model.h"
#include <takt/seed.h>

const struct option_kind disk_model_options[] = {
    { "bw", OPTION_NUMBER },    { "lat", OPTION_NS },
    { "depth", OPTION_NUMBER }, { "queue", OPTION_NUMBER },
    { "vary", OPTION_SHARE },   { "seed", OPTION_NUMBER },
    { "sched", OPTION_WORD },   { NULL, 0 },
};

/* Returns the number of an option, at least 1 and at most what the arrays of the model hold. */
static u32 limited(const char *options, const char *key, u32 otherwise) {
    u64 v = option_number(options, key, otherwise);

    return (u32)MAX(MIN(v, (u64)DISK_MODEL_MOST), 1ull);
}

/* Options that are missing get defaults; a bandwidth of 0 means that there is no limit. */
void disk_model_init(struct disk_model *m, const char *options) {
    *m = (struct disk_model){ .load.bandwidth = option_number(options, "bw", 0),
                              .load.latency = option_ns(options, "lat", 0),
                              .latency = option_ns(options, "lat", 0),
                              .depth = limited(options, "depth", DISK_MODEL_DEPTH),
                              .load.queue = limited(options, "queue", DISK_MODEL_QUEUE),
                              .vary = option_share(options, "vary", 0),
                              .rng = option_number(options, "seed", 1) };
}

/* Returns the latency of one request, which is evenly distributed around the mean. A latency that
 * varies is less than 2^31 ns, so that the products fit into 64 bits. */
static u64 latency_of(struct disk_model *m) {
    u64 most = MIN(m->latency, BIT(31)) * m->vary >> 32;

    if (!m->vary) return m->latency;
    return m->latency - most + seed_next(&m->rng) % (2 * most + 1);
}

/* Computes when the request ends. It waits until one of the `depth` slots is free, then for its
 * latency, and then until the bus has moved the data of all earlier requests and its own. Slots are
 * used in turn, because requests end in the order in which they began. */
u64 disk_model_begin(struct disk_model *m, u64 now, u64 bytes) {
    u64 start = now;

    if (m->depth) start = MAX(now, m->slot_free[m->slot]);
    m->bus_free = MAX(start + latency_of(m), m->bus_free);
    if (m->load.bandwidth) m->bus_free += bytes * NS_PER_S / m->load.bandwidth;
    if (m->depth) {
        m->slot_free[m->slot] = m->bus_free;
        m->slot = (m->slot + 1) % m->depth;
    }
    m->load.in_queue++;
    m->load.bytes += bytes;
    m->load.ends = m->bus_free;
    return m->bus_free;
}
