/* The vector of an event may be bound with a flag that it needs no EOI. Then it is not in
 * service in its handler, and comes again without an EOI. A vector without the flag is in
 * service until its EOI. One that is in service when the flag is set stays so. */
#include <guest/event.h>
#include <guest/guest.h>
#include <guest/lapic.h>
#include <guest/test.h>

#define VECTOR 0x60
#define ROUNDS 20

static u32 port, taken, in_service;
static bool eoi;

static void handler(void *arg) {
    taken += event_take(port);
    in_service += lapic_read(LAPIC_ISR + VECTOR / 32 * 16) >> VECTOR % 32 & 1;
    if (eoi) lapic_eoi();
}

int main(void) {
    u32 other;

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
    return test_end("whether an event's vector wants an EOI is the guest's choice");
}
