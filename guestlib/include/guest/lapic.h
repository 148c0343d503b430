/* The local APIC of the vCPU that calls. It is in x2APIC mode if the CPU has that mode and the
 * command line does not say `xapic`; else it is in xAPIC mode. */
#ifndef GUEST_LAPIC_H
#define GUEST_LAPIC_H

#include <takt/types.h>

/* Register offsets of the xAPIC page; the x2APIC MSR is 0x800 + offset / 16 (SDM 3A 11.12.1.2). */
#define LAPIC_ID            0x20
#define LAPIC_VERSION       0x30
#define LAPIC_TPR           0x80
#define LAPIC_PPR           0xa0
#define LAPIC_EOI           0xb0
#define LAPIC_LDR           0xd0
#define LAPIC_DFR           0xe0
#define LAPIC_SVR           0xf0
#define LAPIC_ISR           0x100
#define LAPIC_TMR           0x180
#define LAPIC_IRR           0x200
#define LAPIC_ESR           0x280
#define LAPIC_ICR           0x300
#define LAPIC_ICR_HIGH      0x310
#define LAPIC_LVT_TIMER     0x320
#define LAPIC_LVT_LINT0     0x350
#define LAPIC_LVT_LINT1     0x360
#define LAPIC_LVT_ERROR     0x370
#define LAPIC_TIMER_INITIAL 0x380
#define LAPIC_TIMER_CURRENT 0x390
#define LAPIC_TIMER_DIVIDE  0x3e0

/* Bits of the local vector table (SDM 3A, figure 11-8) and of the interrupt command register
 * (figure 11-12). */
#define LVT_MASKED   0x10000u
#define LVT_PERIODIC 0x20000u
#define LVT_DEADLINE 0x40000u

#define ICR_FIXED    0x000u
#define ICR_LOWEST   0x100u
#define ICR_NMI      0x400u
#define ICR_INIT     0x500u
#define ICR_SIPI     0x600u
#define ICR_LOGICAL  0x800u
#define ICR_PENDING  0x1000u
#define ICR_ASSERT   0x4000u
#define ICR_SELF     0x40000u
#define ICR_ALL      0x80000u
#define ICR_OTHERS   0xc0000u

/* Reads a register of this vCPU's LAPIC. `offset` is one of LAPIC_* above, in both modes. */
u32 lapic_read(u32 offset);
/* Writes a register of this vCPU's LAPIC. */
void lapic_write(u32 offset, u32 value);
/* Returns the LAPIC id of this vCPU. */
u32 lapic_id(void);
/* Signals the end of interrupt to this vCPU's LAPIC, which then delivers further interrupts. */
void lapic_eoi(void);
/* Sends an interrupt to the vCPU with LAPIC id `id`, by the interrupt command register. `command`
 * is a vector and bits ICR_*. */
void lapic_icr(u32 id, u32 command);
/* Sends the interrupt `vector` to the vCPU with LAPIC id `id`; the second function sends it to the
 * calling vCPU. */
void lapic_ipi(u32 id, u8 vector);
void lapic_self_ipi(u8 vector);

/* Returns whether the CPU has the x2APIC mode. */
bool lapic_has_x2(void);
/* Returns whether the LAPIC of this vCPU is in x2APIC mode. */
bool lapic_is_x2(void);
/* Switches the mode of this vCPU's LAPIC, and sets its registers up again. In between the LAPIC is
 * disabled, as the manual demands (SDM 3A 11.12.5). */
void lapic_set_mode(bool x2);

/* Returns how fast the timer counts when its divider is 1. For guests that use the timer directly
 * instead of <guest/time.h>. */
u64 lapic_timer_khz(void);
/* Returns whether the timer has the TSC-deadline mode. */
bool lapic_has_deadline(void);

/* ---- for the start of the guest ---- */
void lapic_init_cpu(void);
void lapic_set_timer_khz(u64 khz);

#endif
