/* vCPUs: creation, start states, INIT and SIPI, delivery of interrupts, and the page that tells a guest its
 * time. */
#include <takt/errno.h>
#include "lib/printf.h"
#include "platform/timer.h"
#include "trace/trace.h"
#include "virt/bits.h"
#include "vm/vm.h"
#include "x86/percpu.h"
#include "x86/tsc.h"

DEFINE_COUNTER(interrupts_injected);

static struct vcpu *vcpu_of_lapic(struct vlapic *l) { return container_of(l, struct vcpu, lapic); }

/* ---- what a LAPIC asks for ---- */

static struct vlapic *lapic_peer(struct vlapic *l, u32 id) {
    const struct vm *vm = vcpu_of_lapic(l)->vm;

    return id < vm->nr_vcpus ? &vm->vcpu[id]->lapic : NULL;
}

static void lapic_notify(struct vlapic *l, enum delivery_mode what, u8 vector) {
    static const u32 todo[] = {
        [DM_FIXED] = TODO_EVENT, [DM_NMI] = TODO_NMI, [DM_INIT] = TODO_INIT, [DM_SIPI] = TODO_SIPI
    };
    struct vcpu *v = vcpu_of_lapic(l);

    if (what == DM_INIT) __atomic_fetch_and(&v->todo, ~TODO_SIPI, __ATOMIC_SEQ_CST); /* it came too early */
    if (what == DM_SIPI) v->sipi_vector = vector;
    if (what == DM_NMI) __atomic_fetch_add(&v->nmis_sent, 1, __ATOMIC_SEQ_CST);
    vcpu_notify(v, todo[what]);
}

static void lapic_arm(struct vlapic *l, u64 when) {
    struct vcpu *v = vcpu_of_lapic(l);

    if (when == ~0ull)
        timer_cancel(&v->lapic_timer);
    else
        timer_set(v->sched.cpu, &v->lapic_timer, when);
}

static void lapic_timeout(struct timer *t, u64 now) {
    vcpu_notify(container_of(t, struct vcpu, lapic_timer), TODO_TICK);
}

/* The offset is minus the TSC at creation; what lies beyond the end of time, or 2^59 ticks, is never. */
static u64 lapic_tsc_to_ns(struct vlapic *l, u64 tsc) {
    u64 host = tsc - vcpu_of_lapic(l)->vm->tsc_offset, ticks = host - tsc_boot;

    return host < tsc ? ~0ull : host < tsc_boot ? 0 : ticks >> 59 ? ~0ull : tsc_to_ns(ticks);
}

static const struct vlapic_ops lapic_ops = {
    .peer = lapic_peer, .notify = lapic_notify, .arm = lapic_arm, .tsc_to_ns = lapic_tsc_to_ns
};

/* The vCPU wrote to its own LAPIC: EOI or TPR may have let something through that was pending before. */
void vcpu_lapic_written(struct vcpu *v) {
    v->virt.cr8 = (u8)vlapic_cr8(&v->lapic);
    if (!(__atomic_load_n(&v->todo, __ATOMIC_RELAXED) & TODO_EVENT) && vlapic_pending(&v->lapic) > 0)
        __atomic_fetch_or(&v->todo, TODO_EVENT, __ATOMIC_SEQ_CST);
}

/* ---- life ---- */

static void poll_timeout(struct timer *t, u64 now) {
    vcpu_notify(container_of(t, struct vcpu, poll_timer), TODO_EVENT);
}

static int map_info_page(struct vm *vm, struct vcpu *v) {
    hpa_t page = frame_alloc_zeroed(0);

    if (page == HPA_NONE) return -ENOMEM;
    v->info = hpa_to_va(page);
    v->info->tsc_khz = tsc_khz;
    v->info->state = TAKT_STATE_BLOCKED;
    return npt_map(&vm->virt.npt, TAKT_INFO_GPA + v->id * PAGE_SIZE, page, PAGE_SIZE, NPT_R, NPT_WB);
}

int vcpu_create(struct vm *vm, u32 id) {
    struct vcpu *v = heap_alloc(sizeof(*v));
    struct cpumask any;
    int err;

    cpumask_fill(&any);
    if (!v) return -ENOMEM;
    vm->vcpu[id] = v; /* from here on vcpu_destroy() undoes it */
    vm->nr_vcpus = id + 1;
    v->id = id;
    v->vm = vm;
    v->virt.vm = &vm->virt;
    v->virt.tsc_offset = vm->tsc_offset;
    v->waiting_sipi = id != 0;
    timer_init(&v->poll_timer, poll_timeout);
    timer_init(&v->lapic_timer, lapic_timeout);
    err = virt->vcpu_init(&v->virt);
    if (err) return err;
    guest_reset(&v->virt);
    err = map_info_page(vm, v);
    if (err) return err;
    vlapic_init(&v->lapic, id, &lapic_ops);
    if (id == 0 && vm->config.turbo) return sched_vcpu_init(&v->sched, &vm->turbo, id, &any);
    return sched_vcpu_init(&v->sched, &vm->sched, id, &vm->config.cpus);
}

void vcpu_destroy(struct vcpu *v) {
    timer_cancel_wait(&v->lapic_timer);
    timer_cancel_wait(&v->poll_timer);
    if (v->sched.dom) sched_vcpu_fini(&v->sched);
    if (v->virt.priv) virt->vcpu_fini(&v->virt);
    if (v->info) frame_free(va_to_hpa(v->info), 0);
    v->info = NULL;
}

/* sched_state_hook. The sums in `s` do not contain the time since `now`, when the state was entered. */
void vcpu_publish(struct sched_vcpu *s, u64 now) {
    const struct vcpu *v = vcpu_of_sched(s);
    struct takt_vcpu_info *i = v->info;

    if (!i) return;
    __atomic_store_n(&i->seq, i->seq + 1, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    i->state = s->state;
    i->since_tsc = tsc_at(now) + v->virt.tsc_offset;
    i->run_ns = s->state_ns[RS_RUNNING];
    i->runnable_ns = s->state_ns[RS_RUNNABLE];
    i->blocked_ns = s->state_ns[RS_BLOCKED];
    if (s->woken_at) i->wake_tsc = tsc_at(s->woken_at) + v->virt.tsc_offset;
    i->wakes = s->wakes;
    __atomic_store_n(&i->seq, i->seq + 1, __ATOMIC_RELEASE);
}

/* ---- states ---- */

void vcpu_start_state(struct vcpu *v, u32 entry, u32 eax, u32 ebx) {
    /* SDM 3A 3.4.5: present, accessed, 32-bit, 4 KiB granules; TR is busy, as a loaded one is */
    static const struct guest_seg code = { 0x08, 0xc9b, 0xffffffff, 0 },
                                  data = { 0x10, 0xc93, 0xffffffff, 0 };
    static const struct guest_seg tss = { 0, 0x08b, 0x67, 0 };

    v->virt.regs = (struct guest_regs){ .rip = entry, .rflags = 2 };
    v->virt.regs.gpr[REG_RAX] = eax;
    v->virt.regs.gpr[REG_RBX] = ebx;
    vcpu_set_reg(v, VREG_CR0, CR0_PE | CR0_ET);
    for (int s = SEG_ES; s <= SEG_GS; s++)
        virt->set_seg(&v->virt, (enum seg_name)s, s == SEG_CS ? &code : &data);
    virt->set_seg(&v->virt, SEG_TR, &tss);
}

/* SDM 3A 9.4.4: INIT makes it wait, a SIPI starts it in real mode at the vector's page. Either alone, or in
 * the wrong order, is dropped. */
static void init_sipi(struct vcpu *v, u32 todo) {
    if (todo & TODO_INIT) {
        guest_reset(&v->virt);
        vlapic_reset(&v->lapic);
        timer_cancel(&v->poll_timer);
        v->halted = false;
        v->nmis = 0;
        __atomic_store_n(&v->poll_port, 0, __ATOMIC_RELAXED);
        v->again_exits = 0;
        v->waiting_sipi = true;
    }
    if (todo & TODO_SIPI && v->waiting_sipi) {
        struct guest_seg cs;

        virt->get_seg(&v->virt, SEG_CS, &cs);
        cs.sel = (u16)(v->sipi_vector << 8);
        cs.base = (u64)v->sipi_vector << 12;
        virt->set_seg(&v->virt, SEG_CS, &cs);
        v->virt.regs.rip = 0;
        v->waiting_sipi = false;
    }
}

/* ---- delivery ---- */

/* How long ago an event was sent is asked for the trace alone. */
static __attribute__((noinline)) void trace_inject(struct vcpu *v, u8 vector) {
    u32 event = __atomic_load_n(&v->event, __ATOMIC_RELAXED), same = event;
    u32 who = v->vm->id << 16 | v->id, cpu = this_cpu()->id;
    u64 now = now_ns();

    trace(cpu, now, TRC_INJECT, who, vector, EVENT_IRQ, 0, 0);
    if (vector != (u8)event) return;
    /* Unless another one has been raised meanwhile, which is still to be told. */
    __atomic_compare_exchange_n(&v->event, &same, 0, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    trace(cpu, now, TRC_EVTCHN_TAKE, who, event >> 8, (u32)evtchn_taken(&v->vm->events, event >> 8, now), 0,
          0);
}

static void inject_irq(struct vcpu *v, u8 vector) {
    counter_inc(&interrupts_injected, this_cpu()->id);
    vlapic_accept(&v->lapic, vector);
    v->virt.pending = (struct virt_event){ .type = EVENT_IRQ, .vector = vector };
    if (__builtin_expect(trace_mask, 0)) trace_inject(v, vector);
}

static void deliver(struct vcpu *v) {
    struct virt_vcpu *hw = &v->virt;
    int vector;

    hw->want_irq_window = hw->want_cr8_exit = false;
    if (v->nmis && guest_can_take_nmi(hw)) {
        hw->pending = (struct virt_event){ .type = EVENT_NMI, .vector = EXC_NMI };
        v->nmis--;
    }
    hw->want_nmi_window = v->nmis;
    vector = vlapic_pending(vcpu_lapic(v));
    if (vector <= 0) /* what waits for a lower priority is looked at again when that is written */
        hw->want_cr8_exit = hw->cr8 && vector < 0;
    else if (guest_can_take_irq(hw))
        inject_irq(v, (u8)vector);
    else
        hw->want_irq_window = true;
}

/* A CPU that runs takes an NMI at once and keeps one more while its handler runs; the next are lost (SDM 3A
 * 6.7.1). While a vCPU does not run none of them is taken, so two of those that come are kept for it. */
static void take_nmis(struct vcpu *v) {
    u32 sent = __atomic_exchange_n(&v->nmis_sent, 0, __ATOMIC_SEQ_CST);
    bool in_progress = v->virt.pending.type == EVENT_NMI || virt->blocked(&v->virt) & BLOCKED_NMI;

    v->nmis = (u8)MIN(v->nmis + sent, in_progress ? 1 : 2);
}

/* All but an interrupt to deliver. */
static __attribute__((noinline)) void do_rare(struct vcpu *v, u32 todo) {
    if (todo & (TODO_INIT | TODO_SIPI)) init_sipi(v, todo);
    if (todo & TODO_BREAK) { /* RFLAGS.1 clear, SDM 3C 27.3.1.4; upper half of DR7, APM2 15.5.1 */
        v->virt.regs.rflags = 0;
        vcpu_set_reg(v, VREG_DR7, BIT(32));
    }
    if (v->waiting_sipi) return;
    if (todo & TODO_NMI) take_nmis(v);
    if (todo & TODO_TICK) {
        vlapic_tick(vcpu_lapic(v), now_ns());
        /* What it raised is delivered now. A bit that stayed would tell others that we were kicked. */
        __atomic_fetch_and(&v->todo, ~TODO_EVENT, __ATOMIC_SEQ_CST);
    }
}

bool vcpu_prepare(struct vcpu *v) {
    u32 todo = __atomic_exchange_n(&v->todo, 0, __ATOMIC_SEQ_CST);

    if (todo & ~TODO_EVENT) do_rare(v, todo);
    if (!v->waiting_sipi) deliver(v);
    if (v->waiting_sipi || (v->halted && v->virt.pending.type == EVENT_NONE)) {
        vcpu_block(v);
        return false;
    }
    v->halted = false;
    if (v->again_exits && v->exits == v->again_exits && v->virt.pending.type == EVENT_NONE) {
        /* It would enter the guest for nothing but the same hypercall. */
        exit_hypercall(v, &v->again);
        return !sched_blocked(&v->sched);
    }
    return true;
}

void vcpu_dump_exits(const struct vcpu *v) {
    for (unsigned i = 0; i < ARRAY_SIZE(v->last) && i < v->exits; i++) {
        const struct exit_log *l = &v->last[(v->exits - 1 - i) % ARRAY_SIZE(v->last)];

        log_err("  exit -%u: reason %u raw %x rip %lx", i, l->reason, l->raw, l->rip);
    }
}

/* Says where an access by the guest itself would lead. Most triple faults come from a page table, an IDT or a
 * stack that cannot be reached, and the registers alone do not show that. */
static void dump_access(struct vcpu *v, const char *what, u64 va, unsigned access) {
    gpa_t gpa;
    u32 fault;
    u64 room;

    if (guest_translate(&v->virt, va, access, &gpa, &fault) == 0)
        log_err("  %s at %lx: guest-physical %lx%s", what, va, gpa,
                guestmem_at(&v->vm->mem, gpa, &room) ? "" : ", where there is no RAM");
    else if (fault == GUEST_NOT_CANONICAL)
        log_err("  %s at %lx: not a canonical address", what, va);
    else
        log_err("  %s at %lx: page fault with error code %x", what, va, fault);
}

static void dump_code(struct vcpu *v) {
    char text[3 * 15 + 1] = "";
    u8 bytes[15];
    unsigned n = guest_fetch(&v->virt, bytes, sizeof(bytes));

    for (unsigned i = 0; i < n; i++) hv_snprintf(text + 3 * i, 4, " %02x", bytes[i]);
    log_err("  code:%s", n ? text : " none can be read");
}

/* What the CPU needs to execute an instruction or to deliver an exception. */
static void dump_reach(struct vcpu *v) {
    bool flat = guest_mode(&v->virt) == 64; /* bases of CS and SS do not count there */
    struct guest_seg cs, ss, idt, gdt, tr;

    virt->get_seg(&v->virt, SEG_CS, &cs);
    virt->get_seg(&v->virt, SEG_SS, &ss);
    virt->get_seg(&v->virt, SEG_IDTR, &idt);
    virt->get_seg(&v->virt, SEG_GDTR, &gdt);
    virt->get_seg(&v->virt, SEG_TR, &tr);
    log_err("  cr2 %lx, IDT limit %x, GDT at %lx limit %x, TR %04x at %lx", vcpu_reg(v, VREG_CR2), idt.limit,
            gdt.base, gdt.limit, tr.sel, tr.base);
    dump_access(v, "RIP", (flat ? 0 : cs.base) + v->virt.regs.rip, GA_READ);
    dump_access(v, "IDT", idt.base, GA_READ);
    dump_access(v, "stack", (flat ? 0 : ss.base) + v->virt.regs.gpr[REG_RSP], GA_READ);
    dump_code(v);
}

void vcpu_dump(struct vcpu *v) {
    const struct module *m = module_find(v->vm->config.image);
    const struct guest_regs *r = &v->virt.regs;
    char symbol[IMAGE_SYMBOL] = "";
    struct guest_seg cs;

    virt->get_seg(&v->virt, SEG_CS, &cs);
    log_err("  vCPU %u: rip %04x:%016lx rflags %lx cr0 %lx cr3 %lx cr4 %lx efer %lx", v->id, cs.sel, r->rip,
            r->rflags, vcpu_reg(v, VREG_CR0), vcpu_reg(v, VREG_CR3), vcpu_reg(v, VREG_CR4),
            vcpu_reg(v, VREG_EFER));
    for (unsigned i = 0; i < 16; i += 4)
        log_err("  r%u-%u: %016lx %016lx %016lx %016lx", i, i + 3, r->gpr[i], r->gpr[i + 1], r->gpr[i + 2],
                r->gpr[i + 3]);
    if (m) image_symbol(m, r->rip, symbol);
    if (*symbol) log_err("  in %s of image %s", symbol, m->name);
    dump_reach(v);
    vcpu_dump_exits(v);
}
