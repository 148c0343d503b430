/* Instructions and the numbers that go with them. Those that may fault and whose fault is wanted are in
 * trap.h. */
#ifndef GUEST_X86_H
#define GUEST_X86_H

#include <takt/types.h>

#define CR0_PE             BIT(0)
#define CR0_MP             BIT(1)
#define CR0_EM             BIT(2)
#define CR0_TS             BIT(3)
#define CR0_ET             BIT(4)
#define CR0_NE             BIT(5)
#define CR0_WP             BIT(16)
#define CR0_AM             BIT(18)
#define CR0_NW             BIT(29)
#define CR0_CD             BIT(30)
#define CR0_PG             BIT(31)

#define CR4_TSD            BIT(2)
#define CR4_DE             BIT(3)
#define CR4_PSE            BIT(4)
#define CR4_PAE            BIT(5)
#define CR4_MCE            BIT(6)
#define CR4_PGE            BIT(7)
#define CR4_OSFXSR         BIT(9)
#define CR4_OSXMMEXCPT     BIT(10)
#define CR4_UMIP           BIT(11)
#define CR4_LA57           BIT(12)
#define CR4_VMXE           BIT(13)
#define CR4_FSGSBASE       BIT(16)
#define CR4_PCIDE          BIT(17)
#define CR4_OSXSAVE        BIT(18)
#define CR4_SMEP           BIT(20)
#define CR4_SMAP           BIT(21)

#define RFLAGS_TF          BIT(8)
#define RFLAGS_IF          BIT(9)
#define RFLAGS_AC          BIT(18)

#define MSR_TSC            0x10
#define MSR_APIC_BASE      0x1b
#define MSR_SYSENTER_CS    0x174
#define MSR_SYSENTER_ESP   0x175
#define MSR_SYSENTER_EIP   0x176
#define MSR_PAT            0x277
#define MSR_TSC_DEADLINE   0x6e0
#define MSR_EFER           0xc0000080u
#define MSR_STAR           0xc0000081u
#define MSR_LSTAR          0xc0000082u
#define MSR_CSTAR          0xc0000083u
#define MSR_FMASK          0xc0000084u
#define MSR_FS_BASE        0xc0000100u
#define MSR_GS_BASE        0xc0000101u
#define MSR_KERNEL_GS_BASE 0xc0000102u
#define MSR_TSC_AUX        0xc0000103u

#define EFER_SCE           BIT(0)
#define EFER_LME           BIT(8)
#define EFER_LMA           BIT(10)
#define EFER_NXE           BIT(11)

/* Selectors of the library's GDT (vcpu.c). */
#define SEL_CODE64      0x08
#define SEL_DATA        0x10
#define SEL_CODE32      0x18
#define SEL_CODE16      0x20
#define SEL_USER_CODE32 0x2b
#define SEL_USER_DATA   0x33
#define SEL_USER_CODE64 0x3b
#define SEL_TSS         0x40

struct cpuid {
    u32 eax, ebx, ecx, edx;
};

static inline struct cpuid cpuid(u32 leaf, u32 subleaf) {
    struct cpuid r;
    __asm__ volatile("cpuid" : "=a"(r.eax), "=b"(r.ebx), "=c"(r.ecx), "=d"(r.edx) : "a"(leaf), "c"(subleaf));
    return r;
}

static inline u64 rdtsc(void) {
    u32 lo, hi;
    __asm__ volatile("rdtsc" : "=a"(lo), "=d"(hi));
    return (u64)hi << 32 | lo;
}

static inline u64 rdmsr(u32 msr) {
    u32 lo, hi;
    __asm__ volatile("rdmsr" : "=a"(lo), "=d"(hi) : "c"(msr));
    return (u64)hi << 32 | lo;
}

static inline void wrmsr(u32 msr, u64 v) {
    __asm__ volatile("wrmsr" : : "c"(msr), "a"((u32)v), "d"((u32)(v >> 32)) : "memory");
}

#define DEFINE_CR(n)                                                                                         \
    static inline u64 read_cr##n(void) {                                                                     \
        u64 v;                                                                                               \
        __asm__ volatile("mov %%cr" #n ", %0" : "=r"(v) : : "memory");                                       \
        return v;                                                                                            \
    }                                                                                                        \
    static inline void write_cr##n(u64 v) { __asm__ volatile("mov %0, %%cr" #n : : "r"(v) : "memory"); }
DEFINE_CR(0)
DEFINE_CR(2)
DEFINE_CR(3)
DEFINE_CR(4)
DEFINE_CR(8)

static inline u64 read_rflags(void) {
    u64 f;
    __asm__ volatile("pushfq; pop %0" : "=r"(f) : : "memory");
    return f;
}

static inline void cpu_relax(void) { __asm__ volatile("pause" : : : "memory"); }

static inline void irq_enable(void) { __asm__ volatile("sti" : : : "memory"); }

static inline void irq_disable(void) { __asm__ volatile("cli" : : : "memory"); }

/* Waits for an interrupt; one that came after the caller's irq_disable() is not lost. Returns with
 * interrupts on. */
static inline void irq_enable_and_halt(void) { __asm__ volatile("sti; hlt" : : : "memory"); }

static inline u64 irq_save(void) {
    u64 f = read_rflags();
    irq_disable();
    return f;
}

static inline void irq_restore(u64 f) {
    if (f & RFLAGS_IF) irq_enable();
}

static inline void invlpg(u64 va) { __asm__ volatile("invlpg (%0)" : : "r"(va) : "memory"); }

#endif
