/* A set of pCPUs. TAKT_MAX_CPUS is 64 in the image; the simulation is built with more. */
#ifndef HV_LIB_CPUMASK_H
#define HV_LIB_CPUMASK_H

#include <takt/types.h>

#ifndef TAKT_MAX_CPUS
#define TAKT_MAX_CPUS 64
#endif
#define CPUMASK_WORDS ((TAKT_MAX_CPUS + 63) / 64)

struct cpumask {
    u64 w[CPUMASK_WORDS];
};

static inline bool cpumask_test(const struct cpumask *m, unsigned cpu) {
    return cpu < TAKT_MAX_CPUS && (m->w[cpu / 64] >> (cpu % 64) & 1);
}

static inline void cpumask_set(struct cpumask *m, unsigned cpu) { m->w[cpu / 64] |= BIT(cpu % 64); }

static inline void cpumask_clear(struct cpumask *m, unsigned cpu) { m->w[cpu / 64] &= ~BIT(cpu % 64); }

static inline void cpumask_fill(struct cpumask *m) {
    for (unsigned i = 0; i < CPUMASK_WORDS; i++) m->w[i] = ~0ull;
}

static inline void cpumask_zero(struct cpumask *m) {
    for (unsigned i = 0; i < CPUMASK_WORDS; i++) m->w[i] = 0;
}

static inline struct cpumask cpumask_and(const struct cpumask *a, const struct cpumask *b) {
    struct cpumask r;

    for (unsigned i = 0; i < CPUMASK_WORDS; i++) r.w[i] = a->w[i] & b->w[i];
    return r;
}

static inline bool cpumask_empty(const struct cpumask *m) {
    u64 any = 0;

    for (unsigned i = 0; i < CPUMASK_WORDS; i++) any |= m->w[i];
    return any == 0;
}

static inline unsigned cpumask_weight(const struct cpumask *m) {
    unsigned n = 0;

    for (unsigned i = 0; i < CPUMASK_WORDS; i++) n += (unsigned)__builtin_popcountll(m->w[i]);
    return n;
}

/* The first member at or after `cpu`, TAKT_MAX_CPUS if there is none. */
static inline unsigned cpumask_next(const struct cpumask *m, unsigned cpu) {
    while (cpu < TAKT_MAX_CPUS) {
        u64 w = m->w[cpu / 64] >> (cpu % 64);

        if (w) return cpu + (unsigned)__builtin_ctzll(w);
        cpu = (cpu / 64 + 1) * 64;
    }
    return TAKT_MAX_CPUS;
}

/* The first member at or after `cpu`, wrapping round; TAKT_MAX_CPUS if the set is empty. */
static inline unsigned cpumask_cycle(const struct cpumask *m, unsigned cpu) {
    unsigned n = cpumask_next(m, cpu);

    return n < TAKT_MAX_CPUS ? n : cpumask_next(m, 0);
}

#define cpumask_for_each(cpu, m)                                                                             \
    for (unsigned cpu = cpumask_next(m, 0); cpu < TAKT_MAX_CPUS; cpu = cpumask_next(m, cpu + 1))

#endif
