/* Timers and work items. Each pCPU has a queue of timers: a timer calls a function on that pCPU at
 * a certain time. The hardware timer is armed for the earliest deadline. A work item is a function
 * that does a longer job on the housekeeping pCPU (WORK_CPU) in short steps, so that guests there
 * do not wait for the whole job. Each queue has a lock, which is a leaf: no other lock is taken
 * while it is held. The functions of timers are called without it. */
#include "platform/timer.h"

#include "lib/spinlock.h"
#include "mm/frame.h"
#include "lib/printf.h"
#include "platform/apic.h"
#include "platform/clock.h"
#include "platform/smp.h"
#include "trace/trace.h"
#include "common/insn.h"
#include "x86/percpu.h"
#include "x86/trap.h"
#include "x86/tsc.h"

DEFINE_COUNTER(timers_fired);
DEFINE_COUNTER(work_steps);

struct cpu_timers {
    struct spinlock lock;
    struct timerq q;
    volatile u64 next;     /* = timerq_next(&q), to be read without the lock */
    struct timer *running; /* whose fn is being called */
    u64 armed;             /* what the hardware was told; own CPU only */
};

/* Returns the timer queue of a CPU. */
static struct cpu_timers *timers_of(unsigned cpu) { return percpu_of[cpu]->timers; }

/* Disarms the timer. A call of its function may still be under way on another CPU. The timer may
 * move to another CPU's queue while we wait for the lock. Then we have locked the wrong queue, and
 * try again. */
void timer_cancel(struct timer *t) {
    /* t->cpu may change until its queue's lock is held */
    while (__atomic_load_n(&t->queued, __ATOMIC_ACQUIRE)) {
        u16 cpu = __atomic_load_n(&t->cpu, __ATOMIC_RELAXED);
        struct cpu_timers *c = timers_of(cpu);

        spin_lock(&c->lock);
        if (t->cpu == cpu) timerq_remove(&c->q, t);
        c->next = timerq_next(&c->q);
        spin_unlock(&c->lock);
    }
}

/* Is the function of `t` being called on this CPU? The lock is taken because timers_run() takes a
 * timer out of the queue and notes it as running while it holds the lock. Without it we could look
 * in between, and miss the timer. */
static bool is_running(struct cpu_timers *c, const struct timer *t) {
    bool yes;

    spin_lock(&c->lock);
    yes = c->running == t;
    spin_unlock(&c->lock);
    return yes;
}

/* Disarms the timer, and waits until no call of its function is under way. */
void timer_cancel_wait(struct timer *t) {
    timer_cancel(t);
    for (unsigned cpu = 0; cpu < nr_cpus; cpu++)
        while (cpu != this_cpu()->id && is_running(timers_of(cpu), t)) cpu_relax();
}

/* Arms a timer: pCPU `cpu` calls t->fn at the time `when` (ns). If the new deadline is the earliest
 * of another pCPU, that pCPU is kicked: its hardware timer is set to a later time, and only that
 * pCPU itself can change it. A timer that was last in this pCPU's queue is moved within it, under
 * one hold of the lock, because each switch of vCPUs does this. */
void timer_set(unsigned cpu, struct timer *t, u64 when) {
    struct cpu_timers *c = timers_of(cpu);
    bool sooner;

    if (__atomic_load_n(&t->cpu, __ATOMIC_RELAXED) != cpu) timer_cancel(t);
    spin_lock(&c->lock);
    timerq_remove(&c->q, t);
    t->cpu = (u16)cpu;
    timerq_insert(&c->q, t, when);
    sooner = when < c->next;
    c->next = timerq_next(&c->q);
    spin_unlock(&c->lock);
    if (sooner && cpu != this_cpu()->id) cpu_kick(cpu);
}

/* Returns the time at which this CPU's next timer is due; ~0 if there is none. */
u64 timers_next(void) { return ((struct cpu_timers *)this_cpu()->timers)->next; }

/* Returns for how many ns a timer of `cpu` has been due; 0 if none is. */
u64 timers_late(unsigned cpu, u64 now) {
    u64 next = timers_of(cpu)->next;

    if (next >= now) return 0;
    return now - next;
}

/* Calls the functions of all timers of this CPU that are due. The time is read once, at the
 * beginning. So a timer that arms itself again for a very near time does not keep the pCPU in this
 * loop. */
void timers_run(void) {
    struct cpu_timers *c = this_cpu()->timers;
    u64 now = now_ns();

    while (c->next <= now) {
        struct timer *t;

        spin_lock(&c->lock);
        t = timerq_pop(&c->q, now);
        c->next = timerq_next(&c->q);
        c->running = t;
        spin_unlock(&c->lock);
        if (!t) return;
        counter_inc(&timers_fired, this_cpu()->id);
        t->fn(t, now);
        c->running = NULL;
    }
}

/* Handles the hardware timer's interrupt. The timer has stopped with it, so it counts as not armed.
 * timers_run() is called by the loop. */
static void on_timer(u8 vector) { ((struct cpu_timers *)this_cpu()->timers)->armed = ~0ull; }

/* Returns from which count the LAPIC's timer has to count down to reach 0 at a deadline. If the
 * deadline is too far away for the counter, the timer fires early, and the loop arms it again. */
static u32 ticks_until(u64 when) {
    u64 now = now_ns(), left;

    if (when <= now) return 1; /* 0 would stop the timer */
    left = MIN(when - now, NS_PER_S) * apic_timer_khz / 1000000 + 1;
    return (u32)MIN(left, (u64)UINT32_MAX);
}

/* Sets this CPU's hardware timer to interrupt at `when` (ns); ~0 stops it. Writing the hardware is
 * slow, so nothing is written if the time has not changed. */
void lapic_timer_arm(u64 when) {
    struct cpu_timers *c = this_cpu()->timers;
    bool never = when == ~0ull;

    if (when == c->armed) return;
    c->armed = when;
    if (apic_tsc_deadline && never)
        wrmsr(MSR_TSC_DEADLINE, 0); /* switches it off */
    else if (apic_tsc_deadline)
        wrmsr(MSR_TSC_DEADLINE, tsc_at(when));
    else if (never)
        apic_timer_count(0); /* stops it */
    else
        apic_timer_count(ticks_until(when));
}

/* Makes the timer queue of this CPU. */
void timers_init_cpu(void) {
    struct cpu_timers *c = heap_alloc(sizeof(*c));

    ASSERT(c);
    c->next = c->armed = ~0ull;
    this_cpu()->timers = c;
    irq_register(VEC_TIMER, on_timer);
}

/* ---- work items ---- */

static struct list due_work = { &due_work, &due_work }; /* WORK_CPU's own: no lock */

/* Called when a work item's time has come: adds it to the items that are due. */
static void on_due(struct timer *t, u64 now) {
    list_add_tail(&due_work, &container_of(t, struct work, timer)->link);
}

/* Queues a work item. Its step is called on WORK_CPU, not before the time w->not_before (ns). */
void work_add(struct work *w) {
    w->timer.fn = on_due;
    timer_set(WORK_CPU, &w->timer, w->not_before);
}

/* Returns whether a step of a work item is due. */
bool work_due(void) { return !list_empty(&due_work); }

/* Runs one step of the work item that has waited longest. Returns false if no step was due. It runs
 * one step at a time, so that the loop can look after guests in between. An item whose step returns
 * true has more to do, and is added again. */
bool work_run(void) {
    struct work *w = list_first(&due_work, struct work, link);

    if (!work_due()) return false;
    list_del(&w->link);
    counter_inc(&work_steps, WORK_CPU);
    if (w->step(w)) work_add(w);
    return true;
}
