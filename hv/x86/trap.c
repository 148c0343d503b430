/* Exceptions and interrupts of the hypervisor itself (those of guests are exits: hv/vcpu). A few
 * instructions in traps.asm save the registers and call trap_handle(). An interrupt goes to the
 * handler that is registered for its vector. An exception is a bug of the hypervisor, except for
 * NMIs and machine checks: it is reported with all registers and a backtrace, and ends in a
 * panic. */
#include "x86/trap.h"

#include "boot/layout.h"
#include "lib/log.h"
#include "x86/cpu.h"
#include "common/insn.h"

#define STRAY_STORM     1000u /* a source with so many stray interrupts is masked */
#define STRAYS_SAID     4u    /* the log names only so many of each vector */
#define STRANGERS_SAID  16u   /* and so many NMIs that nobody sent */
#define BACKTRACE_MAX   16    /* the most calls that a backtrace shows */

#define MCG_STATUS_RIPV BIT(0)  /* the interrupted program can be restarted (SDM 3B 16.3.1.2) */
#define MC_STATUS_VALID BIT(63) /* this bank holds an error (SDM 3B 16.3.2.2) */
#define MC_STATUS_PCC   BIT(57) /* the state of the processor is corrupt */

/* What the stubs of traps.asm leave on the stack. */
struct trap_frame {
    u64 r15, r14, r13, r12, r11, r10, r9, r8, rdi, rsi, rbp, rbx, rdx, rcx, rax;
    u64 vector, code;
    u64 rip, cs, rflags, rsp, ss;
};

static void (*irq_fn[256])(u8 vector);
void (*irq_eoi)(void);
void (*irq_mask_vector)(u8 vector);
void (*dump_hook)(void);
volatile bool cpus_stop;

/* By vector (SDM 3A table 6-1). */
static const char *const trap_names[] = {
    "divide error",
    "debug",
    "NMI",
    "breakpoint",
    "overflow",
    "bound",
    "invalid opcode",
    "device not available",
    "double fault",
    "reserved",
    "invalid TSS",
    "segment not present",
    "stack fault",
    "general protection",
    "page fault",
    "reserved",
    "x87 error",
    "alignment check",
    "machine check",
    "SIMD error",
    "virtualization exception",
    "control protection",
};

/* Registers `fn` as the handler of a vector. */
void irq_register(u8 vector, void (*fn)(u8)) { irq_fn[vector] = fn; }

/* ---- dumps ---- */

struct symbol {
    u64 addr;
    const char *name;
};

/* The table of symbols, in order of address (tools/mksyms.sh). The image is linked twice, and
 * has none the first time. */
extern const struct symbol symtab[] __attribute__((weak));
extern const u64 symtab_count __attribute__((weak));
extern const u8 image_text_end[];

/* Logs an address with the function that contains `in`. For a return address that is the byte
 * before it, which belongs to the call; the return address itself may belong to the next
 * function. */
static void log_address(u64 addr, u64 in) {
    u64 n = 0;

    while (&symtab_count && n < symtab_count && symtab[n].addr <= in) n++;
    if (n && in < (u64)image_text_end)
        log_err("  %016lx %s+0x%lx", addr, symtab[n - 1].name, addr - symtab[n - 1].addr);
    else
        log_err("  %016lx ?", addr);
}

/* Logs the chain of calls that led to `rip`. Each function has left its caller's frame pointer and
 * return address on the stack, and `rbp` points to those of the last one. The walk goes only
 * upwards and stays within one stack, so a broken chain ends it instead of causing another
 * fault. */
static void backtrace(u64 rip, u64 rbp) {
    log_address(rip, rip);
    for (int i = 0; i < BACKTRACE_MAX && rbp % 8 == 0 && rbp >= STACK_BASE; i++) {
        const u64 *f = (const u64 *)rbp; /* the caller's frame pointer, the return address */

        if (!f[1]) break;
        log_address(f[1], f[1] - 1);
        if (f[0] <= rbp || f[0] - rbp >= STACK_SIZE) break;
        rbp = f[0];
    }
}

/* Logs what the CPU was doing when the exception came: its registers, a backtrace, and, if it was
 * in the middle of a guest's exit, the vCPU (dump_hook). */
static void dump_frame(const struct trap_frame *f) {
    log_err("CPU %u: rip %016lx rsp %016lx rflags %lx cs %lx", this_cpu()->id, f->rip, f->rsp,
            f->rflags, f->cs);
    log_err("rax %016lx rbx %016lx rcx %016lx rdx %016lx", f->rax, f->rbx, f->rcx, f->rdx);
    log_err("rsi %016lx rdi %016lx rbp %016lx r8  %016lx", f->rsi, f->rdi, f->rbp, f->r8);
    log_err("r9  %016lx r10 %016lx r11 %016lx r12 %016lx", f->r9, f->r10, f->r11, f->r12);
    log_err("r13 %016lx r14 %016lx r15 %016lx", f->r13, f->r14, f->r15);
    log_err("cr0 %lx cr2 %016lx cr3 %lx cr4 %lx", read_cr0(), read_cr2(), read_cr3(), read_cr4());
    backtrace(f->rip, f->rbp);
    if (dump_hook) dump_hook();
}

/* ---- dispatch; rare cases are functions of their own, so that the path of an interrupt saves
 * few registers ---- */

/* Handles an NMI, which comes for one of three reasons: this CPU has to stop, since another one
 * panics; another CPU wants a dump of this one; or this CPU did not answer a kick, an interrupt
 * that makes it leave its guest, and the kick was repeated as an NMI. For a kick nothing is to be
 * done here: the NMI has made the CPU leave its guest. */
static __attribute__((noinline)) void handle_nmi(struct cpu *c, const struct trap_frame *f) {
    static u32 strangers;
    u32 kicks = 0;

    while (cpus_stop) __asm__ volatile("cli; hlt");
    if (c->dump_wanted) {
        log_err("CPU %u was silent; it is here:", c->p.id);
        dump_frame(f);
        c->dump_wanted = false;
        return;
    }
    kicks = __atomic_exchange_n(&c->nmi_kicks, 0, __ATOMIC_SEQ_CST);
    if (kicks > 1) {
        /* While this NMI is handled the CPU keeps one more, however many were sent (SDM 3A
         * 6.7.1). */
        __atomic_fetch_add(&c->nmi_kicks, 1, __ATOMIC_SEQ_CST);
    } else if (!kicks && strangers++ < STRANGERS_SAID) {
        log_warn("CPU %u: NMI that nobody sent, at %lx; going on", c->p.id, f->rip);
    }
}

/* Handles a machine check, by which a CPU reports that hardware has failed: logs the errors, which
 * are in banks of registers, and clears them. Panics if the CPU cannot go on: MCG_STATUS.RIPV is
 * clear, or PCC is set in a bank (SDM 3B 16.3.2.2). */
static __attribute__((noinline)) void handle_machine_check(const struct trap_frame *f) {
    u64 status = rdmsr(MSR_MCG_STATUS), banks = rdmsr(MSR_MCG_CAP) & 0xff;
    bool fatal = !(status & MCG_STATUS_RIPV);

    log_err("CPU %u: machine check, MCG_STATUS %lx", this_cpu()->id, status);
    for (u32 i = 0; i < banks; i++) {
        u64 s = rdmsr(MSR_MC0_STATUS + 4 * i);

        if (!(s & MC_STATUS_VALID)) continue;
        log_err("  bank %u: status %016lx", i, s);
        if (s & MC_STATUS_PCC) fatal = true;
        wrmsr(MSR_MC0_STATUS + 4 * i, 0);
    }
    if (fatal) {
        dump_frame(f);
        panic("a machine check from which the CPU cannot go on");
    }
    wrmsr(MSR_MCG_STATUS, 0);
}

/* Counts an interrupt on a vector that nobody has registered. One that does not stop is masked
 * at its source, if that is known. */
static __attribute__((noinline)) void handle_stray(u8 v) {
    static u32 count[256];

    if (++count[v] <= STRAYS_SAID)
        log_warn("CPU %u: stray interrupt, vector 0x%x", this_cpu()->id, v);
    if (count[v] == STRAY_STORM) {
        log_warn("vector 0x%x: %u stray interrupts; masking it", v, STRAY_STORM);
        if (irq_mask_vector) irq_mask_vector(v);
    }
}

/* Handles an interrupt, and then tells the local APIC that it is done (EOI). Without that the APIC
 * would deliver no further interrupt of the same or a lower priority. */
static void handle_irq(u8 v) {
    if (v == VEC_SPURIOUS) return; /* no EOI (SDM 3A 10.9) */
    if (irq_fn[v])
        irq_fn[v](v);
    else
        handle_stray(v);
    if (irq_eoi) irq_eoi();
}

/* Reports an exception that should never happen, and panics. An overflowing stack shows as a double
 * fault just below the stack, where a page is left unmapped on purpose (the guard page). */
static __attribute__((noinline)) void die(const struct trap_frame *f) {
    const char *name = "";

    if (f->vector < ARRAY_SIZE(trap_names)) name = trap_names[f->vector];
    log_err("exception %lu (%s), error code %lx", f->vector, name, f->code);
    if (f->vector == TRAP_DF && f->rsp >= STACK_BASE && f->rsp - read_cr2() < PAGE_SIZE)
        log_err("the stack has run into its guard page");
    dump_frame(f);
    panic("exception in the hypervisor");
}

extern const u8 irq_halt_insn[]; /* the HLT */

/* Halts until an interrupt comes, and takes it. STI lets interrupts in only after the next
 * instruction, so none can come before the HLT, which would then wait for another one. */
void irq_halt(void) {
    __asm__ volatile(".globl irq_halt_insn; sti; irq_halt_insn: hlt; cli" : : : "memory");
}

/* The first C function after any exception or interrupt; traps.asm calls it. */
void trap_handle(struct trap_frame *f) {
    /* The shadow of STI keeps interrupts off until the HLT. But an NMI (SDM 2B, STI) or a
     * machine check may come between the two, and when its handler returns, the shadow is over.
     * Interrupts that were pending would be taken before the HLT, which would then wait for the
     * next one. So the HLT is left out. */
    if (f->rip == (u64)irq_halt_insn) f->rip++;
    if (f->vector >= 32)
        handle_irq((u8)f->vector);
    else if (f->vector == TRAP_NMI)
        handle_nmi(cpu_of(this_cpu()), f);
    else if (f->vector == TRAP_MC)
        handle_machine_check(f);
    else
        die(f);
}
