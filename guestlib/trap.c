/* Exceptions and interrupts of a guest. Every vector has an entry of 16 bytes in start.asm, which
 * saves the registers in a `struct trap_frame` and calls trap(). For tests there are three ways to
 * survive an exception: a *fixup* says where to go on after one instruction; try_run() returns from
 * a function; user_run() returns from code at privilege level 3. trap.h has the contracts. */
#include <guest/guest.h>
#include <guest/lapic.h>
#include <guest/printf.h>
#include <guest/string.h>
#include <guest/thread.h>
#include <guest/vcpu.h>
#include <guest/x86.h>

/* An entry of the IDT (SDM 3A, figure 6-8). */
struct gate {
    u16 offset_low, sel;
    u8 ist, attr;
    u16 offset_mid;
    u32 offset_high, zero;
};

/* An instruction that may fault, and where execution goes on then. FIXUP() makes these. */
struct fixup {
    u64 at, go_on;
};

struct irq {
    irq_handler fn;
    void *arg;
    bool raw;
};

extern char trap_entries[], user_return[], try_return[];
extern const struct fixup fixup_first[], fixup_last[];

static struct gate idt[256] __attribute__((aligned(16)));
static exception_hook hooks[32];
static struct irq irqs[256];
static u64 unexpected;

void trap(struct trap_frame *f);
u64 user_enter(u64 rip, u64 arg, u64 cs, u64 ss, u64 rsp);
void try_enter(void (*fn)(void *), void *arg);

/* Fills the vector's gate. A double fault gets a stack of its own (IST 1), because the usual stack
 * may be what is broken. */
void trap_set_entry(u8 vector, const void *entry) {
    struct gate *g = &idt[vector];

    g->offset_low = (u64)entry;
    g->offset_mid = (u64)entry >> 16;
    g->offset_high = (u64)entry >> 32;
    g->sel = SEL_CODE64;
    g->ist = vector == EXC_DF;
    /* A gate for interrupts that is present, with descriptor privilege level 3 or 0. */
    g->attr = vector == VECTOR_RETURN || vector == EXC_BP ? 0xee : 0x8e;
}

void trap_init(void) {
    for (unsigned v = 0; v < 256; v++) trap_set_entry(v, trap_entries + v * 16);
}

/* Loads the table of gates (IDT) on this vCPU. All vCPUs share one table. */
void trap_init_cpu(void) {
    struct {
        u16 limit;
        u64 base;
    } __attribute__((packed)) r = { sizeof(idt) - 1, (u64)idt };

    load_idt(&r);
}

exception_hook exception_set_hook(u8 vector, exception_hook hook) {
    exception_hook old = hooks[vector & 31];

    hooks[vector & 31] = hook;
    return old;
}

/* Sets the function that is called for a vector. The function is stored last, because an interrupt
 * may come while the entry changes. */
static void set_handler(u8 vector, irq_handler fn, void *arg, bool raw) {
    irqs[vector].fn = NULL;
    irqs[vector].arg = arg;
    irqs[vector].raw = raw;
    __atomic_store_n(&irqs[vector].fn, fn, __ATOMIC_RELEASE);
}

void irq_set_handler(u8 vector, irq_handler fn, void *arg) { set_handler(vector, fn, arg, false); }

void irq_set_raw_handler(u8 vector, irq_handler fn, void *arg) {
    set_handler(vector, fn, arg, true);
}

u64 irq_unexpected(void) { return unexpected; }

void exception_clear(void) { this_vcpu()->exc.vector = EXC_NONE; }

struct exception exception_get(void) {
    return this_vcpu()->exc;
}

/* Reads an MSR. Returns the vector of the exception that this raised, or EXC_NONE. If the
 * instruction faults, FIXUP() lets execution go on after it, and the exception is noted for the
 * vCPU. */
u8 rdmsr_fault(u32 msr, u64 *value) {
    u32 lo = 0, hi = 0;

    exception_clear();
    __asm__ volatile(FIXUP("rdmsr") : "+a"(lo), "+d"(hi) : "c"(msr));
    *value = 0;
    if (this_vcpu()->exc.vector == EXC_NONE) *value = (u64)hi << 32 | lo;
    return this_vcpu()->exc.vector;
}

/* Writes an MSR. Returns the vector of the exception that this raised, or EXC_NONE. */
u8 wrmsr_fault(u32 msr, u64 value) {
    exception_clear();
    __asm__ volatile(FIXUP("wrmsr")
                     :
                     : "a"((u32)value), "d"((u32)(value >> 32)), "c"(msr)
                     : "memory");
    return this_vcpu()->exc.vector;
}

struct exception try_run(void (*fn)(void *), void *arg) {
    exception_clear();
    try_enter(fn, arg);
    return exception_get();
}

/* Runs code at privilege level 3, with 32-bit code if `compat`. It comes back by an exception, or
 * by the interrupt VECTOR_RETURN. */
struct exception user_run(const void *rip, u64 arg, bool compat, u64 *rax) {
    static u8 stack[4096] __attribute__((aligned(16)));
    struct vcpu *v = this_vcpu();
    u64 f = irq_save(), cs = SEL_USER_CODE64, r;

    if (compat) cs = SEL_USER_CODE32;
    exception_clear();
    /* The page fault or interrupt of the code at CPL 3 must not overwrite what user_enter() pushes,
     * so its stack begins well below. */
    v->tss.rsp[0] = (u64)__builtin_frame_address(0) - 4096;
    r = user_enter((u64)rip, arg, cs, SEL_USER_DATA, (u64)stack + sizeof(stack) - 64);
    v->user_sp = 0;
    if (rax) *rax = r;
    irq_restore(f);
    return v->exc;
}

/* Returns the manual's short name of the exception. */
const char *exception_name(u8 vector) {
    static const char *const names[] = { "#DE", "#DB", "NMI", "#BP", "#OF", "#BR", "#UD", "#NM",
                                         "#DF", "9",   "#TS", "#NP", "#SS", "#GP", "#PF", "15",
                                         "#MF", "#AC", "#MC", "#XM", "#VE", "#CP" };

    if (vector == EXC_NONE) return "none";
    if (vector >= ARRAY_SIZE(names)) return "reserved";
    return names[vector];
}

/* Prints the registers at the moment of the exception. */
void trap_dump(const struct trap_frame *f) {
    printf("vCPU %u: exception %u (%s), code %lx at %04lx:%016lx, flags %lx, CR2 %016lx\n",
           this_vcpu()->id, (u32)f->vector, exception_name(f->vector), f->code, f->cs, f->rip,
           f->rflags, read_cr2());
    printf("rax %016lx rbx %016lx rcx %016lx rdx %016lx\n", f->rax, f->rbx, f->rcx, f->rdx);
    printf("rsi %016lx rdi %016lx rbp %016lx rsp %016lx\n", f->rsi, f->rdi, f->rbp, f->rsp);
    printf("r8  %016lx r9  %016lx r10 %016lx r11 %016lx\n", f->r8, f->r9, f->r10, f->r11);
    printf("r12 %016lx r13 %016lx r14 %016lx r15 %016lx\n", f->r12, f->r13, f->r14, f->r15);
    printf("cr0 %lx cr3 %lx cr4 %lx\n", read_cr0(), read_cr3(), read_cr4());
}

/* Keeps what exception_get() will return. */
static void note(struct vcpu *v, const struct trap_frame *f) {
    v->exc.vector = f->vector;
    v->exc.code = f->code;
    v->exc.rip = f->rip;
    v->exc.cr2 = read_cr2();
}

/* Returns whether the instruction that faulted is one of FIXUP(), and then lets execution go on
 * where that says. */
static bool fixed_up(struct vcpu *v, struct trap_frame *f) {
    for (const struct fixup *x = fixup_first; x < fixup_last; x++)
        if (x->at == f->rip) {
            note(v, f);
            f->rip = x->go_on;
            return true;
        }
    return false;
}

/* Lets execution go on at `rip` with that stack pointer, at CPL 0 with interrupts off. */
static void go_back(struct trap_frame *f, const void *rip, u64 rsp) {
    f->rip = (u64)rip;
    f->cs = SEL_CODE64;
    f->ss = SEL_DATA;
    f->rsp = rsp;
    f->rflags = 2;
}

/* Handles an exception. A test may have set a hook for it. If it happened in user_run() or in
 * try_run(), or at an instruction that has a fix-up, the guest goes on there. Otherwise it is
 * reported, and the VM ends. */
static void exception(struct vcpu *v, struct trap_frame *f) {
    if (hooks[f->vector] && hooks[f->vector](f)) return;
    if (f->cs & 3 && v->user_sp) {
        note(v, f);
        go_back(f, user_return, v->user_sp);
        return;
    }
    if (fixed_up(v, f)) return;
    if (v->try_sp) {
        note(v, f);
        go_back(f, try_return, v->try_sp);
        return;
    }
    trap_dump(f);
    /* A stack that is used up ends here: the CPU cannot push the frame of the page fault onto that
     * stack either. */
    if (f->vector == EXC_DF) stack_check(f->rip, read_cr2());
    guest_panic_at(f->rip, "unexpected %s at %lx", exception_name(f->vector), f->rip);
}

/* Handles an interrupt: calls the function that is set for its vector. The end of interrupt is
 * signalled before the handler runs, because the handler may switch to another thread, and the vCPU
 * would get no more interrupts meanwhile. Raw handlers are for vectors that Takt raises without
 * expecting that signal. */
static void interrupt(struct vcpu *v, u8 vector) {
    struct irq *i = &irqs[vector];
    irq_handler fn = __atomic_load_n(&i->fn, __ATOMIC_ACQUIRE);

    if (vector != VECTOR_SPURIOUS && !i->raw) lapic_eoi();
    v->in_interrupt = true;
    if (fn)
        fn(i->arg);
    else if (vector != VECTOR_SPURIOUS)
        __atomic_add_fetch(&unexpected, 1, __ATOMIC_RELAXED);
    v->in_interrupt = false;
    thread_preempt();
}

/* Handles an exception or an interrupt; start.asm calls it with the registers of what was
 * interrupted, which are restored when it returns. */
void trap(struct trap_frame *f) {
    struct vcpu *v = this_vcpu();

    if (f->vector < 32) {
        exception(v, f);
    } else if (f->vector == VECTOR_RETURN && f->cs & 3) {
        go_back(f, user_return, v->user_sp);
    } else {
        interrupt(v, f->vector);
    }
}
