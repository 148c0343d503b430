/* What a vCPU has to do before it enters its guest: INIT and SIPI (by which one CPU resets and
 * starts another one), NMIs, its LAPIC's timer, and interrupts to deliver. Others ask for that by
 * bits of v->todo, TODO_*. Only one event can be delivered at an entry. For the others a "window"
 * is wanted: an exit at the moment at which the guest can take the next one. */
#include "trace/trace.h"
#include "vcpu/exits.h"
#include "x86/percpu.h"
#include "x86/tsc.h"

DEFINE_COUNTER(interrupts_injected);

/* ---- INIT and SIPI: SDM 3A 9.4.4. INIT resets a vCPU and makes it wait, and a SIPI then starts it
 * in real mode in the page that the vector names. A SIPI without an INIT before it is dropped
 * ---- */

/* Resets the vCPU, which then waits for a SIPI. */
static void take_init(struct vcpu *v) {
    guest_reset(&v->virt);
    vlapic_reset(&v->lapic);
    timer_cancel(&v->poll_timer);
    v->halted = false;
    v->nmis = 0;
    __atomic_store_n(&v->poll_port, 0, __ATOMIC_RELAXED);
    v->again_exits = 0;
    v->waiting_sipi = true;
}

/* Lets the vCPU begin in real mode, at the page whose number the SIPI's vector is. */
static void take_sipi(struct vcpu *v) {
    struct guest_seg cs;

    virt->get_seg(&v->virt, SEG_CS, &cs);
    cs.sel = (u16)(v->sipi_vector << 8);
    cs.base = (u64)v->sipi_vector << 12;
    virt->set_seg(&v->virt, SEG_CS, &cs);
    v->virt.regs.rip = 0;
    v->waiting_sipi = false;
}

/* ---- interrupts ---- */

/* Traces an interrupt that is being delivered. If it is for the last event that was raised here,
 * also traces how long ago the event was sent. */
static __attribute__((noinline)) void trace_inject(struct vcpu *v, u8 vector) {
    u32 event = __atomic_load_n(&v->event, __ATOMIC_RELAXED), same = event, port = event >> 8;
    u32 cpu = this_cpu()->id;
    u64 now = now_ns();

    trace(cpu, now, TRC_INJECT, vcpu_trace_id(v), vector, EVENT_IRQ, 0, 0);
    if (vector != (u8)event) return;
    /* If another event was raised meanwhile it stays, as it is still to be delivered. */
    __atomic_compare_exchange_n(&v->event, &same, 0, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    trace(cpu, now, TRC_EVTCHN_TAKE, vcpu_trace_id(v), port,
          (u32)evtchn_taken(&v->vm->events, port, now), 0, 0);
}

/* Makes the LAPIC accept an interrupt, and queues it for the next entry. */
static void inject_irq(struct vcpu *v, u8 vector) {
    counter_inc(&interrupts_injected, this_cpu()->id);
    vlapic_accept(&v->lapic, vector);
    v->virt.pending = (struct virt_event){ .type = EVENT_IRQ, .vector = vector };
    if (__builtin_expect(trace_mask, 0)) trace_inject(v, vector);
}

/* Queues an NMI that waits for the next entry, if the guest can take one. */
static __attribute__((noinline)) void deliver_nmi(struct vcpu *v) {
    struct virt_vcpu *hw = &v->virt;

    if (guest_can_take_nmi(hw)) {
        hw->pending = (struct virt_event){ .type = EVENT_NMI, .vector = EXC_NMI };
        v->nmis--;
    }
    hw->want_nmi_window = v->nmis;
}

/* Chooses what the next entry delivers: an NMI that waits, or else the most urgent interrupt of the
 * LAPIC. For what cannot be delivered yet, it asks for an exit at the moment at which it can: when
 * the guest can take an NMI or an interrupt, or when it lowers its priority (CR8). If the CPU
 * delivers interrupts by itself (apicv.c), nothing is asked for. */
static void deliver(struct vcpu *v) {
    struct virt_vcpu *hw = &v->virt;
    int vector;

    hw->want_irq_window = false;
    hw->want_nmi_window = false;
    hw->want_cr8_exit = false;
    if (v->nmis) deliver_nmi(v);
    if (__builtin_expect(hw->apic.page != NULL, 0) && apicv_choose(v)) return;
    vector = vlapic_pending(vcpu_lapic(v));
    if (vector > 0 && guest_can_take_irq(hw)) {
        inject_irq(v, (u8)vector);
        /* What waits behind it is looked for at its EOI, which exits. If the vector is not in
         * service there will be no EOI, so the next one asks for its own exit now. */
        if (!vlapic_any_waits(&v->lapic) || v->lapic.isr_top == (u32)vector) return;
        vector = vlapic_pending(&v->lapic);
    }
    if (vector > 0)
        hw->want_irq_window = true;
    else if (vector < 0) /* it waits for a lower priority, so it is looked at when CR8 is written */
        hw->want_cr8_exit = hw->cr8;
}

/* ---- the rest ---- */

/* A CPU that runs takes an NMI at once and keeps one more while its handler runs; the next are lost
 * (SDM 3A 6.7.1). While a vCPU does not run it takes none, so up to two are kept for it. */
static void take_nmis(struct vcpu *v) {
    u32 sent = __atomic_exchange_n(&v->nmis_sent, 0, __ATOMIC_SEQ_CST), most = 2;

    if (v->virt.pending.type == EVENT_NMI || virt->blocked(&v->virt) & BLOCKED_NMI) most = 1;
    v->nmis = (u8)MIN(v->nmis + sent, most);
}

/* Gives the vCPU a state that no CPU accepts at an entry, for tests of what Takt does then:
 * RFLAGS.1 is clear (SDM 3C 27.3.1.4), and the upper half of DR7 is not 0 (APM2 15.5.1). */
static void break_state(struct vcpu *v) {
    v->virt.regs.rflags = 0;
    vcpu_set_reg(v, VREG_DR7, BIT(32));
}

/* Handles all bits of `todo` except TODO_EVENT and TODO_DEBUG. */
static __attribute__((noinline)) void do_rare(struct vcpu *v, u32 todo) {
    if (todo & TODO_INIT) take_init(v);
    if (todo & TODO_SIPI && v->waiting_sipi) take_sipi(v);
    if (todo & TODO_BREAK) break_state(v);
    if (v->waiting_sipi) return;
    if (todo & TODO_NMI) take_nmis(v);
    if (todo & TODO_TICK) {
        vcpu_lapic_fetch(v);
        vlapic_tick(vcpu_lapic(v), now_ns());
        /* The interrupt of the timer is delivered now. If its TODO_EVENT stayed set, the next call
         * of vcpu_notify() would find the bit set, and would not kick the pCPU. */
        __atomic_fetch_and(&v->todo, ~TODO_EVENT, __ATOMIC_SEQ_CST);
    }
}

/* Will the guest get an interrupt or an exception at the next entry? */
static bool event_comes(const struct vcpu *v) {
    return v->virt.pending.type != EVENT_NONE || v->cpu_delivers;
}

/* Prepares the next entry of the loaded vCPU: delivers what is pending. Returns false if the guest
 * must not be entered now. A vCPU that has halted, and gets no interrupt, sleeps instead of
 * entering its guest. `again_exits` is not 0 if the guest made a hypercall that has to wait
 * (HC_AGAIN). If nothing else has happened to the vCPU since, that call is repeated here, without
 * entering the guest in between. */
bool vcpu_prepare(struct vcpu *v) {
    u32 todo = __atomic_exchange_n(&v->todo, 0, __ATOMIC_SEQ_CST);

    if (todo & ~TODO_EVENT) {
        if (todo & TODO_DEBUG && !vcpu_debug_enters(v, todo)) return false;
        do_rare(v, todo);
    }
    if (!v->waiting_sipi) deliver(v);
    if (v->waiting_sipi || (v->halted && !event_comes(v))) {
        vcpu_block(v);
        return false;
    }
    v->halted = false;
    if (v->again_exits && v->exits == v->again_exits && !event_comes(v)) {
        /* It would enter its guest only to make the same hypercall again. */
        v->again_exits = 0; /* exit_hypercall() sets it if the call still has to wait */
        exit_hypercall(v, &v->again);
        /* If a debugger's step has ended with that call, its trap must not reach the guest. */
        if (__atomic_load_n(&v->todo, __ATOMIC_RELAXED) & TODO_DEBUG) return false;
        return !sched_blocked(&v->sched);
    }
    return true;
}
