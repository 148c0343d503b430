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

/* Interrupts are off meanwhile: otherwise the thread could be switched between the two reads. It
 * stays on its vCPU, but another thread could be current. */
struct thread *thread_self(void) {
    struct vcpu *v;
    struct thread *t;
    u64 f = irq_save();

    v = this_vcpu();
    t = v->current;
    irq_restore(f);
    return t;
}

/* Puts a thread at the end of its vCPU's list of ready threads. Called with the lock of the vCPU
 * held. */
static void thread_enqueue(struct vcpu *v, struct thread *t) {
    t->state = THREAD_READY;
    t->next = NULL;
    if (v->ready_first)
        v->ready_last->next = t;
    else
        v->ready_first = t;
    v->ready_last = t;
}

/* Takes the first ready thread. If there is none, returns the idle thread of the vCPU. */
static struct thread *thread_dequeue(struct vcpu *v) {
    struct thread *t = v->ready_first;

    if (!t) return v->idle;
    v->ready_first = t->next;
    return t;
}

/* Arms the timer for the end of the current thread's quantum if another thread is ready. The idle
 * thread has no quantum, because it gives way at once. */
static void arm_quantum(struct vcpu *v) {
    if (v->ready_first && v->current != v->idle &&
        (!v->timer_armed || v->timer_armed > v->quantum_end))
        time_arm(v->quantum_end);
}

static void thread_wake(struct thread *t);

/* Ends a switch of threads, in the thread that runs now: releases the lock, which the thread before
 * has taken on this vCPU. This thread may have been on another vCPU when it called schedule(). If
 * the thread before goes to another vCPU (thread_move()), that vCPU may have it now, as its
 * registers are saved. */
static void thread_switched(void) {
    struct vcpu *v = this_vcpu();
    struct thread *moving = v->moving;

    v->moving = NULL;
    spin_unlock(&v->lock);
    if (moving) thread_wake(moving);
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
    thread_switched();
}

/* Makes a blocked thread ready to run. If it belongs to another vCPU, that vCPU is interrupted, and
 * its scheduler then chooses again. */
static void thread_wake(struct thread *t) {
    struct vcpu *v = vcpu_get(t->vcpu);
    u64 f = spin_lock_irqsave(&v->lock);

    bool remote = v != this_vcpu();

    if (t->state == THREAD_BLOCKED) {
        thread_enqueue(v, t);
        v->need_resched = true;
    }
    /* After an interrupt, thread_preempt() switches to the thread or arms the timer. */
    if (!remote && !v->in_interrupt) arm_quantum(v);
    spin_unlock_irqrestore(&v->lock, f);
    if (remote) lapic_ipi(t->vcpu, VECTOR_RESCHED);
}

/* Has the current thread give way if its quantum is over, and arms the timer; each timer interrupt
 * calls it at its end. Without other threads that wait, the quantum need not end. */
void thread_timer(u64 now) {
    struct vcpu *v = this_vcpu();

    u64 quantum_end = 0; /* without other ready threads the quantum need not end */

    if (v->ready_first && now >= v->quantum_end) v->need_resched = true;
    if (v->ready_first) quantum_end = MAX(v->quantum_end, now + NS_PER_MS);
    time_arm(quantum_end);
}

/* Arms the timer for a thread that goes on although another one has to run. The quantum may be over
 * already. A timer for a time that has passed would interrupt again before the thread has executed
 * one instruction, and so for ever. */
static void arm_later(struct vcpu *v) {
    u64 end = MAX(v->quantum_end, time_ns() + NS_PER_MS);

    if (!v->timer_armed || v->timer_armed > end) time_arm(end);
}

/* Switches to another thread if one is due; each interrupt handler calls it at its end. A thread
 * that has disabled preemption, or that runs code at privilege level 3 (user_run()), goes on. */
void thread_preempt(void) {
    struct vcpu *v = this_vcpu();

    if (!v->need_resched) return;
    if (v->preempt_off || v->user_sp)
        arm_later(v);
    else
        schedule();
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

/* Calls the function of a new thread, which begins here when schedule() switches to it for the
 * first time. */
static void thread_main(void) {
    struct thread *t = this_vcpu()->current;

    thread_switched();
    /* Another vCPU may have unmapped the guard page, and the TLB of this vCPU may still have the
     * old mapping. */
    invlpg((u64)t->stack - PAGE_SIZE);
    irq_enable();
    t->fn(t->arg);
    irq_disable();
    sem_up(&t->done);
    spin_lock(&this_vcpu()->lock);
    t->state = THREAD_DONE;
    spin_unlock(&this_vcpu()->lock);
    schedule();
    __builtin_unreachable();
}

/* Allocates a stack. Returns its lowest byte, or NULL if there is no memory. The page below the
 * stack is unmapped (a guard page), so that a stack that is used up raises a fault and does not
 * overwrite other memory. */
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

/* Ends the VM with a sentence that names the thread if `address` lies in the guard page of the
 * current thread's stack. Otherwise the operator would see only a double fault. */
void stack_check(u64 rip, u64 address) {
    const struct thread *t = this_vcpu()->current;
    u64 stack;

    if (!t) return;
    stack = (u64)t->stack;
    if (address < stack && address >= stack - PAGE_SIZE)
        guest_panic_at(rip, "thread \"%s\" needs more than its stack of %u bytes (THREAD_STACK)",
                       t->name, THREAD_STACK);
}

/* Starts a thread that calls fn(arg) on a vCPU. Returns NULL if there is no memory or no such vCPU.
 * The new thread's stack looks as if the thread had been switched away from just before
 * thread_main(). */
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

/* Moves the calling thread to another vCPU. Returns 0, or -EINVAL if there is no such vCPU. The
 * thread counts as blocked until its registers are saved; then thread_switched() wakes it on its
 * new vCPU. The TLB of that vCPU may still have an old mapping of the guard page. */
int thread_move(u32 vcpu) {
    struct thread *t;
    struct vcpu *v;
    u64 f;

    if (!vcpu_get(vcpu)) return -EINVAL;
    f = irq_save();
    v = this_vcpu();
    t = v->current;
    if (vcpu != t->vcpu) {
        spin_lock(&v->lock);
        t->state = THREAD_BLOCKED;
        t->vcpu = vcpu;
        v->moving = t;
        spin_unlock(&v->lock);
        schedule();
        invlpg((u64)t->stack - PAGE_SIZE);
    }
    irq_restore(f);
    return 0;
}

/* Waits until the thread has ended, and frees it. */
void thread_join(struct thread *t) {
    bool done = false;
    struct vcpu *v;

    sem_down(&t->done);
    v = vcpu_get(t->vcpu); /* it may have moved until now */
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

/* Makes the code that runs on this vCPU now its idle thread. */
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

/* Halts as the idle thread until another thread is ready, and lets that one run, for ever.
 * Interrupts are off between the look and the halt; otherwise a thread that becomes ready in
 * between would wait for the next interrupt. */
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

/* Adds a unit to the semaphore, or wakes a thread that waits for one. If a thread waits, it gets
 * the unit directly, so that no other thread can take it in between. */
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

/* Takes a unit if there is one. Never waits. */
bool sem_try(struct semaphore *s) {
    u64 f = spin_lock_irqsave(&s->lock);
    bool ok = s->count;

    s->count -= ok;
    spin_unlock_irqrestore(&s->lock, f);
    return ok;
}

/* Wakes a thread whose deadline in sem_down_until() has come, in the interrupt of the timer. */
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

/* Takes a unit of the semaphore, and waits for one until the deadline. Returns false if the
 * deadline came first. A thread that has to wait goes to the end of the list. Both locks are held
 * when its state changes. So a wake on another vCPU comes either before, and the thread sees the
 * unit, or after, and finds the thread in the list. */
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

/* Releases the mutex, or passes it on to a thread that waits. Only the owner may unlock. A mistake
 * here would let two threads into the same data, so it ends the VM. */
void mutex_unlock(struct mutex *m) {
    if (m->owner != thread_self()) {
        const char *owner = "none";

        if (m->owner) owner = m->owner->name;
        guest_panic("the mutex of thread %s was unlocked by thread %s", owner, thread_self()->name);
    }
    m->owner = NULL;
    sem_up(&m->sem);
}
