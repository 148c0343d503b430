/* What pCPUs share. */
#ifndef HV_X86_TOPOLOGY_H
#define HV_X86_TOPOLOGY_H

#include "x86/place.h"

/* The last-level cache of a pCPU: the same number for all that share it. */
u32 cpu_cache(u32 cpu);

/* The socket, core and thread of a pCPU. */
struct place cpu_place(u32 cpu);

#endif
