/* vCPUs: their area, how many there are, starting them. */
#ifndef GUEST_VCPU_H
#define GUEST_VCPU_H

#include <guest/sync.h>
#include <guest/trap.h>
#include <takt/abi.h>

struct thread;
struct timer;

struct tss {
    u32 reserved0;
    u64 rsp[3];
    u64 reserved1;
    u64 ist[7];
    u64 reserved2;
    u16 reserved3, iomap;
} __attribute__((packed));

struct vcpu {
    struct vcpu *self; /* GS:0 */
    u64 user_sp;       /* GS:8, kernel stack to return to from user_run(); 0: not in it */
    u64 try_sp;        /* GS:16, likewise of try_run() */
    void *stack;       /* its first, which its idle thread keeps */
    u32 id;            /* also its LAPIC id */
    bool online;
    bool x2apic; /* the mode of its LAPIC */
    struct exception exc;
    /* threads: under lock */
    struct spinlock lock;
    struct thread *current, *idle;
    struct thread *ready_first, *ready_last;
    bool need_resched;
    u32 preempt_off;
    u64 quantum_end;
    /* timers: this vCPU only, interrupts off */
    struct timer *timers;
    u64 timer_armed; /* deadline in ns, 0: none */
    /* a function that another vCPU wants run here */
    void (*volatile call_fn)(void *);
    void *call_arg;
    u64 gdt[10];
    struct tss tss;
    /* For a double fault, which is how the end of a stack shows: printing the report needs much of it. */
    u8 df_stack[8192] __attribute__((aligned(16)));
};

static inline struct vcpu *this_vcpu(void) {
    struct vcpu *v;
    __asm__ volatile("mov %%gs:0, %0" : "=r"(v));
    return v;
}

unsigned vcpu_count(void);          /* that the VM has */
struct vcpu *vcpu_get(unsigned id); /* NULL: not started */

/* Starts all vCPUs that have not been; they run the idle thread. Returns how many are online. */
unsigned vcpu_start_all(void);
/* Sends INIT and SIPI to a vCPU that has not been started; it begins in real mode at page << 12, and it is
 * the caller who has put code there. */
void vcpu_start_raw(unsigned id, u8 page);
/* Runs fn(arg) in the interrupt handler of another started vCPU and waits until it has returned. */
void vcpu_call(unsigned id, void (*fn)(void *), void *arg);

/* Of the info page; zeros if there is none. The three sums are up to now. */
struct vcpu_times {
    u64 run_ns, stolen_ns, blocked_ns, wakes, wake_tsc;
};
struct vcpu_times vcpu_times(unsigned id);

void vcpu_init_first(void); /* start-up only */

#endif
