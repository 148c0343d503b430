/* Instructions that only guests use; common/insn.h has those that the hypervisor uses as well. An
 * instruction whose fault is part of a test is in trap.h. */
#ifndef GUEST_X86_H
#define GUEST_X86_H

#include "common/insn.h"

/* Selectors of the library's GDT (vcpu.c). */
#define SEL_CODE64      0x08
#define SEL_DATA        0x10
#define SEL_CODE32      0x18
#define SEL_CODE16      0x20
#define SEL_USER_CODE32 0x2b
#define SEL_USER_DATA   0x33
#define SEL_USER_CODE64 0x3b
#define SEL_TSS         0x40

static inline u64 read_rflags(void) {
    u64 f;
    __asm__ volatile("pushfq; pop %0" : "=r"(f) : : "memory");
    return f;
}

static inline void irq_enable(void) { __asm__ volatile("sti" : : : "memory"); }

static inline void irq_disable(void) { __asm__ volatile("cli" : : : "memory"); }

/* Waits for an interrupt, and returns with interrupts on. STI takes effect only after the next
 * instruction, so an interrupt that has come since the caller's irq_disable() wakes the HLT and is
 * not lost. */
static inline void irq_enable_and_halt(void) { __asm__ volatile("sti; hlt" : : : "memory"); }

static inline u64 irq_save(void) {
    u64 f = read_rflags();
    irq_disable();
    return f;
}

static inline void irq_restore(u64 f) {
    if (f & RFLAGS_IF) irq_enable();
}

/* Loads GDTR and TR. `r` is the operand of LGDT: the limit in 2 bytes and the base in 8. */
static inline void load_gdt(const void *r, u16 tr) {
    __asm__ volatile("lgdt (%0); ltr %w1" : : "r"(r), "r"(tr) : "memory");
}

/* Loads IDTR. `r` is the operand of LIDT, which has the same form. */
static inline void load_idt(const void *r) { __asm__ volatile("lidt (%0)" : : "r"(r) : "memory"); }

/* Takes a random number from the CPU's own generator. Returns false if that has none at the moment.
 * CPUID leaf 1, bit 30 of ECX, says whether there is a generator at all (SDM 1 7.3.17.1). */
static inline bool rdrand(u64 *word) {
    bool ok;
    __asm__ volatile("rdrand %0" : "=r"(*word), "=@ccc"(ok));
    return ok;
}

static inline void invlpg(u64 va) { __asm__ volatile("invlpg (%0)" : : "r"(va) : "memory"); }

#endif
