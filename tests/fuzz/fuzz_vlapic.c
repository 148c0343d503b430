/* Random accesses to four LAPICs of one VM, with time passing; after each the invariants of
 * every one. */
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

static struct vlapic *peer(struct vlapic *l, u32 id) { return id < NR ? &apic[id] : NULL; }

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

static void invariants(struct vlapic *l) {
    const u32 *irr = l->reg + R_IRR, *isr = l->reg + R_ISR;
    u32 tpr = l->reg[R_TPR], highest = 0, top = 0;
    int pending = vlapic_pending(l);

    for (u32 v = 0; v < 256; v++) {
        if (irr[v / 32] >> (v & 31) & 1) highest = v;
        if (isr[v / 32] >> (v & 31) & 1) top = v;
    }
    check(top == l->isr_top);
    check(((irr[0] | isr[0]) & 0xffff) == 0); /* D2: never a vector below 16 */
    check(pending == (highest >> 4 > MAX(tpr, top) >> 4 ? (int)highest : highest ? -1 : 0));
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
        /* At most one tick a period and LAPIC, one that was held back, and one that was due at
         * once. */
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
        u64 wide, got = 0;
        int v;

        memcpy(&value, data + 3, 4);
        wide = (u64)data[7] << 56 | (u64)data[2] << 32 | value;
        switch (data[0] >> 2 & 15) {
        case 0 ... 4: vlapic_write(l, reg, value, now); break;
        case 5: vlapic_read(l, reg | (data[2] & 0xf), now); break;
        case 6 ... 7: vlapic_wrmsr(l, MSR_X2APIC + data[1], data[7] & 1 ? value : wide, now); break;
        case 8: vlapic_rdmsr(l, MSR_X2APIC + data[1], &got, now); break;
        case 9:
            vlapic_wrmsr(l, MSR_APIC_BASE, l->base ^ (value & 0xc00) ^ (data[7] == 1 ? wide : 0),
                         now);
            break;
        case 10: vlapic_wrmsr(l, MSR_TSC_DEADLINE, data[7] & 1 ? now + value : wide, now); break;
        case 11: vlapic_raise(l, data[1]); break;
        case 12:
            v = vlapic_pending(l);
            if (v > 0) vlapic_accept(l, (u8)v);
            break;
        case 13:
            vlapic_write(l, 0xf0, 0x1ff, now); /* most of it is asleep without */
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
