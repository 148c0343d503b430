/* The loop in which each pCPU spends its life: let the scheduler choose a vCPU, enter its guest,
 * handle the exit, and so on (docs/architecture.md, "How a pCPU spends its life"). A vCPU is
 * "loaded" on a pCPU while its registers are in that pCPU's hardware. To kick a pCPU is to
 * interrupt it so that it goes through its loop. Work items are jobs of the hypervisor that the
 * housekeeping pCPU (WORK_CPU) does in short steps. Interrupts are off except in guests, while
 * halted, and at marked places. */
#include "platform/smp.h"
#include "trace/trace.h"
#include "vcpu/vcpu.h"
#include "x86/percpu.h"
#include "x86/tsc.h"

DEFINE_COUNTER(exits);
DEFINE_COUNTER(sched_runs_again); /* decisions made anew, as the one before kicked its own pCPU */

/* How often a pCPU decides again at once if a decision kicks this same pCPU. A policy that does so
 * every time would otherwise keep the pCPU here for ever, with interrupts off. */
#define DECIDE_AGAIN 8

/* While guests want to run, work items get one part in WORK_SHARE of the housekeeping pCPU. With a
 * tenth, 64 VMs of 2 MiB needed 4.3 s to be created on Bochs where two others computed. */
#define WORK_SHARE 4

/* What a pCPU's loop knows. Only that pCPU writes it. */
struct cpu_vm {
    struct vcpu *loaded; /* its state is in this pCPU's hardware; NULL: none, the pCPU is idle */
    u64 start;           /* TSC: when the loop was entered */
    u64 mark;            /* TSC: up to here the pCPU's time is accounted */
    u64 work_at;         /* TSC: from here on a step of work may come between two guests */
    bool look;           /* there was an interrupt, so a timer or work may be due */
    bool work_waits;     /* work is due, and waits until work_at */
};

static struct cpu_vm cpu_vms[TAKT_MAX_CPUS];

/* Returns what the loop of this pCPU knows. */
static inline struct cpu_vm *this_cpu_vm(const struct percpu *cpu) { return &cpu_vms[cpu->id]; }

/* Returns the time in ns at which the TSC had the value `tsc`. */
static inline u64 ns_at(u64 tsc) { return tsc_to_ns(tsc - tsc_boot); }

/* Kicks all other pCPUs that have a vCPU of this VM loaded. tlbgen.c calls it when translations of
 * the VM have become old, so that these pCPUs leave the guest and drop them. */
void kick_users(const struct tlbgen *g) {
    for (u32 cpu = 0; cpu < nr_cpus; cpu++)
        if (g->cpu[cpu].loaded && cpu != this_cpu()->id) cpu_kick(cpu);
}

/* Tells a vCPU that it has something to do before it enters its guest again, such as to take an
 * interrupt: sets bits in v->todo, and wakes or kicks the vCPU so that it sees them. If the bits
 * were set already, whatever set them has told the vCPU; a second kick would only cost time. */
void vcpu_notify(struct vcpu *v, u32 todo) {
    u32 old = __atomic_fetch_or(&v->todo, todo, __ATOMIC_SEQ_CST);
    const struct percpu *cpu = this_cpu();
    u32 on;

    /* v is loaded on this pCPU and does not sleep, so it checks `todo` before it enters its
     * guest. */
    if (this_cpu_vm(cpu)->loaded == v && !sched_blocked(&v->sched)) return;
    sched_wake(&v->sched);
    if ((old & todo) == todo) return;
    on = __atomic_load_n(&v->sched.on_cpu, __ATOMIC_SEQ_CST);
    if (on != SCHED_NO_CPU && on != cpu->id) cpu_kick(on);
}

/* Puts the vCPU that is loaded here to sleep, unless it has something to do. It leaves the pCPU
 * when the scheduler decides next, which need_resched asks for. */
void vcpu_block(struct vcpu *v) {
    sched_block(&v->sched);
    /* This fence is needed because of vcpu_notify(), which sets `todo` by a locked instruction and
     * then reads `blocked` without a lock. A store may pass a later load on x86, so without this
     * fence both could read what was there before, and the vCPU would sleep with something to
     * do. */
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (__atomic_load_n(&v->todo, __ATOMIC_RELAXED)) sched_wake(&v->sched);
    this_cpu()->need_resched = true;
}

/* Asks the scheduler which vCPU runs next, and switches to it: saves the state of the one that is
 * loaded, and loads the next one. sched_saved() comes right after the save, because no other pCPU
 * may run the old vCPU before. */
static void decide(struct percpu *cpu, struct cpu_vm *c) {
    struct sched_vcpu *prev = sched_current(cpu->id), *next;

    cpu->need_resched = false;
    next = sched_run(cpu->id);
    if (next == prev) return;
    if (c->loaded) virt->save(&c->loaded->virt);
    c->loaded = sched_is_idle(next) ? NULL : vcpu_of_sched(next);
    sched_saved(cpu->id, prev);
    if (c->loaded) virt->load(&c->loaded->virt);
    __atomic_thread_fence(__ATOMIC_SEQ_CST); /* on_cpu is visible before `todo` is read */
}

/* Lets the scheduler decide, and again if sched_run() or sched_saved() kicks this same pCPU. That
 * happens under `null`: when the owner of a pCPU moves elsewhere, a vCPU that waits gets the pCPU
 * only once the owner's state is saved. A pCPU that kicks itself gets no interrupt, so the kick has
 * to be answered here. Otherwise the pCPU would halt, or stay in its guest, until some other
 * interrupt. */
static void reschedule(struct percpu *cpu, struct cpu_vm *c) {
    decide(cpu, c);
    for (u32 i = 0; i < DECIDE_AGAIN && cpu->need_resched; i++) {
        counter_inc(&sched_runs_again, cpu->id);
        decide(cpu, c);
    }
}

/* Notes for the VM that is loaded here whether this pCPU may use its translations. A guest that is
 * not running uses none until it is entered again. Without this, code that waits until every pCPU
 * has dropped old translations (tlbgen.h) would wait for a pCPU that is halted, or for itself. */
static void guest_rests(const struct percpu *cpu, const struct cpu_vm *c, bool rests) {
    struct tlbgen *g;

    if (!c->loaded) return;
    g = &c->loaded->vm->virt.npt.tlb;
    if (rests)
        tlb_rest(g, cpu->id);
    else
        tlb_resume(g, cpu->id);
}

/* Does one step of a work item, if one is due and its share of the pCPU's time is not used up.
 * Returns whether it did. */
static bool do_work(const struct percpu *cpu, struct cpu_vm *c) {
    u64 start, end;
    bool worked;

    c->work_waits = false;
    if (cpu->id != WORK_CPU || !work_due()) return false;
    start = rdtsc();
    c->work_waits = c->loaded && !sched_blocked(&c->loaded->sched) && start < c->work_at;
    if (c->work_waits) return false;
    guest_rests(cpu, c, true);
    worked = work_run();
    guest_rests(cpu, c, false);
    if (!worked) return false;
    end = rdtsc();
    c->work_at = end + (WORK_SHARE - 1) * (end - start);
    irq_window(); /* as long as there is more work, no other code takes interrupts */
    return true;
}

/* Does what need not be done at every pass of the loop: timers, scheduling, work, and halting if
 * there is nothing to run. Returns false if the pass has to begin again. */
static __attribute__((noinline)) bool look_around(struct percpu *cpu, struct cpu_vm *c) {
    c->look = false;
    cpu->heartbeat = c->mark;
    cpu->hv_tsc = c->mark - c->start - cpu->guest_tsc - cpu->idle_tsc;
    if (timers_next() <= ns_at(c->mark)) timers_run();
    if (cpu->need_resched) reschedule(cpu, c);
    if (do_work(cpu, c)) {
        c->mark = rdtsc();
    } else if (c->loaded && !sched_blocked(&c->loaded->sched)) {
        /* The wake may be for a bit of `todo` that the vCPU handled before it blocked. So it checks
         * again whether it is still halted. */
        if (c->loaded->waiting_sipi || c->loaded->halted)
            __atomic_fetch_or(&c->loaded->todo, TODO_EVENT, __ATOMIC_SEQ_CST);
        return true;
    } else { /* nothing runs here; a vCPU may be loaded all the same (`sleepless` of null) */
        u64 t;

        lapic_timer_arm(timers_next());
        t = rdtsc();
        guest_rests(cpu, c, true);
        cpu_halt();
        guest_rests(cpu, c, false);
        c->mark = rdtsc();
        cpu->idle_tsc += c->mark - t;
    }
    c->look = true;
    return false;
}

/* Records an entry or an exit for the operator's trace. It is rare, so it is not inlined. */
static __attribute__((noinline)) void trace_pass(const struct vcpu *v, u64 ns, u16 event,
                                                 u32 reason, u64 rip, u32 raw) {
    trace(this_cpu()->id, ns, event, vcpu_trace_id(v), reason, (u32)rip, (u32)(rip >> 32), raw);
}

/* Keeps the last exits of the vCPU, which are logged if its VM crashes. */
static inline void log_exit(struct vcpu *v, const struct vm_exit *e) {
    struct exit_log *log = &v->last[v->exits++ % ARRAY_SIZE(v->last)];

    log->rip = v->virt.regs.rip;
    log->raw = e->raw;
    log->reason = e->reason;
}

/* One pass of the loop: looks around if there is a reason to, prepares the loaded vCPU, enters its
 * guest, and handles the exit. */
static inline __attribute__((always_inline)) void pass(struct percpu *cpu, struct cpu_vm *c) {
    struct vm_exit e;
    struct vcpu *v;
    u64 deadline, t;

    if (__builtin_expect(c->look | cpu->need_resched, 0) && !look_around(cpu, c)) return;
    v = c->loaded;
    if (__atomic_load_n(&v->todo, __ATOMIC_RELAXED) && !vcpu_prepare(v)) return;
    deadline = timers_next();
    if (__builtin_expect(c->work_waits, 0)) deadline = MIN(deadline, ns_at(c->work_at));
    if (__builtin_expect(trace_mask & TRACE_CLASS_EXIT, 0))
        trace_pass(v, now_ns(), TRC_ENTRY, 0, 0, 0);
    t = rdtsc();
    virt->run(&v->virt, deadline, &e);
    c->mark = rdtsc();
    cpu->guest_tsc += c->mark - t;

    c->look = e.reason <= EXIT_NMI; /* the exits by which the host may have got something to do */
    log_exit(v, &e);
    v->interrupted += e.reason <= EXIT_NMI_WINDOW;
    counter_inc(&exits, cpu->id);
    if (__builtin_expect(trace_mask & TRACE_CLASS_EXIT, 0))
        trace_pass(v, ns_at(c->mark), TRC_EXIT, e.reason, v->virt.regs.rip, e.raw);
    vcpu_handle_exit(v, &e);
}

/* Logs the last exits of the vCPU that is loaded here, if there is one. A panic calls it. */
void cpu_dump_exits(void) {
    struct vcpu *v = this_cpu_vm(this_cpu())->loaded;

    if (v) vcpu_dump_exits(v);
}

/* Does one pass of the loop of this pCPU; for tests, which have no loop for ever. If no vCPU is
 * loaded, the pass has to look around for one. */
void cpu_pass(void) {
    struct percpu *cpu = this_cpu();
    struct cpu_vm *c = this_cpu_vm(cpu);

    c->look |= !c->loaded;
    pass(cpu, c);
}

/* Runs vCPUs on this pCPU for ever. `mark` is the time up to which this pCPU's time was counted as
 * a guest's, idle or the hypervisor's. */
void cpu_loop(void) {
    struct percpu *cpu = this_cpu();
    struct cpu_vm *c = this_cpu_vm(cpu);

    c->start = rdtsc();
    c->mark = c->start;
    c->look = true;
    cpu->need_resched = true;
    for (;;) pass(cpu, c);
}
