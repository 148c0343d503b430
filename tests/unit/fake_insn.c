#include "fake_insn.h"

#include "lib/printf.h"

struct cpuid (*fake_cpuid)(u32 leaf, u32 sub);
u64 (*fake_rdmsr)(u32 msr);
void (*fake_wrmsr)(u32 msr, u64 value);
u64 fake_cr[5];

struct cpuid cpuid(u32 leaf, u32 sub) {
    struct cpuid r;

    if (fake_cpuid) return fake_cpuid(leaf, sub);
    __asm__ volatile("cpuid"
                     : "=a"(r.eax), "=b"(r.ebx), "=c"(r.ecx), "=d"(r.edx)
                     : "a"(leaf), "c"(sub));
    return r;
}

u64 rdmsr(u32 msr) {
    if (!fake_rdmsr) panic("MSR %x is read, and the test has no model of it", msr);
    return fake_rdmsr(msr);
}

void wrmsr(u32 msr, u64 value) {
    if (!fake_wrmsr) panic("MSR %x is written, and the test has no model of it", msr);
    fake_wrmsr(msr, value);
}

#define FAKE_CR(n)                                                                                 \
    u64 read_cr##n(void) { return fake_cr[n]; }                                                    \
    void write_cr##n(u64 v) { fake_cr[n] = v; }

FAKE_CR(0)
FAKE_CR(2)
FAKE_CR(3)
FAKE_CR(4)
