/* Event channels in a guest. An event is a bit, the *port*, that another VM or a device sets in a
 * page that the guest shares with the hypervisor, and perhaps an interrupt. All ports of a vCPU
 * share one interrupt vector, VECTOR_EVENT; its handler here calls the handlers of the ports whose
 * bits are set. event.h has the contracts. */
#include <guest/event.h>
#include <guest/guest.h>
#include <guest/lapic.h>
#include <guest/thread.h>
#include <guest/time.h>
#include <guest/trap.h>
#include <guest/vcpu.h>
#include <takt/io.h>

struct handler {
    event_handler fn;
    void *arg;
    u32 vcpu;
};

static struct handler handlers[TAKT_MAX_PORTS];
/* Ports from 64 * nr_words on have never had a handler. Changed and read by atomics, because vCPUs
 * share it. */
static u32 nr_words;

struct takt_shared *event_shared(void) {
    return pa_to_ptr(TAKT_SHARED_GPA);
}

static u64 bit(u32 port) { return 1ull << (port % 64); }

bool event_is_pending(u32 port) {
    return __atomic_load_n(&event_shared()->pending[port / 64], __ATOMIC_ACQUIRE) & bit(port);
}

/* Reads and clears the bit in one step, so that an event that comes in between is not lost. */
bool event_take(u32 port) {
    return __atomic_fetch_and(&event_shared()->pending[port / 64], ~bit(port), __ATOMIC_ACQ_REL) &
           bit(port);
}

/* Handles the interrupt of event channels: calls the handlers of those ports of this vCPU that are
 * pending. One vector serves all ports of a vCPU. If the VM's parameter `route` is not `fixed`,
 * Takt may raise it on another vCPU than the one that the handler is bound to. Drivers rely on
 * being interrupted on their own vCPU only, so the interrupt is then passed on to that vCPU. */
static void event_raised(void *arg) {
    struct takt_shared *s = event_shared();
    u32 me = this_vcpu()->id, passed_to = me, words = __atomic_load_n(&nr_words, __ATOMIC_ACQUIRE);

    for (u32 w = 0; w < words; w++) {
        u64 bits = __atomic_load_n(&s->pending[w], __ATOMIC_ACQUIRE) & ~s->mask[w];

        for (; bits; bits &= bits - 1) {
            u32 port = w * 64 + __builtin_ctzll(bits);
            struct handler *h = &handlers[port];

            if (!h->fn) continue;
            if (h->vcpu == me) {
                if (event_take(port)) h->fn(port, h->arg);
            } else if (h->vcpu != passed_to) {
                passed_to = h->vcpu;
                lapic_ipi(h->vcpu, VECTOR_EVENT);
            }
        }
    }
}

/* The handler is raw, because Takt raises this vector without expecting an EOI
 * (TAKT_VECTOR_NO_EOI). */
void event_init(void) { irq_set_raw_handler(VECTOR_EVENT, event_raised, NULL); }

int event_alloc(u32 remote_vm) { return hypercall1(TAKT_HC_EVTCHN_ALLOC, remote_vm); }

int event_bind(u32 remote_vm, u32 remote_port) {
    return hypercall2(TAKT_HC_EVTCHN_BIND, remote_vm, remote_port);
}

int event_close(u32 port) {
    if (port < TAKT_MAX_PORTS) handlers[port].fn = NULL;
    return hypercall1(TAKT_HC_EVTCHN_CLOSE, port);
}

int event_send(u32 port) { return hypercall1(TAKT_HC_EVTCHN_SEND, port); }

int event_mask(u32 port, bool masked) { return hypercall2(TAKT_HC_EVTCHN_MASK, port, masked); }

/* Has event_raised() look at the word of pending bits that holds that port, too. */
static void words_include(u32 port) {
    u32 words = __atomic_load_n(&nr_words, __ATOMIC_RELAXED);

    while (words < port / 64 + 1 &&
           !__atomic_compare_exchange_n(&nr_words, &words, port / 64 + 1, false, __ATOMIC_ACQ_REL,
                                        __ATOMIC_RELAXED)) {
    }
}

/* Has fn(port, arg) called in an interrupt handler of `vcpu` for each event of the port. Returns 0,
 * or a negative error. The function is stored last, because an interrupt on another vCPU may look
 * at this entry at any time, and would call it with the old argument. */
int event_set_handler(u32 port, u32 vcpu, event_handler fn, void *arg) {
    u32 vector = 0; /* none */
    int error;

    if (fn) vector = VECTOR_EVENT | TAKT_VECTOR_NO_EOI;
    if (port >= TAKT_MAX_PORTS) return -EINVAL;
    handlers[port].fn = NULL;
    handlers[port].arg = arg;
    handlers[port].vcpu = vcpu;
    words_include(port);
    __atomic_store_n(&handlers[port].fn, fn, __ATOMIC_RELEASE);
    error = hypercall3(TAKT_HC_EVTCHN_VECTOR, port, vcpu, vector);
    /* An event that came while the port had no vector is pending, and has not interrupted. Further
     * events will not interrupt either, because the port is pending already. Unmasking the port
     * raises the vector. */
    if (!error && fn && event_is_pending(port) && !(event_shared()->mask[port / 64] & bit(port)))
        error = event_mask(port, false);
    return error;
}

int event_poll(u32 port, u64 timeout_ns) {
    u64 deadline = 0; /* none */

    if (timeout_ns) deadline = hypercall0(TAKT_HC_TIME) + timeout_ns;
    return hypercall2(TAKT_HC_POLL, port, deadline);
}

/* Waits until the deadline or until an event comes. On Takt the vCPU sleeps in the hypervisor until
 * an event comes on any port or the time is over. Otherwise only the calling thread sleeps. */
void nap_until(u64 deadline_ns) {
    u64 now = time_ns();

    if (!on_takt())
        sleep_until(deadline_ns);
    else if (deadline_ns > now)
        event_poll(TAKT_PORT_ANY, deadline_ns - now);
}
