/* Exceptions and interrupts in root mode. */
#ifndef HV_X86_TRAP_H
#define HV_X86_TRAP_H

#include <takt/types.h>

/* What the stubs of traps.asm leave on the stack. */
struct trap_frame {
    u64 r15, r14, r13, r12, r11, r10, r9, r8, rdi, rsi, rbp, rbx, rdx, rcx, rax;
    u64 vector, code;
    u64 rip, cs, rflags, rsp, ss;
};

/* Vectors of the hypervisor's own interrupts. Those of the 8259s are 0x20 to 0x2f. */
#define VEC_PIC      0x20
#define VEC_DEVICE   0x40 /* to 0xdf: IOAPIC and MSI */
#define VEC_TIMER    0xf0
#define VEC_KICK     0xf1
#define VEC_ERROR    0xf2
#define VEC_SPURIOUS 0xff

void traps_init(void); /* fills the IDT, which all CPUs share */
void traps_load(void);

/* `fn` runs with interrupts off; it sets a flag and no more. The trap code sends the EOI after it. */
void irq_register(u8 vector, void (*fn)(void));
/* Sends the end of interrupt; the APIC registers it. */
extern void (*irq_eoi)(void);
/* Masks the source of `vector` if there is one; the IOAPICs' driver registers it. */
extern void (*irq_mask_vector)(u8 vector);

/* Prints the last exits of this CPU's vCPU, for dumps; set by hv/vm. */
extern void (*dump_hook)(void);
/* Where a return address lies: the function's name and *offset, or "?". */
const char *symbol_at(u64 addr, u64 *offset);
void backtrace(u64 rip, u64 rbp);
void dump_frame(const struct trap_frame *f);

extern volatile bool cpus_stop; /* the next NMI halts its CPU for ever */
extern u64 stray_irqs;          /* interrupts on vectors that nobody registered */

#endif
