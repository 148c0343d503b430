/* A histogram of nanoseconds with eight buckets an octave: so a percentile is at most 1/8 too
 * large. */
#ifndef COMMON_HIST_H
#define COMMON_HIST_H

#include <takt/types.h>

#define HIST_SUB     8
#define HIST_OCTAVES 34 /* up to 2^36 ns = 68 s */
#define HIST_BUCKETS (HIST_SUB * HIST_OCTAVES)

struct hist {
    u64 count, sum, max;
    u32 bucket[HIST_BUCKETS];
};

void hist_add(struct hist *h, u64 ns);
/* Adds the samples of `from` to *h. */
void hist_merge(struct hist *h, const struct hist *from);
/* Returns the value that `permille`/1000 of the samples do not exceed: the upper edge of its
 * bucket, but never more than the largest sample. 0 if there are none. */
u64 hist_percentile(const struct hist *h, unsigned permille);

#endif
