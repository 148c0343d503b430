#include "common/hist.h"

/* Each value below 2 * HIST_SUB has a bucket of its own. From there on each octave has HIST_SUB
 * buckets, so bucket b holds the values whose top four bits are 8 + b % 8. The last bucket holds
 * all larger values. */
static unsigned bucket_of(u64 ns) {
    if (ns < 2 * HIST_SUB) return (unsigned)ns;
    unsigned octave = 63 - (unsigned)__builtin_clzll(ns) - 3;
    unsigned b = octave * HIST_SUB + (unsigned)(ns >> octave);

    return MIN(b, HIST_BUCKETS - 1);
}

/* The largest value of a bucket. */
static u64 upper_edge(unsigned b) {
    if (b < 2 * HIST_SUB) return b;
    unsigned octave = b / HIST_SUB - 1;

    return ((u64)(b % HIST_SUB + HIST_SUB + 1) << octave) - 1;
}

void hist_add(struct hist *h, u64 ns) {
    h->count++;
    h->sum += ns;
    h->max = MAX(h->max, ns);
    h->bucket[bucket_of(ns)]++;
}

u64 hist_percentile(const struct hist *h, unsigned permille) {
    u64 rank = (h->count * permille + 999) / 1000, seen = 0;

    for (unsigned b = 0; b < HIST_BUCKETS && h->count; b++) {
        seen += h->bucket[b];
        if (seen < MAX(rank, 1)) continue;
        if (b == HIST_BUCKETS - 1) return h->max;
        return MIN(upper_edge(b), h->max);
    }
    return h->max;
}
