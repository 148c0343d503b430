/* vms: 2 */
/* time: 1500 */
/* Two VMs bind event channels to each other and play ping-pong, with handlers and then by
 * polling. Masks hold events back, and closing a channel ends it. */
#include <guest/event.h>
#include <guest/test.h>
#include <guest/thread.h>
#include <guest/vcpu.h>

#define ROUNDS 50

static struct semaphore arrived = SEMAPHORE(0);
static u64 count;

static void on_event(u32 port, void *arg) {
    count++;
    sem_up(&arrived);
}

/* VM 1 makes ports for its peer, which has the next id and tries until it finds them. */
static int join(bool first, u32 peer) {
    u64 end = time_ns() + NS_PER_S;
    int port;

    if (first) return event_alloc(peer);
    do {
        for (u32 p = 0; p < 8; p++) {
            port = event_bind(peer, p);
            if (port >= 0) return port;
        }
        sleep_ns(NS_PER_MS);
    } while (time_ns() < end);
    return port;
}

/* Two sends before the first is taken are one event. So the second VM always begins a part: it
 * has received the last event of the part before. */
static void by_handler(u32 port, bool first) {
    CHECK(event_set_handler(port, 0, on_event, NULL) == 0, "no vector for the port");
    if (!first) event_send(port); /* the second one serves: it knows that both are there */
    for (unsigned i = 0; i < ROUNDS; i++) {
        if (!sem_down_until(&arrived, time_ns() + 2 * NS_PER_S))
            test_fatal("round %u of %u: nothing came", i, ROUNDS);
        if (first || i < ROUNDS - 1) CHECK(event_send(port) == 0, "cannot send");
    }
    CHECK(count <= ROUNDS + 1, "%lu events for %u sent", count, ROUNDS);
}

static void by_poll(u32 port, bool first) {
    bool early;

    CHECK(event_set_handler(port, 0, NULL, NULL) == 0, "the vector stays");
    early = sem_try(&arrived); /* the peer was quicker, and the handler took it */
    if (!first) event_send(port);
    for (unsigned i = 0; i < ROUNDS; i++) {
        int err = i == 0 && early ? 0 : event_poll(port, 2 * NS_PER_S);

        if (err) test_fatal("round %u of %u: poll says %d", i, ROUNDS, err);
        CHECK((i == 0 && early) || event_take(port), "polled, and not pending");
        if (first || i < ROUNDS - 1) event_send(port);
    }
}

/* An event may come before its handler is set. */
static void before_handler(void) {
    int to = event_alloc(takt_vm_id()), from = event_bind(takt_vm_id(), to);

    while (sem_try(&arrived))
        ;
    CHECK(to >= 0 && from >= 0, "no ports of this VM with itself: %d, %d", to, from);
    event_send(from);
    CHECK(event_set_handler(to, 0, on_event, NULL) == 0, "no vector for the port");
    CHECK(sem_down_until(&arrived, time_ns() + NS_PER_S / 10),
          "an event that came before its handler is lost");
    event_close(from);
    event_close(to);
}

/* The first one masks, the second one sends: pending, not delivered; unmasking delivers. */
static void masked(u32 port, bool first) {
    count = 0;
    while (sem_try(&arrived))
        ;
    if (!first) {
        event_send(port);
        if (event_poll(port, 2 * NS_PER_S)) test_fatal("the peer is not ready for the masks");
        event_take(port);
        event_send(port);
        return;
    }
    if (event_poll(port, 2 * NS_PER_S)) test_fatal("the peer does not come to the masks");
    event_take(port);
    event_mask(port, true);
    event_set_handler(port, 0, on_event, NULL);
    event_send(port);
    for (u64 end = time_ns() + NS_PER_S; !event_is_pending(port) && time_ns() < end;)
        sleep_ns(NS_PER_MS);
    CHECK(event_is_pending(port), "nothing came to a masked port");
    sleep_ns(2 * NS_PER_MS);
    CHECK(count == 0, "a masked port raised its vector");
    event_mask(port, false);
    CHECK(sem_down_until(&arrived, time_ns() + NS_PER_S), "unmasking delivers nothing");
    CHECK(count == 1, "%lu events after unmasking", count);
    CHECK(!event_is_pending(port), "still pending");
}

int main(void) {
    bool first = cmdline_u64("vm", 1) == 1;
    u32 peer;
    int port;

    test_begin();
    test_needs_takt();
    peer = takt_vm_id() + (first ? 1 : -1);
    port = join(first, peer);
    if (port < 0) test_fatal("cannot join: %d", port);
    by_handler(port, first);
    by_poll(port, first);
    masked(port, first);
    sleep_ns(20 * NS_PER_MS);
    CHECK(event_close(port) == 0, "cannot close");
    CHECK(event_send(port) < 0, "a closed port sends");
    CHECK(event_close(port) < 0, "it closes twice");
    before_handler();
    return test_end("events there and back");
}
