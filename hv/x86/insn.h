/* Privileged instructions and CPUID. */
#ifndef HV_X86_INSN_H
#define HV_X86_INSN_H

#include <takt/types.h>

struct cpuid {
    u32 eax, ebx, ecx, edx;
};

/* Unit tests and `make machines` run on an ordinary process, which may execute none of these: there they are
 * functions of a model (tests/unit/fake_insn.c). */
#if __STDC_HOSTED__
struct cpuid cpuid(u32 leaf, u32 sub);
u64 rdmsr(u32 msr);
void wrmsr(u32 msr, u64 v);
#define DEFINE_CR(n)                                                                                         \
    u64 read_cr##n(void);                                                                                    \
    void write_cr##n(u64 v);
#else
static inline struct cpuid cpuid(u32 leaf, u32 sub) {
    struct cpuid r;
    __asm__ volatile("cpuid" : "=a"(r.eax), "=b"(r.ebx), "=c"(r.ecx), "=d"(r.edx) : "a"(leaf), "c"(sub));
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

#define DEFINE_CR(n)                                                                                         \
    static inline u64 read_cr##n(void) {                                                                     \
        u64 v;                                                                                               \
        __asm__ volatile("mov %%cr" #n ", %0" : "=r"(v));                                                    \
        return v;                                                                                            \
    }                                                                                                        \
    static inline void write_cr##n(u64 v) { __asm__ volatile("mov %0, %%cr" #n : : "r"(v) : "memory"); }
#endif

DEFINE_CR(0)
DEFINE_CR(2)
DEFINE_CR(3)
DEFINE_CR(4)

/* Leaf 0, EBX of "GenuineIntel". */
#define CPUID_GENU 0x756e6547u

/* Zeros for a leaf that the CPU does not have. */
static inline struct cpuid cpuid_or_zero(u32 leaf, u32 sub) {
    return cpuid(leaf & 0xffff0000u, 0).eax >= leaf ? cpuid(leaf, sub) : (struct cpuid){ 0 };
}

/* Sends out what the CPU has collected of writes to write-combining memory (SDM 3A 12.3.1). */
static inline void write_combined_flush(void) { __asm__ volatile("sfence" : : : "memory"); }

static inline void cpu_relax(void) { __builtin_ia32_pause(); }

/* The architectural MSRs that several rooms use (SDM 4, table 2-2; APM2 appendix A). */
#define MSR_TSC             0x010
#define MSR_APIC_BASE       0x01b
#define MSR_FEATURE_CONTROL 0x03a
#define MSR_TSC_ADJUST      0x03b
#define MSR_SYSENTER_CS     0x174
#define MSR_SYSENTER_ESP    0x175
#define MSR_SYSENTER_EIP    0x176
#define MSR_MCG_CAP         0x179
#define MSR_MCG_STATUS      0x17a
#define MSR_PAT             0x277
#define MSR_MC0_STATUS      0x401
#define MSR_TSC_DEADLINE    0x6e0
#define MSR_X2APIC          0x800
#define MSR_EFER            0xc0000080u
#define MSR_STAR            0xc0000081u
#define MSR_LSTAR           0xc0000082u
#define MSR_CSTAR           0xc0000083u
#define MSR_FMASK           0xc0000084u
#define MSR_FS_BASE         0xc0000100u
#define MSR_GS_BASE         0xc0000101u
#define MSR_KERNEL_GS_BASE  0xc0000102u
#define MSR_TSC_AUX         0xc0000103u
#define MSR_VM_CR           0xc0010114u

#endif
