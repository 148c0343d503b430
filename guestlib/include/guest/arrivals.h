/* Arrivals at random, in a sequence that follows from the seed alone: who sends events and who receives them
 * both compute it, so that the receiver knows how late each one is. The simulation includes this as well. */
#ifndef GUEST_ARRIVALS_H
#define GUEST_ARRIVALS_H

#include <takt/seed.h>

struct arrivals {
    u64 rng;  /* not 0 */
    u64 mean; /* ns between two */
    u64 next; /* when the next one is, ns */
};

/* About exponentially distributed, in integers: -log2 of a number at random, the logarithm linear between
 * powers of two; the mean of that is 1.5. */
static inline void arrivals_advance(struct arrivals *a) {
    a->rng ^= a->rng >> 12; /* xorshift64* */
    a->rng ^= a->rng << 25;
    a->rng ^= a->rng >> 27;
    u64 r = a->rng * 0x2545f4914f6cdd1dull | 1;
    u32 zeros = (u32)__builtin_clzll(r);
    u64 fraction = zeros < 48 ? r << zeros << 1 >> 48 : 0;

    a->next += a->mean * (((u64)(zeros + 1) << 16) - fraction) / (3u << 15) + 1;
}

/* The seed of the events that VM `server` gets, if no command line says another one: of the
 * machine's seed, which all VMs know, so that the VM that sends and the one that receives find the
 * same. */
static inline u64 arrivals_seed(u64 machine_seed, u64 server) { return seed_of(machine_seed, server); }

static inline struct arrivals arrivals_begin(u64 seed, u64 rate, u64 start_ns) {
    struct arrivals a = { (seed + 1) * 0x9e3779b97f4a7c15ull | 1, NS_PER_S / MAX(rate, 1ull), start_ns };

    for (int i = 0; i < 8; i++) arrivals_advance(&a); /* small seeds are soon far apart */
    a.next = start_ns;
    arrivals_advance(&a);
    return a;
}

#endif
