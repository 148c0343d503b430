/* The virtual local APIC. Section numbers are of SDM 3A.
 *
 * Storms: an IPI reaches vCPUs of the sender's own VM only, is sent in the sender's own time, and tells a
 * target only if its IRR bit was clear; a periodic timer does not fire again before its last tick was taken,
 * nor more often than every 20 us. So a guest can waste no more than its own share.
 */
#include <takt/abi.h>
#include <takt/errno.h>
#include "lib/string.h"
#include "trace/trace.h"
#include "vdev/vlapic.h"
#include "x86/percpu.h"

DEFINE_COUNTER(interrupts_dropped); /* to a disabled LAPIC, to nobody, of no known kind */

#define NEVER            (~0ull)

#define SVR_ENABLE       0x100u
#define LVT_MASKED       0x10000u
#define LVT_READ_ONLY    0x5000u /* delivery status, remote IRR */
#define TIMER_MODE       0x60000u
#define TIMER_PERIODIC   0x20000u
#define TIMER_DEADLINE   0x40000u
#define ESR_SEND_ILLEGAL BIT(5) /* 11.5.3 */
#define ESR_RECV_ILLEGAL BIT(6)
#define ESR_ILLEGAL_REG  BIT(7)

/* Whether the page (P) or an MSR (X) reads (R) or writes (W) a register. */
#define PR       1
#define PW       2
#define XR       4
#define XW       8
#define COMPUTED 16
#define RO       (PR | XR)
#define RW       (PR | PW | XR | XW)

/* The bits that a write may set: others are dropped by the page, and #GP as an MSR. */
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

static void count_drop(void) { counter_inc(&interrupts_dropped, this_cpu()->id); }

static bool enabled(const struct vlapic *l) { return l->reg[R_SVR] & SVR_ENABLE; }

static void set_irr(struct vlapic *l, u8 vector) {
    u32 bit = 1u << (vector & 31);

    if (!(__atomic_fetch_or(&l->reg[R_IRR + (vector >> 5)], bit, __ATOMIC_SEQ_CST) & bit))
        l->ops->notify(l, DM_FIXED, vector);
}

/* 11.5.3: an error raises LVT Error once, until ESR is written. That vector's being illegal is one more
 * error, and raises nothing. */
static void set_error(struct vlapic *l, u32 bits) {
    u32 lvt = l->reg[R_LVT_ERROR];

    if (__atomic_fetch_or(&l->errors, bits, __ATOMIC_RELAXED) || (lvt & LVT_MASKED)) return;
    if ((u8)lvt < 16)
        __atomic_fetch_or(&l->errors, ESR_RECV_ILLEGAL, __ATOMIC_RELAXED);
    else
        set_irr(l, (u8)lvt);
}

bool vlapic_on(const struct vlapic *l) { return l->base & APIC_BASE_EN && enabled(l); } /* 11.4.7.2 */

void vlapic_raise(struct vlapic *l, u8 vector) {
    if (!vlapic_on(l))
        count_drop();
    else if (vector < 16)
        set_error(l, ESR_RECV_ILLEGAL);
    else
        set_irr(l, vector);
}

/* The highest vector of IRR or ISR; 0: none. */
static u32 highest(const struct vlapic *l, enum vlapic_reg n) {
#pragma GCC unroll 4
    for (u32 i = 4; i-- > 0;) {
        u64 bits = __atomic_load_n(&l->pair[n / 2 + i], __ATOMIC_RELAXED);

        if (bits) return i * 64 + 63 - (u32)__builtin_clzll(bits);
    }
    return 0;
}

static u32 priority(const struct vlapic *l) {
    u32 tpr = l->reg[R_TPR], service = l->isr_top & 0xf0;

    return (tpr & 0xf0) >= service ? tpr : service;
}

int vlapic_pending(const struct vlapic *l) {
    u32 vector = highest(l, R_IRR);

    return vector == 0 || vector >> 4 > priority(l) >> 4 ? (int)vector : -1;
}

/* ---- timer (11.5.4) ---- */

static u32 timer_mode(const struct vlapic *l) { return l->reg[R_LVT_TIMER] & TIMER_MODE; }

static u32 timer_shift(const struct vlapic *l) {
    u32 divide = l->reg[R_DIVIDE];

    return (((divide & 3) | (divide >> 1 & 4)) + 1) & 7; /* 0 is 2, 6 is 128, 7 is 1 */
}

static u64 timer_period(const struct vlapic *l) {
    u64 ns = (u64)l->reg[R_INITIAL] << timer_shift(l);

    return timer_mode(l) == TIMER_PERIODIC ? MAX(ns, VLAPIC_MIN_PERIOD) : ns;
}

static u32 current_count(const struct vlapic *l, u64 now) {
    u64 left = l->next - now, period = timer_period(l);

    if (l->next == NEVER || timer_mode(l) == TIMER_DEADLINE) return 0;
    if (l->next <= now) left = timer_mode(l) == TIMER_PERIODIC ? period - (now - l->next) % period : 0;
    return (u32)MIN((left + BIT(timer_shift(l)) - 1) >> timer_shift(l), l->reg[R_INITIAL]);
}

/* A periodic timer is held while its last tick has not been taken. */
static bool timer_held(const struct vlapic *l) {
    u8 vector = (u8)l->reg[R_LVT_TIMER];

    return timer_mode(l) == TIMER_PERIODIC && l->reg[R_IRR + (vector >> 5)] >> (vector & 31) & 1;
}

static void timer_arm(struct vlapic *l) {
    l->ops->arm(l, timer_held(l) || l->reg[R_LVT_TIMER] & LVT_MASKED ? NEVER : l->next);
}

static void timer_stop(struct vlapic *l) {
    l->next = NEVER;
    l->deadline = 0;
}

/* If the time has come. What a periodic timer missed is missed; its phase stays. */
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

void vlapic_tick(struct vlapic *l, u64 now) {
    timer_take(l, now);
    timer_arm(l);
}

/* LVT, initial count, divider or deadline. What is due comes first; then the count goes on from where it was,
 * in the mode and with the divider that are set now. */
static void timer_write(struct vlapic *l, enum vlapic_reg n, u64 value, u64 now) {
    bool was = timer_mode(l) == TIMER_DEADLINE, is;
    u64 count;

    if (n == (was ? R_INITIAL : R_DEADLINE)) return; /* 11.5.4.1 */
    timer_take(l, now);
    count = n == R_INITIAL ? value : current_count(l, now);
    if (n == R_DEADLINE)
        l->deadline = value;
    else
        l->reg[n] = (u32)value;
    is = timer_mode(l) == TIMER_DEADLINE;
    if (was != is || !(is ? l->deadline : count))
        timer_stop(l);
    else if (is)
        l->next = l->ops->tsc_to_ns(l, l->deadline);
    else
        l->next = now + (n == R_INITIAL ? timer_period(l) : count << timer_shift(l));
    timer_arm(l);
}

/* ---- delivery ---- */

void vlapic_accept(struct vlapic *l, u8 vector) {
    u32 word = vector >> 5, bit = 1u << (vector & 31);

    __atomic_fetch_and(&l->reg[R_IRR + word], ~bit, __ATOMIC_SEQ_CST);
    if (!vlapic_no_eoi(l, vector)) {
        l->reg[R_ISR + word] |= bit;
        l->isr_top = vector; /* it was above what was in service */
    }
    if (vector == (u8)l->reg[R_LVT_TIMER]) timer_arm(l);
}

void vlapic_set_no_eoi(struct vlapic *l, u8 vector, bool none) {
    u32 bit = 1u << (vector & 31);

    if (none)
        __atomic_fetch_or(&l->no_eoi[vector >> 5], bit, __ATOMIC_RELAXED);
    else
        __atomic_fetch_and(&l->no_eoi[vector >> 5], ~bit, __ATOMIC_RELAXED);
}

static void end_of_interrupt(struct vlapic *l) {
    l->reg[R_ISR + (l->isr_top >> 5)] &= ~(1u << (l->isr_top & 31)); /* bit 0 is never set */
    l->isr_top = highest(l, R_ISR);
}

/* ---- interrupts out (11.6) ---- */

enum { SH_NONE, SH_SELF, SH_ALL, SH_OTHERS };

#define ICR_LOGICAL 0x800u
#define ICR_ASSERT  0x4000u
#define ICR_LEVEL   0x8000u
#define BROADCAST   0xffffffffu

/* Is `dest` this one? In the receiver's mode (11.6.2, 11.12.10). */
static bool is_dest(const struct vlapic *l, u32 dest, bool logical) {
    u32 ldr = l->reg[R_LDR], model = l->reg[R_DFR] >> 28;

    if (!(l->base & APIC_BASE_EN)) return false;
    if (dest == BROADCAST) return true;
    if (!logical) return dest == l->id;
    if (vlapic_x2(l)) return dest >> 16 == ldr >> 16 && (dest & ldr & 0xffff);
    ldr >>= 24;
    if (dest > 0xff) return false;
    return model == 0xf ? dest & ldr : model == 0 && dest >> 4 == ldr >> 4 && (dest & ldr & 0xf);
}

/* To everyone whom shorthand or destination mean. "Lowest priority" depends on the model (11.6.2.4): here the
 * first that can take it. */
static void send_ipi(struct vlapic *l, u32 icr, u32 dest) {
    enum delivery_mode kind = icr >> 8 & 7;
    u32 shorthand = icr >> 18 & 3;
    bool logical = !shorthand && icr & ICR_LOGICAL, one, heard = false;
    struct vlapic *to;
    u32 id;

    if (kind <= DM_LOWEST && (u8)icr < 16) return set_error(l, ESR_SEND_ILLEGAL);
    /* INIT de-assert: nothing since the Pentium 4 */
    if (kind == DM_INIT && (icr & (ICR_LEVEL | ICR_ASSERT)) == ICR_LEVEL) return;
    if (kind == DM_SMI || kind == DM_RESERVED || kind == DM_EXTINT ||
        ((shorthand == SH_SELF || shorthand == SH_ALL) && kind != DM_FIXED)) /* table 11-3 */
        return count_drop();
    if (shorthand == SH_SELF) return vlapic_raise(l, (u8)icr);
    if (shorthand) dest = BROADCAST;
    one = !logical && dest != BROADCAST;
    id = one ? dest : 0;
    do {
        to = l->ops->peer(l, id++);
        if (!to || !is_dest(to, dest, logical) || (shorthand == SH_OTHERS && to == l)) continue;
        if (kind == DM_LOWEST && !enabled(to)) continue;
        heard = true;
        if (kind <= DM_LOWEST)
            vlapic_raise(to, (u8)icr);
        else if (kind == DM_NMI || to != l)
            l->ops->notify(to, kind, (u8)icr);
        else
            count_drop(); /* it would reset itself in the middle of the instruction that says so */
        one |= kind == DM_LOWEST;
    } while (to && !one);
    if (!heard) count_drop();
}

/* ---- registers ---- */

static bool may(u32 n, u8 how) { return n < VLAPIC_REGS && regs[n].how & how; }

static u64 computed(const struct vlapic *l, u32 n, u64 now) {
    if (n == R_ICR) return (u64)l->reg[R_ICR_HI] << 32 | l->reg[R_ICR]; /* one register, as an MSR */
    return n == R_PPR ? priority(l) : current_count(l, now);
}

static inline u64 reg_read(const struct vlapic *l, u32 n, u64 now) {
    if (__builtin_expect(regs[n].how & COMPUTED, 0)) return computed(l, n, now);
    return __atomic_load_n(&l->reg[n], __ATOMIC_RELAXED);
}

/* A register that may be written, with the bits that may be set. */
static void reg_write(struct vlapic *l, u32 n, u32 value, u64 now) {
    switch (n) {
    case R_EOI: return end_of_interrupt(l);
    case R_DFR: value |= 0x0fffffff; break;
    case R_ESR: value = __atomic_exchange_n(&l->errors, 0, __ATOMIC_RELAXED); break;
    case R_LVT_TIMER ... R_LVT_ERROR:
        value = (value & ~LVT_READ_ONLY) | (enabled(l) ? 0 : LVT_MASKED);
        if (n != R_LVT_TIMER) break;
        if ((value & TIMER_MODE) == TIMER_MODE) value |= LVT_MASKED; /* reserved */
        /* fall through */
    case R_INITIAL:
    case R_DIVIDE: return timer_write(l, n, value, now);
    case R_SELF_IPI: return send_ipi(l, SH_SELF << 18 | value, 0);
    }
    l->reg[n] = value;
    if (n == R_ICR) {
        u32 dest = l->reg[R_ICR_HI];

        send_ipi(l, value, vlapic_x2(l) ? dest : dest >> 24 == 0xff ? BROADCAST : dest >> 24);
    } else if (n == R_SVR && !enabled(l)) { /* 11.4.7.2: masks the LVT */
        for (u32 i = R_LVT_TIMER; i <= R_LVT_ERROR; i++) reg_write(l, i, l->reg[i], now);
    }
}

/* What x2APIC mode says of who it is (11.12.10.2). */
static void name_x2(struct vlapic *l) {
    if (!vlapic_x2(l)) return;
    l->reg[R_ID] = l->id;
    l->reg[R_LDR] = (l->id >> 4) << 16 | 1u << (l->id & 15);
}

/* Does the page answer at `offset`? */
static bool decodes(const struct vlapic *l, u32 offset) {
    return (l->base & (APIC_BASE_EN | APIC_BASE_EXTD)) == APIC_BASE_EN && (offset & 15) == 0;
}

static __attribute__((noinline)) u32 no_register(struct vlapic *l) {
    set_error(l, ESR_ILLEGAL_REG);
    return 0;
}

u32 vlapic_read(struct vlapic *l, u32 offset, u64 now) {
    if (!decodes(l, offset)) return ~0u;
    return may(offset >> 4, PR) ? (u32)reg_read(l, offset >> 4, now) : no_register(l);
}

void vlapic_write(struct vlapic *l, u32 offset, u32 value, u64 now) {
    u32 n = offset >> 4;

    if (!decodes(l, offset)) return;
    if (may(n, PW))
        reg_write(l, n, value & regs[n].bits, now);
    else if (!may(n, PR)) /* one that is only read takes the write without complaint */
        no_register(l);
}

/* ---- MSRs (11.12.1) ---- */

/* 11.12.5: off (0) -> xAPIC (2) -> x2APIC (3) -> off, and xAPIC -> off; nothing else, and nothing but these
 * two bits. */
static int write_base(struct vlapic *l, u64 value) {
    static const u8 ways[4] = { BIT(0) | BIT(2), 0, BIT(0) | BIT(2) | BIT(3), BIT(0) | BIT(3) };
    u32 from = l->base >> 10 & 3, to = value >> 10 & 3;

    if ((value ^ l->base) & ~(APIC_BASE_EN | APIC_BASE_EXTD) || !(ways[from] >> to & 1)) return -EINVAL;
    l->base = value;
    if (to == 0)
        vlapic_reset(l);
    else
        name_x2(l);
    return 0;
}

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

int vlapic_wrmsr(struct vlapic *l, u32 msr, u64 value, u64 now) {
    u32 n = msr - MSR_X2APIC;

    if (msr == MSR_APIC_BASE) return write_base(l, value);
    if (msr == MSR_TSC_DEADLINE) {
        timer_write(l, R_DEADLINE, value, now);
        return 0;
    }
    if (!vlapic_x2(l) || !may(n, XW)) return -EINVAL;
    if ((n == R_ICR ? (u32)value : value) & ~(u64)regs[n].bits) return -EINVAL;
    if (n == R_ICR) l->reg[R_ICR_HI] = (u32)(value >> 32);
    reg_write(l, n, (u32)value, now);
    return 0;
}

/* ---- life ---- */

void vlapic_init(struct vlapic *l, u32 id, const struct vlapic_ops *ops) {
    *l = (struct vlapic){ .id = id, .ops = ops };
    l->base = TAKT_LAPIC_GPA | APIC_BASE_EN | (id == 0 ? APIC_BASE_BSP : 0);
    vlapic_reset(l);
}

/* 11.4.7.1, 11.4.7.3 */
void vlapic_reset(struct vlapic *l) {
    memset(l->reg, 0, sizeof(l->reg));
    l->reg[R_ID] = l->id << 24;
    l->reg[R_VERSION] = 0x14 | (R_LVT_ERROR - R_LVT_TIMER) << 16;
    l->reg[R_DFR] = ~0u;
    l->reg[R_SVR] = 0xff;
    for (u32 n = R_LVT_TIMER; n <= R_LVT_ERROR; n++) l->reg[n] = LVT_MASKED;
    name_x2(l);
    l->errors = l->isr_top = 0;
    timer_stop(l);
    timer_arm(l);
}
