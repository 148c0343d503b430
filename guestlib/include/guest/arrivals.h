/* Arrivals at random, in a sequence that follows from the seed alone. The VM that sends the events
 * and the one that receives them both compute it, so that the receiver knows how late each event
 * is. The simulation includes this as well. */
#ifndef GUEST_ARRIVALS_H
#define GUEST_ARRIVALS_H

#include <takt/seed.h>

struct arrivals {
    u64 rng;  /* state of the generator, not 0 */
    u64 mean; /* ns between two arrivals */
    u64 next; /* the time of the next one, ns */
};

/* Moves a->next on by a random time that is about exponentially distributed. It computes with
 * integers: -log2 of a random number, where the logarithm is linear between powers of two. The mean
 * of that is 1.5, so the result is divided by 1.5. */
static inline void arrivals_advance(struct arrivals *a) {
    a->rng ^= a->rng >> 12; /* xorshift64* */
    a->rng ^= a->rng << 25;
    a->rng ^= a->rng >> 27;
    u64 r = a->rng * 0x2545f4914f6cdd1dull | 1;
    u32 zeros = (u32)__builtin_clzll(r);
    u64 fraction = 0; /* the 16 bits behind the first 1, if there are as many */

    if (zeros < 48) fraction = r << zeros << 1 >> 48;
    a->next += a->mean * (((u64)(zeros + 1) << 16) - fraction) / (3u << 15) + 1;
}

/* Returns the seed of the events that VM `server` gets, unless a command line names another one. It
 * follows from the machine's seed, which all VMs know, so that sender and receiver compute the same
 * one. */
static inline u64 arrivals_seed(u64 machine_seed, u64 server) {
    return seed_of(machine_seed, server);
}

/* Makes arrivals at `rate` a second. The first comes after the time start_ns. */
static inline struct arrivals arrivals_begin(u64 seed, u64 rate, u64 start_ns) {
    struct arrivals a = { (seed + 1) * 0x9e3779b97f4a7c15ull | 1, NS_PER_S / MAX(rate, 1ull),
                          start_ns };

    for (int i = 0; i < 8; i++)
        arrivals_advance(&a); /* Seeds that differ little then lead to different sequences. */
    a.next = start_ns;
    arrivals_advance(&a);
    return a;
}

/* Requests in bursts, as in section 5.6 of IOrchestra: the rate within a burst is BURSTS_RATE times
 * the mean rate, each burst has the same number of requests, evenly spaced, and there are none
 * between bursts. Bursts begin at multiples of their period, so those of all VMs coincide. */
#define BURSTS_RATE 10u

struct bursts {
    u64 burst;    /* length of a burst, ns */
    u64 requests; /* of a burst, 1 or more */
};

/* Returns a description of bursts of `burst` ns each, with `rate` requests a second on average. */
static inline struct bursts bursts_of(u64 rate, u64 burst) {
    return (struct bursts){ burst, MAX(rate * BURSTS_RATE * burst / NS_PER_S, 1ull) };
}

/* Returns how long it is from the time `now` until the next burst begins, ns; more than 0. */
static inline u64 bursts_wait(const struct bursts *b, u64 now) {
    u64 period = BURSTS_RATE * b->burst;

    return period - now % period;
}

/* Returns when request `number` (from 0) is due, in ns after the beginning of the first burst. */
static inline u64 bursts_due(const struct bursts *b, u64 number) {
    return number / b->requests * BURSTS_RATE * b->burst +
           number % b->requests * b->burst / b->requests;
}

#endif
