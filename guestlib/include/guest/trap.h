/* Exceptions and interrupts.
 *
 * An exception goes to the first of these that takes it: the hook of its vector; the fixup of its very
 * instruction (FIXUP); user_run() if it came from CPL 3; try_run(). One that nobody takes prints the
 * registers and ends the VM.
 */
#ifndef GUEST_TRAP_H
#define GUEST_TRAP_H

#include <takt/types.h>

#define EXC_DE   0
#define EXC_DB   1
#define EXC_NMI  2
#define EXC_BP   3
#define EXC_OF   4
#define EXC_UD   6
#define EXC_NM   7
#define EXC_DF   8
#define EXC_TS   10
#define EXC_NP   11
#define EXC_SS   12
#define EXC_GP   13
#define EXC_PF   14
#define EXC_MF   16
#define EXC_AC   17
#define EXC_XM   19
#define EXC_NONE 0xff

/* Vectors that the library uses; all others from 32 on are free. */
#define VECTOR_RETURN    0x81 /* a gate that CPL 3 may use: ends user_run() */
#define VECTOR_EVENT     0xf0
#define VECTOR_CALL      0xf1
#define VECTOR_RESCHED   0xf2
#define VECTOR_TIMER     0xf3
#define VECTOR_APICERROR 0xfe
#define VECTOR_SPURIOUS  0xff

struct trap_frame {
    u64 r15, r14, r13, r12, r11, r10, r9, r8, rdi, rsi, rbp, rbx, rdx, rcx, rax;
    u64 vector, code;
    u64 rip, cs, rflags, rsp, ss;
};

struct exception {
    u8 vector; /* EXC_NONE: there was none */
    u32 code;
    u64 rip, cr2;
};

/* The last exception that a fixup took on this vCPU. */
void exception_clear(void);
struct exception exception_get(void);

/* In inline assembly: FIXUP("rdmsr") is the instruction; if it faults, execution goes on after it and
 * exception_get() tells. */
#define FIXUP(insn)                                                                                          \
    "661: " insn "\n662:\n"                                                                                  \
    ".pushsection .fixup,\"a\"\n.balign 8\n.quad 661b, 662b\n.popsection\n"

/* The vector that `insn` (without operands that the compiler must fill in) faults with, or EXC_NONE. */
#define FAULT_OF(insn, ...)                                                                                  \
    ({                                                                                                       \
        exception_clear();                                                                                   \
        __asm__ volatile(FIXUP(insn) __VA_ARGS__);                                                           \
        exception_get().vector;                                                                              \
    })

u8 rdmsr_fault(u32 msr, u64 *value); /* *value is 0 if it faulted */
u8 wrmsr_fault(u32 msr, u64 value);

/* Runs fn(arg) and returns what it stumbled over. Locks that it held stay held. */
struct exception try_run(void (*fn)(void *), void *arg);

/* Runs the code at `rip` with `arg` in RDI at CPL 3 (compat: in a 32-bit segment, arg in EDI), interrupts
 * off, on a stack of its own, until `int $0x81` or an exception; *rax, if not NULL, receives RAX. */
struct exception user_run(const void *rip, u64 arg, bool compat, u64 *rax);

/* Calls the code at `rip` at CPL 0 in a 32-bit (compatibility mode) segment: it gets EAX, EBX, ECX, EDX and
 * ESI from `regs`, may change all but ESP and returns by a plain RET; the registers are stored back. */
struct compat_regs {
    u64 rax, rbx, rcx, rdx, rsi; /* whole, so that dirty upper halves can be passed */
};
void compat_call(const void *rip, struct compat_regs *regs);

typedef bool (*exception_hook)(struct trap_frame *f); /* true: handled, go on with f */
exception_hook exception_set_hook(u8 vector, exception_hook hook);

/* Handler of an interrupt, 32..255, on every vCPU; runs with interrupts off, after EOI. NULL: none (counted
 * as unexpected). */
typedef void (*irq_handler)(void *arg);
void irq_set_handler(u8 vector, irq_handler fn, void *arg);
/* The same, but the function has to call lapic_eoi(). */
void irq_set_raw_handler(u8 vector, irq_handler fn, void *arg);
/* Makes the assembly code at `entry` the vector's own: it is entered from the gate and ends with IRETQ. */
void trap_set_entry(u8 vector, const void *entry);
u64 irq_unexpected(void); /* interrupts that had no handler, all vCPUs */

void trap_init(void);     /* the IDT, once */
void trap_init_cpu(void); /* load it */
void trap_dump(const struct trap_frame *f);
const char *exception_name(u8 vector); /* "#GP"; "none" of EXC_NONE */

#endif
