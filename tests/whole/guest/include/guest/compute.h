/* Guests in the simulation of the whole machine: computing only lets time pass. This header takes
 * the place of the one of the same name. */
#ifndef WHOLE_GUEST_COMPUTE_H
#define WHOLE_GUEST_COMPUTE_H

#include <takt/types.h>

void compute_for_ever(void) __attribute__((noreturn));
/* Lets `ns` of the vCPU's time pass, or less: the caller looks at its clocks again. */
void compute_some(u64 ns);

#endif
