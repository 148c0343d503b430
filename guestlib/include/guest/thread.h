/* Threads: preemptive, each pinned to one vCPU, taking turns there every THREAD_QUANTUM. */
#ifndef GUEST_THREAD_H
#define GUEST_THREAD_H

#include <guest/sync.h>
#include <guest/time.h>

#define THREAD_QUANTUM (10 * NS_PER_MS)
#define THREAD_STACK   16384 /* bytes; also in start.asm */

enum thread_state { THREAD_RUNNING, THREAD_READY, THREAD_BLOCKED, THREAD_DONE };

struct thread {
    u64 rsp; /* first: the switch knows */
    struct thread *next;
    enum thread_state state; /* under its vCPU's lock */
    u32 vcpu;
    const char *name;
    void (*fn)(void *);
    void *arg;
    void *stack; /* its lowest byte; the page below it is not mapped */
    struct timer timer;
    struct semaphore *waits; /* under that semaphore's lock */
    bool timed_out;
    struct semaphore done;
};

/* On a started vCPU. NULL: no memory, no such vCPU. The handle is valid until thread_join(). */
struct thread *thread_start(unsigned vcpu, const char *name, void (*fn)(void *), void *arg);
void thread_join(struct thread *t); /* waits for its end and frees it; once */
struct thread *thread_self(void);
void thread_yield(void);
void sleep_until(u64 deadline_ns);
void sleep_ns(u64 ns);

/* While off, this vCPU does not switch threads by itself. Nests. */
void preempt_disable(void);
void preempt_enable(void);

/* A stack of THREAD_STACK bytes with a guard page below: whoever needs more gets a fault there, instead of
 * writing over what lies below. Returns its lowest byte; NULL: no memory. */
void *stack_alloc(void);
void stack_free(void *stack);
/* Ends the VM with a sentence if `address`, which the instruction at `rip` could not reach, is in the guard
 * page of this vCPU's thread. */
void stack_check(u64 rip, u64 address);

/* Start-up only: makes the caller, who runs on `stack`, this vCPU's thread. */
void thread_init_cpu(void *stack);
void thread_idle(void) __attribute__((noreturn));
void thread_preempt(void); /* the tail of an interrupt */
void thread_timer(u64 now);

#endif
