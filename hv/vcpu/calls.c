/* The hypercalls that every guest can use: its console, time, sleep, event channels, and what it
 * tells about itself. A hypercall is a call of a guest to the hypervisor; `a` holds its arguments,
 * which hypercall.c has checked as far as the table at the end of this file says. The functions
 * return the result for the guest: a number, or a negative errno. An event channel is a one-bit
 * message from one VM to another, and a port is a VM's end of it. */
#include <takt/errno.h>
#include "trace/trace.h"
#include "vcpu/exits.h"
#include "vcpu/hypercall.h"
#include "x86/percpu.h"
#include "x86/tsc.h"

/* Tells which version of the hypercalls this is. */
static i64 hc_version(struct vcpu *v, const u64 *a) { return TAKT_ABI_VERSION; }

/* ---- console ---- */

/* Takes a[1] bytes at a[0] as output of the VM's console. Returns how many it has taken, which are
 * fewer if the console's ring is full; -EAGAIN if it has taken none. */
static i64 hc_console_write(struct vcpu *v, const u64 *a) {
    u64 done = 0, room = 0;
    unsigned n, put;

    do { /* the buffer may lie in several chunks of RAM; it ends early if the ring is full */
        const char *from = guestmem_at(&v->vm->mem, a[0] + done, &room);

        n = from ? (unsigned)MIN(a[1] - done, room) : 0;
        put = vconsole_put(&v->vm->console, from, n);
        done += put;
    } while (n && put == n);
    if (a[1] && !done) return -EAGAIN;
    return (i64)done;
}

/* Copies at most a[1] bytes that the operator has typed to a[0]. Returns how many. */
static i64 hc_console_read(struct vcpu *v, const u64 *a) {
    char buf[256];
    unsigned n = ring_get(&v->vm->console.in, buf, (unsigned)MIN(a[1], sizeof(buf)));

    guestmem_write(&v->vm->mem, a[0], buf, n);
    return n;
}

/* ---- time and sleep ---- */

/* Returns the time since the boot, in ns. */
static i64 hc_time(struct vcpu *v, const u64 *a) { return (i64)now_ns(); }

/* Lets other vCPUs run before this one goes on. The decision is made after this exit. */
static i64 hc_yield(struct vcpu *v, const u64 *a) {
    sched_yield(&v->sched);
    this_cpu()->need_resched = true;
    return 0;
}

/* Ends a poll: the vCPU waits neither for a time nor for a port any more. Returns `result`. */
static i64 poll_end(struct vcpu *v, i64 result) {
    timer_cancel(&v->poll_timer);
    __atomic_store_n(&v->poll_port, 0, __ATOMIC_RELAXED);
    return result;
}

/* Records how long an event has waited until the guest took it, if that is known. */
static void trace_port_taken(const struct vcpu *v, u32 port, u64 now) {
    u32 ns = (u32)evtchn_taken(&v->vm->events, port, now);

    if (ns) trace(this_cpu()->id, now, TRC_EVTCHN_TAKE, vcpu_trace_id(v), port, ns, 0, 0);
}

/* Traces that the guest has taken events by a poll. It takes events without a vector in this
 * way. */
static __attribute__((noinline)) void trace_polled(const struct vcpu *v, u32 port, u64 now) {
    struct evtchn_vm *d = &v->vm->events;

    if (port != TAKT_PORT_ANY) {
        if (port) trace_port_taken(v, port, now);
        return;
    }
    for (port = evtchn_first_pending(d, v->id, 0); port;
         port = evtchn_first_pending(d, v->id, port + 1))
        trace_port_taken(v, port, now);
}

/* Waits until port a[0] is pending, or until the time a[1] (0: for ever). While there is nothing,
 * the vCPU blocks, and the function returns HC_AGAIN. Each time that the vCPU is woken, the call is
 * made again and checks again. An interrupt that the guest can take ends the sleep, too. */
static i64 hc_poll(struct vcpu *v, const u64 *a) {
    u32 port = (u32)a[0];
    u64 now = now_ns(), end = a[1];
    int pending;

    /* Say for which port we wait before we check it. A sender that comes in between then wakes
     * us. */
    __atomic_store_n(&v->poll_port, port, __ATOMIC_SEQ_CST);
    pending = evtchn_pending(&v->vm->events, v->id, port);
    if (pending > 0 && trace_mask & TRACE_CLASS_EVENT) trace_polled(v, port, now);
    if (pending) return poll_end(v, MIN(pending, 0));
    if (end && now >= end) return poll_end(v, -ETIMEDOUT);
    if (end) timer_set(v->sched.cpu, &v->poll_timer, end);
    /* The call may follow an STI, whose shadow would hold back the interrupt that ends the
     * sleep. */
    virt->clear_shadow(&v->virt);
    vcpu_lapic_fetch(v);
    if (vlapic_pending(vcpu_lapic(v)) > 0 && guest_can_take_irq(&v->virt))
        vcpu_notify(v, TODO_EVENT);
    vcpu_block(v);
    return HC_AGAIN;
}

/* ---- event channels ---- */

/* The next five are called with ports of this VM, and return what event/evtchn.c does. The first
 * makes a port for VM a[0] to bind to. */
static i64 hc_evtchn_alloc(struct vcpu *v, const u64 *a) {
    return evtchn_alloc(&v->vm->events, (u32)a[0]);
}

/* Joins a new port with port a[1] of VM a[0], which that VM has allocated for this one. */
static i64 hc_evtchn_bind(struct vcpu *v, const u64 *a) {
    return evtchn_bind(&v->vm->events, (u32)a[0], (u32)a[1]);
}

/* Sends an event through port a[0]. */
static i64 hc_evtchn_send(struct vcpu *v, const u64 *a) { return vcpu_send(v, (u32)a[0]); }

/* Masks port a[0] if a[1] is 1, or unmasks it if a[1] is 0. */
static i64 hc_evtchn_mask(struct vcpu *v, const u64 *a) {
    if (a[1] > 1) return -EINVAL;
    return evtchn_mask(&v->vm->events, (u32)a[0], a[1], now_ns());
}

/* Closes port a[0]. */
static i64 hc_evtchn_close(struct vcpu *v, const u64 *a) {
    return evtchn_close(&v->vm->events, (u32)a[0]);
}

/* Sets which vector of which vCPU is raised when an event comes at port a[0]. Some handlers make no
 * EOI (they do not tell the LAPIC that they are done); TAKT_VECTOR_NO_EOI in a[2] says so. */
static i64 hc_evtchn_vector(struct vcpu *v, const u64 *a) {
    u32 vcpu = (u32)a[1], vector = (u32)a[2] & ~TAKT_VECTOR_NO_EOI;
    bool no_eoi = a[2] & TAKT_VECTOR_NO_EOI;
    int error;

    if (no_eoi && !vector) return -EINVAL; /* there is no handler that could do without an EOI */
    error = evtchn_vector(&v->vm->events, (u32)a[0], vcpu, vector);
    if (error || !vector) return error;
    vlapic_set_no_eoi(&v->vm->vcpu[vcpu]->lapic, (u8)vector, no_eoi);
    apicv_vector_changed(v->vm->vcpu[vcpu]);
    return 0;
}

/* ---- what a guest may know, and what it tells ---- */

/* Copies the page with the times of vCPU a[0] of the VM to a[1]. The page may change while it is
 * read. Its writer makes `seq` odd meanwhile, and leaves another number in it, so the copy is made
 * again until `seq` was even and did not change. That takes short, as the writer only writes a few
 * words. */
static i64 hc_vcpu_info(struct vcpu *v, const u64 *a) {
    const struct takt_vcpu_info *page;
    struct takt_vcpu_info copy;
    u32 seq;

    if (a[0] >= v->vm->nr_vcpus) return -EINVAL;
    page = v->vm->vcpu[a[0]]->info;
    do {
        seq = __atomic_load_n(&page->seq, __ATOMIC_ACQUIRE);
        copy = *(const volatile struct takt_vcpu_info *)page;
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
    } while (seq & 1 || seq != __atomic_load_n(&page->seq, __ATOMIC_RELAXED));
    return guestmem_write(&v->vm->mem, a[1], &copy, sizeof(copy));
}

/* The guest ends itself: it switches off, wants to be started again, or gives up (a[0]). a[1] is an
 * exit code for the operator, and a[2] the address of the instruction that has given up. */
static i64 hc_shutdown(struct vcpu *v, const u64 *a) {
    if (a[0] > TAKT_SHUTDOWN_CRASH) return -EINVAL;
    if (a[0] == TAKT_SHUTDOWN_CRASH)
        vm_gives_up(v->vm, (int)a[1], a[2]);
    else
        vm_shutdown(v->vm, (enum takt_shutdown)a[0], (int)a[1]);
    return 0;
}

/* A driver says how many I/O events it has had, for the I/O monitor (sched/monitor.c). */
static i64 hc_io_report(struct vcpu *v, const u64 *a) {
    if (a[0] > TAKT_IO_REPORT_MAX) return -EINVAL;
    sched_io_report(&v->vm->sched, (u32)a[0]);
    return 0;
}

/* A driver says whether its VM does much I/O; the I/O monitor takes that into account. */
static i64 hc_io_class(struct vcpu *v, const u64 *a) {
    if (a[0] > 1) return -EINVAL;
    sched_io_says(&v->vm->sched, a[0]);
    return 0;
}

/* Registers the hypercalls of this file. `words` is how many arguments have to fit into 32 bits;
 * `buffer` says that a[0] and a[1] are an address and a length in the guest's RAM. */
void calls_init(void) {
    static const struct hypercall calls[] = {
        { .nr = TAKT_HC_VERSION, .fn = hc_version },
        { .nr = TAKT_HC_CONSOLE_WRITE, .fn = hc_console_write, .buffer = true },
        { .nr = TAKT_HC_CONSOLE_READ, .fn = hc_console_read, .buffer = true },
        { .nr = TAKT_HC_TIME, .fn = hc_time },
        { .nr = TAKT_HC_YIELD, .fn = hc_yield },
        { .nr = TAKT_HC_POLL, .fn = hc_poll, .words = 1 },
        { .nr = TAKT_HC_EVTCHN_ALLOC, .fn = hc_evtchn_alloc, .words = 1 },
        { .nr = TAKT_HC_EVTCHN_BIND, .fn = hc_evtchn_bind, .words = 2 },
        { .nr = TAKT_HC_EVTCHN_SEND, .fn = hc_evtchn_send, .words = 1 },
        { .nr = TAKT_HC_EVTCHN_MASK, .fn = hc_evtchn_mask, .words = 2 },
        { .nr = TAKT_HC_EVTCHN_CLOSE, .fn = hc_evtchn_close, .words = 1 },
        { .nr = TAKT_HC_EVTCHN_VECTOR, .fn = hc_evtchn_vector, .words = 3 },
        { .nr = TAKT_HC_VCPU_INFO, .fn = hc_vcpu_info, .words = 1 },
        { .nr = TAKT_HC_SHUTDOWN, .fn = hc_shutdown, .words = 1 },
        { .nr = TAKT_HC_IO_REPORT, .fn = hc_io_report, .words = 1 },
        { .nr = TAKT_HC_IO_CLASS, .fn = hc_io_class, .words = 1 },
    };

    hypercalls_add(calls, ARRAY_SIZE(calls));
}
