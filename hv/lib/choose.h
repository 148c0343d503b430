/* Chooses pCPUs from a set: a given number at random or by the caches that they share, or those of
 * a NUMA node. */
#ifndef HV_LIB_CHOOSE_H
#define HV_LIB_CHOOSE_H

#include "lib/parse.h"

/* Where pCPUs are in the machine: each function returns the number of a pCPU's last-level cache or
 * NUMA node. */
struct cpu_places {
    u32 (*cache_of)(u32 cpu);
    u32 (*node_of)(u32 cpu);
};

/* Returns as many pCPUs of `from` as `c` says, or all if there are fewer.
 *   CHOOSE_RANDOM  at random, but the same ones for the same `seed`
 *   CHOOSE_CACHE   from each last-level cache in proportion to how many of `from` share it,
 *                  highest-numbered first
 *   CHOOSE_NODE    all that are in node c->node; none, if the machine has no such node */
struct cpumask cpus_choose(const struct cpu_choice *c, const struct cpumask *from, u64 seed,
                           const struct cpu_places *places);

#endif
