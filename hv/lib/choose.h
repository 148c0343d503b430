/* Which pCPUs to take, when somebody wants so many and says how they are to be chosen. */
#ifndef HV_LIB_CHOOSE_H
#define HV_LIB_CHOOSE_H

#include "lib/parse.h"

/* As many of `from` as `c` says, or all if there are fewer. CHOOSE_RANDOM: by `seed`, always the same ones.
 * CHOOSE_CACHE: each cache gives in proportion to the pCPUs of `from` that share it, the last of them. */
struct cpumask cpus_choose(const struct cpu_choice *c, const struct cpumask *from, u64 seed,
                           u32 (*cache_of)(u32 cpu));

#endif
