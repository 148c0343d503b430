/* The virtual local APIC: xAPIC by MMIO, x2APIC by MSR; timer one-shot, periodic, TSC deadline;
 * IPIs, INIT, SIPI. SDM 3A chapter 11. Five LVT entries and the error one (no CMCI), no
 * EOI-broadcast suppression; only an IOAPIC's interrupts can be level-triggered. The page stays
 * where it is, and bus arbitration, remote read and SMI do not exist. */
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

/* What a LAPIC needs of the room above. notify() is called from any pCPU, the others on the
 * vCPU's own. */
struct vlapic_ops {
    /* The LAPIC of the same VM that has this id; NULL if ids end below it. */
    struct vlapic *(*peer)(struct vlapic *l, u32 id);
    /* Its vCPU has to look at an interrupt that became pending (DM_FIXED), at an NMI, an INIT, or a
     * SIPI with this vector. */
    void (*notify)(struct vlapic *l, enum delivery_mode what, u8 vector);
    /* vlapic_tick() is due at `when`, in ns; ~0: never. */
    void (*arm)(struct vlapic *l, u64 when);
    /* The time in ns at which the guest's TSC has this value; ~0 if never. */
    u64 (*tsc_to_ns)(struct vlapic *l, u64 tsc);
    /* The handler of a level-triggered interrupt has ended. */
    void (*eoi)(struct vlapic *l, u8 vector);
};

#define VLAPIC_TIMER_KHZ  1000000u /* the timer counts nanoseconds before the divider */
#define VLAPIC_MIN_PERIOD (20 * NS_PER_US)

#define APIC_BASE_BSP     BIT(8)
#define APIC_BASE_EXTD    BIT(10)
#define APIC_BASE_EN      BIT(11)

/* Register numbers: the offset in the page by 16, or the MSR from 0x800 (11.4.1, 11.12.1.2). */
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
    R_DEADLINE = VLAPIC_REGS /* IA32_TSC_DEADLINE, which is in neither */
};

struct vlapic {
    /* Set by vlapic_init(), then constant. */
    u32 id;
    const struct vlapic_ops *ops;
    /* Changed from any pCPU, by atomics; so is IRR in `reg`. */
    u32 errors;    /* that ESR does not show yet */
    u32 no_eoi[8]; /* a bit for each vector whose handler makes no EOI */
    /* Changed by the vCPU's own pCPU. Others read base and registers. */
    u32 isr_top; /* the highest vector in service, 0 if none */
    u64 base;    /* IA32_APIC_BASE */
    union {
        u32 reg[VLAPIC_REGS];
        u64 pair[VLAPIC_REGS / 2]; /* the same, to look through IRR and ISR in fewer steps */
    };
    u64 next;     /* ns: when the count reaches 0, or the deadline; ~0: the timer is off */
    u64 deadline; /* as the guest wrote it: a value of its TSC; 0: none */
};
_Static_assert(R_ISR % 2 == 0 && R_IRR % 2 == 0, "whole pairs of registers");

static inline bool vlapic_x2(const struct vlapic *l) { return l->base & APIC_BASE_EXTD; }

/* TPR and CR8 are one register: CR8 is bits 4..7 of TPR. */
static inline u64 vlapic_cr8(const struct vlapic *l) { return l->reg[R_TPR] >> 4; }

static inline void vlapic_set_cr8(struct vlapic *l, u64 cr8) {
    l->reg[R_TPR] = (u32)(cr8 & 15) << 4;
}

void vlapic_init(struct vlapic *l, u32 id, const struct vlapic_ops *ops);
/* INIT: keeps id and base. */
void vlapic_reset(struct vlapic *l);

/* The xAPIC page: `offset` is below 4096, and the access 32 bits wide. What is not at a 16-byte
 * step, and everything while the LAPIC is off or in x2APIC mode, reads as ones and drops writes.
 * `now` is in ns. */
u32 vlapic_read(struct vlapic *l, u32 offset, u64 now);
void vlapic_write(struct vlapic *l, u32 offset, u32 value, u64 now);
/* The x2APIC MSRs 0x800 to 0x8ff, IA32_TSC_DEADLINE and IA32_APIC_BASE. Return 0, or -EINVAL if the
 * access is #GP. */
int vlapic_rdmsr(struct vlapic *l, u32 msr, u64 *value, u64 now);
int vlapic_wrmsr(struct vlapic *l, u32 msr, u64 value, u64 now);

/* Does it take interrupt messages? It does if the guest has switched it on. */
bool vlapic_on(const struct vlapic *l);
/* An interrupt message. From any pCPU. Vectors below 16 set ESR instead. */
void vlapic_raise(struct vlapic *l, u8 vector);
/* A message of an IOAPIC to those LAPICs of a VM that it names; `l` is any of the VM's. `icr` is as
 * the low 12 bits of ICR: vector, delivery mode, destination mode. From any pCPU. */
void vlapic_message(struct vlapic *l, u32 icr, u32 dest, bool level);
/* To be called when the time that arm() asked for has come. One call too many does no harm. */
void vlapic_tick(struct vlapic *l, u64 now);

/* Returns the vector to deliver now, whose class is above that of PPR; 0: there is none; -1: the
 * highest one waits for a lower priority. */
int vlapic_pending(const struct vlapic *l);
/* The vector is being delivered: it goes from IRR to ISR. */
void vlapic_accept(struct vlapic *l, u8 vector);
/* `none`: from now on the vector is done with as soon as it is delivered. Otherwise it wants an
 * EOI again. From any pCPU. */
void vlapic_set_no_eoi(struct vlapic *l, u8 vector, bool none);
static inline bool vlapic_no_eoi(const struct vlapic *l, u8 vector) {
    return __atomic_load_n(&l->no_eoi[vector >> 5], __ATOMIC_RELAXED) >> (vector & 31) & 1;
}

#endif
