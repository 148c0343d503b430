/* A histogram counts durations in buckets, instead of keeping each of them: that takes a fixed
 * amount of memory, and adding one costs the same however many there are. The price is that a
 * percentile is known only up to the width of a bucket. An "octave" is the range from a power of
 * two to the next. */
#include "common/hist.h"

/* Returns the bucket that counts a duration of `ns`. Each value below 2 * HIST_SUB has a bucket of
 * its own. From there on each octave has HIST_SUB buckets, so bucket b holds the values whose top
 * four bits are 8 + b % 8. The last bucket holds all larger values. */
static unsigned bucket_of(u64 ns) {
    if (ns < 2 * HIST_SUB) return (unsigned)ns;
    unsigned octave = 63 - (unsigned)__builtin_clzll(ns) - 3;
    unsigned b = octave * HIST_SUB + (unsigned)(ns >> octave);

    return MIN(b, HIST_BUCKETS - 1);
}

/* Returns the largest value that bucket b counts; the inverse of bucket_of(). */
static u64 upper_edge(unsigned b) {
    if (b < 2 * HIST_SUB) return b;
    unsigned octave = b / HIST_SUB - 1;

    return ((u64)(b % HIST_SUB + HIST_SUB + 1) << octave) - 1;
}

/* Counts a duration of `ns`. */
void hist_add(struct hist *h, u64 ns) {
    h->count++;
    h->sum += ns;
    h->max = MAX(h->max, ns);
    h->bucket[bucket_of(ns)]++;
}

/* Returns a percentile: the duration that `permille` thousandths of all are not longer than. Adds
 * up the buckets from the smallest values on, until `rank` samples are reached: that many samples
 * are not larger than the result. The last bucket has no upper edge, so the largest sample stands
 * for it. */
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

/* Adds all that `from` has counted to `h`. */
void hist_merge(struct hist *h, const struct hist *from) {
    h->count += from->count;
    h->sum += from->sum;
    h->max = MAX(h->max, from->max);
    for (u32 i = 0; i < HIST_BUCKETS; i++) h->bucket[i] += from->bucket[i];
}
