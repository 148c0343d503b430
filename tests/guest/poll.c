/* vcpus: 2 */
/* The hypercall TAKT_HC_POLL: an event that is pending already, time-outs, an event or an
 * interrupt that comes while the vCPU sleeps, and deadlines that are past or far away. */
#include <guest/event.h>
#include <guest/lapic.h>
#include <guest/test.h>
#include <guest/thread.h>
#include <guest/time.h>
#include <guest/vcpu.h>

static int port_a, port_b;
static int result;

/* Polls on a vCPU to which the port is not bound. */
static void polls(void *arg) { result = event_poll(port_a, 4 * NS_PER_S); }

static void later(void *arg) {
    sleep_ns(5 * NS_PER_MS);
    event_send(port_b);
}

static u32 interrupts, wrong;

/* Each time an interrupt comes behind it and has to wait. */
static void calls(struct timer *t) {
    interrupts++;
    for (u32 i = 0; i < 20; i++) {
        lapic_ipi(0, VECTOR_RESCHED);
        wrong += hypercall0(TAKT_HC_VERSION) != TAKT_ABI_VERSION;
    }
}

int main(void) {
    static struct timer timer;
    struct thread *t;
    u64 start, took;
    int err;

    test_begin();
    test_needs_takt();
    port_a = event_alloc(takt_vm_id());
    port_b = event_bind(takt_vm_id(), port_a);
    if (port_a < 0 || port_b < 0) test_error("no event channel to ourselves");
    if (vcpu_start_all() < 2) test_error("one vCPU only");

    event_send(port_b);
    CHECK(event_poll(port_a, 0) == 0, "pending, and poll does not return 0");
    CHECK(event_take(port_a), "poll took the bit");

    start = time_ns();
    err = event_poll(port_a, 5 * NS_PER_MS);
    took = time_ns() - start;
    CHECK(err == -ETIMEDOUT, "time-out: %d", err);
    CHECK(took >= 5 * NS_PER_MS - 50000, "it came after %lu ns", took);

    CHECK(hypercall2(TAKT_HC_POLL, port_a, 1) == -ETIMEDOUT, "a deadline long past");
    CHECK(hypercall2(TAKT_HC_POLL, TAKT_PORT_ANY, 1) == -ETIMEDOUT,
          "any port, a deadline long past");
    CHECK(hypercall2(TAKT_HC_POLL, 1ull << 33, 1) == -EINVAL, "port 2^33");
    CHECK(hypercall2(TAKT_HC_POLL, TAKT_MAX_PORTS, 1) < 0, "port %u", TAKT_MAX_PORTS);

    t = thread_start(1, "later", later, NULL);
    CHECK(event_poll(port_a, 4 * NS_PER_S) == 0, "an event while it sleeps");
    CHECK(event_take(port_a), "and no bit");
    thread_join(t);

    t = thread_start(1, "later", later, NULL);
    CHECK(hypercall2(TAKT_HC_POLL, port_a, ~0ull) == 0, "a deadline in 584 years");
    event_take(port_a);
    thread_join(t);

    timer_start(&timer, time_ns() + 2 * NS_PER_MS, calls, NULL);
    err = event_poll(port_a, 6 * NS_PER_MS);
    CHECK(err == -ETIMEDOUT && interrupts == 1 && !wrong,
          "an interrupt that makes hypercalls while it sleeps: %d, %u interrupts, %u wrong answers",
          err, interrupts, wrong);

    event_set_handler(port_a, 0, NULL, NULL);
    t = thread_start(1, "polls", polls, NULL);
    sleep_ns(5 * NS_PER_MS);
    event_send(port_b);
    thread_join(t);
    CHECK(result == 0, "vCPU 1, which polls a port of vCPU 0: %d", result);
    CHECK(event_take(port_a), "the poll on vCPU 1 took the bit");
    event_send(port_b);
    CHECK(event_poll(TAKT_PORT_ANY, NS_PER_MS) == 0 || event_is_pending(port_a), "any port");
    return test_end("polling");
}
