/* In the simulation of the whole machine time is virtual, for the hypervisor and for guests: the
 * TSC is a function. This header comes before the one of the same name, and takes its place. In a
 * hosted build that one has functions for CPUID, RDMSR and the like already. */
#ifndef WHOLE_INSN_H
#define WHOLE_INSN_H

#define rdtsc     hardware_rdtsc
#define cpu_relax hardware_cpu_relax
#include_next <common/insn.h>
#undef rdtsc
#undef cpu_relax

u64 rdtsc(void);
void cpu_relax(void);

#endif
