/* Hypercalls: include/takt/abi.h tells what each takes and gives. */
#include <takt/errno.h>
#include "lib/printf.h"
#include "platform/timer.h"
#include "trace/trace.h"
#include "vm/vm.h"
#include "x86/percpu.h"
#include "x86/tsc.h"

DEFINE_COUNTER(hypercalls);

#define CONSOLE_MAX 4096u

static i64 hc_version(struct vcpu *v, const u64 *a) { return TAKT_ABI_VERSION; }

static i64 hc_console_write(struct vcpu *v, const u64 *a) {
    u64 done = 0, room = 0;
    unsigned n, put = 0;

    do {
        const char *from = guestmem_at(&v->vm->mem, a[0] + done, &room);

        n = from ? (unsigned)MIN(a[1] - done, room) : 0;
        put = vconsole_put(&v->vm->console, from, n);
        done += put;
    } while (n && put == n);
    return a[1] && !done ? -EAGAIN : (i64)done;
}

static i64 hc_console_read(struct vcpu *v, const u64 *a) {
    char buf[256];
    unsigned n = ring_get(&v->vm->console.in, buf, (unsigned)MIN(a[1], sizeof(buf)));

    guestmem_write(&v->vm->mem, a[0], buf, n);
    return n;
}

static i64 hc_time(struct vcpu *v, const u64 *a) { return (i64)now_ns(); }

static i64 hc_yield(struct vcpu *v, const u64 *a) {
    sched_yield(&v->sched);
    this_cpu()->need_resched = true;
    return 0;
}

static i64 poll_end(struct vcpu *v, i64 result) {
    timer_cancel(&v->poll_timer);
    __atomic_store_n(&v->poll_port, 0, __ATOMIC_RELAXED);
    return result;
}

/* A poll is how a guest takes events that have no vector. */
static __attribute__((noinline)) void trace_polled(const struct vcpu *v, u32 port, u64 now) {
    struct evtchn_dom *d = &v->vm->events;
    u32 who = v->vm->id << 16 | v->id;
    bool any = port == TAKT_PORT_ANY;

    if (any) port = evtchn_first_pending(d, v->id, 0);
    while (port) {
        u32 ns = (u32)evtchn_taken(d, port, now);

        if (ns) trace(this_cpu()->id, now, TRC_EVTCHN_TAKE, who, port, ns, 0, 0);
        port = any ? evtchn_first_pending(d, v->id, port + 1) : 0;
    }
}

static i64 hc_poll(struct vcpu *v, const u64 *a) {
    u64 now = now_ns();
    int pending;

    __atomic_store_n(&v->poll_port, (u32)a[0], __ATOMIC_SEQ_CST); /* before looking: then a sender wakes us */
    pending = evtchn_pending(&v->vm->events, v->id, (u32)a[0]);
    if (pending > 0 && trace_mask & TRACE_CLASS_EVENT) trace_polled(v, (u32)a[0], now);
    if (pending) return poll_end(v, pending < 0 ? pending : 0);
    if (a[1] && now >= a[1]) return poll_end(v, -ETIMEDOUT);
    if (a[1]) timer_set(v->sched.cpu, &v->poll_timer, a[1]);
    virt->clear_shadow(&v->virt);
    if (vlapic_pending(vcpu_lapic(v)) > 0 && guest_can_take_irq(&v->virt)) vcpu_notify(v, TODO_EVENT);
    vcpu_block(v);
    return HC_AGAIN;
}

static i64 hc_evtchn_alloc(struct vcpu *v, const u64 *a) { return evtchn_alloc(&v->vm->events, (u32)a[0]); }

static i64 hc_evtchn_bind(struct vcpu *v, const u64 *a) {
    return evtchn_bind(&v->vm->events, (u32)a[0], (u32)a[1]);
}

int vcpu_send(struct vcpu *v, u32 port) {
    u64 now = now_ns();

    trace(this_cpu()->id, now, TRC_EVTCHN_SEND, v->vm->id << 16 | v->id, port, 0, 0, 0);
    return evtchn_send(&v->vm->events, port, now);
}

static i64 hc_evtchn_send(struct vcpu *v, const u64 *a) { return vcpu_send(v, (u32)a[0]); }

static i64 hc_evtchn_mask(struct vcpu *v, const u64 *a) {
    return a[1] > 1 ? -EINVAL : evtchn_mask(&v->vm->events, (u32)a[0], a[1], now_ns());
}

static i64 hc_evtchn_close(struct vcpu *v, const u64 *a) { return evtchn_close(&v->vm->events, (u32)a[0]); }

static i64 hc_evtchn_vector(struct vcpu *v, const u64 *a) {
    u32 vcpu = (u32)a[1], vector = (u32)a[2] & ~TAKT_VECTOR_NO_EOI;
    bool none = a[2] == TAKT_VECTOR_NO_EOI; /* of no vector */
    int error = none ? -EINVAL : evtchn_vector(&v->vm->events, (u32)a[0], vcpu, vector);

    if (!error && vector) vlapic_set_no_eoi(&v->vm->vcpu[vcpu]->lapic, (u8)vector, vector != (u32)a[2]);
    return error;
}

/* The page of another vCPU may change while it is read: SDM's word for it is seqlock, and its writer is
 * quick. */
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

static i64 hc_shutdown(struct vcpu *v, const u64 *a) {
    if (a[0] > TAKT_SHUTDOWN_CRASH) return -EINVAL;
    if (a[0] == TAKT_SHUTDOWN_CRASH)
        vm_gives_up(v->vm, (int)a[1], a[2]);
    else
        vm_shutdown(v->vm, (enum takt_shutdown)a[0], (int)a[1]);
    return 0;
}

static i64 hc_io_report(struct vcpu *v, const u64 *a) {
    if (a[0] > TAKT_IO_REPORT_MAX) return -EINVAL;
    sched_io_report(&v->vm->sched, (u32)a[0]);
    return 0;
}

static i64 hc_io_class(struct vcpu *v, const u64 *a) {
    if (a[0] > 1) return -EINVAL;
    sched_io_says(&v->vm->sched, a[0]);
    return 0;
}

/* ---- devices of the machine ---- */

static i64 hc_pci_info(struct vcpu *v, const u64 *a) {
    return a[0] < v->vm->nr_pci ? vm_giver->info(v->vm, (u32)a[0], a[1]) : -ENOENT;
}

static i64 hc_pci_eoi(struct vcpu *v, const u64 *a) {
    return a[0] < v->vm->nr_pci ? vm_giver->eoi(v->vm, (u32)a[0]) : -ENOENT;
}

static i64 hc_pci_read(struct vcpu *v, const u64 *a) {
    return a[0] < v->vm->nr_pci ? vm_giver->read(v->vm, (u32)a[0], (u32)a[1], (u32)a[2]) : -ENOENT;
}

static i64 hc_pci_write(struct vcpu *v, const u64 *a) {
    if (a[0] >= v->vm->nr_pci) return -ENOENT;
    return vm_giver->write(v->vm, (u32)a[0], (u32)a[1], (u32)a[2], (u32)a[3]);
}

/* Arguments are checked as told here, before the call. */
static const struct {
    i64 (*fn)(struct vcpu *, const u64 *);
    u8 words;    /* so many, from the first, must fit into 32 bits: -EINVAL */
    bool buffer; /* the first two are address and length of RAM: -EINVAL if over CONSOLE_MAX, -EFAULT */
} calls[] = {
    [TAKT_HC_VERSION] = { hc_version },
    [TAKT_HC_CONSOLE_WRITE] = { hc_console_write, .buffer = true },
    [TAKT_HC_CONSOLE_READ] = { hc_console_read, .buffer = true },
    [TAKT_HC_TIME] = { hc_time },
    [TAKT_HC_YIELD] = { hc_yield },
    [TAKT_HC_POLL] = { hc_poll, 1 },
    [TAKT_HC_EVTCHN_ALLOC] = { hc_evtchn_alloc, 1 },
    [TAKT_HC_EVTCHN_BIND] = { hc_evtchn_bind, 2 },
    [TAKT_HC_EVTCHN_SEND] = { hc_evtchn_send, 1 },
    [TAKT_HC_EVTCHN_MASK] = { hc_evtchn_mask, 2 },
    [TAKT_HC_EVTCHN_CLOSE] = { hc_evtchn_close, 1 },
    [TAKT_HC_EVTCHN_VECTOR] = { hc_evtchn_vector, 3 },
    [TAKT_HC_VCPU_INFO] = { hc_vcpu_info, 1 },
    [TAKT_HC_SHUTDOWN] = { hc_shutdown, 1 },
    [TAKT_HC_IO_REPORT] = { hc_io_report, 1 },
    [TAKT_HC_IO_CLASS] = { hc_io_class, 1 },
    [TAKT_HC_BACK_PORT] = { hc_back_port },
    [TAKT_HC_BACK_LIST] = { hc_back_list, 1 },
    [TAKT_HC_BACK_OFFER] = { hc_back_offer, 1 },
    [TAKT_HC_BACK_STATE] = { hc_back_state, 1 },
    [TAKT_HC_BACK_MAP] = { hc_back_map, 1 },
    [TAKT_HC_BACK_UNMAP] = { hc_back_unmap, 1 },
    [TAKT_HC_BACK_IRQ] = { hc_back_irq, 1 },
    [TAKT_HC_BACK_BROKEN] = { hc_back_broken, 1 },
    [TAKT_HC_STORE_CONNECT] = { hc_store_connect },
    [TAKT_HC_STORE_NOTIFY] = { hc_store_notify },
    [TAKT_HC_PCI_INFO] = { hc_pci_info, 1 },
    [TAKT_HC_PCI_EOI] = { hc_pci_eoi, 1 },
    [TAKT_HC_PCI_READ] = { hc_pci_read, 3 },
    [TAKT_HC_PCI_WRITE] = { hc_pci_write, 4 },
};

/* Nobody is privileged yet. One line a second at most, whoever asks. */
static i64 refuse_control(const struct vcpu *v, u64 nr) {
    static u64 quiet_until;
    u64 now = now_ns();

    if (now >= quiet_until) {
        quiet_until = now + NS_PER_S;
        log_warn("%s: is not privileged for hypercall %u", v->vm->name, (unsigned)nr);
    }
    return -EPERM;
}

static i64 call(struct vcpu *v, u64 nr, const u64 *a) {
    if (nr >= TAKT_HC_CONTROL && nr <= TAKT_HC_CONTROL_LAST) return refuse_control(v, nr);
    if (nr >= ARRAY_SIZE(calls) || !calls[nr].fn) return -ENOSYS;
    for (unsigned i = 0; i < calls[nr].words; i++)
        if (a[i] >> 32) return -EINVAL;
    if (calls[nr].buffer && a[1] > CONSOLE_MAX) return -EINVAL;
    if (calls[nr].buffer && a[1] && !guestmem_has(&v->vm->mem, a[0], a[1])) return -EFAULT;
    return calls[nr].fn(v, a);
}

void exit_hypercall(struct vcpu *v, const struct vm_exit *e) {
    u64 *gpr = v->virt.regs.gpr, nr = gpr[REG_RAX];
    u64 a[4] = { gpr[REG_RBX], gpr[REG_RCX], gpr[REG_RDX], gpr[REG_RSI] };
    bool wide = e->hc.mode == 64;
    i64 result;

    if (e->hc.real) return vcpu_fault(v, EXC_UD, false, 0);
    if (!wide) {
        nr = (u32)nr;
        for (unsigned i = 0; i < ARRAY_SIZE(a); i++) a[i] = (u32)a[i];
    }
    counter_inc(&hypercalls, this_cpu()->id);
    result = e->hc.cpl ? -EPERM : call(v, nr, a);
    if (result == HC_AGAIN) { /* when it is woken: vcpu_prepare() */
        v->again = *e;
        v->again_exits = v->exits;
        return;
    }
    if (__builtin_expect(trace_mask & TRACE_CLASS_EXIT, 0))
        trace(this_cpu()->id, now_ns(), TRC_HYPERCALL, v->vm->id << 16 | v->id, (u32)nr, (u32)a[0],
              (u32)result, 0);
    gpr[REG_RAX] = wide ? (u64)result : (u32)result;
    guest_skip(&v->virt, e);
}
