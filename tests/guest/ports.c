/* Event ports that are out of range, closed, not bound, or bound by another VM, and more than
 * there are. Each is an error. */
#include <guest/event.h>
#include <guest/test.h>
#include <guest/vcpu.h>

int main(void) {
    static const u32 odd[] = { TAKT_MAX_PORTS, TAKT_MAX_PORTS + 1, 4096,
                               0x7fffffff,     0x80000000,         0xfffffffe };
    u32 me = takt_vm_id(), made = 0;
    int a, b, err;

    test_begin();
    test_needs_takt();
    for (unsigned i = 0; i < ARRAY_SIZE(odd); i++) {
        CHECK(event_send(odd[i]) < 0, "send on port %x", odd[i]);
        CHECK(event_close(odd[i]) < 0, "close port %x", odd[i]);
        CHECK(event_mask(odd[i], true) < 0, "mask port %x", odd[i]);
        CHECK(hypercall3(TAKT_HC_EVTCHN_VECTOR, odd[i], 0, 64) < 0, "vector of port %x", odd[i]);
        CHECK(hypercall2(TAKT_HC_POLL, odd[i], 1) < 0, "poll port %x", odd[i]);
        CHECK(event_bind(me, odd[i]) < 0, "bind port %x", odd[i]);
        CHECK(event_bind(odd[i], 0) < 0, "bind to VM %x", odd[i]);
    }
    CHECK(event_send(5) < 0, "send on a free port");
    CHECK(event_close(5) < 0, "close a free port");

    a = event_alloc(me); /* a loop to ourselves */
    CHECK(a >= 0, "alloc: %d", a);
    CHECK(event_send(a) < 0 || !event_is_pending(a), "an unbound port delivers to itself");
    b = event_bind(me, a);
    CHECK(b >= 0 && b != a, "bind to ourselves: %d", b);
    CHECK(event_bind(me, a) < 0, "a port is bound twice");
    CHECK(event_send(a) == 0 && event_is_pending(b), "from a to b");
    CHECK(event_take(b) && !event_take(b), "taken twice");
    CHECK(event_send(b) == 0 && event_is_pending(a), "from b to a");
    CHECK(hypercall3(TAKT_HC_EVTCHN_VECTOR, a, 0, 31) < 0, "vector 31");
    CHECK(hypercall3(TAKT_HC_EVTCHN_VECTOR, a, 0, 256) < 0, "vector 256");
    CHECK(hypercall3(TAKT_HC_EVTCHN_VECTOR, a, vcpu_count(), 64) < 0, "a vCPU too many");
    CHECK(hypercall2(TAKT_HC_EVTCHN_MASK, a, 2) < 0, "mask with 2");
    CHECK(event_close(a) == 0, "close");
    CHECK(event_send(b) < 0 || !event_is_pending(a), "send to a closed port arrives");
    event_close(b);

    /* Not for us: made for another VM. */
    a = event_alloc(me + 1000);
    CHECK(a >= 0 || a == -ENOENT || a == -EINVAL, "alloc for a VM that is not there: %d", a);
    if (a >= 0) {
        err = event_bind(me, a);
        CHECK(err < 0, "bound what is another's: %d", err);
        event_close(a);
    }
    /* All there are, then one more; then all free again. */
    for (made = 0; made <= TAKT_MAX_PORTS; made++)
        if (event_alloc(me) < 0) break;
    CHECK(made > 0 && made <= TAKT_MAX_PORTS, "%u ports", made);
    CHECK(event_alloc(me) < 0, "one port too many");
    for (u32 p = 0; p < TAKT_MAX_PORTS; p++) event_close(p);
    CHECK(event_alloc(me) >= 0, "no port after all were closed");
    return test_end("event ports keep their bounds");
}
