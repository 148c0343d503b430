/* Virtual time, coroutines and pCPUs. whole.h has the contracts.
 *
 * The main loop takes the earliest timer from one queue, sets the time, and calls it; most timers
 * let a pCPU go on. A pCPU gives the loop back its turn when it waits. */
#include <stdlib.h>
#include <string.h>
#include "lib/printf.h"
#include "platform/smp.h"
#include "tests/whole/whole.h"
#include "x86/trap.h"
#include "x86/tsc.h"

#define STACK_BYTES (256u << 10)
/* From this size on memory is not filled with zeros but given back to this computer, which has
 * zeros where nothing is. So what is scrubbed needs no memory here until somebody writes to it. */
#define LARGE (32u << 10)
/* More than any pCPU owes, ps. */
#define NO_STOP (1ll << 62)

struct pcpu {
    struct percpu p; /* what the hypervisor knows of it */
    struct strand strand;
    struct timer wake;   /* fires when its wait is over */
    bool interrupted;    /* it was kicked and has not noticed */
    bool interruptible;  /* it waits, and a kick ends that */
    u64 hw_timer;        /* when the timer of its APIC fires, ns; ~0: not at all */
    u64 halted_at;       /* since when it is halted, ns; ~0: it is not */
    u64 idle;            /* how long it was halted before, ns */
    u64 rest;            /* less than a ns that it has still to pay, ps */
    void (*entry)(void); /* what it begins with */
};

u64 whole_now, whole_instruction;
i64 whole_due = -NO_STOP;
struct percpu *whole_this_cpu;
u32 nr_cpus;
struct percpu *percpu_of[TAKT_MAX_CPUS];
u64 tsc_khz = 1000000, tsc_boot, tsc_to_ns_mul = 1ull << 32, ns_to_tsc_mul = 1ull << 32;

static i64 until_stop = NO_STOP; /* what may be owed until a debugger's stop, ps */
static struct pcpu pcpus[TAKT_MAX_CPUS];
static struct timerq queue;
static struct strand loop;
static bool stopped;
static void (*on_timer)(u8 vector);

static struct pcpu *me(void) { return container_of(whole_this_cpu, struct pcpu, p); }

/* ---- coroutines ---- */

void strand_swap(void **save, void *to);
void strand_begin(void);

/* strand_swap() leaves on a stack the registers that a function has to keep, and its return
 * address. strand_begin is what a new coroutine returns to. */
__asm__(".pushsection .text\n"
        ".globl strand_swap, strand_begin\n"
        "strand_swap:\n"
        "    pushq %rbx\n    pushq %rbp\n    pushq %r12\n"
        "    pushq %r13\n    pushq %r14\n    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n    popq %r14\n    popq %r13\n"
        "    popq %r12\n    popq %rbp\n    popq %rbx\n"
        "    ret\n"
        "strand_begin:\n"
        "    movq %r12, %rdi\n"
        "    movq %r13, %rsi\n"
        "    callq *%r14\n"
        "    ud2\n"
        ".popsection\n");

/* Makes a coroutine that calls fn(a, b) on the stack that ends at `top`, when it is first switched
 * to. Its stack is made to look as strand_swap() would leave it. */
void strand_init(struct strand *s, void *top, void *fn, void *a, void *b) {
    u64 *sp = (u64 *)((u64)top & ~15ull);

    /* strand_begin() is not called but returned to, with the stack pointer at `top`. */
    *--sp = (u64)strand_begin;
    *--sp = 0;      /* RBX */
    *--sp = 0;      /* RBP */
    *--sp = (u64)a; /* R12 */
    *--sp = (u64)b; /* R13 */
    *--sp = (u64)fn;
    *--sp = 0; /* R15 */
    s->sp = sp;
}

void strand_switch(struct strand *from, struct strand *to) { strand_swap(&from->sp, to->sp); }

/* ---- time ---- */

u64 whole_owed(void) { return (u64)(whole_due + until_stop); }

/* Also has to be called when the time has changed, because the time until a debugger's stop is
 * another one then. */
void whole_owe(u64 ps) {
    until_stop = NO_STOP;
    if (whole_stop.at <= whole_now)
        until_stop = 0;
    else if (whole_stop.at - whole_now < NO_STOP / PS_PER_NS)
        until_stop = (i64)((whole_stop.at - whole_now) * PS_PER_NS);
    whole_due = (i64)ps - until_stop;
}

u64 rdtsc(void) { return whole_now + whole_owed() / PS_PER_NS; }

void cpu_relax(void) { whole_charge(whole_costs.hv); }

/* Stops for a debugger. A basic block calls it if the time of the stop has come. */
void whole_stop_due(void);
void whole_stop_due(void) {
    u64 owed = whole_owed();

    if (!whole_this_cpu) return;
    debug_stop("hypervisor", whole_now * PS_PER_NS + owed);
    whole_owe(owed);
}

/* The compiler puts a call of this function at the beginning of each basic block of hv/. Nearly all
 * of these calls are replaced by the instructions of count.awk, which count the whole block. */
void __sanitizer_cov_trace_pc(void);
void __sanitizer_cov_trace_pc(void) {
    whole_charge(whole_instruction);
    if (whole_due >= 0) whole_stop_due();
}

/* As for guests (guest/start.c): the linker puts these in the place of memcpy() and memset(). */
void *__real_memcpy(void *to, const void *from, size_t n);
void *__wrap_memcpy(void *to, const void *from, size_t n);
void *__real_memset(void *to, int c, size_t n);
void *__wrap_memset(void *to, int c, size_t n);

void *__wrap_memcpy(void *to, const void *from, size_t n) {
    whole_charge(whole_elements(n) * whole_costs.element);
    return __real_memcpy(to, from, n);
}

void *__wrap_memset(void *to, int c, size_t n) {
    whole_charge(whole_elements(n) * whole_costs.element);
    if (c == 0 && n >= LARGE && memory_drop(to, n)) return to;
    return __real_memset(to, c, n);
}

/* Lets a pCPU go on whose wait is over: switches to its coroutine, and returns when it waits again.
 */
static void go_on(struct timer *t, u64 now) {
    struct pcpu *c = container_of(t, struct pcpu, wake);

    whole_this_cpu = &c->p;
    strand_switch(&loop, &c->strand);
    whole_this_cpu = NULL;
}

/* Lets virtual time pass on this pCPU until `ns`, while others run. If `interruptible`, a kick ends
 * the wait. What this pCPU owes is kept meanwhile, because whole_owed() is that of the pCPU that
 * executes. The queue's own code counts as the hypervisor's, too, but is no part of what is
 * simulated. */
void engine_wait(u64 ns, bool interruptible) {
    struct pcpu *c = me();
    u64 owed = whole_owed();

    if (ns <= whole_now) return;
    if (timerq_next(&queue) > ns && ns != ~0ull && !stopped) {
        whole_now = ns; /* nothing else is due before */
        whole_owe(owed);
        return;
    }
    c->interruptible = interruptible;
    if (ns != ~0ull) timerq_insert(&queue, &c->wake, ns);
    strand_switch(&c->strand, &loop);
    c->interruptible = false;
    whole_owe(owed);
}

/* Lets the virtual time pass that the hypervisor's code on this pCPU has cost since the last call.
 * Less than a ns is kept for the next time. In between the trace is written, and faults may be
 * injected. */
void engine_pay(void) {
    struct pcpu *c = me();
    u64 ps = c->rest + whole_owed();

    whole_trace_step();
    nic_step();
    if (whole_inject_step) {
        whole_inject_step();
        ps = c->rest + whole_owed();
    }
    whole_instruction = whole_costs.hv;
    whole_owe(0);
    c->rest = ps % PS_PER_NS;
    engine_wait(whole_now + ps / PS_PER_NS, false);
}

u64 engine_horizon(void) { return MAX(timerq_next(&queue), whole_now + whole_costs.ahead_ns); }

static struct timer end;

static void stop_here(struct timer *t, u64 now) { stopped = true; }

void engine_stop(void) { stopped = true; }

void engine_run_until(u64 ns) {
    stopped = false;
    timer_init(&end, stop_here);
    timerq_insert(&queue, &end, MAX(ns, whole_now));
    while (!stopped) {
        struct timer *t = timerq_pop(&queue, timerq_next(&queue));

        whole_now = t->when;
        t->fn(t, whole_now);
    }
    timerq_remove(&queue, &end);
}

void engine_timer(struct timer *t, u64 ns) {
    if (t->queued) timerq_remove(&queue, t);
    timerq_insert(&queue, t, ns);
}

/* ---- pCPUs, as hv/ asks for them ---- */

struct strand *engine_pcpu(void) {
    return &me()->strand;
}

bool engine_interrupted(void) {
    bool was = me()->interrupted;

    me()->interrupted = false;
    return was;
}

/* The pCPU may have something to do that is due before the kick arrives. */
void cpu_kick(unsigned cpu) {
    struct pcpu *c = container_of(percpu_of[cpu], struct pcpu, p);
    u64 at = whole_now + whole_costs.kick_ns, owed = whole_owed();

    if (whole_kick_late) at += whole_kick_late();
    if (&c->p == whole_this_cpu || c->interrupted) return;
    c->interrupted = true;
    if (!c->interruptible || (c->wake.queued && c->wake.when <= at)) return;
    timerq_remove(&queue, &c->wake);
    timerq_insert(&queue, &c->wake, at);
    whole_owe(owed);
}

void cpu_interrupt_self(void) { me()->interrupted = true; }

/* Interrupts have no handlers here but the timer's, which cpu_halt() calls. Time goes on here: work
 * that is repeated until another pCPU has done something would otherwise be repeated for ever. */
void irq_window(void) { engine_pay(); }

void cpu_halt(void) {
    struct pcpu *c = me();

    engine_pay();
    c->halted_at = whole_now;
    if (!c->interrupted) engine_wait(c->hw_timer, true);
    c->idle += whole_now - c->halted_at;
    c->halted_at = ~0ull;
    if (c->hw_timer <= whole_now) {
        c->hw_timer = ~0ull;
        on_timer(VEC_TIMER);
    }
    c->interrupted = false;
}

/* The hypervisor's own count of idle time lacks a halt that has not ended. A pCPU that never gets
 * anything to do has only that one. */
u64 engine_idle(u32 cpu) {
    const struct pcpu *c = container_of(percpu_of[cpu], struct pcpu, p);

    if (c->halted_at == ~0ull) return c->idle;
    return c->idle + whole_now - c->halted_at;
}

bool smp_all_alive(void) { return true; }

/* hv/platform/timer.c sets the timer of the APIC by this MSR; 0 switches it off. No other MSR is
 * used. */
void wrmsr(u32 msr, u64 v) {
    if (msr != MSR_TSC_DEADLINE) panic("MSR %x is written, which is not modelled", msr);
    me()->hw_timer = v ? v : ~0ull;
}

u64 rdmsr(u32 msr) { panic("MSR %x is read, which is not modelled", msr); }

void irq_register(u8 vector, void (*fn)(u8 vector)) {
    if (vector == VEC_TIMER) on_timer = fn;
}

static void begin(void *entry, void *unused) {
    ((void (*)(void))entry)();
    abort();
}

/* Makes `cpus` pCPUs, each a coroutine with a stack of its own that calls entry(). They begin when
 * virtual time passes. */
void engine_start(u32 cpus, void (*entry)(void)) {
    nr_cpus = cpus;
    whole_instruction = whole_costs.hv;
    whole_owe(0); /* reading the VM file was no work of the machine */
    for (u32 i = 0; i < cpus; i++) {
        struct pcpu *c = &pcpus[i];
        char *stack = aligned_alloc(64, STACK_BYTES);

        c->p.self = percpu_of[i] = &c->p;
        c->p.id = c->p.apic_id = i;
        c->p.online = true;
        c->hw_timer = c->halted_at = ~0ull;
        timer_init(&c->wake, go_on);
        strand_init(&c->strand, stack + STACK_BYTES, begin, entry, NULL);
        timerq_insert(&queue, &c->wake, whole_now);
    }
}
