/* Guests in the simulation of the whole machine: the interrupt flag is a variable, and what only a
 * CPU can do is left out. This header takes the place of the one of the same name. */
#ifndef WHOLE_GUEST_X86_H
#define WHOLE_GUEST_X86_H

#define read_rflags         hardware_read_rflags
#define irq_enable          hardware_irq_enable
#define irq_disable         hardware_irq_disable
#define irq_enable_and_halt hardware_irq_enable_and_halt
#define irq_save            hardware_irq_save
#define irq_restore         hardware_irq_restore
#define load_gdt            hardware_load_gdt
#define load_idt            hardware_load_idt
#define invlpg              hardware_invlpg
#include_next <guest/x86.h>
#undef read_rflags
#undef irq_enable
#undef irq_disable
#undef irq_enable_and_halt
#undef irq_save
#undef irq_restore
#undef load_gdt
#undef load_idt
#undef invlpg

#include "tests/whole/port.h"

/* The port of the vCPU that runs. */
extern struct whole_port *volatile whole_port;

/* Calls the machine because interrupts are on and it waits for that. */
void whole_window(void);
/* HLT with interrupts on. */
void whole_halt(void);

static inline u64 read_rflags(void) { return whole_port->irqs ? RFLAGS_IF : 0; }

static inline void irq_disable(void) { whole_port->irqs = false; }

static inline void irq_enable(void) {
    whole_port->irqs = true;
    if (__builtin_expect(whole_port->attention, 0)) whole_window();
}

static inline void irq_enable_and_halt(void) { whole_halt(); }

static inline u64 irq_save(void) {
    u64 f = read_rflags();

    irq_disable();
    return f;
}

static inline void irq_restore(u64 f) {
    if (f & RFLAGS_IF) irq_enable();
}

static inline void load_gdt(const void *r, u16 tr) {}

static inline void load_idt(const void *r) {}

static inline void invlpg(u64 va) {}

#endif
