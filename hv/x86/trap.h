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

/* Registers `fn` as the handler of a vector. It is called with interrupts off, and only at a place
 * of the CPU's loop where no lock is held, so it may take locks. It has to be short. The trap code
 * sends the EOI after it has returned. */
void irq_register(u8 vector, void (*fn)(u8 vector));
/* A hook that sends the EOI to the local APIC; platform/apic.c sets it. */
extern void (*irq_eoi)(void);
/* A hook that masks all pins which raise `vector`; platform/irq.c sets it. */
extern void (*irq_mask_vector)(u8 vector);

/* A hook that logs the last exits of this CPU's vCPU, for dumps; hv/vcpu sets it. */
extern void (*dump_hook)(void);

/* Switches interrupts on, halts until one has come, and returns with interrupts off. An interrupt
 * that comes between STI and HLT ends the halt, too. */
void irq_halt(void);

struct trap_frame;
void trap_handle(struct trap_frame *f); /* for traps.asm */

extern volatile bool cpus_stop; /* the next NMI halts its CPU for ever */

#endif
