/* vcpus: 4 */
/* memory: 8 */
/* vms: 2 */
/* time: 1500 */
/* One VM sends every kind of IPI to every destination. Its own vCPUs get what they should get.
 * The other VM, on the same pCPUs, notices nothing. */
#include <guest/lapic.h>
#include <guest/test.h>
#include <guest/thread.h>
#include <guest/vcpu.h>

#define VECTOR   0x50
#define STORM    100
#define PATIENCE (4 * NS_PER_S) /* a vCPU may lose its CPU for long: on QEMU its host may be busy */

static u64 ipis[TAKT_MAX_VCPUS], nmis[TAKT_MAX_VCPUS];

static void on_ipi(void *arg) { __atomic_add_fetch(&ipis[this_vcpu()->id], 1, __ATOMIC_RELAXED); }

static bool on_nmi(struct trap_frame *f) {
    __atomic_add_fetch(&nmis[this_vcpu()->id], 1, __ATOMIC_RELAXED);
    return true;
}

static u64 sum(const u64 *of, unsigned n) {
    u64 all = 0;

    for (unsigned i = 0; i < n; i++) all += __atomic_load_n(&of[i], __ATOMIC_RELAXED);
    return all;
}

/* Waits until there are `want` of them in all, and then a while longer, in case more come that
 * should not. */
static u64 settle(const u64 *of, unsigned n, u64 want) {
    u64 end = time_ns() + PATIENCE;

    while (sum(of, n) < want && time_ns() < end) sleep_ns(NS_PER_MS);
    sleep_ns(5 * NS_PER_MS);
    return sum(of, n);
}

static void expect(const char *what, unsigned n, u64 before, u64 more) {
    u64 got = settle(ipis, n, before + more) - before;

    CHECK(got == more, "%s: %lu vCPUs heard it, not %lu", what, got, more);
}

static void kinds(const char *mode, unsigned n, u32 everybody) {
    u64 b = sum(ipis, n);

    lapic_icr(everybody, ICR_FIXED | ICR_ASSERT | VECTOR);
    expect("broadcast", n, b, n);
    b = sum(ipis, n);
    lapic_icr(0, ICR_ALL | ICR_ASSERT | VECTOR);
    expect("all", n, b, n);
    b = sum(ipis, n);
    lapic_icr(0, ICR_OTHERS | ICR_ASSERT | VECTOR);
    expect("all others", n, b, n - 1);
    b = sum(ipis, n);
    lapic_icr(everybody, ICR_LOWEST | ICR_ASSERT | VECTOR);
    expect("lowest priority", n, b, 1);
    b = sum(ipis, n);
    for (u32 id = n; id < 255; id++) lapic_ipi(id, VECTOR);
    for (u32 kind = 0x100; kind < 0x800; kind += 0x100) /* to oneself only a fixed one is legal */
        lapic_icr(0, ICR_SELF | ICR_ASSERT | kind | VECTOR);
    lapic_icr(everybody, 0x200 | ICR_ASSERT | VECTOR); /* SMI, a reserved mode, ExtINT */
    lapic_icr(everybody, 0x300 | ICR_ASSERT | VECTOR);
    lapic_icr(everybody, 0x700 | ICR_ASSERT | VECTOR);
    expect("what cannot be sent", n, b, 0);
    CHECK(sum(nmis, n) == 0, "%s: an NMI out of nowhere", mode);
}

static void storm(unsigned n) {
    u64 b = sum(ipis, n), end = time_ns() + PATIENCE;

    for (unsigned i = 0; i < STORM; i++) {
        lapic_icr(0, ICR_OTHERS | ICR_NMI | ICR_ASSERT);
        lapic_icr(0, ICR_ALL | ICR_ASSERT | VECTOR);
        lapic_icr(0xff, ICR_FIXED | ICR_ASSERT | VECTOR);
    }
    for (unsigned i = 1; i < n; i++)
        while (!__atomic_load_n(&nmis[i], __ATOMIC_RELAXED) && time_ns() < end) thread_yield();
    settle(ipis, n, b + 1);
    for (unsigned i = 1; i < n; i++)
        CHECK(nmis[i] >= 1 && nmis[i] <= STORM, "vCPU %u took %lu NMIs of %u", i, nmis[i], STORM);
    CHECK(nmis[0] == 0, "the sender took %lu NMIs", nmis[0]);
    CHECK(sum(ipis, n) > b, "no IPI of a storm arrived");
}

int main(void) {
    unsigned n;

    test_begin();
    irq_set_handler(VECTOR, on_ipi, NULL);
    exception_set_hook(EXC_NMI, on_nmi);
    n = vcpu_start_all();
    CHECK(n == vcpu_count(), "%u of %u vCPUs started", n, vcpu_count());
    if (cmdline_u64("vm", 1) == 2) {
        sleep_ns(700 * NS_PER_MS);
        CHECK(sum(ipis, n) + sum(nmis, n) + irq_unexpected() == 0,
              "%lu IPIs, %lu NMIs, %lu other interrupts of another VM", sum(ipis, n), sum(nmis, n),
              irq_unexpected());
        return test_end("nothing came from the other VM");
    }
    if (lapic_has_x2()) kinds("x2APIC", n, ~0u);
    lapic_set_mode(false); /* the sender only; the others stay */
    time_init_cpu();       /* its timer is gone with the old mode */
    this_vcpu()->timer_armed = 0;
    kinds("xAPIC", n, 0xff);
    storm(n);
    CHECK(irq_unexpected() == 0, "%lu interrupts that nobody sent", irq_unexpected());
    return test_end("IPIs reach whom they should");
}
