/* A set of pCPUs. */
#ifndef HV_LIB_CPUMASK_H
#define HV_LIB_CPUMASK_H

#include <takt/types.h>

/* The most CPUs that Takt uses. A build can choose another limit, a multiple of 64. */
#ifndef TAKT_MAX_CPUS
#define TAKT_MAX_CPUS 256
#endif

#define CPUMASK_WORD  64u /* pCPUs in a word of a set */
#define CPUMASK_WORDS (TAKT_MAX_CPUS / CPUMASK_WORD)

_Static_assert(TAKT_MAX_CPUS % CPUMASK_WORD == 0, "a set is made of whole words");

/* pCPU n is bit n % 64 of word n / 64. */
struct cpumask {
    u64 word[CPUMASK_WORDS];
};

/* Visits the words of a set. The scheduler does this for each decision, so the loop is unrolled:
 * without jumps four words cost hardly more than one. */
#define cpumask_for_each_word(w) _Pragma("GCC unroll 16") for (u32 w = 0; w < CPUMASK_WORDS; w++)

static inline bool cpumask_test(const struct cpumask *m, unsigned cpu) {
    return cpu < TAKT_MAX_CPUS && (m->word[cpu / CPUMASK_WORD] >> cpu % CPUMASK_WORD & 1);
}

static inline void cpumask_set(struct cpumask *m, unsigned cpu) {
    m->word[cpu / CPUMASK_WORD] |= BIT(cpu % CPUMASK_WORD);
}

static inline void cpumask_clear(struct cpumask *m, unsigned cpu) {
    m->word[cpu / CPUMASK_WORD] &= ~BIT(cpu % CPUMASK_WORD);
}

static inline void cpumask_fill(struct cpumask *m) { cpumask_for_each_word(w) m->word[w] = ~0ull; }

static inline void cpumask_zero(struct cpumask *m) { *m = (struct cpumask){ 0 }; }

/* Returns the set that has this pCPU alone. */
static inline struct cpumask cpumask_of(unsigned cpu) {
    struct cpumask m = { 0 };

    cpumask_set(&m, cpu);
    return m;
}

/* Returns the members that `a` and `b` have in common. */
static inline struct cpumask cpumask_and(const struct cpumask *a, const struct cpumask *b) {
    struct cpumask both;

    cpumask_for_each_word(w) both.word[w] = a->word[w] & b->word[w];
    return both;
}

/* Returns the members of `a` and those of `b`. */
static inline struct cpumask cpumask_or(const struct cpumask *a, const struct cpumask *b) {
    struct cpumask all;

    cpumask_for_each_word(w) all.word[w] = a->word[w] | b->word[w];
    return all;
}

/* Returns the members of `a` that are not in `b`. */
static inline struct cpumask cpumask_minus(const struct cpumask *a, const struct cpumask *b) {
    struct cpumask rest;

    cpumask_for_each_word(w) rest.word[w] = a->word[w] & ~b->word[w];
    return rest;
}

static inline bool cpumask_empty(const struct cpumask *m) {
    u64 any = 0;

    cpumask_for_each_word(w) any |= m->word[w];
    return any == 0;
}

/* Returns whether each member of `a` is in `b`, too. */
static inline bool cpumask_within(const struct cpumask *a, const struct cpumask *b) {
    u64 others = 0;

    cpumask_for_each_word(w) others |= a->word[w] & ~b->word[w];
    return others == 0;
}

/* Returns how many members the set has. */
static inline unsigned cpumask_weight(const struct cpumask *m) {
    unsigned n = 0;

    cpumask_for_each_word(w) n += (unsigned)__builtin_popcountll(m->word[w]);
    return n;
}

/* Returns the first member at or after `cpu`, or TAKT_MAX_CPUS if there is none. */
static inline unsigned cpumask_next(const struct cpumask *m, unsigned cpu) {
    u64 from = ~0ull << cpu % CPUMASK_WORD; /* in the first word: `cpu` and those after it */

    for (unsigned w = cpu / CPUMASK_WORD; w < CPUMASK_WORDS; w++) {
        u64 rest = m->word[w] & from;

        if (rest) return w * CPUMASK_WORD + (unsigned)__builtin_ctzll(rest);
        from = ~0ull;
    }
    return TAKT_MAX_CPUS;
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
