/* Vectors 0 to 15 are for exceptions, so an IPI or an entry of the local vector table must not
 * have one (SDM 3A 11.5.3). The local APIC notes the error in ESR and raises the interrupt for
 * errors once. If that interrupt itself has such a vector, nothing is raised: it would go on
 * without end. */
#include <guest/lapic.h>
#include <guest/test.h>
#include <guest/thread.h>
#include <guest/time.h>
#include <guest/x86.h>

#define SEND_ILLEGAL    0x20u
#define RECEIVE_ILLEGAL 0x40u

static volatile unsigned errors;

static void on_error(void *arg) { errors++; }

static u32 take_esr(void) {
    lapic_write(LAPIC_ESR, 0);
    return lapic_read(LAPIC_ESR);
}

static void by_ipi(const char *mode) {
    take_esr();
    for (u32 v = 0; v < 16; v++) {
        unsigned before = errors;
        u32 esr;

        lapic_self_ipi((u8)v);
        lapic_self_ipi((u8)v);
        delay_ns(10 * NS_PER_US);
        CHECK(errors == before + 1, "%s: vector %u raised %u errors", mode, v, errors - before);
        esr = take_esr();
        CHECK(esr == SEND_ILLEGAL, "%s: vector %u: ESR is %x", mode, v, esr);
        CHECK(take_esr() == 0, "%s: ESR is kept", mode);
    }
}

static void by_timer(const char *mode) {
    unsigned before = errors;
    u64 flags = irq_save(); /* the library's own timer is away meanwhile */
    u32 esr, was = lapic_read(LAPIC_LVT_TIMER);

    lapic_write(LAPIC_LVT_TIMER, 7);
    lapic_write(LAPIC_TIMER_INITIAL, 1000);
    delay_ns(NS_PER_MS);
    lapic_write(LAPIC_LVT_TIMER, was);
    irq_restore(flags);
    delay_ns(10 * NS_PER_US);
    esr = take_esr();
    CHECK(esr == RECEIVE_ILLEGAL, "%s: a timer with vector 7: ESR is %x", mode, esr);
    CHECK(errors == before + 1, "%s: a timer with vector 7 raised %u errors", mode,
          errors - before);
}

static void error_of_the_error(const char *mode) {
    unsigned before = errors;
    u32 esr;

    lapic_write(LAPIC_LVT_ERROR, 5);
    for (unsigned i = 0; i < 100; i++) lapic_self_ipi(3);
    delay_ns(10 * NS_PER_US);
    esr = take_esr();
    CHECK(esr == (SEND_ILLEGAL | RECEIVE_ILLEGAL), "%s: LVT Error with vector 5: ESR is %x", mode,
          esr);
    CHECK(errors == before, "%s: it was raised", mode);
    lapic_write(LAPIC_LVT_ERROR, VECTOR_APICERROR);
}

int main(void) {
    test_begin();
    test_needs_takt();
    irq_set_handler(VECTOR_APICERROR, on_error, NULL);
    for (int x2 = 0; x2 < 2; x2++) {
        const char *mode = x2 ? "x2APIC" : "xAPIC";

        lapic_set_mode(x2);
        by_ipi(mode);
        by_timer(mode);
        error_of_the_error(mode);
    }
    return test_end("illegal vectors are errors, and no more than that");
}
