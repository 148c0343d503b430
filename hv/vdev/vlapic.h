/* The virtual local APIC: xAPIC by MMIO, x2APIC by MSR; timer one-shot, periodic, TSC deadline; IPIs, INIT,
 * SIPI. SDM 3A chapter 11. */
#ifndef HV_VDEV_VLAPIC_H
#define HV_VDEV_VLAPIC_H

#include "lib/spinlock.h"
#include "lib/timerq.h"

struct vlapic;

/* What a VM's LAPICs need of the room above. */
struct vlapic_ops {
    struct vlapic *(*peer)(void *vm, u32 id); /* NULL: no such vCPU */
    u32 (*count)(void *vm);
    void (*notify)(struct vlapic *l); /* something became deliverable: wake or kick its vCPU */
    void (*init)(struct vlapic *l);   /* INIT arrived */
    void (*sipi)(struct vlapic *l, u8 vector);
    void (*nmi)(struct vlapic *l);
    u32 (*home_cpu)(struct vlapic *l);           /* the pCPU on which to arm its timer */
    u64 (*guest_tsc)(struct vlapic *l, u64 now); /* and back: */
    u64 (*tsc_to_ns)(struct vlapic *l, u64 tsc);
};

#define VLAPIC_TIMER_KHZ 1000000u /* the timer counts nanoseconds before the divider */

struct vlapic {
    u32 id;
    void *vm;
    const struct vlapic_ops *ops;
    u64 base;                   /* IA32_APIC_BASE */
    u32 irr[8], isr[8], tmr[8]; /* irr: set by anyone with atomic or; the rest by the vCPU's own pCPU */
    u32 tpr, ldr, dfr, svr, esr, esr_pending, icr_lo, icr_hi;
    u32 lvt[7]; /* CMCI, timer, thermal, PMC, LINT0, LINT1, error */
    u32 divide, initial;
    u64 timer_start, deadline; /* ns when the count began; guest TSC */
    struct timer timer;
    struct spinlock lock; /* timer */
    u64 dropped;          /* what was ignored: illegal vectors, IPIs to nobody */
};

void vlapic_init(struct vlapic *l, u32 id, void *vm, const struct vlapic_ops *ops, bool bsp);
void vlapic_reset(struct vlapic *l); /* INIT: keeps id and base */
void vlapic_fini(struct vlapic *l);  /* cancels the timer */

/* xAPIC page: offset < 4096. Accesses that are not 32 bits wide at 16-byte steps read 0 and write nothing. */
u32 vlapic_read(struct vlapic *l, u32 offset, u64 now);
void vlapic_write(struct vlapic *l, u32 offset, u32 value, u64 now);
/* x2APIC MSRs 0x800..0x8ff and IA32_TSC_DEADLINE, IA32_APIC_BASE: 0, or -EINVAL: #GP. */
int vlapic_rdmsr(struct vlapic *l, u32 msr, u64 *value, u64 now);
int vlapic_wrmsr(struct vlapic *l, u32 msr, u64 value, u64 now);

void vlapic_raise(struct vlapic *l, u8 vector); /* from any pCPU: edge; vectors below 16 set ESR instead */
int vlapic_pending(
    const struct vlapic *l); /* the vector that would be delivered now (above PPR), -1 if none */
void vlapic_accept(struct vlapic *l, u8 vector); /* it is being delivered: IRR to ISR */
void vlapic_eoi(struct vlapic *l);

#endif
