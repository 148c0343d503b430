/* vcpus: 2 */
/* time: 2500 */
/* Events on all ways at once, from a vCPU that runs beside vCPU 0: to its handler while it
 * halts, to its polls for one port and for any, through a mask that is set and cleared, and to a
 * port that is closed while it is polled. Each round waits for its event, so a single wake that
 * is lost ends the test. */
#include <guest/event.h>
#include <guest/guest.h>
#include <guest/test.h>
#include <guest/thread.h>
#include <guest/time.h>
#include <guest/vcpu.h>
#include <takt/errno.h>

#define ROUNDS   120u
#define PATIENCE (2 * NS_PER_S) /* so late an event is lost */

/* A port of vCPU 0 and its other end, by which the other vCPU sends; `asked` counts what it is to
 * send. */
struct road {
    u32 to, from, asked;
};

static struct road handled, polled, masked;
static u32 taken; /* by the handler */
static u32 dying; /* the port that is to be closed next; 0: none */
static bool stop;

static u32 look(const u32 *word) { return __atomic_load_n(word, __ATOMIC_SEQ_CST); }

static void on_event(u32 port, void *arg) { __atomic_add_fetch(&taken, 1, __ATOMIC_SEQ_CST); }

static void join(struct road *r) {
    int port = event_alloc(takt_vm_id()),
        other = port < 0 ? port : event_bind(takt_vm_id(), (u32)port);

    if (other < 0) test_error("no event channel to ourselves");
    r->to = (u32)port;
    r->from = (u32)other;
}

/* Different delays, so that the event meets all stages of falling asleep. */
static void delay(u32 n) {
    for (u32 i = 0; i < n * 7 % 64; i++) __builtin_ia32_pause();
}

/* The other vCPU: it sends what is asked for, and closes what is to die. */
static void helps(void *arg) {
    struct road *const roads[] = { &handled, &polled, &masked };
    u32 sent[3] = { 0 }, closed = 0;

    while (!__atomic_load_n(&stop, __ATOMIC_SEQ_CST)) {
        u32 port = look(&dying);

        for (u32 i = 0; i < 3; i++) {
            if (look(&roads[i]->asked) == sent[i]) continue;
            delay(sent[i]++);
            event_send(roads[i]->from);
        }
        if (!port) continue;
        delay(closed++);
        event_close(port);
        __atomic_store_n(&dying, 0, __ATOMIC_SEQ_CST);
    }
}

static void ask(struct road *r) { __atomic_add_fetch(&r->asked, 1, __ATOMIC_SEQ_CST); }

/* Halts until the handler has taken what was asked for. */
static void halt_for_it(u32 round) {
    ask(&handled);
    while (look(&taken) <= round) {
        irq_disable();
        if (look(&taken) <= round) irq_enable_and_halt();
        irq_enable();
    }
}

static void poll_for_it(u32 round) {
    bool any = round & 1;
    int error;

    ask(&polled);
    error = event_poll(any ? TAKT_PORT_ANY : polled.to, PATIENCE);
    CHECK(error == 0, "round %u, a poll for %s: %d", round, any ? "any port" : "a port", error);
    CHECK(event_take(polled.to), "round %u: the poll took the bit", round);
}

/* The event comes while its port is masked, before, or after. */
static void poll_masked(u32 round) {
    int error;

    event_mask(masked.to, true);
    ask(&masked);
    delay(round);
    event_mask(masked.to, false);
    error = event_poll(masked.to, PATIENCE);
    CHECK(error == 0, "round %u, a poll after a mask: %d", round, error);
    CHECK(event_take(masked.to), "round %u: no event after a mask", round);
}

static void poll_closed(u32 round) {
    int port = event_alloc(takt_vm_id()), error;

    if (port < 0) test_error("no port is left");
    __atomic_store_n(&dying, (u32)port, __ATOMIC_SEQ_CST);
    error = event_poll((u32)port, PATIENCE);
    CHECK(error == -ENOENT, "round %u, a poll for a port that is closed: %d", round, error);
    while (look(&dying)) __builtin_ia32_pause(); /* the helper has left the hypercall */
}

int main(void) {
    struct thread *helper;

    test_begin();
    test_needs_takt();
    join(&handled);
    join(&polled);
    join(&masked);
    if (vcpu_start_all() < 2) test_error("one vCPU only");
    event_set_handler(handled.to, 0, on_event, NULL);
    event_set_handler(polled.to, 0, NULL, NULL);
    event_set_handler(masked.to, 0, NULL, NULL);
    helper = thread_start(1, "helps", helps, NULL);
    for (u32 round = 0; round < ROUNDS; round++) {
        halt_for_it(round);
        poll_for_it(round);
        poll_masked(round);
        poll_closed(round);
    }
    __atomic_store_n(&stop, true, __ATOMIC_SEQ_CST);
    thread_join(helper);
    CHECK(taken == ROUNDS, "%u events were handled of %u", taken, ROUNDS);
    return test_end("no event was lost");
}
