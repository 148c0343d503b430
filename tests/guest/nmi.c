/* vcpus: 2 */
/* NMIs reach a vCPU that has interrupts off, one after the other: the next one not before the
 * IRET of the handler (SDM 3A 6.7.1). */
#include <guest/lapic.h>
#include <guest/test.h>
#include <guest/thread.h>
#include <guest/vcpu.h>

#define ROUNDS 20

static volatile u32 taken, nested, inside;
static volatile bool ready, stop;

static bool on_nmi(struct trap_frame *f) {
    nested += inside;
    inside = 1;
    for (volatile unsigned i = 0; i < 2000; i++) /* no PAUSE: that may exit */
        ;
    inside = 0;
    taken++;
    return true;
}

static void target(void *arg) {
    irq_disable();
    ready = true;
    while (!stop) /* no interrupt, so no IRET but the handler's */
        ;
}

static bool wait_for(u32 n) {
    for (unsigned i = 0; i < 200 && taken < n; i++) sleep_ns(NS_PER_MS / 2);
    return taken >= n;
}

int main(void) {
    test_begin();
    if (vcpu_start_all() < 2) test_error("too few vCPUs");
    exception_set_hook(2, on_nmi);
    thread_start(1, "target", target, NULL);
    while (!ready) sleep_ns(NS_PER_MS);
    for (u32 i = 1; i <= ROUNDS; i++) {
        lapic_icr(1, ICR_NMI | ICR_ASSERT);
        if (!wait_for(i)) test_fatal("NMI %u did not arrive", i);
    }
    /* Of two at once the second one waits, even if the vCPU does not run. */
    for (u32 i = 1; i <= ROUNDS; i++) {
        lapic_icr(1, ICR_NMI | ICR_ASSERT);
        lapic_icr(1, ICR_NMI | ICR_ASSERT);
        if (!wait_for(ROUNDS + 2 * i))
            test_fatal("of %u pairs of NMIs %u arrived", i, taken - ROUNDS);
    }
    sleep_ns(2 * NS_PER_MS);
    CHECK(taken == 3 * ROUNDS && !nested, "%u NMIs of %u, %u in another's handler", taken,
          3 * ROUNDS, nested);
    stop = true;
    return test_end("NMIs arrive, and not within each other");
}
