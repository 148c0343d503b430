/* Sorting, for the samples of a measurement, which are sorted once, at its end. */
#ifndef GUEST_SORT_H
#define GUEST_SORT_H

#include <takt/types.h>

/* Both sort the `n` numbers at `a` in place, in ascending order. */
void sort_u32(u32 *a, u64 n);
void sort_u64(u64 *a, u64 n);

#endif
