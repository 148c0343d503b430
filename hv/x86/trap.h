/* Exceptions and interrupts in root mode. */
#ifndef HV_X86_TRAP_H
#define HV_X86_TRAP_H

#include <takt/types.h>

/* The exceptions that are handled on stacks of their own (SDM 3A table 6-1). */
enum { TRAP_NMI = 2, TRAP_DF = 8, TRAP_MC = 18 };

/* Vectors of the hypervisor's own interrupts. Those of the 8259s are 0x20 to 0x2f. */
#define VEC_PIC       0x20
#define VEC_DEVICE    0x30 /* NR_VEC_DEVICE of them: hv/platform/irq.c */
#define VEC_TIMER     0xf0
#define VEC_KICK      0xf1
#define VEC_SPURIOUS  0xff

#define NR_VEC_DEVICE 192

/* Has `fn` called for that vector: with interrupts off, and at a place of the loop where no lock
 * is held. It has to be short. The trap code sends the EOI after it. */
void irq_register(u8 vector, void (*fn)(u8 vector));
/* Sends the end of interrupt. The APIC's code sets it. */
extern void (*irq_eoi)(void);
/* Masks the source of `vector`, if there is one. The IOAPICs' driver sets it. */
extern void (*irq_mask_vector)(u8 vector);

/* Prints the last exits of this CPU's vCPU, for dumps. hv/vcpu sets it. */
extern void (*dump_hook)(void);

/* Turns interrupts on, halts until one came, and returns with them off. No interrupt is slept
 * through, even if it comes between STI and HLT. */
void irq_halt(void);

struct trap_frame;
void trap_handle(struct trap_frame *f); /* for traps.asm */

extern volatile bool cpus_stop; /* the next NMI halts its CPU for ever */

#endif
