/* For programs that only use up CPU time. In the image they execute instructions. The simulation of
 * the whole machine (docs/simulation.md) has another header of this name, by which the same
 * programs cost virtual time and nearly no time of the host. */
#ifndef GUEST_COMPUTE_H
#define GUEST_COMPUTE_H

#include <takt/types.h>

static inline __attribute__((noreturn)) void compute_for_ever(void) {
    for (;;) __asm__ volatile("" : : : "memory");
}

/* A loop that computes until it has had its CPU time calls this in each turn, with the time in ns
 * that is left. Here the turns themselves take the time. */
static inline void compute_some(u64 ns) {}

#endif
