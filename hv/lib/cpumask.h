/* A set of pCPUs. */
#ifndef HV_LIB_CPUMASK_H
#define HV_LIB_CPUMASK_H

#include <takt/types.h>

#define TAKT_MAX_CPUS 64

struct cpumask {
    u64 bits;
};

static inline bool cpumask_test(const struct cpumask *m, unsigned cpu) {
    return cpu < TAKT_MAX_CPUS && (m->bits >> cpu & 1);
}

static inline void cpumask_set(struct cpumask *m, unsigned cpu) { m->bits |= BIT(cpu); }

static inline void cpumask_clear(struct cpumask *m, unsigned cpu) { m->bits &= ~BIT(cpu); }

static inline void cpumask_fill(struct cpumask *m) { m->bits = ~0ull; }

static inline void cpumask_zero(struct cpumask *m) { m->bits = 0; }

/* Returns the members that `a` and `b` have in common. */
static inline struct cpumask cpumask_and(const struct cpumask *a, const struct cpumask *b) {
    return (struct cpumask){ a->bits & b->bits };
}

/* Returns the members of `a` that are not in `b`. */
static inline struct cpumask cpumask_minus(const struct cpumask *a, const struct cpumask *b) {
    return (struct cpumask){ a->bits & ~b->bits };
}

static inline bool cpumask_empty(const struct cpumask *m) { return m->bits == 0; }

/* Returns how many members the set has. */
static inline unsigned cpumask_weight(const struct cpumask *m) {
    return (unsigned)__builtin_popcountll(m->bits);
}

/* Returns the first member at or after `cpu`, or TAKT_MAX_CPUS if there is none. */
static inline unsigned cpumask_next(const struct cpumask *m, unsigned cpu) {
    u64 rest;

    /* In C a shift of a 64-bit number by 64 bits is undefined. */
    if (cpu >= TAKT_MAX_CPUS) return TAKT_MAX_CPUS;
    rest = m->bits >> cpu;
    if (!rest) return TAKT_MAX_CPUS;
    return cpu + (unsigned)__builtin_ctzll(rest);
}

/* Returns the first member at or after `cpu`, or before it if there is none; TAKT_MAX_CPUS if
 * the set is empty. */
static inline unsigned cpumask_cycle(const struct cpumask *m, unsigned cpu) {
    unsigned n = cpumask_next(m, cpu);

    if (n < TAKT_MAX_CPUS) return n;
    return cpumask_next(m, 0);
}

#define cpumask_for_each(cpu, m)                                                                   \
    for (unsigned cpu = cpumask_next(m, 0); cpu < TAKT_MAX_CPUS; cpu = cpumask_next(m, cpu + 1))

#endif
