/* How an event at a port of a VM reaches one of the VM's vCPUs: as an interrupt, or by ending a
 * poll, a hypercall in which the vCPU sleeps until an event comes. A port is the VM's end of an
 * event channel (hv/event), a one-bit message from another VM, a device or the hypervisor. */
#include <takt/errno.h>
#include "lib/printf.h"
#include "trace/trace.h"
#include "vcpu/vcpu.h"
#include "x86/percpu.h"
#include "x86/tsc.h"

/* Returns the vCPU that takes an event. The guest has bound the event to vCPU `bound`, but the VM's
 * parameter `route` may choose another one:
 *   fixed    always vCPU `bound`
 *   running  vCPU `bound` if it runs, or else the next one that runs
 *   spread   each vCPU in turn
 * A vCPU takes an event of another one only if it has switched its LAPIC on. If there is none, it
 * is vCPU `bound`. */
static struct vcpu *route(struct vm *vm, u32 bound) {
    u32 how = vm->sched.route, n = vm->nr_vcpus, first = bound;

    if (how == ROUTE_FIXED) return vm->vcpu[bound];
    if (how == ROUTE_SPREAD) first = __atomic_fetch_add(&vm->routed, 1, __ATOMIC_RELAXED);
    for (u32 i = 0; i < n; i++) {
        struct vcpu *v = vm->vcpu[(first + i) % n];

        if (!vlapic_on(&v->lapic)) continue;
        if (how == ROUTE_SPREAD || v->sched.state == RS_RUNNING) return v;
    }
    return vm->vcpu[bound];
}

/* Raises an interrupt for an event, on the vCPU that route() chooses. */
static void raise_vector(struct vm *vm, u32 bound, u8 vector, u32 port) {
    struct vcpu *v = route(vm, bound);

    /* The guest has said for vCPU `bound` whether the handler of this vector makes an EOI. All
     * vCPUs have the same handler, so the same is true for the vCPU that takes the event. */
    if (v->id != bound)
        vlapic_set_no_eoi(&v->lapic, vector, vlapic_no_eoi(&vm->vcpu[bound]->lapic, vector));
    __atomic_store_n(&v->event, port << 8 | vector, __ATOMIC_RELAXED);
    vlapic_raise(&v->lapic, vector);
}

/* The evtchn_raise_fn of all VMs: port `port` of `d`, which is bound to vCPU `bound`, has become
 * pending. `vector` is 0 if the guest gets no interrupt for it, but polls: for one port, or for
 * TAKT_PORT_ANY, which is any port that is bound to the polling vCPU. `other` says that another VM,
 * or the machine, has raised it. The scheduler counts only those events, because it tells by their
 * number which VMs do I/O; an event of the VM for itself is none. */
static void events_raise(struct evtchn_vm *d, u32 bound, u8 vector, u32 port, bool other) {
    struct vm *vm = container_of(d, struct vm, events);

    if (other) sched_io_events(&vm->sched, 1);
    if (vector) raise_vector(vm, bound, vector, port);
    for (u32 i = 0; i < vm->nr_vcpus; i++) { /* any of them may poll for this very port */
        u32 polled = __atomic_load_n(&vm->vcpu[i]->poll_port, __ATOMIC_SEQ_CST);

        if (polled == port || (polled == TAKT_PORT_ANY && i == bound))
            vcpu_notify(vm->vcpu[i], TODO_EVENT);
    }
}

/* Sends an event through a port of the vCPU's VM, and traces that. Returns 0 or a negative
 * errno. */
int vcpu_send(struct vcpu *v, u32 port) {
    u64 now = now_ns();

    trace(this_cpu()->id, now, TRC_EVTCHN_SEND, vcpu_trace_id(v), port, 0, 0, 0);
    return evtchn_send(&v->vm->events, port, now);
}

/* Makes the page that VM and hypervisor share, with the bits of pending and masked ports. It is a
 * part of making a VM. */
static int events_make(struct vm *vm) {
    hpa_t page = frame_alloc_zeroed(0);

    if (page == HPA_NONE) return -ENOMEM;
    evtchn_init(&vm->events, vm->id, vm->nr_vcpus, hpa_to_va(page), events_raise);
    return npt_map(&vm->virt.npt, TAKT_SHARED_GPA, page, PAGE_SIZE, NPT_RW, NPT_WB);
}

/* Closes all ports, some at each call. The page is freed when nobody raises an event there any
 * more. */
static int events_undo(struct vm *vm) {
    if (!vm->events.shared) return 0;
    if (evtchn_fini(&vm->events)) return 1;
    frame_free(va_to_hpa(vm->events.shared), 0);
    return 0;
}

const struct vm_part events_part = { "events", events_make, events_undo };
