/* The virtual local APIC (LAPIC), by which a vCPU sends and receives interrupts: each of its
 * registers, the rules by which interrupts are delivered, and its timer in virtual time. There are
 * NR of them here, as if they belonged to the vCPUs of one VM. The test plays the rest of the
 * hypervisor: it counts which vCPU was notified of what, and takes interrupts as the loop of a pCPU
 * does. "xAPIC" and "x2APIC" are the two ways to reach the registers: in memory, and as MSRs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include <takt/errno.h>
#include "fake_machine.h"
#include "fake_timer.h"
#include "trace/trace.h"
#include "vdev/vlapic.h"

extern const struct counter interrupts_dropped;

#define NR           20 /* so that x2APIC ids need a second cluster */

#define ID           0x20
#define VER          0x30
#define TPR          0x80
#define PPR          0xa0
#define EOI          0xb0
#define LDR          0xd0
#define DFR          0xe0
#define SVR          0xf0
#define ISR          0x100
#define TMR          0x180
#define IRR          0x200
#define ESR          0x280
#define ICR          0x300
#define ICR2         0x310
#define TIMER        0x320
#define THERMAL      0x330
#define LINT0        0x350
#define ERROR        0x370
#define TICR         0x380
#define TCCR         0x390
#define TDCR         0x3e0

#define MASKED       0x10000
#define PERIODIC     0x20000
#define DEADLINE     0x40000
#define DIV1         0xb

#define SHORT_SELF   0x40000
#define SHORT_ALL    0x80000
#define SHORT_OTHERS 0xc0000
#define LOGICAL      0x800

static struct vlapic apic[NR];
static struct timer timers[NR];
static unsigned notified[NR], inits[NR], sipis[NR], nmis[NR];
static u8 last_sipi;

static struct vlapic *peer(struct vlapic *l, u32 id) { return id < NR ? &apic[id] : NULL; }

static void notify(struct vlapic *l, enum delivery_mode what, u8 vector) {
    switch (what) {
    case DM_FIXED: notified[l->id]++; break;
    case DM_NMI: nmis[l->id]++; break;
    case DM_INIT: inits[l->id]++; break;
    case DM_SIPI:
        sipis[l->id]++;
        last_sipi = vector;
        break;
    default: fail();
    }
}

static void arm(struct vlapic *l, u64 when) {
    if (when == ~0ull)
        timer_cancel(&timers[l->id]);
    else
        timer_set(0, &timers[l->id], when);
}

static void tick(struct timer *t, u64 now) { vlapic_tick(&apic[t - timers], now); }

static u64 tsc_to_ns(struct vlapic *l, u64 tsc) /* 2 GHz, offset 1000 */
{
    return tsc < 1000 ? 0 : (tsc - 1000) / 2;
}

static const struct vlapic_ops ops = {
    .peer = peer, .notify = notify, .arm = arm, .tsc_to_ns = tsc_to_ns
};

static u64 dropped(void) {
    u64 n = interrupts_dropped.value[0];

    interrupts_dropped.value[0] = 0;
    return n;
}

static u32 rd(unsigned id, u32 reg) { return vlapic_read(&apic[id], reg, fake_now); }

static void wr(unsigned id, u32 reg, u32 v) { vlapic_write(&apic[id], reg, v, fake_now); }

static int setup(void **state) {
    fake_timers_reset();
    memset(notified, 0, sizeof(notified));
    memset(inits, 0, sizeof(inits));
    memset(sipis, 0, sizeof(sipis));
    memset(nmis, 0, sizeof(nmis));
    last_sipi = 0;
    dropped();
    for (u32 i = 0; i < NR; i++) {
        timer_init(&timers[i], tick);
        vlapic_init(&apic[i], i, &ops);
        wr(i, SVR, 0x1ff);
    }
    return 0;
}

static void x2(unsigned id) {
    assert_int_equal(vlapic_wrmsr(&apic[id], MSR_APIC_BASE, apic[id].base | APIC_BASE_EXTD, 0), 0);
}

static int wx(unsigned id, u32 reg, u64 v) {
    return vlapic_wrmsr(&apic[id], MSR_X2APIC + (reg >> 4), v, fake_now);
}

static int rx(unsigned id, u32 reg, u64 *v) {
    return vlapic_rdmsr(&apic[id], MSR_X2APIC + (reg >> 4), v, fake_now);
}

/* Takes what is pending, as the vCPU's loop does. */
static int take(unsigned id) {
    int v = vlapic_pending(&apic[id]);

    if (v > 0) vlapic_accept(&apic[id], (u8)v);
    return v > 0 ? v : -1;
}

static bool has(unsigned id, u32 base, u8 vector) {
    return rd(id, base + (vector >> 5) * 16u) >> (vector & 31) & 1;
}

/* ---- registers ---- */

static void test_after_reset(void **state) {
    vlapic_init(&apic[3], 3, &ops);
    assert_int_equal(rd(3, ID), 3 << 24);
    assert_int_equal(rd(3, VER), 0x50014);
    assert_int_equal(rd(3, TPR), 0);
    assert_int_equal(rd(3, LDR), 0);
    assert_int_equal(rd(3, DFR), 0xffffffff);
    assert_int_equal(rd(3, SVR), 0xff);
    for (u32 r = TIMER; r <= ERROR; r += 16) assert_int_equal(rd(3, r), MASKED);
    assert_int_equal(rd(3, TICR), 0);
    assert_int_equal(rd(3, TCCR), 0);
    assert_int_equal(apic[3].base, 0xfee00800);
    assert_int_equal(apic[0].base, 0xfee00900);
    assert_int_equal(vlapic_pending(&apic[3]), 0);
}

static void test_writable_bits(void **state) {
    static const struct {
        u32 reg, wrote, reads;
    } t[] = {
        { TPR, ~0u, 0xff },
        { LDR, ~0u, 0xff000000 },
        { DFR, 0, 0x0fffffff },
        { SVR, ~0u, 0x3ff },
        { ICR2, ~0u, 0xff000000 },
        { TIMER, ~0u, 0x700ff },
        { THERMAL, ~0u, 0x107ff },
        { LINT0, ~0u, 0x1a7ff },
        { ERROR, ~0u, 0x100ff },
        { TDCR, ~0u, 0xb },
        { ID, ~0u, 0 },
        { VER, ~0u, 0x50014 },
        { PPR, 0, 0xff }, /* TPR's, from above */
    };

    for (unsigned i = 0; i < ARRAY_SIZE(t); i++) {
        wr(0, t[i].reg, t[i].wrote);
        assert_int_equal(rd(0, t[i].reg), t[i].reads);
    }
    wr(0, ESR, 0);
    assert_int_equal(rd(0, ESR), 0);
}

static void test_odd_accesses(void **state) {
    for (u32 off = 0; off < 4096; off++)
        if (off & 15) {
            assert_int_equal(rd(0, off), 0xffffffff);
            wr(0, off, 0);
        }
    wr(0, ESR, 0);
    assert_int_equal(rd(0, ESR), 0);
    assert_int_equal(rd(0, 0x40), 0); /* a register that is not there */
    wr(0, ESR, 0);
    assert_int_equal(rd(0, ESR), 0x80);
    wr(0, 0xff0, 1);
    wr(0, ESR, 0);
    assert_int_equal(rd(0, ESR), 0x80);
    wr(0, ESR, 0);
    assert_int_equal(rd(0, ESR), 0);
}

static void test_apic_base(void **state) {
    const u64 off = 0xfee00100, on = off | 0x800, both = on | 0x400;
    u64 v;

    assert_int_equal(vlapic_rdmsr(&apic[0], MSR_APIC_BASE, &v, 0), 0);
    assert_int_equal(v, on);
    assert_int_equal(vlapic_rdmsr(&apic[0], 0x802, &v, 0), -EINVAL); /* not in x2APIC mode */
    assert_int_equal(vlapic_wrmsr(&apic[0], MSR_APIC_BASE, on ^ 0x100, 0), -EINVAL);
    assert_int_equal(vlapic_wrmsr(&apic[0], MSR_APIC_BASE, on + 0x1000, 0), -EINVAL);
    assert_int_equal(vlapic_wrmsr(&apic[0], MSR_APIC_BASE, on | 1, 0), -EINVAL);
    assert_int_equal(vlapic_wrmsr(&apic[0], MSR_APIC_BASE, on | BIT(40), 0), -EINVAL);
    assert_int_equal(vlapic_wrmsr(&apic[0], MSR_APIC_BASE, off | 0x400, 0), -EINVAL);
    assert_int_equal(vlapic_wrmsr(&apic[0], MSR_APIC_BASE, both, 0), 0);
    assert_int_equal(vlapic_wrmsr(&apic[0], MSR_APIC_BASE, both, 0), 0);
    assert_int_equal(vlapic_wrmsr(&apic[0], MSR_APIC_BASE, on, 0), -EINVAL);
    assert_int_equal(rd(0, ID), 0xffffffff); /* no page in x2APIC mode */
    assert_int_equal(vlapic_rdmsr(&apic[0], 0x802, &v, 0), 0);
    assert_int_equal(vlapic_wrmsr(&apic[0], 0x83f, 0x41, 0), 0);
    assert_int_equal(vlapic_wrmsr(&apic[0], MSR_APIC_BASE, off, 0), 0);
    assert_int_equal(vlapic_pending(&apic[0]), 0); /* its state is gone */
    vlapic_raise(&apic[0], 0x50);
    assert_int_equal(vlapic_pending(&apic[0]), 0);
    assert_int_equal(rd(0, VER), 0xffffffff);
    assert_int_equal(vlapic_wrmsr(&apic[0], MSR_APIC_BASE, both, 0), -EINVAL);
    assert_int_equal(vlapic_wrmsr(&apic[0], MSR_APIC_BASE, on, 0), 0);
    assert_int_equal(rd(0, SVR), 0xff);
}

/* In x2APIC mode every register is an MSR. This goes through all of them: which ones exist, which
 * can be read and written, and which values are refused. An MSR that a real LAPIC does not have
 * must fault, because guests find out by that what there is. */
static void test_x2apic_map(void **state) {
    static const u8 readable[] = { 0x02, 0x03, 0x08, 0x0a, 0x0d, 0x0f, 0x10, 0x11, 0x12, 0x13, 0x14,
                                   0x15, 0x16, 0x17, 0x18, 0x19, 0x1a, 0x1b, 0x1c, 0x1d, 0x1e, 0x1f,
                                   0x20, 0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28, 0x30, 0x32,
                                   0x33, 0x34, 0x35, 0x36, 0x37, 0x38, 0x39, 0x3e };
    static const u8 writable[] = { 0x08, 0x0b, 0x0f, 0x28, 0x32, 0x33,
                                   0x34, 0x35, 0x36, 0x37, 0x38, 0x3e };
    u64 v;

    x2(0);
    for (u32 i = 0; i < 0x400; i++) {
        bool r = i < 0x100 && memchr(readable, (int)i, sizeof(readable)) != NULL;
        bool w = i < 0x100 && memchr(writable, (int)i, sizeof(writable)) != NULL;

        assert_int_equal(vlapic_rdmsr(&apic[0], 0x800 + i, &v, 0), r ? 0 : -EINVAL);
        if (i == 0x30 || i == 0x3f) /* these send */
            continue;
        assert_int_equal(vlapic_wrmsr(&apic[0], 0x800 + i, 0, 0), w ? 0 : -EINVAL);
        assert_int_equal(vlapic_wrmsr(&apic[0], 0x800 + i, BIT(32), 0), -EINVAL);
    }
    assert_int_equal(wx(0, TPR, 0x100), -EINVAL);
    assert_int_equal(wx(0, EOI, 1), -EINVAL);
    assert_int_equal(wx(0, ESR, 1), -EINVAL);
    assert_int_equal(wx(0, SVR, 0x1400), -EINVAL);
    assert_int_equal(wx(0, TIMER, 0x80000), -EINVAL);
    assert_int_equal(wx(0, TDCR, 4), -EINVAL);
    assert_int_equal(wx(0, 0x3f0, 0x100), -EINVAL);
    for (u32 bit = 0; bit < 32; bit++)
        if (0xfff33000u >> bit & 1) assert_int_equal(wx(0, ICR, BIT(bit) | 0x40), -EINVAL);
}

static void test_x2apic_ids(void **state) {
    u64 v;

    x2(0);
    x2(18);
    assert_int_equal(rx(18, ID, &v), 0);
    assert_int_equal(v, 18);
    assert_int_equal(rx(18, LDR, &v), 0);
    assert_int_equal(v, 0x10004);
    assert_int_equal(wx(0, ICR, 18ull << 32 | 0x77), 0);
    assert_int_equal(take(18), 0x77);
    assert_int_equal(wx(18, EOI, 0), 0);
    assert_int_equal(rx(0, ICR, &v), 0);
    assert_int_equal(v, 18ull << 32 | 0x77);
    assert_int_equal(wx(0, ICR, 0x10004ull << 32 | LOGICAL | 0x78), 0);
    assert_int_equal(take(18), 0x78);
    assert_int_equal(wx(18, EOI, 0), 0);
    assert_int_equal(wx(0, ICR, 0x00004ull << 32 | LOGICAL | 0x79), 0); /* other cluster */
    assert_int_equal(take(18), -1);
    assert_int_equal(wx(0, 0x3f0, 0x55), 0); /* self IPI */
    assert_int_equal(take(0), 0x55);
}

/* ---- priorities ---- */

static void test_order_and_eoi(void **state) {
    vlapic_raise(&apic[0], 0x31);
    vlapic_raise(&apic[0], 0x51);
    vlapic_raise(&apic[0], 0xf3);
    vlapic_raise(&apic[0], 0x52);
    assert_int_equal(take(0), 0xf3);
    assert_int_equal(take(0), -1);
    assert_int_equal(rd(0, PPR), 0xf0);
    wr(0, EOI, 0);
    assert_int_equal(take(0), 0x52);
    assert_int_equal(take(0), -1); /* 0x51 is of the same class */
    vlapic_raise(&apic[0], 0x60);
    assert_int_equal(take(0), 0x60); /* nests */
    assert_true(has(0, ISR, 0x52) && has(0, ISR, 0x60) && has(0, IRR, 0x51));
    assert_int_equal(rd(0, PPR), 0x60);
    wr(0, EOI, 0);
    assert_int_equal(rd(0, PPR), 0x50);
    assert_true(has(0, ISR, 0x52) && !has(0, ISR, 0x60));
    wr(0, EOI, 0);
    assert_int_equal(take(0), 0x51);
    wr(0, EOI, 0);
    assert_int_equal(take(0), 0x31);
    wr(0, EOI, 0);
    wr(0, EOI, 0); /* one too many */
    assert_int_equal(rd(0, PPR), 0);
    assert_int_equal(take(0), -1);
    for (u32 i = 0; i < 8; i++) assert_int_equal(rd(0, ISR + 16 * i) | rd(0, IRR + 16 * i), 0);
}

static void test_task_priority(void **state) {
    vlapic_raise(&apic[0], 0x45);
    wr(0, TPR, 0x40);
    assert_int_equal(vlapic_pending(&apic[0]), -1);
    assert_int_equal(rd(0, PPR), 0x40);
    wr(0, TPR, 0x3f);
    assert_int_equal(rd(0, PPR), 0x3f);
    assert_int_equal(vlapic_pending(&apic[0]), 0x45);
    vlapic_set_cr8(&apic[0], 4);
    assert_int_equal(rd(0, TPR), 0x40);
    assert_int_equal(vlapic_cr8(&apic[0]), 4);
    assert_int_equal(vlapic_pending(&apic[0]), -1);
}

static void test_raise_twice_notifies_once(void **state) {
    vlapic_raise(&apic[0], 0x45);
    vlapic_raise(&apic[0], 0x45);
    assert_int_equal(notified[0], 1);
    assert_int_equal(take(0), 0x45);
    vlapic_raise(&apic[0], 0x45); /* while in service: queued again */
    assert_int_equal(notified[0], 2);
    assert_int_equal(take(0), -1);
    wr(0, EOI, 0);
    assert_int_equal(take(0), 0x45);
}

static void test_every_vector(void **state) {
    for (int v = 16; v < 256; v++) {
        vlapic_raise(&apic[0], (u8)v);
        assert_int_equal(take(0), v);
        assert_true(has(0, ISR, (u8)v) && !has(0, IRR, (u8)v));
        wr(0, EOI, 0);
        assert_int_equal(vlapic_pending(&apic[0]), 0);
    }
}

static void test_software_disable(void **state) {
    wr(0, ERROR, 0x50);
    wr(0, TIMER, 0x60);
    vlapic_raise(&apic[0], 0x45);
    wr(0, SVR, 0xff);
    assert_int_equal(rd(0, ERROR), MASKED | 0x50);
    assert_int_equal(rd(0, TIMER), MASKED | 0x60);
    wr(0, TIMER, 0x60); /* cannot be unmasked now */
    assert_int_equal(rd(0, TIMER), MASKED | 0x60);
    assert_int_equal(vlapic_pending(&apic[0]), 0x45); /* what came before stays */
    vlapic_raise(&apic[0], 0x46);
    assert_false(has(0, IRR, 0x46));
    assert_int_equal(dropped(), 1);
    wr(1, ICR, 0x400); /* NMI to 0 gets through all the same */
    assert_int_equal(nmis[0], 1);
    wr(0, SVR, 0x1ff);
    assert_int_equal(rd(0, TIMER), MASKED | 0x60);
    wr(0, TIMER, 0x60);
    assert_int_equal(rd(0, TIMER), 0x60);
}

/* ---- errors ---- */

static void test_illegal_vectors(void **state) {
    wr(0, ERROR, 0xfe);
    for (u32 v = 0; v < 16; v++) {
        wr(0, ICR, SHORT_SELF | v);
        assert_int_equal(take(0), 0xfe);
        wr(0, EOI, 0);
        assert_int_equal(rd(0, ESR), 0);
        wr(0, ESR, 0);
        assert_int_equal(rd(0, ESR), 0x20); /* send illegal vector */
        wr(0, ESR, 0);
        assert_int_equal(rd(0, ESR), 0);
    }
    wr(0, ICR, SHORT_SELF | 3);
    wr(0, ICR, SHORT_SELF | 3); /* the second raises nothing until ESR is written */
    assert_int_equal(take(0), 0xfe);
    wr(0, EOI, 0);
    assert_int_equal(take(0), -1);
    wr(0, ESR, 0);
    wr(0, TIMER, 7); /* an illegal vector of its own */
    wr(0, TICR, 10);
    fake_advance(1000);
    wr(0, ESR, 0);
    assert_int_equal(rd(0, ESR), 0x40);
}

static void test_illegal_error_vector_does_not_recurse(void **state) {
    wr(0, ERROR, 5);
    wr(0, ICR, SHORT_SELF | 2);
    assert_int_equal(vlapic_pending(&apic[0]), 0);
    wr(0, ESR, 0);
    assert_int_equal(rd(0, ESR), 0x60);
    for (u32 i = 0; i < 8; i++) assert_int_equal(rd(0, IRR + 16 * i), 0);
}

/* ---- interrupts to other vCPUs (IPIs) ---- */

static unsigned who_has(u8 vector) {
    unsigned mask = 0;

    for (unsigned i = 0; i < NR; i++)
        if (has(i, IRR, vector)) mask |= 1u << i;
    return mask;
}

#define EVERYBODY ((1u << NR) - 1)

static void test_physical(void **state) {
    wr(0, ICR2, 7u << 24);
    wr(0, ICR, 0x41);
    assert_int_equal(who_has(0x41), 1 << 7);
    wr(0, ICR2, 0xffu << 24);
    wr(0, ICR, 0x42);
    assert_int_equal(who_has(0x42), EVERYBODY);
    for (u32 id = NR; id < 255; id++) { /* nobody there */
        wr(0, ICR2, id << 24);
        wr(0, ICR, 0x43);
    }
    assert_int_equal(who_has(0x43), 0);
    assert_int_equal(dropped(), 255 - NR);
    wr(0, ICR, 0x1043);
    assert_int_equal(rd(0, ICR) & 0x1000, 0); /* always idle */
}

static void test_shorthands(void **state) {
    wr(2, ICR, SHORT_SELF | 0x41);
    assert_int_equal(who_has(0x41), 1 << 2);
    wr(2, ICR, SHORT_ALL | 0x42);
    assert_int_equal(who_has(0x42), EVERYBODY);
    wr(2, ICR, SHORT_OTHERS | 0x43);
    assert_int_equal(who_has(0x43), EVERYBODY & ~(1 << 2));
}

static void test_logical_flat_and_cluster(void **state) {
    for (unsigned i = 0; i < 8; i++) wr(i, LDR, 1u << (24 + i));
    wr(0, ICR2, 0xa5u << 24);
    wr(0, ICR, LOGICAL | 0x41);
    assert_int_equal(who_has(0x41), 0xa5);
    for (unsigned i = 0; i < 8; i++) {
        wr(i, DFR, 0);
        wr(i, LDR, (i / 4) << 28 | 1u << (24 + i % 4));
    }
    wr(0, ICR2, 0x16u << 24);
    wr(0, ICR, LOGICAL | 0x42);
    assert_int_equal(who_has(0x42), 0x60);
    wr(0, ICR2, 0xffu << 24);
    wr(0, ICR, LOGICAL | 0x43);
    assert_int_equal(who_has(0x43), EVERYBODY);
}

/* An interrupt for the vCPU of lowest priority goes to exactly one of its targets, to one that is
 * switched on. If there is none, it is dropped and counted. */
static void test_lowest_priority(void **state) {
    wr(3, ICR2, 0xffu << 24);
    wr(3, ICR, 0x141);
    assert_int_equal(who_has(0x41), 1 << 0);
    for (unsigned i = 0; i < 5; i++)
        if (i != 3) wr(i, SVR, 0xff);
    wr(3, ICR, 0x142);
    assert_int_equal(who_has(0x42), 1 << 3);
    wr(3, ICR2, 4u << 24);
    wr(3, ICR, 0x143);
    assert_int_equal(who_has(0x43), 0);
    assert_int_equal(dropped(), 1);
}

static void test_nmi_init_sipi(void **state) {
    wr(0, ICR2, 6u << 24);
    wr(0, ICR, 0x4500);
    assert_int_equal(inits[6], 1);
    wr(0, ICR, 0x8500); /* de-assert */
    assert_int_equal(inits[6], 1);
    wr(0, ICR, 0x4612);
    assert_int_equal(sipis[6], 1);
    assert_int_equal(last_sipi, 0x12);
    wr(0, ICR, 0x4400);
    assert_int_equal(nmis[6], 1);
    wr(0, ICR, SHORT_OTHERS | 0x4400);
    wr(0, ICR, SHORT_OTHERS | 0x4500);
    for (unsigned i = 0; i < NR; i++) {
        u32 want = 1;

        if (i == 0) want = 0; /* the sender */
        if (i == 6) want = 2; /* got one of its own before */
        assert_int_equal(nmis[i], want);
        assert_int_equal(inits[i], want);
    }
    assert_int_equal(dropped(), 0);
}

static void test_what_cannot_be_sent(void **state) {
    wr(0, ICR2, 6u << 24);
    wr(0, ICR, 0x4200); /* SMI */
    wr(0, ICR, 0x4300); /* reserved */
    wr(0, ICR, 0x4700); /* ExtINT */
    assert_int_equal(dropped(), 3);
    for (u32 kind = 1; kind < 8; kind++) { /* to oneself only a fixed one */
        wr(0, ICR, SHORT_SELF | 0x4000 | kind << 8 | 0x41);
        wr(0, ICR, SHORT_ALL | 0x4000 | kind << 8 | 0x41);
    }
    assert_int_equal(dropped(), 14);
    wr(0, ICR2, 0);
    wr(0, ICR, 0x4500); /* INIT to oneself by number */
    wr(0, ICR, 0x4612);
    assert_int_equal(dropped(), 2);
    assert_int_equal(who_has(0x41), 0);
    for (unsigned i = 0; i < NR; i++) assert_int_equal(inits[i] + sipis[i] + nmis[i], 0);
}

static void test_init_resets(void **state) {
    vlapic_raise(&apic[3], 0x45);
    vlapic_raise(&apic[3], 0x35);
    take(3);
    wr(3, TPR, 0x20);
    wr(3, TIMER, PERIODIC | 0x60);
    wr(3, TICR, 100000);
    vlapic_reset(&apic[3]);
    test_after_reset(state);
    fake_advance(NS_PER_MS);
    assert_int_equal(vlapic_pending(&apic[3]), 0);
    wr(3, SVR, 0x1ff);
    fake_advance(NS_PER_MS);
    assert_int_equal(vlapic_pending(&apic[3]), 0);
}

/* ---- timer ---- */

static void test_one_shot(void **state) {
    wr(0, TDCR, DIV1);
    wr(0, TIMER, 0x60);
    wr(0, TICR, 1000);
    fake_advance(400);
    assert_int_equal(rd(0, TCCR), 600);
    fake_advance(599);
    assert_int_equal(rd(0, TCCR), 1);
    assert_int_equal(take(0), -1);
    fake_advance(1);
    assert_int_equal(take(0), 0x60);
    wr(0, EOI, 0);
    assert_int_equal(rd(0, TCCR), 0);
    assert_int_equal(rd(0, TICR), 1000);
    fake_advance(5000);
    assert_int_equal(take(0), -1);
}

static void test_dividers(void **state) {
    static const struct {
        u32 dcr, by;
    } t[] = {
        { 0, 2 }, { 1, 4 }, { 2, 8 }, { 3, 16 }, { 8, 32 }, { 9, 64 }, { 10, 128 }, { 11, 1 }
    };

    wr(0, TIMER, 0x60);
    for (unsigned i = 0; i < ARRAY_SIZE(t); i++) {
        wr(0, TDCR, t[i].dcr);
        wr(0, TICR, 1000);
        fake_advance(500 * t[i].by);
        assert_int_equal(rd(0, TCCR), 500);
        fake_advance(500 * t[i].by - 1);
        assert_int_equal(take(0), -1);
        fake_advance(1);
        assert_int_equal(take(0), 0x60);
        wr(0, EOI, 0);
    }
}

static void test_divider_changes_while_running(void **state) {
    wr(0, TIMER, 0x60);
    wr(0, TDCR, DIV1);
    wr(0, TICR, 1000);
    fake_advance(300);
    wr(0, TDCR, 1); /* by 4: 700 counts take 2800 ns */
    assert_int_equal(rd(0, TCCR), 700);
    fake_advance(2799);
    assert_int_equal(take(0), -1);
    fake_advance(1);
    assert_int_equal(take(0), 0x60);
}

static void test_periodic(void **state) {
    unsigned ticks = 0;

    wr(0, TDCR, DIV1);
    wr(0, TIMER, PERIODIC | 0x60);
    wr(0, TICR, 100000);
    for (int i = 0; i < 100; i++) {
        fake_advance(10000);
        assert_int_equal(rd(0, TCCR), 100000 - (i + 1) % 10 * 10000);
        if (take(0) == 0x60) {
            ticks++;
            wr(0, EOI, 0);
        }
    }
    assert_int_equal(ticks, 10);
    wr(0, TICR, 0); /* stops */
    fake_advance(NS_PER_MS);
    assert_int_equal(take(0), -1);
    assert_int_equal(rd(0, TCCR), 0);
}

/* A tick that is not taken stops the timer until it is: a masked or descheduled vCPU costs
 * nothing. */
static void test_periodic_waits_for_the_guest(void **state) {
    unsigned before;

    wr(0, TDCR, DIV1);
    wr(0, TIMER, PERIODIC | 0x60);
    wr(0, TICR, 50000);
    fake_advance(100000);
    before = fake_sets;
    fake_advance(NS_PER_S);
    assert_int_equal(fake_sets, before);
    assert_int_equal(notified[0], 1);
    assert_int_equal(take(0), 0x60);
    fake_advance(1);
    wr(0, EOI, 0);
    assert_int_equal(take(0), 0x60); /* the one that was held back, then in phase again */
    wr(0, EOI, 0);
    assert_int_equal(fake_now % 50000, 1);
    fake_advance(49998);
    assert_int_equal(take(0), -1);
    fake_advance(1);
    assert_int_equal(take(0), 0x60);
}

static void test_no_storm(void **state) {
    wr(0, TDCR, DIV1);
    wr(0, TIMER, PERIODIC | 0x60);
    wr(0, TICR, 1);
    for (int i = 0; i < 10000; i++) {
        fake_advance(100); /* 1 ms in all */
        if (take(0) == 0x60) wr(0, EOI, 0);
    }
    assert_in_range(fake_sets, 40, 110);
    assert_in_range(notified[0], 40, 55);
}

static void test_mode_switches(void **state) {
    wr(0, TDCR, DIV1);
    wr(0, TIMER, 0x60);
    wr(0, TICR, 100000);
    fake_advance(30000);
    wr(0, TIMER, PERIODIC | 0x61); /* goes on counting */
    assert_int_equal(rd(0, TCCR), 70000);
    fake_advance(70000);
    assert_int_equal(take(0), 0x61);
    wr(0, EOI, 0);
    fake_advance(100000);
    assert_int_equal(take(0), 0x61);
    wr(0, EOI, 0);
    fake_advance(10000);
    wr(0, TIMER, 0x62);
    fake_advance(90000);
    assert_int_equal(take(0), 0x62);
    wr(0, EOI, 0);
    wr(0, TIMER, PERIODIC | 0x63); /* a one-shot that is over does not begin again */
    fake_advance(NS_PER_MS);
    assert_int_equal(take(0), -1);
    wr(0, TICR, 100000);
    wr(0, TIMER, DEADLINE | 0x64); /* disarms */
    fake_advance(NS_PER_MS);
    assert_int_equal(take(0), -1);
    assert_int_equal(rd(0, TCCR), 0);
    wr(0, TICR, 500); /* ignored */
    wr(0, TIMER, 0x65);
    fake_advance(NS_PER_MS);
    assert_int_equal(take(0), -1);
    wr(0, TIMER, 0x60000 | 0x66); /* reserved mode */
    wr(0, TICR, 500);
    fake_advance(NS_PER_MS);
    assert_int_equal(take(0), -1);
}

static void test_masking(void **state) {
    wr(0, TDCR, DIV1);
    wr(0, TIMER, MASKED | 0x60);
    wr(0, TICR, 1000);
    fake_advance(400);
    assert_int_equal(rd(0, TCCR), 600); /* it counts all the same */
    wr(0, TIMER, 0x60);
    fake_advance(600);
    assert_int_equal(take(0), 0x60);
    wr(0, EOI, 0);
    wr(0, TIMER, MASKED | 0x60);
    wr(0, TICR, 1000);
    fake_advance(2000);
    wr(0, TIMER, 0x60); /* it was over while masked: lost */
    fake_advance(2000);
    assert_int_equal(take(0), -1);
}

/* The timer is due but the service was late: whatever the guest does then, it gets its
 * interrupt. */
static void test_late_timer_is_not_lost(void **state) {
    static const u32 regs[] = { TIMER, TDCR, TICR };

    wr(0, TDCR, DIV1);
    wr(0, TIMER, 0x60);
    for (unsigned i = 0; i < ARRAY_SIZE(regs); i++) {
        wr(0, TICR, 1000);
        fake_now += 2000; /* without running timers */
        wr(0, regs[i], rd(0, regs[i]));
        assert_int_equal(take(0), 0x60);
        wr(0, EOI, 0);
        wr(0, TICR, 0);
    }
}

static void test_deadline(void **state) {
    u64 v;

    assert_int_equal(vlapic_wrmsr(&apic[0], MSR_TSC_DEADLINE, 5000, fake_now), 0);
    assert_int_equal(vlapic_rdmsr(&apic[0], MSR_TSC_DEADLINE, &v, fake_now), 0);
    assert_int_equal(v, 0); /* not in that mode */
    wr(0, TIMER, DEADLINE | 0x60);
    assert_int_equal(vlapic_wrmsr(&apic[0], MSR_TSC_DEADLINE, 5000, fake_now), 0);
    vlapic_rdmsr(&apic[0], MSR_TSC_DEADLINE, &v, fake_now);
    assert_int_equal(v, 5000);
    fake_advance(1999);
    assert_int_equal(take(0), -1);
    fake_advance(1);
    assert_int_equal(take(0), 0x60);
    wr(0, EOI, 0);
    vlapic_rdmsr(&apic[0], MSR_TSC_DEADLINE, &v, fake_now);
    assert_int_equal(v, 0);
    vlapic_wrmsr(&apic[0], MSR_TSC_DEADLINE, 5001, fake_now); /* past: at once */
    assert_int_equal(take(0), 0x60);
    wr(0, EOI, 0);
    vlapic_wrmsr(&apic[0], MSR_TSC_DEADLINE, 9000, fake_now);
    vlapic_wrmsr(&apic[0], MSR_TSC_DEADLINE, 0, fake_now);
    fake_advance(NS_PER_S);
    assert_int_equal(take(0), -1);
    vlapic_wrmsr(&apic[0], MSR_TSC_DEADLINE, ~0ull, fake_now);
    fake_advance(NS_PER_S);
    assert_int_equal(take(0), -1);
}

#define T(f) cmocka_unit_test_setup(f, setup)

int main(void) {
    const struct CMUnitTest tests[] = {
        T(test_after_reset),
        T(test_writable_bits),
        T(test_odd_accesses),
        T(test_apic_base),
        T(test_x2apic_map),
        T(test_x2apic_ids),
        T(test_order_and_eoi),
        T(test_task_priority),
        T(test_raise_twice_notifies_once),
        T(test_every_vector),
        T(test_software_disable),
        T(test_illegal_vectors),
        T(test_illegal_error_vector_does_not_recurse),
        T(test_physical),
        T(test_shorthands),
        T(test_logical_flat_and_cluster),
        T(test_lowest_priority),
        T(test_nmi_init_sipi),
        T(test_what_cannot_be_sent),
        T(test_init_resets),
        T(test_one_shot),
        T(test_dividers),
        T(test_divider_changes_while_running),
        T(test_periodic),
        T(test_periodic_waits_for_the_guest),
        T(test_no_storm),
        T(test_mode_switches),
        T(test_masking),
        T(test_late_timer_is_not_lost),
        T(test_deadline),
    };

    fake_machine("null");
    return cmocka_run_group_tests_name("vlapic", tests, NULL, NULL);
}
