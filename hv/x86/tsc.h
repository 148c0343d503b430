/* The machine's clock: nanoseconds since boot, from the TSC, calibrated at boot by
 * hv/platform/clock.c. */
#ifndef HV_X86_TSC_H
#define HV_X86_TSC_H

#include "common/insn.h"

extern u64 tsc_khz;       /* 0 until calibrated */
extern u64 tsc_boot;      /* TSC at nanosecond 0 */
extern u64 tsc_to_ns_mul; /* ns = ticks * mul >> 32 */
extern u64 ns_to_tsc_mul; /* ticks = ns * mul >> 32 */

static inline u64 tsc_to_ns(u64 ticks) {
    return (u64)((unsigned __int128)ticks * tsc_to_ns_mul >> 32);
}

/* Returns ~0, "never", if the result does not fit; so ~0 stays ~0. */
static inline u64 ns_to_tsc(u64 ns) {
    unsigned __int128 t = (unsigned __int128)ns * ns_to_tsc_mul >> 32;
    return t >> 64 ? ~0ull : (u64)t;
}

static inline u64 now_ns(void) { return tsc_to_ns(rdtsc() - tsc_boot); }

/* Returns the TSC's value at nanosecond `ns`; ~0 for ~0. */
static inline u64 tsc_at(u64 ns) {
    u64 t = ns_to_tsc(ns);
    return t > ~0ull - tsc_boot ? ~0ull : t + tsc_boot;
}

#endif
