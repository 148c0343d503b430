#include "x86/topology.h"
#include "x86/insn.h"
#include "x86/percpu.h"

struct place cpu_place(u32 cpu) {
    struct place_bits b = place_bits_read();

    return place_of(&b, percpu_of[cpu]->apic_id);
}

/* The APIC ids of those who share a cache differ only in their lower bits; how many, bits 25 to 14 of EAX of
 * the last subleaf that has a cache tell (SDM 2A CPUID leaf 4; APM3 E.4.15 8000_001D). With neither leaf all
 * share one. */
u32 cpu_cache(u32 cpu) {
    u32 leaf = cpuid_or_zero(0x8000001d, 0).eax & 31 ? 0x8000001d : 4, shift = 31;

    for (u32 sub = 0; sub < 16; sub++) {
        u32 eax = cpuid_or_zero(leaf, sub).eax, others = eax >> 14 & 0xfff;

        if (!(eax & 31)) break;
        shift = others ? 32 - (u32)__builtin_clz(others) : 0;
    }
    return percpu_of[cpu]->apic_id >> shift;
}
