/* Replaces hv/lib/cpumask.h where the simulation is built for 512 pCPUs. */
#ifndef HV_LIB_CPUMASK_H
#define HV_LIB_CPUMASK_H

#include <takt/types.h>

#define TAKT_MAX_CPUS 512
#define CPUMASK_WORDS (TAKT_MAX_CPUS / 64)

struct cpumask {
    union {
        u64 bits; /* the first 64; only recordings use it, and this build makes none */
        u64 word[CPUMASK_WORDS];
    };
};

static inline bool cpumask_test(const struct cpumask *m, unsigned cpu) {
    return cpu < TAKT_MAX_CPUS && (m->word[cpu / 64] >> (cpu % 64) & 1);
}

static inline void cpumask_set(struct cpumask *m, unsigned cpu) {
    m->word[cpu / 64] |= BIT(cpu % 64);
}

static inline void cpumask_clear(struct cpumask *m, unsigned cpu) {
    m->word[cpu / 64] &= ~BIT(cpu % 64);
}

static inline void cpumask_fill(struct cpumask *m) {
    for (unsigned w = 0; w < CPUMASK_WORDS; w++) m->word[w] = ~0ull;
}

static inline void cpumask_zero(struct cpumask *m) { *m = (struct cpumask){ 0 }; }

static inline struct cpumask cpumask_and(const struct cpumask *a, const struct cpumask *b) {
    struct cpumask r;

    for (unsigned w = 0; w < CPUMASK_WORDS; w++) r.word[w] = a->word[w] & b->word[w];
    return r;
}

/* Those of `a` that are not in `b`. */
static inline struct cpumask cpumask_minus(const struct cpumask *a, const struct cpumask *b) {
    struct cpumask r;

    for (unsigned w = 0; w < CPUMASK_WORDS; w++) r.word[w] = a->word[w] & ~b->word[w];
    return r;
}

static inline bool cpumask_empty(const struct cpumask *m) {
    u64 any = 0;

    for (unsigned w = 0; w < CPUMASK_WORDS; w++) any |= m->word[w];
    return any == 0;
}

static inline unsigned cpumask_weight(const struct cpumask *m) {
    unsigned n = 0;

    for (unsigned w = 0; w < CPUMASK_WORDS; w++) n += (unsigned)__builtin_popcountll(m->word[w]);
    return n;
}

/* The first member at or after `cpu`, TAKT_MAX_CPUS if there is none. */
static inline unsigned cpumask_next(const struct cpumask *m, unsigned cpu) {
    for (u64 mask = ~0ull << (cpu % 64); cpu < TAKT_MAX_CPUS; cpu = (cpu | 63) + 1, mask = ~0ull) {
        u64 rest = m->word[cpu / 64] & mask;

        if (rest) return (cpu & ~63u) + (unsigned)__builtin_ctzll(rest);
    }
    return TAKT_MAX_CPUS;
}

/* The first member at or after `cpu`, wrapping round; TAKT_MAX_CPUS if the set is empty. */
static inline unsigned cpumask_cycle(const struct cpumask *m, unsigned cpu) {
    unsigned n = cpumask_next(m, cpu);

    if (n == TAKT_MAX_CPUS) n = cpumask_next(m, 0);
    return n;
}

#define cpumask_for_each(cpu, m)                                                                   \
    for (unsigned cpu = cpumask_next(m, 0); cpu < TAKT_MAX_CPUS; cpu = cpumask_next(m, cpu + 1))

#endif
