/* Which pCPUs share a socket, a core or the last-level cache, for the scheduler and for the
 * operator. The numbers follow from a pCPU's APIC id, which place.c explains. */
#include "x86/topology.h"
#include "common/insn.h"
#include "x86/percpu.h"

#define LEAF_CACHE_INTEL 4u
#define LEAF_CACHE_AMD   0x8000001du
#define CACHE_TYPE       31u /* EAX: the type of a cache; 0: the subleaf describes none */

/* Returns the socket, core and thread of a pCPU. */
struct place cpu_place(u32 cpu) {
    struct place_bits b = place_bits_read();

    return place_of(&b, percpu_of[cpu]->apic_id);
}

/* Returns the number of a pCPU's last-level cache. The APIC ids of CPUs that share a cache differ
 * only in their lower bits. How many bits these are follows from bits 25 to 14 of EAX, of the last
 * subleaf that describes a cache (SDM 2A CPUID leaf 4; APM3 E.4.15 8000_001D). So the id without
 * these bits is the number of the cache. On a CPU that has neither leaf all CPUs count as sharing
 * one cache. */
u32 cpu_cache(u32 cpu) {
    u32 leaf = LEAF_CACHE_INTEL, shift = 31;

    if (cpuid_or_zero(LEAF_CACHE_AMD, 0).eax & CACHE_TYPE) leaf = LEAF_CACHE_AMD;
    for (u32 sub = 0; sub < 16; sub++) {
        u32 eax = cpuid_or_zero(leaf, sub).eax, others = eax >> 14 & 0xfff;

        if (!(eax & CACHE_TYPE)) break;
        shift = 0;
        if (others) shift = 32 - (u32)__builtin_clz(others);
    }
    return percpu_of[cpu]->apic_id >> shift;
}

u32 cpu_node(u32 cpu) { return percpu_of[cpu]->node; }

const struct cpu_places cpu_places = { cpu_cache, cpu_node };
