/* The vector of an event may be bound with a flag that it needs no EOI. Then it is not in
 * service in its handler, and comes again without an EOI. A vector without the flag is in
 * service until its EOI. One that is in service when the flag is set stays so. An interrupt of
 * lower priority that waits behind the event's comes as soon as its handler ends, although the
 * guest then makes no exit. */
#include <guest/event.h>
#include <guest/guest.h>
#include <guest/lapic.h>
#include <guest/test.h>
#include <guest/x86.h>

#define VECTOR 0x60
#define LOWER  0x50
#define ROUNDS 20
#define TURNS  20000 /* of a loop without exits, in which the interrupt has to come */

static u32 port, other, taken, in_service;
static volatile u32 lower;
static bool eoi;

static void handler(void *arg) {
    taken += event_take(port);
    in_service += lapic_read(LAPIC_ISR + VECTOR / 32 * 16) >> VECTOR % 32 & 1;
    if (eoi) lapic_eoi();
}

static void lower_handler(void *arg) {
    lower++;
    lapic_eoi();
}

/* Both wait when interrupts are enabled. */
static void take_both(void) {
    u32 turns = 0;

    taken = 0;
    irq_set_raw_handler(LOWER, lower_handler, NULL);
    irq_disable();
    event_send(other);
    lapic_self_ipi(LOWER);
    irq_enable();
    while (!lower && turns < TURNS) turns++;
    CHECK(taken == 1 && lower == 1, "%u taken, then %u after %u turns", taken, lower, turns);
}

int main(void) {
    test_begin();
    test_needs_takt();
    port = (u32)event_alloc(takt_vm_id());
    other = (u32)event_bind(takt_vm_id(), port);
    irq_set_raw_handler(VECTOR, handler, NULL);
    CHECK(hypercall3(TAKT_HC_EVTCHN_VECTOR, port, 0, 0x200 | VECTOR) == -EINVAL, "an unknown flag");
    CHECK(hypercall3(TAKT_HC_EVTCHN_VECTOR, port, 0, TAKT_VECTOR_NO_EOI | 31) == -EINVAL,
          "vector 31");
    CHECK(hypercall3(TAKT_HC_EVTCHN_VECTOR, port, 64, TAKT_VECTOR_NO_EOI | VECTOR) == -EINVAL,
          "vCPU 64");

    CHECK(hypercall3(TAKT_HC_EVTCHN_VECTOR, port, 0, TAKT_VECTOR_NO_EOI | VECTOR) == 0,
          "not bound");
    for (u32 i = 0; i < ROUNDS; i++) event_send(other);
    CHECK(taken == ROUNDS && in_service == 0, "%u of %u taken, %u in service", taken, ROUNDS,
          in_service);
    take_both();

    CHECK(hypercall3(TAKT_HC_EVTCHN_VECTOR, port, 0, VECTOR) == 0, "not bound again");
    eoi = true;
    taken = 0;
    for (u32 i = 0; i < ROUNDS; i++) event_send(other);
    CHECK(taken == ROUNDS && in_service == ROUNDS, "%u of %u taken, %u in service", taken, ROUNDS,
          in_service);

    eoi = false; /* and so the next one waits */
    taken = 0;
    event_send(other);
    event_send(other);
    CHECK(taken == 1, "%u taken without an EOI", taken);
    lapic_eoi();
    CHECK(taken == 2, "%u taken after the EOI", taken);
    lapic_eoi();

    irq_disable(); /* the flag is set while the vector waits */
    taken = in_service = 0;
    event_send(other);
    CHECK(hypercall3(TAKT_HC_EVTCHN_VECTOR, port, 0, TAKT_VECTOR_NO_EOI | VECTOR) == 0,
          "not bound while it waits");
    irq_enable();
    __asm__ volatile("nop" : : : "memory"); /* one instruction, before which none is delivered */
    CHECK(taken == 1 && in_service == 0, "%u taken, %u in service", taken, in_service);
    return test_end("whether an event's vector wants an EOI is the guest's choice");
}
