/* The virtual local APIC (LAPIC): the part of a vCPU that receives interrupts, sends interrupts to
 * other vCPUs (IPIs), and has a timer. IRR has a bit for each vector (interrupt number) that waits,
 * ISR for each whose handler runs; an EOI, written by the handler, ends that. Its registers are
 * accessed by memory (xAPIC mode) or as MSRs (x2APIC mode). This file knows nothing of vCPUs: it
 * calls the functions l->ops. Section numbers are those of SDM 3A.
 *
 * A guest cannot take time from others by a storm of interrupts. An IPI reaches only vCPUs of the
 * sender's own VM, it is sent in the sender's own time, and it notifies a target only if the
 * target's bit in IRR was clear. A periodic timer does not fire again before its last tick was
 * taken, nor more often than every 20 us. */
#include <takt/abi.h>
#include <takt/errno.h>
#include "common/string.h"
#include "trace/trace.h"
#include "vdev/vlapic.h"
#include "x86/percpu.h"

/* interrupts that were for a disabled LAPIC or for no LAPIC, or were of an unknown kind */
DEFINE_COUNTER(interrupts_dropped);

#define NEVER            (~0ull)

#define FIRST_VECTOR     16 /* lower ones are illegal: 11.5.2 */
#define SVR_ENABLE       0x100u
#define LVT_MASKED       0x10000u
#define LVT_READ_ONLY    0x5000u /* delivery status, remote IRR */
#define TIMER_MODE       0x60000u
#define TIMER_PERIODIC   0x20000u
#define TIMER_DEADLINE   0x40000u
#define ESR_SEND_ILLEGAL BIT(5) /* 11.5.3 */
#define ESR_RECV_ILLEGAL BIT(6)
#define ESR_ILLEGAL_REG  BIT(7)

/* How a register can be accessed: in the page (P) or as an MSR (X), for reading (R) or writing (W).
 * COMPUTED means that a read does not simply return `reg`. */
#define PR       1
#define PW       2
#define XR       4
#define XW       8
#define COMPUTED 16
#define RO       (PR | XR)
#define RW       (PR | PW | XR | XW)

/* How each register can be accessed, and which bits a write may set. Other bits are dropped if they
 * are written by the page, and raise #GP if they are written by an MSR. */
static const struct {
    u8 how;
    u32 bits;
} regs[VLAPIC_REGS] = {
    [R_ID] = { RO },
    [R_VERSION] = { RO },
    [R_TPR] = { RW, 0xff },
    [R_PPR] = { RO | COMPUTED },
    [R_EOI] = { PR | PW | XW },
    [R_LDR] = { PR | PW | XR, 0xff000000 },
    [R_DFR] = { PR | PW, 0xf0000000 },
    [R_SVR] = { RW, 0x3ff },
    [R_ISR... R_IRR + 7] = { RO },
    [R_ESR] = { RW },
    [R_ICR] = { RW | COMPUTED, 0xccfff },
    [R_ICR_HI] = { PR | PW, 0xff000000 },
    [R_LVT_TIMER] = { RW, 0x750ff },
    [R_LVT_TIMER + 1 ... R_LVT_TIMER + 2] = { RW, 0x157ff }, /* thermal, performance counters */
    [R_LVT_TIMER + 3 ... R_LVT_TIMER + 4] = { RW, 0x1f7ff }, /* LINT0, LINT1 */
    [R_LVT_ERROR] = { RW, 0x150ff },
    [R_INITIAL] = { RW, 0xffffffff },
    [R_CURRENT] = { RO | COMPUTED },
    [R_DIVIDE] = { RW, 0xb },
    [R_SELF_IPI] = { XW, 0xff },
};

/* ---- interrupts in, and their priorities (11.8.3, 11.8.4) ---- */

/* Counts an interrupt that was dropped. */
static void count_drop(void) { counter_inc(&interrupts_dropped, this_cpu()->id); }

/* Has the guest set the enable bit of the register SVR? */
static bool enabled(const struct vlapic *l) { return l->reg[R_SVR] & SVR_ENABLE; }

/* Makes a vector pending, and tells the vCPU if it was not pending before. */
static void set_irr(struct vlapic *l, u8 vector) {
    u32 bit = 1u << (vector & 31);

    if (!(__atomic_fetch_or(&l->reg[R_IRR + (vector >> 5)], bit, __ATOMIC_SEQ_CST) & bit))
        l->ops->notify(l, DM_FIXED, vector);
}

/* Notes errors that the guest has made in using its LAPIC (11.5.3); it reads them in the register
 * ESR. The first error since ESR was written raises the interrupt of LVT Error. If the vector of
 * that interrupt is illegal, it is one more error, and nothing is raised. */
static void set_error(struct vlapic *l, u32 bits) {
    u32 lvt = l->reg[R_LVT_ERROR];

    if (__atomic_fetch_or(&l->errors, bits, __ATOMIC_RELAXED)) return;
    if (lvt & LVT_MASKED) return;
    if ((u8)lvt < FIRST_VECTOR)
        __atomic_fetch_or(&l->errors, ESR_RECV_ILLEGAL, __ATOMIC_RELAXED);
    else
        set_irr(l, (u8)lvt);
}

/* Returns whether the guest has switched its LAPIC on. Both switches have to be on: that of the MSR
 * IA32_APIC_BASE, and that of the register SVR (11.4.7.2). */
bool vlapic_on(const struct vlapic *l) { return l->base & APIC_BASE_EN && enabled(l); }

/* An interrupt comes in. It waits in IRR, or is dropped if the LAPIC is off. A vector that is too
 * low is an error that the guest can read. */
void vlapic_raise(struct vlapic *l, u8 vector) {
    if (!vlapic_on(l))
        count_drop();
    else if (vector < FIRST_VECTOR)
        set_error(l, ESR_RECV_ILLEGAL);
    else
        set_irr(l, vector);
}

/* Returns the highest vector that is set in IRR or ISR, whose first register is `n`; 0 if there is
 * none. To search four words of 64 bits is quicker than eight of 32. */
static u32 highest(const struct vlapic *l, enum vlapic_reg n) {
#pragma GCC unroll 4
    for (u32 i = 4; i-- > 0;) {
        u64 bits = __atomic_load_n(&l->pair[n / 2 + i], __ATOMIC_RELAXED);

        if (bits) return i * 64 + 63 - (u32)__builtin_clzll(bits);
    }
    return 0;
}

/* The class of a vector or of a priority: its upper four bits. */
#define CLASS 0xf0u

/* Returns PPR (11.8.3.1): TPR, or the class of the vector in service if that is higher. */
static u32 priority(const struct vlapic *l) {
    u32 tpr = l->reg[R_TPR], service = l->isr_top & CLASS;

    return (tpr & CLASS) >= service ? tpr : service;
}

/* Returns the vector that can be delivered now; 0 if none waits, and -1 if one waits, but the guest
 * works on something of the same or a higher priority. */
int vlapic_pending(const struct vlapic *l) {
    u32 vector = highest(l, R_IRR);

    if (vector == 0) return 0;
    if ((vector & CLASS) <= (priority(l) & CLASS)) return -1;
    return (int)vector;
}

/* ---- timer (11.5.4) ---- */

/* Returns the mode of the timer: once, periodic, or at a deadline. */
static u32 timer_mode(const struct vlapic *l) { return l->reg[R_LVT_TIMER] & TIMER_MODE; }

/* Returns by how many bits the timer's clock is divided: the register codes 2, 4, ... 128, and
 * 1. */
static u32 timer_shift(const struct vlapic *l) {
    u32 divide = l->reg[R_DIVIDE];

    return (((divide & 3) | (divide >> 1 & 4)) + 1) & 7; /* 0 is 2, 6 is 128, 7 is 1 */
}

/* Returns the ns from the start of the timer to its end, which is also that of its ticks. */
static u64 timer_period(const struct vlapic *l) {
    u64 ns = (u64)l->reg[R_INITIAL] << timer_shift(l);

    return timer_mode(l) == TIMER_PERIODIC ? MAX(ns, VLAPIC_MIN_PERIOD) : ns;
}

/* Returns how many ns are left until the count is 0. A periodic timer goes on counting after its
 * end, also while its ticks are held back (timer_held()). */
static u64 timer_left(const struct vlapic *l, u64 now) {
    u64 period = timer_period(l);

    if (l->next > now) return l->next - now;
    if (timer_mode(l) != TIMER_PERIODIC) return 0;
    return period - (now - l->next) % period;
}

/* Returns what the guest reads as the timer's count. */
static u32 current_count(const struct vlapic *l, u64 now) {
    u32 shift = timer_shift(l);

    if (l->next == NEVER || timer_mode(l) == TIMER_DEADLINE) return 0;
    return (u32)MIN((timer_left(l, now) + BIT(shift) - 1) >> shift, l->reg[R_INITIAL]);
}

/* Is a tick of the timer held back? A periodic timer makes no new tick while the guest has not
 * taken the last one: its vector is still pending in the IRR. */
static bool timer_held(const struct vlapic *l) {
    u8 vector = (u8)l->reg[R_LVT_TIMER];

    return timer_mode(l) == TIMER_PERIODIC && l->reg[R_IRR + (vector >> 5)] >> (vector & 31) & 1;
}

/* Asks to be told when the timer ends, unless nothing would happen then. */
static void timer_arm(struct vlapic *l) {
    u64 when = l->next;

    if (timer_held(l) || l->reg[R_LVT_TIMER] & LVT_MASKED) when = NEVER;
    l->ops->arm(l, when);
}

/* Stops the timer, which then counts nothing. */
static void timer_stop(struct vlapic *l) {
    l->next = NEVER;
    l->deadline = 0;
}

/* Fires the timer if its time has come. A periodic timer loses the ticks that it has missed; later
 * ticks come at the same times as if it had missed none. */
static void timer_take(struct vlapic *l, u64 now) {
    u32 lvt = l->reg[R_LVT_TIMER];
    u64 period = timer_period(l);

    if (l->next > now || timer_held(l)) return;
    if (timer_mode(l) == TIMER_PERIODIC)
        l->next += ((now - l->next) / period + 1) * period;
    else
        timer_stop(l);
    if (!(lvt & LVT_MASKED)) vlapic_raise(l, (u8)lvt);
}

/* The time for which the timer has asked has come: fires it, and asks for the next time. */
void vlapic_tick(struct vlapic *l, u64 now) {
    timer_take(l, now);
    timer_arm(l);
}

/* Starts the timer in the mode that is set now. `count` is the count that is left; `whole` says
 * that this is the initial count. */
static void timer_start(struct vlapic *l, u64 count, bool whole, u64 now) {
    bool deadline = timer_mode(l) == TIMER_DEADLINE;

    if (deadline && l->deadline)
        l->next = l->ops->tsc_to_ns(l, l->deadline);
    else if (deadline || !count)
        timer_stop(l);
    else if (whole)
        l->next = now + timer_period(l);
    else
        l->next = now + (count << timer_shift(l));
}

/* Writes one of the timer's registers: LVT, initial count, divider or deadline. A tick that is due
 * is fired before. Then the count goes on from where it was, in the mode and with the divider that
 * are set now. */
static void timer_write(struct vlapic *l, enum vlapic_reg n, u64 value, u64 now) {
    bool was_deadline = timer_mode(l) == TIMER_DEADLINE;
    u64 count = value;

    if (n == R_INITIAL && was_deadline) return; /* 11.5.4.1 */
    if (n == R_DEADLINE && !was_deadline) return;
    timer_take(l, now);
    if (n != R_INITIAL) count = current_count(l, now);
    if (n == R_DEADLINE)
        l->deadline = value;
    else
        l->reg[n] = (u32)value;
    if ((timer_mode(l) == TIMER_DEADLINE) != was_deadline)
        timer_stop(l);
    else
        timer_start(l, count, n == R_INITIAL, now);
    timer_take(l, now); /* a deadline may be over already */
    timer_arm(l);
}

/* ---- delivery ---- */

/* Accepts an interrupt: moves its vector from "pending" (IRR) to "in service" (ISR). If the
 * vector's handler sends no end of interrupt (EOI), the vector must not be in service: nothing
 * would end that. */
void vlapic_accept(struct vlapic *l, u8 vector) {
    u32 word = vector >> 5, bit = 1u << (vector & 31);

    __atomic_fetch_and(&l->reg[R_IRR + word], ~bit, __ATOMIC_SEQ_CST);
    if (!vlapic_no_eoi(l, vector)) {
        l->reg[R_ISR + word] |= bit;
        l->isr_top = vector; /* it was above what was in service */
    }
    if (vector == (u8)l->reg[R_LVT_TIMER]) timer_arm(l);
}

/* Says whether the handler of this vector makes no EOI. Event channels use that: the guest's
 * handler then saves an exit. */
void vlapic_set_no_eoi(struct vlapic *l, u8 vector, bool none) {
    u32 bit = 1u << (vector & 31);

    if (none)
        __atomic_fetch_or(&l->no_eoi[vector >> 5], bit, __ATOMIC_RELAXED);
    else
        __atomic_fetch_and(&l->no_eoi[vector >> 5], ~bit, __ATOMIC_RELAXED);
}

/* Does an EOI: the handler of the highest vector in service is done. A level-triggered interrupt
 * came from the IOAPIC, which waits for that and is told. */
static void end_of_interrupt(struct vlapic *l) {
    u32 vector = l->isr_top, word = vector >> 5, bit = 1u << (vector & 31);

    l->reg[R_ISR + word] &= ~bit; /* bit 0 of the first word is never set */
    l->isr_top = highest(l, R_ISR);
    if (__atomic_load_n(&l->reg[R_TMR + word], __ATOMIC_RELAXED) & bit) l->ops->eoi(l, (u8)vector);
}

/* ---- interrupts out (11.6) ---- */

enum shorthand { SH_NONE, SH_SELF, SH_ALL, SH_OTHERS };

#define ICR_KIND_SHIFT      8
#define ICR_SHORTHAND_SHIFT 18
#define ICR_LOGICAL         0x800u
#define ICR_ASSERT          0x4000u
#define ICR_LEVEL           0x8000u
#define BROADCAST           0xffffffffu
#define XAPIC_BROADCAST     0xffu
#define DFR_FLAT            0xfu
#define DFR_CLUSTER         0u

/* Does the destination `dest` name this LAPIC? That depends on the mode of the LAPIC that receives
 * (11.6.2, 11.12.10). */
static bool is_dest(const struct vlapic *l, u32 dest, bool logical) {
    u32 ldr = l->reg[R_LDR], model = l->reg[R_DFR] >> 28;

    if (!(l->base & APIC_BASE_EN)) return false;
    if (dest == BROADCAST) return true;
    if (!logical) return dest == l->id;
    if (vlapic_x2(l)) return dest >> 16 == ldr >> 16 && (dest & ldr & 0xffff);
    ldr >>= 24;
    if (dest > XAPIC_BROADCAST) return false;
    if (model == DFR_FLAT) return dest & ldr;
    return model == DFR_CLUSTER && dest >> 4 == ldr >> 4 && (dest & ldr & 0xf);
}

/* Delivers an IPI of `l` to one of the LAPICs that it names. */
static void ipi_to(struct vlapic *l, struct vlapic *to, enum delivery_mode kind, u8 vector) {
    if (kind <= DM_LOWEST)
        vlapic_raise(to, vector);
    else if (kind == DM_NMI || to != l)
        l->ops->notify(to, kind, vector);
    else
        count_drop(); /* it would reset itself in the middle of its own instruction */
}

/* Is there an IPI of this kind with this shorthand (table 11-3)? */
static bool ipi_exists(enum delivery_mode kind, enum shorthand shorthand) {
    if (kind == DM_SMI || kind == DM_RESERVED || kind == DM_EXTINT) return false;
    return kind == DM_FIXED || (shorthand != SH_SELF && shorthand != SH_ALL);
}

/* Delivers the interrupt that a message means: from the IOAPIC, or from a device (11.11). `icr` and
 * `dest` are as in ICR, `level` says that it is level-triggered. `l` may be any LAPIC of the VM.
 *
 * For each vector that IRR accepts, TMR says whether the EOI has to be sent to the IOAPIC as well
 * (11.8.4). "Lowest priority" means the first LAPIC that is enabled, as in send_ipi(). */
void vlapic_message(struct vlapic *l, u32 icr, u32 dest, bool level) {
    enum delivery_mode kind = icr >> ICR_KIND_SHIFT & 7;
    bool logical = icr & ICR_LOGICAL;
    u32 bit = 1u << (icr & 31), word = (u8)icr >> 5;
    struct vlapic *to;

    /* The guest has chosen the kind. No vCPU may be told of one that IPIs do not have either. */
    if (kind == DM_SIPI || !ipi_exists(kind, SH_NONE)) return count_drop();
    if (dest == XAPIC_BROADCAST) dest = BROADCAST;
    for (u32 id = 0; (to = l->ops->peer(l, id)); id++) {
        if (!is_dest(to, dest, logical)) continue;
        if (kind == DM_LOWEST && !enabled(to)) continue;
        if (level)
            __atomic_fetch_or(&to->reg[R_TMR + word], bit, __ATOMIC_SEQ_CST);
        else
            __atomic_fetch_and(&to->reg[R_TMR + word], ~bit, __ATOMIC_SEQ_CST);
        ipi_to(l, to, kind, (u8)icr);
        if (kind == DM_LOWEST) return;
    }
}

/* Sends an IPI to all LAPICs that the shorthand or the destination names. If the delivery mode is
 * "lowest priority", only one LAPIC takes it. Which one depends on the CPU's model (11.6.2.4); here
 * it is the first one that is enabled. */
static void send_ipi(struct vlapic *l, u32 icr, u32 dest) {
    enum delivery_mode kind = icr >> ICR_KIND_SHIFT & 7;
    enum shorthand shorthand = icr >> ICR_SHORTHAND_SHIFT & 3;
    bool logical = shorthand == SH_NONE && icr & ICR_LOGICAL, one, heard = false;
    struct vlapic *to;
    u32 id = 0;

    if (kind <= DM_LOWEST && (u8)icr < FIRST_VECTOR) return set_error(l, ESR_SEND_ILLEGAL);
    /* INIT de-assert does nothing since the Pentium 4. */
    if (kind == DM_INIT && (icr & (ICR_LEVEL | ICR_ASSERT)) == ICR_LEVEL) return;
    if (!ipi_exists(kind, shorthand)) return count_drop();
    if (shorthand == SH_SELF) return vlapic_raise(l, (u8)icr);
    if (shorthand != SH_NONE) dest = BROADCAST;
    one = !logical && dest != BROADCAST;
    if (one) id = dest;
    do {
        to = l->ops->peer(l, id++);
        if (!to || !is_dest(to, dest, logical)) continue;
        if (shorthand == SH_OTHERS && to == l) continue;
        if (kind == DM_LOWEST && !enabled(to)) continue;
        heard = true;
        ipi_to(l, to, kind, (u8)icr);
        if (kind == DM_LOWEST) one = true;
    } while (to && !one);
    if (!heard) count_drop();
}

/* ---- registers ---- */

/* May register n be accessed in this way (PR, PW, XR or XW)? */
static bool may(u32 n, u8 how) { return n < VLAPIC_REGS && regs[n].how & how; }

/* Returns a register that is not simply stored. */
static u64 computed(const struct vlapic *l, u32 n, u64 now) {
    switch (n) {
    /* as an MSR it is one register */
    case R_ICR: return (u64)l->reg[R_ICR_HI] << 32 | l->reg[R_ICR];
    case R_PPR: return priority(l);
    default: return current_count(l, now);
    }
}

/* Reads a register, which the caller has checked to be readable. */
static inline u64 reg_read(const struct vlapic *l, u32 n, u64 now) {
    if (__builtin_expect(regs[n].how & COMPUTED, 0)) return computed(l, n, now);
    return __atomic_load_n(&l->reg[n], __ATOMIC_RELAXED);
}

/* Returns the destination of an IPI that the guest sends by writing ICR. */
static u32 icr_dest(const struct vlapic *l) {
    u32 high = l->reg[R_ICR_HI], dest = high >> 24;

    if (vlapic_x2(l)) return high;
    return dest == XAPIC_BROADCAST ? BROADCAST : dest;
}

/* Writes a register. The caller has checked that it may be written, and that `value` has only bits
 * that may be set. */
static void reg_write(struct vlapic *l, u32 n, u32 value, u64 now) {
    switch (n) {
    case R_EOI: return end_of_interrupt(l);
    case R_DFR: value |= 0x0fffffff; break;
    case R_ESR: value = __atomic_exchange_n(&l->errors, 0, __ATOMIC_RELAXED); break;
    case R_LVT_TIMER ... R_LVT_ERROR:
        value &= ~LVT_READ_ONLY;
        if (!enabled(l)) value |= LVT_MASKED;
        if (n != R_LVT_TIMER) break;
        if ((value & TIMER_MODE) == TIMER_MODE) value |= LVT_MASKED; /* reserved */
        /* fall through */
    case R_INITIAL:
    case R_DIVIDE: return timer_write(l, n, value, now);
    case R_SELF_IPI: return send_ipi(l, SH_SELF << ICR_SHORTHAND_SHIFT | value, 0);
    }
    l->reg[n] = value;
    if (n == R_ICR) {
        send_ipi(l, value, icr_dest(l));
    } else if (n == R_SVR && !enabled(l)) { /* 11.4.7.2: masks the LVT */
        for (u32 i = R_LVT_TIMER; i <= R_LVT_ERROR; i++) reg_write(l, i, l->reg[i], now);
    }
}

/* In x2APIC mode, sets the LAPIC's id and logical destination, which follow from its number
 * (11.12.10.2). */
static void name_x2(struct vlapic *l) {
    if (!vlapic_x2(l)) return;
    l->reg[R_ID] = l->id;
    l->reg[R_LDR] = (l->id >> 4) << 16 | 1u << (l->id & 15);
}

/* Does the page answer at `offset`? */
static bool decodes(const struct vlapic *l, u32 offset) {
    return (l->base & (APIC_BASE_EN | APIC_BASE_EXTD)) == APIC_BASE_EN && (offset & 15) == 0;
}

/* An access to a register that does not exist is an error that the guest can read in ESR. */
static __attribute__((noinline)) u32 no_register(struct vlapic *l) {
    set_error(l, ESR_ILLEGAL_REG);
    return 0;
}

/* Carries out a guest's read of a register on the LAPIC's page. */
u32 vlapic_read(struct vlapic *l, u32 offset, u64 now) {
    if (!decodes(l, offset)) return ~0u;
    if (!may(offset >> 4, PR)) return no_register(l);
    return (u32)reg_read(l, offset >> 4, now);
}

/* Carries out a guest's write to a register on the LAPIC's page. Bits that a write by the page may
 * not set are dropped. */
void vlapic_write(struct vlapic *l, u32 offset, u32 value, u64 now) {
    u32 n = offset >> 4;

    if (!decodes(l, offset)) return;
    if (may(n, PW))
        reg_write(l, n, value & regs[n].bits, now);
    else if (!may(n, PR)) /* a write to a register that can only be read is no error */
        no_register(l);
}

/* ---- MSRs (11.12.1) ---- */

/* The modes of a LAPIC. The number is formed by bits 11 (EN) and 10 (EXTD) of IA32_APIC_BASE. */
enum { MODE_OFF = 0, MODE_INVALID = 1, MODE_XAPIC = 2, MODE_X2APIC = 3 };
#define BASE_MODE_SHIFT 10

/* Writes IA32_APIC_BASE. Only the two bits of the mode may change, and only these changes are
 * allowed (11.12.5): off to xAPIC, xAPIC to x2APIC, xAPIC to off, x2APIC to off. */
static int write_base(struct vlapic *l, u64 value) {
    static const u8 ways[] = {
        [MODE_OFF] = BIT(MODE_OFF) | BIT(MODE_XAPIC),
        [MODE_INVALID] = 0,
        [MODE_XAPIC] = BIT(MODE_OFF) | BIT(MODE_XAPIC) | BIT(MODE_X2APIC),
        [MODE_X2APIC] = BIT(MODE_OFF) | BIT(MODE_X2APIC),
    };
    u32 from = l->base >> BASE_MODE_SHIFT & 3, to = value >> BASE_MODE_SHIFT & 3;

    if ((value ^ l->base) & ~(APIC_BASE_EN | APIC_BASE_EXTD)) return -EINVAL;
    if (!(ways[from] >> to & 1)) return -EINVAL;
    l->base = value;
    if (to == MODE_OFF)
        vlapic_reset(l);
    else
        name_x2(l);
    return 0;
}

/* Reads an MSR of the LAPIC. Most are the registers of the page under other numbers. Returns
 * -EINVAL if the guest has to get #GP. */
int vlapic_rdmsr(struct vlapic *l, u32 msr, u64 *value, u64 now) {
    u32 n = msr - MSR_X2APIC;

    if (vlapic_x2(l) && may(n, XR))
        *value = reg_read(l, n, now);
    else if (msr == MSR_APIC_BASE)
        *value = l->base;
    else if (msr == MSR_TSC_DEADLINE)
        *value = l->deadline;
    else
        return -EINVAL;
    return 0;
}

/* Writes an MSR of the LAPIC. Returns 0, or -EINVAL if the guest has to get #GP: as MSRs, registers
 * refuse bits that do not exist. */
int vlapic_wrmsr(struct vlapic *l, u32 msr, u64 value, u64 now) {
    u32 n = msr - MSR_X2APIC;
    u64 bits = value;

    if (msr == MSR_APIC_BASE) return write_base(l, value);
    if (msr == MSR_TSC_DEADLINE) {
        timer_write(l, R_DEADLINE, value, now);
        return 0;
    }
    if (!vlapic_x2(l) || !may(n, XW)) return -EINVAL;
    if (n == R_ICR) bits = (u32)value; /* the destination is above them */
    if (bits & ~(u64)regs[n].bits) return -EINVAL;
    if (n == R_ICR) l->reg[R_ICR_HI] = (u32)(value >> 32);
    reg_write(l, n, (u32)value, now);
    return 0;
}

/* ---- in the CPU's hands ---- */

#define PAGE_STEP 4 /* in the page a register has 16 bytes */

/* Returns the highest vector of word `i` of IRR or ISR, which holds `bits`; these are not 0. */
static u32 highest_of_word(u32 i, u32 bits) { return i * 32 + 31 - (u32)__builtin_clz(bits); }

/* A vector in IRR that is not to be put in service when it is delivered. */
bool vlapic_wants_injection(const struct vlapic *l) {
    for (u32 i = 0; i < ARRAY_SIZE(l->no_eoi); i++) {
        u32 irr = __atomic_load_n(&l->reg[R_IRR + i], __ATOMIC_RELAXED);

        if (irr & __atomic_load_n(&l->no_eoi[i], __ATOMIC_RELAXED)) return true;
    }
    return false;
}

/* The timer's last tick is in the hands of the CPU, which does not tell when the guest takes it. So
 * a periodic timer goes on with its next tick after `now`. Ticks that it has missed are lost;
 * otherwise it would fire at once, again and again. */
static void timer_goes_on(struct vlapic *l, u64 now) {
    if (timer_mode(l) != TIMER_PERIODIC || l->next == NEVER) return;
    l->next = now + timer_left(l, now);
    timer_arm(l);
}

/* Copies the registers to the page, and moves IRR there if the CPU is to deliver. A vector whose
 * handler makes no EOI stays, although it may have come after the CPU was chosen: it has notified
 * the vCPU, which therefore looks again. TMR is read after IRR, because vlapic_message() sets it
 * before. */
void vlapic_to_page(struct vlapic *l, u32 *page, bool gives, u64 now, struct vlapic_in_page *in) {
    u8 tick = (u8)l->reg[R_LVT_TIMER];
    u32 irr[8] = { 0 };

    in->next_irr = 0;
    for (u32 i = 0; gives && i < ARRAY_SIZE(irr); i++) {
        irr[i] = __atomic_load_n(&l->reg[R_IRR + i], __ATOMIC_RELAXED);
        irr[i] &= ~__atomic_load_n(&l->no_eoi[i], __ATOMIC_RELAXED);
        if (!irr[i]) continue;
        __atomic_fetch_and(&l->reg[R_IRR + i], ~irr[i], __ATOMIC_SEQ_CST);
        in->next_irr = (u8)highest_of_word(i, irr[i]);
    }
    for (u32 n = 0; n < VLAPIC_REGS; n++)
        page[n * PAGE_STEP] = __atomic_load_n(&l->reg[n], __ATOMIC_RELAXED);
    for (u32 i = 0; i < ARRAY_SIZE(irr); i++) page[(R_IRR + i) * PAGE_STEP] = irr[i];
    in->next_isr = (u8)l->isr_top;
    for (u32 i = 0; i < ARRAY_SIZE(in->eoi); i++)
        in->eoi[i] = __atomic_load_n(&l->pair[R_TMR / 2 + i], __ATOMIC_RELAXED);
    if (irr[tick >> 5] >> (tick & 31) & 1) timer_goes_on(l, now);
}

/* Fetches from the page what the CPU may have changed there. The guest may have written ICR without
 * an exit, for an IPI to itself. */
void vlapic_from_page(struct vlapic *l, u32 *page) {
    u32 top = 0;

    l->reg[R_TPR] = page[R_TPR * PAGE_STEP] & regs[R_TPR].bits;
    l->reg[R_ICR] = page[R_ICR * PAGE_STEP] & regs[R_ICR].bits;
    l->reg[R_ICR_HI] = page[R_ICR_HI * PAGE_STEP];
    for (u32 i = 0; i < 8; i++) {
        u32 irr = page[(R_IRR + i) * PAGE_STEP], isr = page[(R_ISR + i) * PAGE_STEP];

        l->reg[R_ISR + i] = isr;
        if (isr) top = highest_of_word(i, isr);
        if (irr) __atomic_fetch_or(&l->reg[R_IRR + i], irr, __ATOMIC_SEQ_CST);
    }
    l->isr_top = top;
}

void vlapic_eoi_done(struct vlapic *l, u8 vector) { l->ops->eoi(l, vector); }

/* ---- life ---- */

/* Makes the LAPIC of vCPU `id`, in the state after a reset. */
void vlapic_init(struct vlapic *l, u32 id, const struct vlapic_ops *ops) {
    *l = (struct vlapic){ .id = id, .ops = ops };
    l->base = TAKT_LAPIC_GPA | APIC_BASE_EN;
    if (id == 0) l->base |= APIC_BASE_BSP;
    vlapic_reset(l);
}

/* Gives all registers of the LAPIC the values that they have after a reset and after INIT:
 * 11.4.7.1, 11.4.7.3. */
void vlapic_reset(struct vlapic *l) {
    memset(l->reg, 0, sizeof(l->reg));
    l->reg[R_ID] = l->id << 24;
    l->reg[R_VERSION] = 0x14 | (R_LVT_ERROR - R_LVT_TIMER) << 16;
    l->reg[R_DFR] = ~0u;
    l->reg[R_SVR] = 0xff;
    for (u32 n = R_LVT_TIMER; n <= R_LVT_ERROR; n++) l->reg[n] = LVT_MASKED;
    name_x2(l);
    l->errors = 0;
    l->isr_top = 0;
    timer_stop(l);
    timer_arm(l);
}
