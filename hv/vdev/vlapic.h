/* The virtual local APIC of a vCPU: SDM 3A chapter 11. It has xAPIC by MMIO and x2APIC by MSRs; a
 * timer that is one-shot, periodic or by TSC deadline; IPIs, INIT and SIPI; five LVT entries and
 * the one for errors. It has no CMCI, no suppression of EOI broadcasts, no bus arbitration, no
 * remote read and no SMI; its page cannot be moved, and only interrupts of an IOAPIC can be level
 * triggered. */
#ifndef HV_VDEV_VLAPIC_H
#define HV_VDEV_VLAPIC_H

#include "common/insn.h" /* the MSRs */

struct vlapic;

enum delivery_mode {
    DM_FIXED,
    DM_LOWEST,
    DM_SMI,
    DM_RESERVED,
    DM_NMI,
    DM_INIT,
    DM_SIPI,
    DM_EXTINT
};

/* The functions that a LAPIC needs from the room above. notify() is called on any pCPU, the others
 * only on the vCPU's own pCPU. */
struct vlapic_ops {
    /* Returns the LAPIC of the same VM that has this id; NULL if all ids are lower. */
    struct vlapic *(*peer)(struct vlapic *l, u32 id);
    /* Tells the vCPU of this LAPIC that an interrupt has become pending (DM_FIXED), or that it has
     * got an NMI, an INIT, or a SIPI with this vector. */
    void (*notify)(struct vlapic *l, enum delivery_mode what, u8 vector);
    /* Asks for a call of vlapic_tick() at `when`, in ns; ~0: never. */
    void (*arm)(struct vlapic *l, u64 when);
    /* Returns the time in ns at which the guest's TSC has this value; ~0 if never. */
    u64 (*tsc_to_ns)(struct vlapic *l, u64 tsc);
    /* Tells that the guest has made an EOI for a level-triggered interrupt. */
    void (*eoi)(struct vlapic *l, u8 vector);
};

#define VLAPIC_TIMER_KHZ  1000000u /* the timer counts nanoseconds before the divider */
#define VLAPIC_MIN_PERIOD (20 * NS_PER_US)

#define APIC_BASE_BSP     BIT(8)
#define APIC_BASE_EXTD    BIT(10)
#define APIC_BASE_EN      BIT(11)

/* Register numbers: the offset in the page divided by 16, or the MSR minus 0x800 (11.4.1,
 * 11.12.1.2). */
enum vlapic_reg {
    R_ID = 0x02,
    R_VERSION = 0x03,
    R_TPR = 0x08,
    R_PPR = 0x0a,
    R_EOI = 0x0b,
    R_LDR = 0x0d,
    R_DFR = 0x0e,
    R_SVR = 0x0f,
    R_ISR = 0x10,
    R_TMR = 0x18,
    R_IRR = 0x20,
    R_ESR = 0x28,
    R_ICR = 0x30,
    R_ICR_HI = 0x31,
    R_LVT_TIMER = 0x32,
    R_LVT_ERROR = 0x37,
    R_INITIAL = 0x38,
    R_CURRENT = 0x39,
    R_DIVIDE = 0x3e,
    R_SELF_IPI = 0x3f,
    VLAPIC_REGS,
    R_DEADLINE = VLAPIC_REGS /* IA32_TSC_DEADLINE, which is in neither of the two */
};

struct vlapic {
    /* Set by vlapic_init(), then constant. */
    u32 id;
    const struct vlapic_ops *ops;
    /* Any pCPU changes these two atomically, and so IRR and TMR in `reg`. */
    u32 errors;    /* errors that ESR does not show yet */
    u32 no_eoi[8]; /* a bit for each vector whose handler makes no EOI */
    /* Only the vCPU's own pCPU changes the rest. Other pCPUs read base and registers. */
    u32 isr_top; /* the highest vector in service, 0 if none */
    u64 base;    /* IA32_APIC_BASE */
    union {
        u32 reg[VLAPIC_REGS];
        u64 pair[VLAPIC_REGS / 2]; /* the same memory, to search IRR and ISR in fewer steps */
    };
    u64 next;     /* when the count reaches 0, or the deadline comes, in ns; ~0: the timer is off */
    u64 deadline; /* the deadline that the guest wrote, a value of its TSC; 0: none */
};
_Static_assert(R_ISR % 2 == 0 && R_IRR % 2 == 0, "whole pairs of registers");

/* Is the LAPIC in x2APIC mode, in which its registers are MSRs? */
static inline bool vlapic_x2(const struct vlapic *l) { return l->base & APIC_BASE_EXTD; }

/* TPR and CR8 are one register: CR8 is bits 4..7 of TPR. */
static inline u64 vlapic_cr8(const struct vlapic *l) { return l->reg[R_TPR] >> 4; }

static inline void vlapic_set_cr8(struct vlapic *l, u64 cr8) {
    l->reg[R_TPR] = (u32)(cr8 & 15) << 4;
}

/* Where nothing else is said, the functions below are called on the vCPU's own pCPU. There is no
 * lock; but the functions of vlapic_ops, which they call, may take locks. */

void vlapic_init(struct vlapic *l, u32 id, const struct vlapic_ops *ops);
/* Does what INIT does to a LAPIC: all is reset, except id and base. */
void vlapic_reset(struct vlapic *l);

/* Do an access of 32 bits to the xAPIC page at `offset`, which is below 4096. `now` is the time in
 * ns. An offset that is not a multiple of 16 reads as ones, and writes to it are dropped. So do all
 * offsets while the LAPIC is off or in x2APIC mode. */
u32 vlapic_read(struct vlapic *l, u32 offset, u64 now);
void vlapic_write(struct vlapic *l, u32 offset, u32 value, u64 now);
/* Access the x2APIC MSRs 0x800 to 0x8ff, IA32_TSC_DEADLINE and IA32_APIC_BASE. They return 0, or
 *   -EINVAL  the access has to raise #GP */
int vlapic_rdmsr(struct vlapic *l, u32 msr, u64 *value, u64 now);
int vlapic_wrmsr(struct vlapic *l, u32 msr, u64 value, u64 now);

/* Does the LAPIC take interrupt messages? It does if the guest has switched it on. From any
 * pCPU. */
bool vlapic_on(const struct vlapic *l);
/* Delivers an interrupt message to the LAPIC. A vector below 16 sets a bit of ESR instead. From any
 * pCPU. */
void vlapic_raise(struct vlapic *l, u8 vector);
/* Delivers the message of an IOAPIC to the LAPICs that it names. `l` is any LAPIC of the VM. `icr`
 * has the format of the low 12 bits of ICR: vector, delivery mode, destination mode. From any
 * pCPU. */
void vlapic_message(struct vlapic *l, u32 icr, u32 dest, bool level);
/* To be called at the time for which arm() has asked. It may also be called at other times. */
void vlapic_tick(struct vlapic *l, u64 now);

/* While a CPU emulates a part of the LAPIC (APIC virtualization, SDM 3C chapter 30), the registers
 * are in a page of memory, as they lie in the page of a LAPIC. vlapic_to_page() brings them there,
 * and vlapic_from_page() fetches those that the CPU may have changed. In between no other function
 * here may be called on the vCPU's own pCPU. Other pCPUs may, and what they raise waits in `reg`.
 *   gives     the CPU is to deliver what IRR has; otherwise that stays in `reg`
 *   next_irr, next_isr  become the highest vectors of IRR and ISR in the page, 0 if there is none
 *   eoi       becomes a bit for each vector about whose EOI vlapic_eoi_done() has to be told */
struct vlapic_in_page {
    u8 next_irr, next_isr;
    u64 eoi[4];
};
void vlapic_to_page(struct vlapic *l, u32 *page, bool gives, u64 now, struct vlapic_in_page *in);
void vlapic_from_page(struct vlapic *l, u32 *page);
/* The CPU has carried out an EOI of this vector. */
void vlapic_eoi_done(struct vlapic *l, u8 vector);
/* Does a vector wait that the CPU must not deliver, because it would put it in service, and its
 * handler makes no EOI? */
bool vlapic_wants_injection(const struct vlapic *l);

/* Returns the vector that can be delivered now, because its class is above that of PPR. Returns 0
 * if no interrupt is pending, and -1 if the highest one has to wait for a lower priority. */
int vlapic_pending(const struct vlapic *l);
/* Returns whether any interrupt waits, of whatever priority. */
static inline bool vlapic_any_waits(const struct vlapic *l) {
    u64 waiting = 0;

#pragma GCC unroll 4
    for (u32 i = 0; i < 4; i++)
        waiting |= __atomic_load_n(&l->pair[R_IRR / 2 + i], __ATOMIC_RELAXED);
    return waiting;
}
/* To be called when the vector is being delivered: moves it from IRR to ISR. */
void vlapic_accept(struct vlapic *l, u8 vector);
/* Says whether the handler of this vector makes an EOI. If `none` is set it makes none, so the
 * vector does not go to ISR when it is delivered. From any pCPU. */
void vlapic_set_no_eoi(struct vlapic *l, u8 vector, bool none);
/* Returns what vlapic_set_no_eoi() has set for the vector. */
static inline bool vlapic_no_eoi(const struct vlapic *l, u8 vector) {
    return __atomic_load_n(&l->no_eoi[vector >> 5], __ATOMIC_RELAXED) >> (vector & 31) & 1;
}

#endif
