/* The rate of the TSC as CPUID gives it, and whether a measurement confirms that rate. */
#ifndef HV_PLATFORM_TSCRATE_H
#define HV_PLATFORM_TSCRATE_H

#include <takt/types.h>

/* Returns the rate in kHz that CPUID gives, or 0 if it gives none. *leaf becomes the name of the
 * leaf, for the log: 15h, or 40000010h of a hypervisor in whose guest Takt runs. */
u64 tsc_rate_said(const char **leaf);

/* The result of a measurement. */
struct tsc_measured {
    u64 khz; /* 0: there was no clock to measure by */
    u32 ppm; /* how far khz may be off, in parts per million */
};

/* Returns true if the measurement confirms the rate that CPUID gives: if both differ by no more
 * than 0.1 %, or by no more than m->ppm if that is larger. Returns true as well if nothing was
 * measured. */
bool tsc_rate_confirmed(u64 said_khz, const struct tsc_measured *m);

#endif
