/* The simulation of the whole machine has no GS for each pCPU, but a variable that says which pCPU
 * executes. This header takes the place of the one of the same name. */
#ifndef WHOLE_PERCPU_H
#define WHOLE_PERCPU_H

#define this_cpu hardware_this_cpu
#include_next <x86/percpu.h>
#undef this_cpu

extern struct percpu *whole_this_cpu;
static inline struct percpu *this_cpu(void) { return whole_this_cpu; }

#endif
