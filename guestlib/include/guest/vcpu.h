/* vCPUs: the memory area of each, how many there are, and how they are started. */
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
    /* GS:8: the stack pointer for the return from user_run(); 0: it does not run */
    u64 user_sp;
    u64 try_sp;  /* GS:16: the stack pointer for the return from try_run(); 0: it does not run */
    void *stack; /* the stack that it was started with, which the idle thread keeps */
    u32 id;      /* also its LAPIC id */
    bool online;
    bool x2apic; /* the mode of its LAPIC */
    struct exception exc;
    /* The next fields are for threads, and guarded by `lock`. */
    struct spinlock lock;
    struct thread *current, *idle;
    struct thread *ready_first, *ready_last;
    struct thread *moving; /* it goes to another vCPU, and its registers are being saved */
    bool need_resched;
    bool in_interrupt; /* the handler of an interrupt runs */
    u32 preempt_off;
    u64 quantum_end;
    /* The next fields are for timers. Only this vCPU uses them, with interrupts off. */
    struct timer *timers;
    u64 timer_armed; /* the deadline of the hardware timer, ns; 0: it is not armed */
    /* For vcpu_call(): the function that another vCPU wants this one to run. */
    void (*volatile call_fn)(void *);
    void *call_arg;
    u64 gdt[10];
    struct tss tss;
    /* The stack for double faults. A double fault happens when a thread has used up its stack. The
     * report that is printed then needs much of this stack. */
    u8 df_stack[8192] __attribute__((aligned(16)));
};
/* entry.asm uses these offsets. */
_Static_assert(offsetof(struct vcpu, self) == 0, "GS:0");
_Static_assert(offsetof(struct vcpu, user_sp) == 8, "VCPU_USER_SP");
_Static_assert(offsetof(struct vcpu, try_sp) == 16, "VCPU_TRY_SP");

static inline struct vcpu *this_vcpu(void) {
    struct vcpu *v;
    __asm__ volatile("mov %%gs:0, %0" : "=r"(v));
    return v;
}

/* Returns how many vCPUs the VM has. */
unsigned vcpu_count(void);
/* Returns vCPU number `id`, or NULL if there is none or it was not started. */
struct vcpu *vcpu_get(unsigned id);

/* Starts all vCPUs that were not started yet; they run their idle threads. Returns how many are
 * online. */
unsigned vcpu_start_all(void);
/* Sends INIT and SIPI to a vCPU that was not started yet. It begins in real mode at address page <<
 * 12, where the caller has put code. */
void vcpu_start_raw(unsigned id, u8 page);
/* Runs fn(arg) in the interrupt handler of another started vCPU and waits until it has returned. */
void vcpu_call(unsigned id, void (*fn)(void *), void *arg);

/* What the info page of the vCPU says (struct takt_vcpu_info). The time since the page was written
 * is added. All is 0 if the VM does not run on Takt. */
struct vcpu_times {
    u64 run_ns, stolen_ns, blocked_ns, wakes, wake_tsc;
};
struct vcpu_times vcpu_times(unsigned id);

void vcpu_init_first(void); /* for the start of the guest */

#endif
