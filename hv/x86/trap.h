/* Exceptions and interrupts in root mode. */
#ifndef HV_X86_TRAP_H
#define HV_X86_TRAP_H

#include <takt/types.h>

/* Vectors of the hypervisor's own interrupts. Those of the 8259s are 0x20 to 0x2f. */
#define VEC_PIC       0x20
#define VEC_DEVICE    0x30 /* NR_VEC_DEVICE of them: hv/platform/irq.c */
#define VEC_TIMER     0xf0
#define VEC_KICK      0xf1
#define VEC_SPURIOUS  0xff

#define NR_VEC_DEVICE 192

/* `fn` runs with interrupts off, and where the loop has no lock; it is short. The trap code sends the EOI
 * after it. */
void irq_register(u8 vector, void (*fn)(u8 vector));
/* Sends the end of interrupt; the APIC registers it. */
extern void (*irq_eoi)(void);
/* Masks the source of `vector` if there is one; the IOAPICs' driver registers it. */
extern void (*irq_mask_vector)(u8 vector);

/* Prints the last exits of this CPU's vCPU, for dumps; set by hv/vcpu. */
extern void (*dump_hook)(void);

/* Takes interrupts, halts until one came, and returns with them off. None is slept through, whatever comes
 * between STI and HLT. */
void irq_halt(void);

struct trap_frame;
void trap_handle(struct trap_frame *f); /* for traps.asm */

extern volatile bool cpus_stop; /* the next NMI halts its CPU for ever */

#endif
