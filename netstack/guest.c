/* The network stack in a guest that uses the guest library: how threads and the bottom half (the
 * context that runs lwIP, in the interrupt handlers of one vCPU) call each other, and when the
 * bottom half runs. For each event that a thread may wait for there is a semaphore. A vCPU that
 * wants something of another one sets a bit in that vCPU's *bell* and sends it the interrupt
 * VECTOR_NET. guest.h explains why no lock is shared. */
#include <guest/guest.h>
#include <guest/lapic.h>
#include <guest/string.h>
#include <guest/thread.h>
#include <guest/vcpu.h>
#include <guest/x86.h>
#include <netstack/guest.h>
#include <netstack/sock.h>
#include <stdlib.h> /* the guest library's own */

#define EVENTS (2 * NET_SOCKETS)

static struct net_guest guest;
static struct timer timer;
static struct semaphore waits[EVENTS];
/* The vCPU of the thread that waited for the event last. At the start it is any vCPU but that of
 * the bottom half. So the bottom half never takes the lock of a thread on another vCPU. */
static u32 waiter[EVENTS];

/* What the other vCPUs want of one vCPU. They set the bits atomically, then send VECTOR_NET. */
static struct bell {
    u64 events[EVENTS / 64];
    bool run; /* the bottom half shall run */
} bells[TAKT_MAX_VCPUS];

void net_panic(const char *why) { guest_panic("net: %s", why); }

/* netif_find() of lwIP needs this function to link; nothing here calls netif_find(). */
long strtol(const char *s, char **end, int base) { return 0; }

/* Does in the interrupt handler of VECTOR_NET what other vCPUs want of this one. Wakes threads of
 * this vCPU, and runs the bottom half if this is its vCPU and a thread has asked for that. */
static void on_net_bell(void *arg) {
    struct bell *b = &bells[this_vcpu()->id];

    for (unsigned word = 0; word < ARRAY_SIZE(b->events); word++) {
        u64 events = __atomic_exchange_n(&b->events[word], 0, __ATOMIC_SEQ_CST);

        for (; events; events &= events - 1) sem_up(&waits[64 * word + __builtin_ctzll(events)]);
    }
    if (__atomic_exchange_n(&b->run, false, __ATOMIC_SEQ_CST)) net_guest_run();
}

static u64 host_now(void *arg) { return time_ns(); }
static void *host_alloc(void *arg, size_t size) { return malloc(size); }
static void host_free(void *arg, void *p) { free(p); }
static bool host_tx(void *arg, const struct net_frame *f) { return guest.tx(guest.arg, f); }

/* Calls the bottom half, for a thread. A thread on the bottom half's own vCPU runs the bottom half
 * directly, because an interrupt would come at once anyway. */
static void host_kick(void *arg) {
    u64 flags = irq_save();

    if (flags & RFLAGS_IF && this_vcpu()->id == guest.vcpu) {
        net_guest_run();
        thread_preempt();
        irq_restore(flags);
        return;
    }
    irq_restore(flags);
    __atomic_store_n(&bells[guest.vcpu].run, true, __ATOMIC_SEQ_CST);
    lapic_ipi(guest.vcpu, VECTOR_NET);
}

/* Wakes the thread that waits for `event`; the bottom half calls it. If the thread is on another
 * vCPU, that vCPU gets an interrupt and raises the semaphore itself. If it were raised here, this
 * vCPU might have to wait for a lock whose holder is off its pCPU. An interrupt that was sent and
 * not taken yet is not sent again. */
static void host_wake(void *arg, unsigned event) {
    u32 vcpu = __atomic_load_n(&waiter[event], __ATOMIC_ACQUIRE);
    u64 bit = BIT(event % 64);

    /* This is the bottom half's own vCPU. The semaphore may be raised here; thread_preempt()
     * follows. */
    if (vcpu == this_vcpu()->id) {
        sem_up(&waits[event]);
        return;
    }
    if (__atomic_fetch_or(&bells[vcpu].events[event / 64], bit, __ATOMIC_SEQ_CST) & bit) return;
    lapic_ipi(vcpu, VECTOR_NET);
}

/* Notes on which vCPU the thread waits before it does, so that host_wake() finds it. */
static bool host_wait(void *arg, unsigned event, u64 deadline_ns) {
    __atomic_store_n(&waiter[event], thread_self()->vcpu, __ATOMIC_RELEASE);
    return sem_down_until(&waits[event], deadline_ns);
}

static void on_net_timer(struct timer *t) { net_guest_run(); }

/* Runs the bottom half (the work of the stack outside of threads) once: frames from the driver,
 * then threads' requests and timers, then the driver tells the card. It sets the timer for the next
 * deadline, but for no time that is nearer than 0.1 ms, so that it cannot interrupt without end. */
void net_guest_run(void) {
    u64 next;

    if (guest.poll) guest.poll(guest.arg);
    next = net_poll();
    /* Called as the last thing, and by an interrupt, so that all other work of this vCPU gets its
     * turn first. */
    if (guest.done && guest.done(guest.arg)) host_kick(NULL);
    timer_stop(&timer);
    if (next != NET_FOREVER)
        timer_start(&timer, MAX(next, time_ns() + NS_PER_MS / 10), on_net_timer, NULL);
}

/* Starts the stack in this guest: makes the semaphores on which threads wait, sets the interrupt by
 * which threads and bottom half call each other, and calls net_init(). Returns what that returns.
 * Interrupts are off meanwhile, because the bottom half must not run before the stack is ready. */
int net_guest_start(const struct net_guest *g, const struct net_config *config) {
    struct net_host host = { .now_ns = host_now,
                             .tx = host_tx,
                             .kick = host_kick,
                             .wake = host_wake,
                             .wait = host_wait,
                             .alloc = host_alloc,
                             .free = host_free };
    u64 flags;
    int err;

    guest = *g;
    for (unsigned i = 0; i < EVENTS; i++) {
        sem_init(&waits[i], 0);
        waiter[i] = (guest.vcpu + 1) % vcpu_count();
    }
    irq_set_handler(VECTOR_NET, on_net_bell, NULL);
    flags = irq_save();
    err = net_init(config, &host);
    if (!err) net_guest_run();
    irq_restore(flags);
    return err;
}
