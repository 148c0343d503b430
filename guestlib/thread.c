/* Threads and semaphores.
 *
 * The lock of a vCPU guards its ready queue and the states of its threads. It is taken with
 * interrupts off. The lock of a semaphore is taken before it. A thread that blocks sets its state
 * under the lock of its vCPU, and then calls schedule(). If another vCPU wakes the thread in
 * between, the thread is put into the ready queue, and schedule() picks it again. So no wake is
 * lost. */
#include <guest/guest.h>
#include <guest/lapic.h>
#include <guest/mem.h>
#include <guest/thread.h>
#include <guest/vcpu.h>

void thread_switch(u64 *save_rsp, u64 new_rsp);

struct thread *thread_self(void) {
    struct vcpu *v;
    struct thread *t;
    u64 f = irq_save();

    v = this_vcpu();
    t = v->current;
    irq_restore(f);
    return t;
}

static void thread_enqueue(struct vcpu *v, struct thread *t) {
    t->state = THREAD_READY;
    t->next = NULL;
    if (v->ready_first)
        v->ready_last->next = t;
    else
        v->ready_first = t;
    v->ready_last = t;
}

static struct thread *thread_dequeue(struct vcpu *v) {
    struct thread *t = v->ready_first;

    if (!t) return v->idle;
    v->ready_first = t->next;
    return t;
}

/* If another thread is ready, arms the timer for the end of the current thread's quantum. The idle
 * thread has no quantum, because it gives way at once. */
static void arm_quantum(struct vcpu *v) {
    if (v->ready_first && v->current != v->idle &&
        (!v->timer_armed || v->timer_armed > v->quantum_end))
        time_arm(v->quantum_end);
}

/* Switches to the next thread. Call it with interrupts off. It returns when it is the caller's turn
 * again. */
static void schedule(void) {
    struct vcpu *v = this_vcpu();
    struct thread *prev, *next;

    spin_lock(&v->lock);
    prev = v->current;
    if (prev->state == THREAD_RUNNING && prev != v->idle) thread_enqueue(v, prev);
    next = thread_dequeue(v);
    next->state = THREAD_RUNNING;
    v->current = next;
    v->need_resched = false;
    v->quantum_end = time_ns() + THREAD_QUANTUM;
    arm_quantum(v);
    if (next != prev) thread_switch(&prev->rsp, next->rsp);
    spin_unlock(&v->lock); /* the thread that ran before us has taken this lock */
}

static void thread_wake(struct thread *t) {
    struct vcpu *v = vcpu_get(t->vcpu);
    u64 f = spin_lock_irqsave(&v->lock);

    bool remote = v != this_vcpu();

    if (t->state == THREAD_BLOCKED) {
        thread_enqueue(v, t);
        v->need_resched = true;
    }
    if (!remote) arm_quantum(v);
    spin_unlock_irqrestore(&v->lock, f);
    if (remote) lapic_ipi(t->vcpu, VECTOR_RESCHED);
}

void thread_timer(u64 now) {
    struct vcpu *v = this_vcpu();

    u64 quantum_end = 0; /* without other ready threads the quantum need not end */

    if (v->ready_first && now >= v->quantum_end) v->need_resched = true;
    if (v->ready_first) quantum_end = MAX(v->quantum_end, now + NS_PER_MS);
    time_arm(quantum_end);
}

void thread_preempt(void) {
    struct vcpu *v = this_vcpu();

    if (v->need_resched && !v->preempt_off && !v->user_sp) schedule();
}

void preempt_disable(void) {
    u64 f = irq_save();

    this_vcpu()->preempt_off++;
    irq_restore(f);
}

void preempt_enable(void) {
    u64 f = irq_save();

    this_vcpu()->preempt_off--;
    thread_preempt();
    irq_restore(f);
}

void thread_yield(void) {
    u64 f = irq_save();

    schedule();
    irq_restore(f);
}

/* ---- threads ---- */

/* Nothing to be done: thread_preempt() follows every interrupt. */
static void on_resched(void *arg) {}

/* A new thread begins here, when schedule() switches to it for the first time. */
static void thread_main(void) {
    struct vcpu *v = this_vcpu();
    struct thread *t = v->current;

    spin_unlock(&v->lock);
    /* Another vCPU may have unmapped the guard page, and the TLB of this vCPU may still have the
     * old mapping. */
    invlpg((u64)t->stack - PAGE_SIZE);
    irq_enable();
    t->fn(t->arg);
    irq_disable();
    sem_up(&t->done);
    spin_lock(&v->lock);
    t->state = THREAD_DONE;
    spin_unlock(&v->lock);
    schedule();
    __builtin_unreachable();
}

void *stack_alloc(void) {
    char *p = page_alloc(1 + THREAD_STACK / PAGE_SIZE);

    if (!p) return NULL;
    if (page_map((u64)p, 0, 0)) {
        page_free(p, 1 + THREAD_STACK / PAGE_SIZE);
        return NULL;
    }
    return p + PAGE_SIZE;
}

void stack_free(void *stack) {
    char *p = (char *)stack - PAGE_SIZE;

    /* This cannot fail, because the page table exists. */
    page_map((u64)p, (u64)p, PTE_P | PTE_W | PTE_U);
    page_free(p, 1 + THREAD_STACK / PAGE_SIZE);
}

void stack_check(u64 rip, u64 address) {
    const struct thread *t = this_vcpu()->current;
    u64 stack;

    if (!t) return;
    stack = (u64)t->stack;
    if (address < stack && address >= stack - PAGE_SIZE)
        guest_panic_at(rip, "thread \"%s\" needs more than its stack of %u bytes (THREAD_STACK)",
                       t->name, THREAD_STACK);
}

struct thread *thread_start(unsigned vcpu, const char *name, void (*fn)(void *), void *arg) {
    struct thread *t = calloc(1, sizeof(*t));
    u64 *sp;

    if (!t || !vcpu_get(vcpu)) goto fail;
    t->stack = stack_alloc();
    if (!t->stack) goto fail;
    t->name = name;
    t->fn = fn;
    t->arg = arg;
    t->vcpu = vcpu;
    t->state = THREAD_BLOCKED;
    sem_init(&t->done, 0);
    /* This is what thread_switch() leaves on a stack: six registers and a return address. The stack
     * is aligned as it is after a call. */
    sp = (u64 *)((char *)t->stack + THREAD_STACK);
    *--sp = 0;
    *--sp = (u64)thread_main;
    for (unsigned i = 0; i < 6; i++) *--sp = 0;
    t->rsp = (u64)sp;
    thread_wake(t);
    return t;

fail:
    free(t);
    return NULL;
}

void thread_join(struct thread *t) {
    struct vcpu *v = vcpu_get(t->vcpu);
    bool done = false;

    sem_down(&t->done);
    /* The thread uses its stack until its vCPU has switched to another thread. So we must not free
     * the stack before. */
    while (!done) {
        u64 f = spin_lock_irqsave(&v->lock);
        done = t->state == THREAD_DONE && v->current != t;
        spin_unlock_irqrestore(&v->lock, f);
        if (!done) thread_yield();
    }
    stack_free(t->stack);
    free(t);
}

void thread_init_cpu(void *stack) {
    struct vcpu *v = this_vcpu();
    struct thread *t = calloc(1, sizeof(*t));

    if (!t) guest_panic("there is no memory for the idle thread");
    t->name = "idle";
    t->stack = stack;
    t->vcpu = v->id;
    t->state = THREAD_RUNNING;
    v->idle = v->current = t;
    irq_set_handler(VECTOR_RESCHED, on_resched, NULL);
}

void thread_idle(void) {
    struct vcpu *v = this_vcpu();

    for (;;) {
        irq_disable();
        if (v->ready_first)
            schedule();
        else
            irq_enable_and_halt();
    }
}

/* ---- semaphores ---- */

void sem_init(struct semaphore *s, u32 count) { *s = (struct semaphore)SEMAPHORE(count); }

void sem_up(struct semaphore *s) {
    u64 f = spin_lock_irqsave(&s->lock);
    struct thread *t = s->first;

    if (t) {
        s->first = t->next;
        t->waits = NULL;
    } else {
        s->count++;
    }
    spin_unlock(&s->lock);
    if (t) thread_wake(t);
    irq_restore(f);
}

bool sem_try(struct semaphore *s) {
    u64 f = spin_lock_irqsave(&s->lock);
    bool ok = s->count;

    s->count -= ok;
    spin_unlock_irqrestore(&s->lock, f);
    return ok;
}

/* Called in the interrupt of the timer, on the vCPU of the thread, when the deadline of
 * sem_down_until() has come. */
static void on_timeout(struct timer *timer) {
    struct thread *t = timer->arg, **at;
    struct semaphore *s = t->waits; /* sem_up() on another vCPU may set it to NULL meanwhile */
    bool mine;

    if (!s) return;
    spin_lock(&s->lock);
    mine = t->waits == s;
    if (mine) {
        struct thread *before = NULL;

        for (at = &s->first; *at != t; at = &(*at)->next) before = *at;
        *at = t->next;
        if (s->last == t) s->last = before;
        t->waits = NULL;
        t->timed_out = true;
    }
    spin_unlock(&s->lock);
    if (mine) thread_wake(t);
}

bool sem_down_until(struct semaphore *s, u64 deadline_ns) {
    u64 f = spin_lock_irqsave(&s->lock);
    struct thread *t;
    struct vcpu *v;

    if (s->count) {
        s->count--;
        spin_unlock_irqrestore(&s->lock, f);
        return true;
    }
    v = this_vcpu();
    t = v->current;
    t->waits = s;
    t->timed_out = false;
    t->next = NULL;
    if (s->first)
        s->last->next = t;
    else
        s->first = t;
    s->last = t;
    spin_lock(&v->lock);
    t->state = THREAD_BLOCKED;
    spin_unlock(&v->lock);
    spin_unlock(&s->lock);
    if (deadline_ns != FOREVER) timer_start(&t->timer, deadline_ns, on_timeout, t);
    schedule();
    if (deadline_ns != FOREVER) timer_stop(&t->timer);
    irq_restore(f);
    return !t->timed_out;
}

void sem_down(struct semaphore *s) { sem_down_until(s, FOREVER); }

void sleep_until(u64 deadline_ns) {
    struct semaphore never = SEMAPHORE(0);

    sem_down_until(&never, deadline_ns);
}

void sleep_ns(u64 ns) { sleep_until(time_ns() + ns); }

void mutex_init(struct mutex *m) { *m = (struct mutex)MUTEX; }

void mutex_lock(struct mutex *m) {
    sem_down(&m->sem);
    m->owner = thread_self();
}

void mutex_unlock(struct mutex *m) {
    if (m->owner != thread_self()) {
        const char *owner = "none";

        if (m->owner) owner = m->owner->name;
        guest_panic("the mutex of thread %s was unlocked by thread %s", owner, thread_self()->name);
    }
    m->owner = NULL;
    sem_up(&m->sem);
}
