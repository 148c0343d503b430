/* Exceptions and interrupts.
 *
 * An exception goes to the first of these that takes it: the hook of its vector; user_run(), if it
 * came from CPL 3; the fixup of the instruction (FIXUP); try_run(). If none takes it, the registers
 * are printed and the VM ends.
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

/* Forget and return the last exception on this vCPU that a fixup, user_run() or try_run() took. */
void exception_clear(void);
struct exception exception_get(void);

/* For inline assembly: FIXUP("rdmsr") is the instruction. If it faults, execution goes on after it,
 * and exception_get() returns the exception. */
#define FIXUP(insn)                                                                                \
    "661: " insn "\n662:\n"                                                                        \
    ".pushsection .fixup,\"a\"\n.balign 8\n.quad 661b, 662b\n.popsection\n"

/* Executes `insn`, and is the vector that it faults with, or EXC_NONE. */
#define FAULT_OF(insn, ...)                                                                        \
    ({                                                                                             \
        exception_clear();                                                                         \
        __asm__ volatile(FIXUP(insn) __VA_ARGS__);                                                 \
        exception_get().vector;                                                                    \
    })

/* Both return the vector that the instruction faults with, or EXC_NONE. *value is 0 after a
 * fault. */
u8 rdmsr_fault(u32 msr, u64 *value);
u8 wrmsr_fault(u32 msr, u64 value);

/* Runs fn(arg). Returns the exception that ended it, or one with vector EXC_NONE if it has
 * returned. Locks that it held at an exception stay held. */
struct exception try_run(void (*fn)(void *), void *arg);

/* Runs the code at `rip` at CPL 3, with `arg` in RDI, on a stack of its own and with interrupts
 * off. The code ends by `int $0x81` or by an exception. Returns the exception, or one with vector
 * EXC_NONE. If `compat`, the code runs in a 32-bit segment, with `arg` in EDI. *rax, if not NULL,
 * becomes the code's last RAX. */
struct exception user_run(const void *rip, u64 arg, bool compat, u64 *rax);

/* Calls the code at `rip` at CPL 0 in a 32-bit segment (compatibility mode). It gets EAX, EBX, ECX,
 * EDX and ESI from `regs`, may change all registers but ESP, and returns by a plain RET. Then
 * `regs` has what is in the registers. */
struct compat_regs {
    u64 rax, rbx, rcx, rdx, rsi; /* 64 bits, so that upper halves that are not 0 can be passed */
};
void compat_call(const void *rip, struct compat_regs *regs);

/* Handles an exception that a test expects. Returns true if execution can go on as *f says, or
 * false if the exception is to be handled as if there were no hook. */
typedef bool (*exception_hook)(struct trap_frame *f);
/* Sets the hook of an exception; NULL means none. Returns the hook that it had before. */
exception_hook exception_set_hook(u8 vector, exception_hook hook);

/* Sets the handler of an interrupt, 32 to 255, for all vCPUs. It is called with interrupts off,
 * after the EOI. With NULL the vector has no handler, and its interrupts count as unexpected. */
typedef void (*irq_handler)(void *arg);
void irq_set_handler(u8 vector, irq_handler fn, void *arg);
/* The same, but the function has to call lapic_eoi() itself. */
void irq_set_raw_handler(u8 vector, irq_handler fn, void *arg);
/* Makes the vector's gate enter the assembly code at `entry`, which has to end with IRETQ. */
void trap_set_entry(u8 vector, const void *entry);
/* Returns how many interrupts on all vCPUs had no handler. */
u64 irq_unexpected(void);

/* For the start of the guest: the first function makes the IDT, and the second one, which each vCPU
 * calls, loads it. */
void trap_init(void);
void trap_init_cpu(void);
/* Prints the registers in *f. */
void trap_dump(const struct trap_frame *f);
/* Returns the name of an exception, such as "#GP", and "none" for EXC_NONE. */
const char *exception_name(u8 vector);

#endif
