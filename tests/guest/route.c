/* vcpus: 2 */
/* time: 800 */
/* Events are bound to vCPU 0, which sleeps, while vCPU 1 runs and sends them. Which of the two
 * takes them depends on the VM's setting `route` (default: fixed). */
#include <guest/event.h>
#include <guest/guest.h>
#include <guest/string.h>
#include <guest/test.h>
#include <guest/thread.h>
#include <guest/vcpu.h>

#define ROUNDS      40
#define VECTOR_TEST 0x50

static u32 sender, receiver, taken[2];
static struct semaphore done = SEMAPHORE(0);

static void on_vector(void *arg) {
    if (event_take(receiver)) __atomic_add_fetch(&taken[this_vcpu()->id], 1, __ATOMIC_SEQ_CST);
}

static void send(void *arg) {
    sleep_ns(5 * NS_PER_MS); /* vCPU 0 is asleep by then */
    for (u32 i = 0; i < ROUNDS; i++) {
        u64 end = time_ns() + NS_PER_S;

        CHECK(event_send(sender) == 0, "cannot send");
        while (__atomic_load_n(&taken[0], __ATOMIC_SEQ_CST) +
                   __atomic_load_n(&taken[1], __ATOMIC_SEQ_CST) <=
               i)
            if (time_ns() > end) test_fatal("round %u: nobody took it", i);
    }
    sem_up(&done);
}

static void on_event(u32 port, void *arg) {
    __atomic_add_fetch(&taken[this_vcpu()->id], 1, __ATOMIC_SEQ_CST);
}

/* Which vCPU took the vector, compared with the VM's route. */
static void check_shares(const char *route) {
    bool right = taken[1] >= ROUNDS - ROUNDS / 8; /* running */

    if (strcmp(route, "fixed") == 0) right = taken[0] == ROUNDS;
    if (strcmp(route, "spread") == 0) right = taken[0] == ROUNDS / 2;
    CHECK(right, "of %u vCPU 0 took %u, vCPU 1 %u", ROUNDS, taken[0], taken[1]);
}

int main(void) {
    char route[16];
    struct thread *t;

    test_begin();
    test_needs_takt();
    if (!cmdline_str("route", route, sizeof(route))) memcpy(route, "fixed", 6);
    CHECK(vcpu_start_all() == 2, "vCPUs");
    irq_set_handler(VECTOR_TEST, on_vector, NULL);
    sender = (u32)event_alloc(takt_vm_id());
    receiver = (u32)event_bind(takt_vm_id(), sender);
    CHECK(hypercall3(TAKT_HC_EVTCHN_VECTOR, receiver, 0, VECTOR_TEST) == 0, "no vector");
    t = thread_start(1, "send", send, NULL);
    sem_down(&done);
    thread_join(t);
    check_shares(route);

    /* The same with a handler of the library's, which is always called on its own vCPU. */
    taken[0] = taken[1] = 0;
    CHECK(event_set_handler(receiver, 0, on_event, NULL) == 0, "no handler");
    t = thread_start(1, "send", send, NULL);
    sem_down(&done);
    thread_join(t);
    CHECK(taken[0] == ROUNDS && taken[1] == 0, "the handler ran %u times on vCPU 0, %u on 1",
          taken[0], taken[1]);
    return test_end(route);
}
