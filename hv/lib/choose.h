/* Chooses a given number of pCPUs from a set, at random or by the caches that they share. */
#ifndef HV_LIB_CHOOSE_H
#define HV_LIB_CHOOSE_H

#include "lib/parse.h"

/* Returns as many pCPUs of `from` as `c` says, or all if there are fewer.
 *   CHOOSE_RANDOM  at random, but the same ones for the same `seed`
 *   CHOOSE_CACHE   from each last-level cache in proportion to how many of `from` share it,
 *                  highest-numbered first. cache_of() returns the number of a pCPU's cache. */
struct cpumask cpus_choose(const struct cpu_choice *c, const struct cpumask *from, u64 seed,
                           u32 (*cache_of)(u32 cpu));

#endif
