/* A log-linear histogram of nanoseconds: 8 buckets an octave, so a percentile is right within 1/8. */
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
/* The value below which `permille`/1000 of the samples lie: the upper edge of its bucket, never above the
 * maximum seen. 0 if empty. */
u64 hist_percentile(const struct hist *h, unsigned permille);

#endif
