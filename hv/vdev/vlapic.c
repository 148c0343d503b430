/* The virtual local APIC. Section numbers are of SDM 3A.
 *
 * Storms: an IPI reaches vCPUs of the sender's own VM only, is sent in the sender's own time, and tells a
 * target only if its IRR bit was clear; a periodic timer does not fire again before its last tick was taken,
 * nor more often than every 20 us. So a guest can waste no more than its own share.
 */
#include <takt/abi.h>
#include <takt/errno.h>
#include "lib/string.h"
#include "platform/timer.h"
#include "vdev/vlapic.h"

#define NEVER (~0ull)

/* Register numbers: the offset in the page, or the MSR from 0x800, by 16 (11.4.1, 11.12.1.2). */
enum {
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
    R_ICR_LO = 0x30,
    R_ICR_HI = 0x31,
    R_LVT = 0x32,
    R_LVT_LAST = R_LVT + LVT_NR - 1,
    R_INITIAL = 0x38,
    R_CURRENT = 0x39,
    R_DIVIDE = 0x3e,
    R_SELF_IPI = 0x3f,
};

#define VERSION          (0x14u | (LVT_NR - 1) << 16)
#define SVR_ENABLE       0x100u
#define SVR_WRITABLE     0x3ffu
#define LVT_MASKED       0x10000u
#define LVT_READ_ONLY    0x5000u /* delivery status, remote IRR */
#define LVT_TIMER_MODE   0x60000u
#define TIMER_ONE_SHOT   0x00000u
#define TIMER_PERIODIC   0x20000u
#define TIMER_DEADLINE   0x40000u
#define TIMER_RESERVED   0x60000u
#define ESR_SEND_ILLEGAL BIT(5) /* 11.5.3 */
#define ESR_RECV_ILLEGAL BIT(6)
#define ESR_ILLEGAL_REG  BIT(7)

static const u32 lvt_writable[LVT_NR] = { 0x700ff, 0x107ff, 0x107ff, 0x1a7ff, 0x1a7ff, 0x100ff };

/* ---- interrupts in, and their priorities (11.8.3, 11.8.4) ---- */

static void count_drop(struct vlapic *l) { __atomic_fetch_add(&l->dropped, 1, __ATOMIC_RELAXED); }

/* True if it was not set before. */
static bool set_irr(struct vlapic *l, u8 vector) {
    u32 bit = 1u << (vector & 31), old;

    old = __atomic_fetch_or(&l->irr[vector >> 5], bit, __ATOMIC_SEQ_CST);
    __atomic_fetch_or(&l->irr_any, 1u << (vector >> 5), __ATOMIC_SEQ_CST);
    return !(old & bit);
}

/* 11.5.3: an error raises LVT Error once, until ESR is written. That vector's being illegal is one more
 * error, and raises nothing. */
static void set_error(struct vlapic *l, u32 bits) {
    u32 lvt = l->lvt[LVT_ERROR];
    u8 vector = (u8)lvt;

    if (__atomic_fetch_or(&l->esr_pending, bits, __ATOMIC_RELAXED) || (lvt & LVT_MASKED)) return;
    if (vector < 16)
        __atomic_fetch_or(&l->esr_pending, ESR_RECV_ILLEGAL, __ATOMIC_RELAXED);
    else if (set_irr(l, vector))
        l->ops->notify(l);
}

void vlapic_raise_as(struct vlapic *l, u8 vector, bool level) {
    u32 bit = 1u << (vector & 31);

    if (!(l->base & APIC_BASE_EN) || !(l->svr & SVR_ENABLE)) { /* 11.4.7.2 */
        count_drop(l);
        return;
    }
    if (vector < 16) {
        set_error(l, ESR_RECV_ILLEGAL);
        return;
    }
    if (level)
        __atomic_fetch_or(&l->tmr[vector >> 5], bit, __ATOMIC_RELAXED);
    else if (l->tmr[vector >> 5] & bit)
        __atomic_fetch_and(&l->tmr[vector >> 5], ~bit, __ATOMIC_RELAXED);
    if (set_irr(l, vector)) l->ops->notify(l);
}

static unsigned highest(u32 word) { return 31 - (unsigned)__builtin_clz(word); }

static u32 priority(const struct vlapic *l) {
    return (l->tpr & 0xf0) >= (l->isr_top & 0xf0) ? l->tpr : l->isr_top & 0xf0;
}

int vlapic_pending(const struct vlapic *l) {
    u32 any = __atomic_load_n(&l->irr_any, __ATOMIC_SEQ_CST);

    while (any) {
        unsigned w = highest(any);
        u32 word = __atomic_load_n(&l->irr[w], __ATOMIC_RELAXED);

        if (word) {
            u32 vector = w * 32 + highest(word);

            return vector >> 4 > priority(l) >> 4 ? (int)vector : -1;
        }
        any &= ~(1u << w);
    }
    return -1;
}

static void timer_program(struct vlapic *l);

void vlapic_accept(struct vlapic *l, u8 vector) {
    unsigned w = vector >> 5;
    u32 bit = 1u << (vector & 31);

    if (__atomic_and_fetch(&l->irr[w], ~bit, __ATOMIC_SEQ_CST) == 0) {
        __atomic_fetch_and(&l->irr_any, ~(1u << w), __ATOMIC_SEQ_CST);
        /* Somebody may have set a bit in between, and irr_any before we cleared it. */
        if (__atomic_load_n(&l->irr[w], __ATOMIC_SEQ_CST))
            __atomic_fetch_or(&l->irr_any, 1u << w, __ATOMIC_SEQ_CST);
    }
    l->isr[w] |= bit;
    l->isr_any |= 1u << w;
    l->isr_top = vector; /* it was above what was in service */
    if (__builtin_expect(l->timer_held, 0) && vector == (u8)l->lvt[LVT_TIMER]) {
        spin_lock(&l->lock);
        timer_program(l);
        spin_unlock(&l->lock);
    }
}

void vlapic_eoi(struct vlapic *l) {
    u8 vector = (u8)l->isr_top;
    u32 bit = 1u << (vector & 31);
    unsigned w = vector >> 5;

    if (vector == 0) return;
    l->isr[w] &= ~bit;
    if (l->isr[w] == 0) l->isr_any &= ~(1u << w);
    w = l->isr_any ? highest(l->isr_any) : 0;
    l->isr_top = l->isr_any ? w * 32 + highest(l->isr[w]) : 0;
    if ((l->tmr[vector >> 5] & bit) && l->ops->eoi) l->ops->eoi(l, vector);
}

/* ---- timer (11.5.4) ---- */

static u64 total_ns(const struct vlapic *l) { return (u64)l->initial << l->shift; }

static u32 timer_mode(const struct vlapic *l) { return l->lvt[LVT_TIMER] & LVT_TIMER_MODE; }

static u32 current_count(const struct vlapic *l, u64 now) {
    u64 ticks;

    if (!l->timer_on) return 0;
    ticks = (i64)(now - l->start) > 0 ? (now - l->start) >> l->shift : 0; /* start may be before 0 */
    if (timer_mode(l) == TIMER_PERIODIC) return l->initial - (u32)(ticks % l->initial);
    return ticks < l->initial ? l->initial - (u32)ticks : 0;
}

/* When the timer next raises its vector, as things stand. Under the lock. */
static u64 timer_due(struct vlapic *l) {
    if (l->lvt[LVT_TIMER] & LVT_MASKED || timer_mode(l) == TIMER_RESERVED) return NEVER;
    if (timer_mode(l) == TIMER_DEADLINE) return l->deadline ? l->ops->tsc_to_ns(l, l->deadline) : NEVER;
    return l->timer_on && !l->timer_held ? l->next_tick : NEVER;
}

/* Under the lock: if the timer is due, moves it on and returns true: the caller raises its vector once the
 * lock is free. */
static bool timer_take(struct vlapic *l, u64 now) {
    u8 vector = (u8)l->lvt[LVT_TIMER];
    u64 period;

    if (timer_due(l) > now) return false;
    l->deadline = 0;
    if (timer_mode(l) != TIMER_PERIODIC) {
        l->timer_on = false;
        return true;
    }
    if (l->irr[vector >> 5] & 1u << (vector & 31)) {
        l->timer_held = true;
        return false;
    }
    period = MAX(total_ns(l), VLAPIC_MIN_PERIOD);
    l->next_tick += period;
    if (l->next_tick <= now) /* what was missed is missed; the phase stays */
        l->next_tick = now + period - (now - l->next_tick) % period;
    return true;
}

/* Puts the hardware timer where the state says. Under the lock: the pCPU where it fires and the vCPU's own,
 * arming it at the same time, would put it into queues twice. */
static void timer_program(struct vlapic *l) {
    u8 vector = (u8)l->lvt[LVT_TIMER];
    u64 due;

    if (l->timer_held) {
        __atomic_thread_fence(__ATOMIC_SEQ_CST); /* vlapic_accept() sees it held, or we see the tick taken */
        l->timer_held = __atomic_load_n(&l->irr[vector >> 5], __ATOMIC_RELAXED) >> (vector & 31) & 1;
    }
    due = timer_due(l);
    if (due != NEVER)
        timer_set(l->ops->home_cpu(l), &l->timer, due);
    else
        timer_cancel(&l->timer);
}

static void timer_fired(struct timer *t, u64 now) {
    struct vlapic *l = container_of(t, struct vlapic, timer);
    u8 vector;
    bool fire;

    spin_lock(&l->lock);
    vector = (u8)l->lvt[LVT_TIMER];
    fire = timer_take(l, now); /* not if it was set anew just now */
    timer_program(l);
    spin_unlock(&l->lock);
    if (fire) vlapic_raise(l, vector);
}

/* Every change of the timer goes through here: what is due comes first, then `change`, then the hardware. */
static void timer_change(struct vlapic *l, u64 now, void (*change)(struct vlapic *l, u64 now, u64 value),
                         u64 value) {
    u8 vector;
    bool fire;

    spin_lock(&l->lock);
    vector = (u8)l->lvt[LVT_TIMER];
    fire = timer_take(l, now);
    l->timer_held = false;
    change(l, now, value);
    timer_program(l);
    spin_unlock(&l->lock);
    if (fire) vlapic_raise(l, vector);
}

/* Go on from count `count` at `now`, in the mode and with the divider that are set. */
static void timer_rebase(struct vlapic *l, u64 now, u32 count) {
    l->timer_on = count != 0;
    l->start = now - ((u64)(l->initial - count) << l->shift);
    l->next_tick = l->start + total_ns(l);
}

static void change_initial(struct vlapic *l, u64 now, u64 value) {
    if (timer_mode(l) == TIMER_DEADLINE) return;
    l->initial = (u32)value;
    timer_rebase(l, now, l->initial);
    if (timer_mode(l) == TIMER_PERIODIC) l->next_tick = l->start + MAX(total_ns(l), VLAPIC_MIN_PERIOD);
}

static void change_divide(struct vlapic *l, u64 now, u64 value) {
    u32 count = current_count(l, now);

    l->divide = value & 0xb;
    l->shift = (((value & 3) | (value >> 1 & 4)) + 1) & 7; /* 0 is 2, 6 is 128, 7 is 1 */
    timer_rebase(l, now, count);
}

static void change_lvt(struct vlapic *l, u64 now, u64 value) {
    u32 count = current_count(l, now), was = timer_mode(l);

    l->lvt[LVT_TIMER] = (u32)value;
    if (timer_mode(l) != was && (was == TIMER_DEADLINE || timer_mode(l) == TIMER_DEADLINE)) {
        l->deadline = 0; /* 11.5.4.1 */
        count = 0;
    }
    timer_rebase(l, now, count);
}

static void change_deadline(struct vlapic *l, u64 now, u64 value) {
    if (timer_mode(l) == TIMER_DEADLINE) l->deadline = value;
}

static void change_stop(struct vlapic *l, u64 now, u64 value) {
    l->timer_on = false;
    l->initial = l->divide = 0;
    l->shift = 1;
    l->deadline = 0;
    l->lvt[LVT_TIMER] = LVT_MASKED;
}

/* ---- interrupts out (11.6) ---- */

enum { DM_FIXED, DM_LOWEST, DM_SMI, DM_RESERVED, DM_NMI, DM_INIT, DM_SIPI, DM_EXTINT };
enum { SH_NONE, SH_SELF, SH_ALL, SH_OTHERS };

#define ICR_LOGICAL     0x800u
#define ICR_ASSERT      0x4000u
#define ICR_LEVEL       0x8000u
#define ICR_WRITABLE    0xccfffu
#define ICR_X2_RESERVED 0xfff33000u
#define BROADCAST       0xffffffffu

static u32 x2_ldr(const struct vlapic *l) /* 11.12.10.2 */
{
    return (l->id >> 4) << 16 | 1u << (l->id & 15);
}

/* Is `dest` this one? In the receiver's mode (11.6.2, 11.12.10). */
static bool is_dest(const struct vlapic *l, u32 dest, bool logical) {
    u32 ldr = l->ldr >> 24;

    if (!(l->base & APIC_BASE_EN)) return false;
    if (dest == BROADCAST) return true;
    if (!logical) return dest == l->id;
    if (vlapic_x2(l)) return dest >> 16 == x2_ldr(l) >> 16 && (dest & x2_ldr(l) & 0xffff);
    if (dest > 0xff) return false;
    if (l->dfr >> 28 == 0xf) return dest & ldr;
    return l->dfr >> 28 == 0 && dest >> 4 == ldr >> 4 && (dest & ldr & 0xf);
}

static void deliver(struct vlapic *from, struct vlapic *to, u32 kind, u8 vector) {
    if (kind == DM_FIXED || kind == DM_LOWEST)
        vlapic_raise(to, vector);
    else if (kind == DM_NMI)
        to->ops->nmi(to);
    else if (from == to)
        count_drop(from); /* it would reset itself in the middle of the instruction that says so */
    else if (kind == DM_INIT)
        to->ops->init(to);
    else
        to->ops->sipi(to, vector);
}

/* To everyone whom shorthand or destination mean; to the one of lowest priority among them. */
static __attribute__((noinline)) void send_many(struct vlapic *l, u32 icr, u32 dest) {
    u32 kind = icr >> 8 & 7, shorthand = icr >> 18 & 3, n = l->ops->count(l->vm);
    struct vlapic *best = NULL;
    bool heard = false;

    for (u32 i = 0; i < n; i++) {
        struct vlapic *to = l->ops->peer(l->vm, i);

        if (to == NULL || (to == l && shorthand == SH_OTHERS)) continue;
        if (!is_dest(to, shorthand == SH_NONE ? dest : BROADCAST, icr & ICR_LOGICAL)) continue;
        heard = true;
        if (kind != DM_LOWEST)
            deliver(l, to, kind, (u8)icr);
        else if ((to->svr & SVR_ENABLE) && (best == NULL || priority(to) < priority(best)))
            best = to;
    }
    if (best)
        deliver(l, best, kind, (u8)icr);
    else if (!heard || kind == DM_LOWEST)
        count_drop(l);
}

static void send_ipi(struct vlapic *l, u32 icr, u32 dest) {
    u32 kind = icr >> 8 & 7, shorthand = icr >> 18 & 3;
    struct vlapic *to;

    if ((kind == DM_FIXED || kind == DM_LOWEST) && (u8)icr < 16) {
        set_error(l, ESR_SEND_ILLEGAL);
        return;
    }
    if (kind == DM_INIT && (icr & (ICR_LEVEL | ICR_ASSERT)) == ICR_LEVEL)
        return; /* INIT de-assert: nothing since the Pentium 4 */
    if (kind == DM_SMI || kind == DM_RESERVED || kind == DM_EXTINT ||
        ((shorthand == SH_SELF || shorthand == SH_ALL) && kind != DM_FIXED)) { /* table 11-3 */
        count_drop(l);
        return;
    }
    if (shorthand == SH_SELF) {
        vlapic_raise(l, (u8)icr);
        return;
    }
    if (shorthand != SH_NONE || (icr & ICR_LOGICAL) || dest == BROADCAST) {
        send_many(l, icr, dest);
        return;
    }
    to = dest < l->ops->count(l->vm) ? l->ops->peer(l->vm, dest) : NULL;
    if (to && is_dest(to, dest, false))
        deliver(l, to, kind, (u8)icr);
    else
        count_drop(l);
}

/* ---- registers ---- */

#define NO_REG (~0ull)

static inline __attribute__((always_inline)) u64 reg_read(const struct vlapic *l, u32 reg, u64 now) {
    switch (reg) {
    case R_ID: return vlapic_x2(l) ? l->id : l->id << 24;
    case R_VERSION: return VERSION;
    case R_TPR: return l->tpr;
    case R_PPR: return priority(l);
    case R_EOI: return 0;
    case R_LDR: return vlapic_x2(l) ? x2_ldr(l) : l->ldr;
    case R_DFR: return l->dfr;
    case R_SVR: return l->svr;
    case R_ISR ... R_ISR + 7: return l->isr[reg - R_ISR];
    case R_TMR ... R_TMR + 7: return l->tmr[reg - R_TMR];
    case R_IRR ... R_IRR + 7: return __atomic_load_n(&l->irr[reg - R_IRR], __ATOMIC_RELAXED);
    case R_ESR: return l->esr;
    case R_ICR_LO: return l->icr_lo;
    case R_ICR_HI: return l->icr_hi;
    case R_LVT ... R_LVT_LAST: return l->lvt[reg - R_LVT];
    case R_INITIAL: return l->initial;
    case R_CURRENT: return current_count(l, now);
    case R_DIVIDE: return l->divide;
    default: return NO_REG;
    }
}

static void write_lvt(struct vlapic *l, unsigned n, u32 value, u64 now) {
    value &= lvt_writable[n];
    if (!(l->svr & SVR_ENABLE)) value |= LVT_MASKED;
    if (n == LVT_TIMER)
        timer_change(l, now, change_lvt, value);
    else
        l->lvt[n] = value;
}

/* 11.4.7.2: what is disabled by software has all LVT entries masked. */
static void write_svr(struct vlapic *l, u32 value, u64 now) {
    l->svr = value & SVR_WRITABLE;
    if (l->svr & SVR_ENABLE) return;
    for (unsigned n = 0; n < LVT_NR; n++) write_lvt(l, n, l->lvt[n], now);
}

/* False: there is no such register, or it cannot be written. */
static bool reg_write(struct vlapic *l, u32 reg, u32 value, u64 now) {
    switch (reg) {
    case R_TPR: l->tpr = value & 0xff; return true;
    case R_EOI: vlapic_eoi(l); return true;
    case R_LDR: l->ldr = value & 0xff000000; return true;
    case R_DFR: l->dfr = value | 0x0fffffff; return true;
    case R_SVR: write_svr(l, value, now); return true;
    case R_ESR: l->esr = __atomic_exchange_n(&l->esr_pending, 0, __ATOMIC_RELAXED); return true;
    case R_ICR_LO:
        l->icr_lo = value & ICR_WRITABLE;
        send_ipi(l, l->icr_lo, l->icr_hi >> 24 == 0xff ? BROADCAST : l->icr_hi >> 24);
        return true;
    case R_ICR_HI: l->icr_hi = value & 0xff000000; return true;
    case R_LVT ... R_LVT_LAST: write_lvt(l, reg - R_LVT, value, now); return true;
    case R_INITIAL: timer_change(l, now, change_initial, value); return true;
    case R_DIVIDE: timer_change(l, now, change_divide, value); return true;
    default: return false;
    }
}

/* Does the page answer at `offset`? */
static bool decodes(const struct vlapic *l, u32 offset) {
    return (l->base & (APIC_BASE_EN | APIC_BASE_EXTD)) == APIC_BASE_EN && (offset & 15) == 0;
}

u32 vlapic_read(struct vlapic *l, u32 offset, u64 now) {
    u64 v;

    if (!decodes(l, offset)) return ~0u;
    v = reg_read(l, offset >> 4, now);
    if (v != NO_REG) return (u32)v;
    set_error(l, ESR_ILLEGAL_REG);
    return 0;
}

static __attribute__((noinline)) void not_written(struct vlapic *l, u32 reg) {
    if (reg_read(l, reg, 0) == NO_REG) /* a read-only one takes the write without complaint */
        set_error(l, ESR_ILLEGAL_REG);
}

void vlapic_write(struct vlapic *l, u32 offset, u32 value, u64 now) {
    if (decodes(l, offset) && !reg_write(l, offset >> 4, value, now)) not_written(l, offset >> 4);
}

/* ---- MSRs (11.12.1) ---- */

/* The bits of an x2APIC register that may be written as 1; false: it cannot be written. ICR is apart. */
static bool x2_writable(u32 reg, u32 *bits) {
    switch (reg) {
    case R_EOI:
    case R_ESR: *bits = 0; return true;
    case R_TPR:
    case R_SELF_IPI: *bits = 0xff; return true;
    case R_SVR: *bits = SVR_WRITABLE; return true;
    case R_LVT ... R_LVT_LAST: *bits = lvt_writable[reg - R_LVT] | LVT_READ_ONLY; return true;
    case R_INITIAL: *bits = ~0u; return true;
    case R_DIVIDE: *bits = 0xb; return true;
    default: return false;
    }
}

static int x2_read(struct vlapic *l, u32 reg, u64 *value, u64 now) {
    const u64 page_only = BIT(R_EOI) | BIT(R_DFR) | BIT(R_ICR_HI);

    if (reg > R_SELF_IPI || (page_only >> reg & 1)) return -EINVAL;
    *value = reg_read(l, reg, now);
    if (*value == NO_REG) return -EINVAL;
    if (reg == R_ICR_LO) *value |= (u64)l->icr_hi << 32;
    return 0;
}

static int x2_write(struct vlapic *l, u32 reg, u64 value, u64 now) {
    u32 bits;

    if (reg == R_ICR_LO) {
        if ((u32)value & ICR_X2_RESERVED) return -EINVAL;
        l->icr_lo = (u32)value;
        l->icr_hi = (u32)(value >> 32);
        send_ipi(l, l->icr_lo, l->icr_hi);
        return 0;
    }
    if (!x2_writable(reg, &bits) || (value & ~(u64)bits)) return -EINVAL;
    if (reg == R_SELF_IPI)
        send_ipi(l, SH_SELF << 18 | (u32)value, 0);
    else
        reg_write(l, reg, (u32)value, now);
    return 0;
}

/* 11.12.5: off -> xAPIC -> x2APIC -> off, and xAPIC -> off; nothing else, and nothing but these two bits. */
static int write_base(struct vlapic *l, u64 value) {
    const u64 modes = APIC_BASE_EN | APIC_BASE_EXTD;
    u64 from = l->base & modes, to = value & modes;

    if ((value ^ l->base) & ~modes) return -EINVAL;
    if (to == APIC_BASE_EXTD || (from == modes && to == APIC_BASE_EN) || (from == 0 && to == modes))
        return -EINVAL;
    l->base = value;
    if (to == 0) vlapic_reset(l);
    return 0;
}

int vlapic_rdmsr(struct vlapic *l, u32 msr, u64 *value, u64 now) {
    if (msr - MSR_X2APIC <= 0xff) return vlapic_x2(l) ? x2_read(l, msr - MSR_X2APIC, value, now) : -EINVAL;
    if (msr == MSR_APIC_BASE)
        *value = l->base;
    else if (msr == MSR_TSC_DEADLINE)
        *value = l->deadline;
    else
        return -EINVAL;
    return 0;
}

int vlapic_wrmsr(struct vlapic *l, u32 msr, u64 value, u64 now) {
    if (msr == MSR_APIC_BASE) return write_base(l, value);
    if (msr == MSR_TSC_DEADLINE) {
        timer_change(l, now, change_deadline, value);
        return 0;
    }
    if (msr - MSR_X2APIC > 0xff || !vlapic_x2(l)) return -EINVAL;
    return x2_write(l, msr - MSR_X2APIC, value, now);
}

/* ---- life ---- */

void vlapic_init(struct vlapic *l, u32 id, void *vm, const struct vlapic_ops *ops, bool bsp) {
    *l = (struct vlapic){ .id = id, .vm = vm, .ops = ops };
    l->base = TAKT_LAPIC_GPA | APIC_BASE_EN | (bsp ? APIC_BASE_BSP : 0);
    timer_init(&l->timer, timer_fired);
    vlapic_reset(l);
}

/* 11.4.7.1, 11.4.7.3 */
void vlapic_reset(struct vlapic *l) {
    timer_change(l, 0, change_stop, 0);
    for (unsigned w = 0; w < 8; w++) l->irr[w] = l->isr[w] = l->tmr[w] = 0;
    l->irr_any = l->isr_any = l->isr_top = 0;
    l->tpr = l->ldr = l->esr = l->esr_pending = l->icr_lo = l->icr_hi = 0;
    l->dfr = ~0u;
    l->svr = 0xff;
    for (unsigned n = 0; n < LVT_NR; n++) l->lvt[n] = LVT_MASKED;
}

void vlapic_fini(struct vlapic *l) { timer_change(l, 0, change_stop, 0); }
