/* Random accesses to four LAPICs of one VM, with time passing; after each the invariants of every one. */
#include <stdlib.h>
#include <string.h>
#include "platform/timer.h"
#include "vdev/vlapic.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define NR 4

static struct vlapic apic[NR];
static u64 now;
static struct timerq queue;
static unsigned fired;

static void check(bool ok) {
    if (!ok) abort();
}

void timer_set(unsigned cpu, struct timer *t, u64 when) {
    check(cpu == 0);
    timerq_remove(&queue, t);
    timerq_insert(&queue, t, when);
}

void timer_cancel(struct timer *t) { timerq_remove(&queue, t); }

static struct vlapic *peer(void *vm, u32 id) {
    check(vm == apic && id < NR);
    return id == 2 ? NULL : &apic[id];
}

static u32 count(void *vm) { return NR; }

static void unlocked(struct vlapic *l) {
    for (unsigned i = 0; i < NR; i++) check(!spin_is_locked(&apic[i].lock));
    check(l >= apic && l < apic + NR);
}

static void sipi(struct vlapic *l, u8 vector) { unlocked(l); }

static u32 home(struct vlapic *l) { return 0; }

static u64 tsc_to_ns(struct vlapic *l, u64 tsc) { return tsc; }

static const struct vlapic_ops ops = {
    .peer = peer,
    .count = count,
    .notify = unlocked,
    .init = vlapic_reset,
    .sipi = sipi,
    .nmi = unlocked,
    .eoi = sipi,
    .home_cpu = home,
    .tsc_to_ns = tsc_to_ns,
};

static void invariants(struct vlapic *l) {
    int pending = vlapic_pending(l);
    u32 top = 0;

    unlocked(l);
    for (unsigned w = 0; w < 8; w++) {
        check(!l->irr[w] || (l->irr_any >> w & 1));
        check(!!l->isr[w] == (l->isr_any >> w & 1));
        if (l->isr[w]) top = w * 32 + 31 - (unsigned)__builtin_clz(l->isr[w]);
    }
    check(top == l->isr_top);
    check(((l->irr[0] | l->isr[0]) & 0xffff) == 0); /* D2: never a vector below 16 */
    check(pending < 0 || (pending >> 4 > (int)(l->tpr >> 4) && pending >> 4 > (int)(top >> 4)));
    check(l->tpr <= 0xff && l->isr_any <= 0xff);
    check((l->base & ~(APIC_BASE_EN | APIC_BASE_EXTD | APIC_BASE_BSP)) == 0xfee00000);
    check((l->base & (APIC_BASE_EN | APIC_BASE_EXTD)) != APIC_BASE_EXTD);
    if (!(l->svr & 0x100))
        for (unsigned i = 0; i < LVT_NR; i++) check(l->lvt[i] & 0x10000);
    if (l->base & APIC_BASE_EN && !vlapic_x2(l)) check(vlapic_read(l, 0x390, now) <= l->initial);
    check(!l->timer_on || l->initial);
    check(!l->timer.queued || !(l->lvt[LVT_TIMER] & 0x10000));
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
        /* At most one tick a period and LAPIC, one that was held back, and one that was due at once. */
        check(fired - before <= NR * (ns / VLAPIC_MIN_PERIOD + 3));
    }
    now = end;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    now = 1;
    fired = 0;
    queue.root = NULL;
    for (unsigned i = 0; i < NR; i++) vlapic_init(&apic[i], i, apic, &ops, i == 0);
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
            vlapic_wrmsr(l, MSR_APIC_BASE, l->base ^ (value & 0xc00) ^ (data[7] == 1 ? wide : 0), now);
            break;
        case 10: vlapic_wrmsr(l, MSR_TSC_DEADLINE, data[7] & 1 ? now + value : wide, now); break;
        case 11: vlapic_raise_as(l, data[1], data[2] & 1); break;
        case 12:
            v = vlapic_pending(l);
            if (v >= 0) vlapic_accept(l, (u8)v);
            break;
        case 13:
            vlapic_write(l, 0xf0, 0x1ff, now); /* most of it is asleep without */
            break;
        case 14: pass(value & 0xfffff); break;
        case 15: vlapic_set_cr8(l, data[1]); break;
        }
        for (unsigned i = 0; i < NR; i++) invariants(&apic[i]);
    }
    for (unsigned i = 0; i < NR; i++) vlapic_fini(&apic[i]);
    check(queue.root == NULL);
    return 0;
}
