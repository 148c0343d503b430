/* Threads. They are preemptive, each is pinned to one vCPU, and those of one vCPU take turns every
 * THREAD_QUANTUM. */
#ifndef GUEST_THREAD_H
#define GUEST_THREAD_H

#include <guest/sync.h>
#include <guest/time.h>

#define THREAD_QUANTUM (10 * NS_PER_MS)
#define THREAD_STACK   16384 /* bytes; boot_stack in start.asm has the same size */

enum thread_state { THREAD_RUNNING, THREAD_READY, THREAD_BLOCKED, THREAD_DONE };

struct thread {
    u64 rsp; /* its stack pointer while it does not run, as thread_switch() has left it */
    struct thread *next;
    enum thread_state state; /* guarded by the lock of its vCPU */
    u32 vcpu;
    const char *name;
    void (*fn)(void *);
    void *arg;
    void *stack; /* its lowest byte; the page below it is not mapped */
    struct timer timer;
    struct semaphore *waits; /* guarded by the lock of that semaphore */
    bool timed_out;
    struct semaphore done;
};

/* Starts a thread that calls fn(arg) on a vCPU that was started. `name` has to live as long as the
 * thread. Returns NULL if there is no memory or no such vCPU. The result is valid until
 * thread_join(). */
struct thread *thread_start(unsigned vcpu, const char *name, void (*fn)(void *), void *arg);
/* Waits for the end of the thread and frees it. */
void thread_join(struct thread *t);
/* Moves the calling thread to another vCPU, which was started, and returns there. Call it with
 * interrupts on and preemption not disabled. Returns 0, or -EINVAL if there is no such vCPU. */
int thread_move(u32 vcpu);
/* Returns the calling thread. */
struct thread *thread_self(void);
/* Lets the other threads of this vCPU that are ready run first. */
void thread_yield(void);
/* Let the calling thread sleep until time_ns() reaches the deadline, or for that long. */
void sleep_until(u64 deadline_ns);
void sleep_ns(u64 ns);

/* Between these two calls, this vCPU switches threads only if the thread blocks or yields. Calls
 * may be nested. */
void preempt_disable(void);
void preempt_enable(void);

/* Allocates a stack of THREAD_STACK bytes with a guard page below it. A thread that needs more gets
 * a fault there, instead of overwriting other memory. Returns the lowest byte of the stack, or NULL
 * if there is no memory. */
void *stack_alloc(void);
/* Frees what stack_alloc() has returned. */
void stack_free(void *stack);
/* Panics if `address` is in the guard page of this vCPU's thread. The exception handler calls it
 * when the instruction at `rip` could not reach that address. */
void stack_check(u64 rip, u64 address);

/* ---- for the start of a vCPU, and for interrupt handlers ---- */

/* Makes the caller, which runs on `stack`, the idle thread of this vCPU. */
void thread_init_cpu(void *stack);
/* Runs as the idle thread of this vCPU: halts while no thread is ready. It never returns. */
void thread_idle(void) __attribute__((noreturn));
/* Switches threads if one is due. This is the last call of an interrupt handler. */
void thread_preempt(void);
/* Called at each timer interrupt. */
void thread_timer(u64 now);

#endif
