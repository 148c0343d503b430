/* The flag RF keeps a breakpoint on an instruction from being hit twice (SDM 3B 17.3.1.1). Each
 * fault pushes RFLAGS with RF set, whether the processor or the hypervisor raised it. An
 * instruction that the hypervisor emulates clears RF, as any other instruction does. */
#include <guest/test.h>
#include <guest/trap.h>
#include <guest/x86.h>

#define RF BIT(16)

static u64 flags;

static bool on_fault(struct trap_frame *f) {
    flags = f->rflags;
    f->rip += 2; /* over any of the instructions below */
    f->rflags &= ~RF;
    return true;
}

#define FLAGS_OF(insn)                                                                             \
    ({                                                                                             \
        flags = 0;                                                                                 \
        __asm__ volatile(insn : : "c"(0x999) : "rax", "rdx", "memory");                            \
        flags;                                                                                     \
    })

static u32 hits;

static bool on_db(struct trap_frame *f) {
    hits++;
    f->rflags |= RF;
    return true;
}

/* IRET loads RF and goes to CPUID. Tells whether a breakpoint on the instruction behind that is
 * hit. */
static void breakpoint_behind_cpuid(void) {
    exception_set_hook(EXC_DB, on_db);
    __asm__ volatile(
        "lea 2f(%%rip), %%rax; mov %%rax, %%dr0; mov $0x402, %%eax; mov %%rax, %%dr7\n"
        "mov %%rsp, %%rsi; mov %%ss, %%eax; push %%rax; push %%rsi\n"
        "pushfq; orl $0x10000, (%%rsp); mov %%cs, %%eax; push %%rax; lea 1f(%%rip), %%rax\n"
        "push %%rax; xor %%eax, %%eax; iretq\n"
        "1: cpuid\n"
        "2: nop\n"
        "mov $0x400, %%eax; mov %%rax, %%dr7"
        :
        :
        : "rax", "rbx", "rcx", "rdx", "rsi", "memory", "cc");
    CHECK(hits == 1, "the breakpoint behind CPUID was hit %u times", hits);
    exception_set_hook(EXC_DB, NULL);
}

int main(void) {
    test_begin();
    exception_set_hook(EXC_GP, on_fault);
    CHECK(FLAGS_OF("rdmsr") & RF, "#GP of RDMSR: RFLAGS %lx", flags);
    CHECK(FLAGS_OF("wrmsr") & RF, "#GP of WRMSR: RFLAGS %lx", flags);
    exception_set_hook(EXC_UD, on_fault);
    CHECK(FLAGS_OF("ud2") & RF, "#UD of the CPU: RFLAGS %lx", flags);
    breakpoint_behind_cpuid();
    return test_end("faults push RF");
}
