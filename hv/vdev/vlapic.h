/* The virtual local APIC: xAPIC by MMIO, x2APIC by MSR; timer one-shot, periodic, TSC deadline; IPIs, INIT,
 * SIPI. SDM 3A chapter 11. Five LVT entries and the error one (no CMCI), no EOI-broadcast suppression. The
 * page stays where it is, and bus arbitration, remote read and SMI do not exist. */
#ifndef HV_VDEV_VLAPIC_H
#define HV_VDEV_VLAPIC_H

#include "lib/spinlock.h"
#include "lib/timerq.h"
#include "x86/insn.h" /* the MSRs */

struct vlapic;

/* What a VM's LAPICs need of the room above. home_cpu and tsc_to_ns are called under the lock of the timer,
 * the others with none. */
struct vlapic_ops {
    struct vlapic *(*peer)(void *vm, u32 id); /* NULL: no such vCPU */
    u32 (*count)(void *vm);                   /* ids are below it */
    void (*notify)(struct vlapic *l);         /* something became pending: wake or kick its vCPU */
    void (*init)(struct vlapic *l);           /* INIT arrived from another vCPU */
    void (*sipi)(struct vlapic *l, u8 vector);
    void (*nmi)(struct vlapic *l);
    void (*eoi)(struct vlapic *l, u8 vector);    /* of a level-triggered interrupt. May be NULL */
    u32 (*home_cpu)(struct vlapic *l);           /* the pCPU on which to arm its timer */
    u64 (*tsc_to_ns)(struct vlapic *l, u64 tsc); /* guest TSC to now_ns(); saturates */
};

#define VLAPIC_TIMER_KHZ  1000000u /* the timer counts nanoseconds before the divider */
#define VLAPIC_MIN_PERIOD (20 * NS_PER_US)

#define APIC_BASE_BSP     BIT(8)
#define APIC_BASE_EXTD    BIT(10)
#define APIC_BASE_EN      BIT(11)

enum vlapic_lvt { LVT_TIMER, LVT_THERMAL, LVT_PMC, LVT_LINT0, LVT_LINT1, LVT_ERROR, LVT_NR };

struct vlapic {
    /* set by vlapic_init, then constant */
    u32 id;
    void *vm;
    const struct vlapic_ops *ops;
    /* set by anyone, atomically */
    u32 irr[8], tmr[8];
    u32 irr_any; /* bit n: irr[n] may be other than 0 */
    u32 esr_pending;
    u64 dropped; /* what was ignored: interrupts to a disabled LAPIC, IPIs to nobody, of no known kind */
    /* of the vCPU's own pCPU; others look at base, svr, tpr, ldr, dfr and lvt */
    u64 base; /* IA32_APIC_BASE */
    u32 isr[8];
    u32 isr_any;
    u32 isr_top; /* the highest vector in service, 0 if none */
    u32 tpr, ldr, dfr, svr, esr, icr_lo, icr_hi;
    u32 lvt[LVT_NR];
    /* the timer, under `lock` (lvt[LVT_TIMER] is written under it too) */
    struct spinlock lock;
    bool timer_on;        /* counting; never in deadline mode */
    bool timer_held;      /* a period ended before the last tick was taken: no more until it is */
    u8 shift;             /* of the divider */
    u32 divide, initial;  /* as written */
    u64 start, next_tick; /* ns: when the count was `initial`, when it next reaches 0 */
    u64 deadline;         /* guest TSC; 0: none */
    struct timer timer;
};

static inline bool vlapic_x2(const struct vlapic *l) { return l->base & APIC_BASE_EXTD; }

/* TPR and CR8 are one register: CR8 is bits 4..7 of TPR. */
static inline u64 vlapic_cr8(const struct vlapic *l) { return l->tpr >> 4; }

static inline void vlapic_set_cr8(struct vlapic *l, u64 cr8) { l->tpr = (u32)(cr8 & 15) << 4; }

void vlapic_init(struct vlapic *l, u32 id, void *vm, const struct vlapic_ops *ops, bool bsp);
void vlapic_reset(struct vlapic *l); /* INIT: keeps id and base */
void vlapic_fini(struct vlapic *l);  /* cancels the timer */

/* xAPIC page: offset < 4096, 32 bits wide. What is not at a 16-byte step, and everything while the LAPIC is
 * off or in x2APIC mode, reads as ones and takes no write. */
u32 vlapic_read(struct vlapic *l, u32 offset, u64 now);
void vlapic_write(struct vlapic *l, u32 offset, u32 value, u64 now);
/* x2APIC MSRs 0x800..0x8ff and IA32_TSC_DEADLINE, IA32_APIC_BASE: 0, or -EINVAL: #GP. */
int vlapic_rdmsr(struct vlapic *l, u32 msr, u64 *value, u64 now);
int vlapic_wrmsr(struct vlapic *l, u32 msr, u64 value, u64 now);

/* An interrupt message, from any pCPU. Vectors below 16 set ESR instead. */
void vlapic_raise_as(struct vlapic *l, u8 vector, bool level);
static inline void vlapic_raise(struct vlapic *l, u8 vector) { vlapic_raise_as(l, vector, false); }

int vlapic_pending(const struct vlapic *l); /* the vector to deliver now (its class above PPR's), -1: none */
void vlapic_accept(struct vlapic *l, u8 vector); /* it is being delivered: IRR to ISR */
void vlapic_eoi(struct vlapic *l);

#endif
