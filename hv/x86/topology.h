/* Which hardware pCPUs share. */
#ifndef HV_X86_TOPOLOGY_H
#define HV_X86_TOPOLOGY_H

#include "lib/choose.h"
#include "x86/place.h"

/* Returns a number for the last-level cache of a pCPU: all pCPUs that share the cache have the
 * same. */
u32 cpu_cache(u32 cpu);

/* Returns the NUMA node of a pCPU. */
u32 cpu_node(u32 cpu);
/* Both of them, for cpus_choose(). */
extern const struct cpu_places cpu_places;

/* Returns the socket, core and thread of a pCPU. */
struct place cpu_place(u32 cpu);

#endif
