/* Replaces common/insn.h, whose instructions a process may not execute. The test says what they
 * return. */
#ifndef FAKE_INSN_H
#define FAKE_INSN_H

#include "common/insn.h"

/* CPUID; NULL: what the host's own CPU says. */
extern struct cpuid (*fake_cpuid)(u32 leaf, u32 sub);
/* RDMSR and WRMSR; NULL: the test ends, as it did not expect that an MSR is touched. */
extern u64 (*fake_rdmsr)(u32 msr);
extern void (*fake_wrmsr)(u32 msr, u64 value);
/* Control registers: what was written is read. */
extern u64 fake_cr[5];

#endif
