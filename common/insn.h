/* CPUID, RDTSC and privileged instructions. */
#ifndef COMMON_INSN_H
#define COMMON_INSN_H

#include "common/registers.h"

struct cpuid {
    u32 eax, ebx, ecx, edx;
};

/* Unit tests and `make machines` run in an ordinary process, where these instructions fault, or
 * tell about the host. There they are functions of a model (tests/unit/fake_insn.c). */
#if __STDC_HOSTED__
struct cpuid cpuid(u32 leaf, u32 sub);
u64 rdmsr(u32 msr);
void wrmsr(u32 msr, u64 v);
#define DEFINE_CR(n)                                                                               \
    u64 read_cr##n(void);                                                                          \
    void write_cr##n(u64 v);
#else
static inline struct cpuid cpuid(u32 leaf, u32 sub) {
    struct cpuid r;
    __asm__ volatile("cpuid"
                     : "=a"(r.eax), "=b"(r.ebx), "=c"(r.ecx), "=d"(r.edx)
                     : "a"(leaf), "c"(sub));
    return r;
}

static inline u64 rdmsr(u32 msr) {
    u32 lo, hi;
    __asm__ volatile("rdmsr" : "=a"(lo), "=d"(hi) : "c"(msr) : "memory");
    return (u64)hi << 32 | lo;
}

static inline void wrmsr(u32 msr, u64 v) {
    __asm__ volatile("wrmsr" : : "c"(msr), "a"((u32)v), "d"((u32)(v >> 32)) : "memory");
}

#define DEFINE_CR(n)                                                                               \
    static inline u64 read_cr##n(void) {                                                           \
        u64 v;                                                                                     \
        __asm__ volatile("mov %%cr" #n ", %0" : "=r"(v) : : "memory");                             \
        return v;                                                                                  \
    }                                                                                              \
    static inline void write_cr##n(u64 v) {                                                        \
        __asm__ volatile("mov %0, %%cr" #n : : "r"(v) : "memory");                                 \
    }
#endif

DEFINE_CR(0)
DEFINE_CR(2)
DEFINE_CR(3)
DEFINE_CR(4)
DEFINE_CR(8)

static inline u64 rdtsc(void) {
    u32 lo, hi;
    __asm__ volatile("rdtsc" : "=a"(lo), "=d"(hi));
    return (u64)hi << 32 | lo;
}

/* Leaf 0, EBX of "GenuineIntel". */
#define CPUID_GENU 0x756e6547u

/* What CPUID says of a leaf, or zeros if the CPU does not have that leaf: EAX of the first leaf
 * of each range tells the last one that there is (SDM 2A, CPUID). */
static inline struct cpuid cpuid_or_zero(u32 leaf, u32 sub) {
    u32 first_of_range = leaf & 0xffff0000u;

    if (cpuid(first_of_range, 0).eax < leaf) return (struct cpuid){ 0 };
    return cpuid(leaf, sub);
}

/* Writes to memory what the CPU has collected of stores to write-combining memory (SDM 3A 12.3.1).
 * Without it the last ones could stay in a buffer of the CPU for any time. */
static inline void write_combined_flush(void) { __asm__ volatile("sfence" : : : "memory"); }

/* For the body of a loop that waits for memory to change. The compiler reads memory again after
 * it. */
static inline void cpu_relax(void) { __asm__ volatile("pause" : : : "memory"); }

#endif
