/* The four local APICs of a VM: random accesses while time passes. After each the invariants of all
 * four must hold, for example that a pending interrupt is the highest one that the priority lets
 * through, and the timers may not fire more often than their shortest period allows. */
#include <stdlib.h>
#include <string.h>
#include "../unit/fake_machine.h"
#include "lib/timerq.h"
#include "vdev/vlapic.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define NR 4

static struct vlapic apic[NR];
static struct timer timers[NR];
static u64 now;
static struct timerq queue;
static unsigned fired;

static void check(bool ok) {
    if (!ok) abort();
}

static struct vlapic *peer(struct vlapic *l, u32 id) {
    if (id >= NR) return NULL;
    return &apic[id];
}

static void notify(struct vlapic *l, enum delivery_mode what, u8 vector) {
    check(l >= apic && l < apic + NR);
    check(what == DM_FIXED || what == DM_NMI || what == DM_INIT || what == DM_SIPI);
    if (what == DM_INIT) vlapic_reset(l);
}

static void arm(struct vlapic *l, u64 when) {
    timerq_remove(&queue, &timers[l - apic]);
    if (when != ~0ull) timerq_insert(&queue, &timers[l - apic], when);
}

static void tick(struct timer *t, u64 ns) { vlapic_tick(&apic[t - timers], ns); }

static u64 tsc_to_ns(struct vlapic *l, u64 tsc) { return tsc; }

static const struct vlapic_ops ops = {
    .peer = peer, .notify = notify, .arm = arm, .tsc_to_ns = tsc_to_ns
};

/* What vlapic_pending() has to say: the highest vector in IRR if its priority class is above that
 * of the TPR and of what is in service; -1 if a lower one waits; 0 if none does. */
static int expected_pending(u32 highest, u32 tpr, u32 top) {
    if (highest >> 4 > MAX(tpr, top) >> 4) return (int)highest;
    if (highest) return -1;
    return 0;
}

static void invariants(struct vlapic *l) {
    const u32 *irr = l->reg + R_IRR, *isr = l->reg + R_ISR;
    u32 tpr = l->reg[R_TPR], highest = 0, top = 0;
    int pending = vlapic_pending(l);

    for (u32 v = 0; v < 256; v++) {
        if (irr[v / 32] >> (v & 31) & 1) highest = v;
        if (isr[v / 32] >> (v & 31) & 1) top = v;
    }
    check(top == l->isr_top);
    check(((irr[0] | isr[0]) & 0xffff) == 0); /* never a vector below 16 */
    check(pending == expected_pending(highest, tpr, top));
    check(tpr <= 0xff);
    check((l->base & ~(APIC_BASE_EN | APIC_BASE_EXTD | APIC_BASE_BSP)) == 0xfee00000);
    check((l->base & (APIC_BASE_EN | APIC_BASE_EXTD)) != APIC_BASE_EXTD);
    for (u32 n = R_LVT_TIMER; n <= R_LVT_ERROR; n++)
        check(l->reg[R_SVR] & 0x100 || l->reg[n] & 0x10000);
    if (l->base & APIC_BASE_EN && !vlapic_x2(l))
        check(vlapic_read(l, 0x390, now) <= l->reg[R_INITIAL]);
    check(l->next == ~0ull || l->reg[R_INITIAL] || l->deadline);
    check(!timers[l - apic].queued || !(l->reg[R_LVT_TIMER] & 0x10000));
}

static void pass(u64 ns) {
    u64 end = now + ns;
    unsigned before = fired;
    struct timer *t;

    while (timerq_next(&queue) <= end) {
        now = MAX(now, timerq_next(&queue));
        t = timerq_pop(&queue, now);
        fired++;
        t->fn(t, now);
        /* For each LAPIC there is at most one tick in a period, one that was held back, and one
         * that was due at once. */
        check(fired - before <= NR * (ns / VLAPIC_MIN_PERIOD + 3));
    }
    now = end;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    now = 1;
    fired = 0;
    queue.root = NULL;
    fake_machine("null"); /* for the counters */
    for (u32 i = 0; i < NR; i++) {
        timer_init(&timers[i], tick);
        vlapic_init(&apic[i], i, &ops);
    }
    for (; size >= 8; data += 8, size -= 8) {
        struct vlapic *l = &apic[data[0] & 3];
        u32 value, reg = (u32)data[1] << 4;
        u64 wide, written, base, got = 0;
        int v;

        memcpy(&value, data + 3, 4);
        wide = (u64)data[7] << 56 | (u64)data[2] << 32 | value;
        written = wide;
        if (data[7] & 1) written = value;
        switch (data[0] >> 2 & 15) {
        case 0 ... 4: vlapic_write(l, reg, value, now); break;
        case 5: vlapic_read(l, reg | (data[2] & 0xf), now); break;
        case 6 ... 7: vlapic_wrmsr(l, MSR_X2APIC + data[1], written, now); break;
        case 8: vlapic_rdmsr(l, MSR_X2APIC + data[1], &got, now); break;
        case 9:
            base = l->base ^ (value & 0xc00);
            if (data[7] == 1) base ^= wide;
            vlapic_wrmsr(l, MSR_APIC_BASE, base, now);
            break;
        case 10:
            if (data[7] & 1) wide = now + value;
            vlapic_wrmsr(l, MSR_TSC_DEADLINE, wide, now);
            break;
        case 11: vlapic_raise(l, data[1]); break;
        case 12:
            v = vlapic_pending(l);
            if (v > 0) vlapic_accept(l, (u8)v);
            break;
        case 13:
            vlapic_write(l, 0xf0, 0x1ff,
                         now); /* software enable: without it most of a LAPIC does nothing */
            break;
        case 14: pass(value & 0xfffff); break;
        case 15: vlapic_set_cr8(l, data[1]); break;
        }
        for (unsigned i = 0; i < NR; i++) invariants(&apic[i]);
    }
    for (u32 i = 0; i < NR; i++) vlapic_reset(&apic[i]);
    check(queue.root == NULL);
    return 0;
}
