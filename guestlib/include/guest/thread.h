/* Threads: preemptive, each pinned to one vCPU, taking turns there every THREAD_QUANTUM. */
#ifndef GUEST_THREAD_H
#define GUEST_THREAD_H

#include <guest/sync.h>
#include <guest/time.h>

#define THREAD_QUANTUM (10 * NS_PER_MS)
#define THREAD_STACK   16384

enum thread_state { THREAD_RUNNING, THREAD_READY, THREAD_BLOCKED, THREAD_DONE };

struct thread {
    u64 rsp; /* first: the switch knows */
    struct thread *next;
    enum thread_state state; /* under its vCPU's lock */
    u32 vcpu;
    const char *name;
    void (*fn)(void *);
    void *arg;
    void *stack;
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

void thread_init_cpu(void); /* start-up only: makes the caller this vCPU's thread */
void thread_idle(void) __attribute__((noreturn));
void thread_preempt(void); /* the tail of an interrupt */
void thread_timer(u64 now);

#endif
