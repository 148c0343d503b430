/* Random numbers that follow from one seed, `seed` in the VM file's [hypervisor] section. The
 * hypervisor, its guests and the simulation compute them alike, so a run with the same file and the
 * same seed is the same run. A VM's seed follows from its name, not from its place in the file:
 * moving a VM to another line of the file then gives one more sample of the same experiment, not
 * another experiment.
 *
 * The mixing function is that of splitmix64 (G. Steele, D. Lea, C. Flood, "Fast Splittable
 * Pseudorandom Number Generators", OOPSLA 2014, figure 18): each bit of the result depends on every
 * bit of the argument. Nothing here is for secrets. */
#ifndef TAKT_SEED_H
#define TAKT_SEED_H

#include <takt/types.h>

#define SEED_STEP 0x9e3779b97f4a7c15ull /* 2^64 divided by the golden ratio, made odd */

static inline u64 seed_mix(u64 z) {
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

/* The next random number of a sequence; *state is the seed before the first one. */
static inline u64 seed_next(u64 *state) {
    *state += SEED_STEP;
    return seed_mix(*state);
}

/* Seed number n of those that follow from `seed`, each as good as any other. */
static inline u64 seed_of(u64 seed, u64 n) {
    return seed_mix(seed_mix(seed + SEED_STEP) + (n + 1) * SEED_STEP);
}

/* The seed of the VM `name` in a machine with `seed`. */
static inline u64 seed_of_vm(u64 seed, const char *name) {
    for (; *name; name++) seed = seed_of(seed, (u8)*name);
    return seed;
}

/* A number from 0 to n - 1 that follows from a seed. The lowest ones are more frequent by n /
 * 2^64. */
static inline u64 seed_below(u64 seed, u64 n) { return n ? seed % n : 0; }

#endif
