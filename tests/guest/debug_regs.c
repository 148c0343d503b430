/* Debug registers: reserved bits, the bit GD, breakpoints, and single steps over instructions
 * that the hypervisor emulates. A debugger in the guest must not notice that it does. */
#include <guest/string.h>
#include <guest/test.h>
#include <guest/trap.h>
#include <guest/x86.h>

#define DR6_INIT 0xffff0ff0ull
#define DR6_BD   BIT(13)
#define DR6_BS   BIT(14)
#define DR7_GD   BIT(13)

static volatile u32 steps;
static volatile u64 last_dr6, last_rip;

static u64 read_dr6(void) {
    u64 v;

    __asm__ volatile("mov %%dr6, %0" : "=r"(v));
    return v;
}

static u64 read_dr7(void) {
    u64 v;

    __asm__ volatile("mov %%dr7, %0" : "=r"(v));
    return v;
}

static void write_dr6(u64 v) { __asm__ volatile("mov %0, %%dr6" : : "r"(v)); }

static void write_dr7(u64 v) { __asm__ volatile("mov %0, %%dr7" : : "r"(v)); }

static bool on_db(struct trap_frame *f) {
    steps++;
    last_dr6 = read_dr6();
    last_rip = f->rip;
    write_dr6(DR6_INIT);
    return true;
}

/* Handles a #DB that is a fault (GD, or a breakpoint on an instruction): switches off what
 * raised it. */
static bool on_db_fault(struct trap_frame *f) {
    on_db(f);
    write_dr7(0x400);
    return true;
}

/* Sets TF before `insn` and clears it after the NOP behind that. Both instructions must trap
 * once each. */
#define STEP(what, insn, n)                                                                        \
    do {                                                                                           \
        steps = 0;                                                                                 \
        __asm__ volatile("pushfq; orl $0x100, (%%rsp); popfq\n" insn "\nnop\n"                     \
                         "pushfq; andl $~0x100, (%%rsp); popfq"                                    \
                         :                                                                         \
                         : "a"(0), "c"(0x1a0), "d"(0)                                              \
                         : "rbx", "r8", "r9", "memory", "cc");                                     \
        /* the pushfq, the and and the popfq trap as well; popfq itself ends it */                 \
        CHECK(steps == (n) + 4, "%s: %u steps instead of %u", what, steps - 4, n);                 \
        CHECK(last_dr6 &DR6_BS, "%s: DR6 %lx", what, last_dr6);                                    \
    } while (0)

static void single_steps(void) {
    exception_set_hook(EXC_DB, on_db);
    STEP("nothing", "", 0);
    STEP("NOP", "nop", 1);
    STEP("CPUID", "push %%rax; push %%rcx; push %%rdx; cpuid; pop %%rdx; pop %%rcx; pop %%rax", 7);
    STEP("RDMSR", "push %%rax; push %%rdx; rdmsr; pop %%rdx; pop %%rax", 5);
    STEP("IN", "push %%rax; inb $0x80, %%al; pop %%rax", 3);
    STEP("MOV CR0", "mov %%cr0, %%r8; mov %%r8, %%cr0", 2);
    STEP("WBINVD", "wbinvd", 1);
    STEP("PAUSE", "pause", 1);
}

static void general_detect(void) {
    exception_set_hook(EXC_DB, on_db_fault);
    steps = 0;
    write_dr6(DR6_INIT);
    write_dr7(0x400 | DR7_GD);
    __asm__ volatile("mov %%dr0, %%r8" : : : "r8");
    CHECK(steps == 1, "MOV DR with GD: %u #DB", steps);
    CHECK(last_dr6 & DR6_BD, "DR6 %lx has no BD", last_dr6);
    CHECK(!(read_dr7() & DR7_GD), "DR7 %lx keeps GD", read_dr7());
}

static void breakpoints(void) {
    static volatile u64 watched;

    exception_set_hook(EXC_DB, on_db);
    steps = 0;
    __asm__ volatile("mov %0, %%dr0" : : "r"(&watched));
    write_dr7(0x400 | 2 | 1 << 16 | 2 << 18); /* G0, data writes, 8 bytes */
    watched = 1;
    __asm__ volatile("nop" : : : "memory");
    write_dr7(0x400);
    CHECK(steps == 1 && last_dr6 & 1, "data breakpoint: %u #DB, DR6 %lx", steps, last_dr6);
}

static void reserved(void) {
    exception_clear();
    __asm__ volatile(FIXUP("mov %0, %%dr6") : : "r"(1ull << 32));
    check_exception(exception_get().vector, EXC_GP, "DR6 beyond 32 bits");
    exception_clear();
    __asm__ volatile(FIXUP("mov %0, %%dr7") : : "r"(1ull << 32));
    check_exception(exception_get().vector, EXC_GP, "DR7 beyond 32 bits");
    write_dr7(0);
    CHECK(read_dr7() == 0x400, "DR7 of 0 reads %lx", read_dr7());
    write_dr7(0x300); /* LE and GE */
    CHECK((read_dr7() & ~0x300ull) == 0x400, "DR7 with LE and GE reads %lx", read_dr7());
    write_dr7(0x400);
    write_dr6(0);
    CHECK((read_dr6() & 0xe00f) == 0, "DR6 of 0 reads %lx", read_dr6());
    write_dr6(DR6_INIT);
}

int main(void) {
    test_begin();
    irq_disable();
    single_steps();
    general_detect();
    breakpoints();
    reserved();
    irq_enable();
    return test_end("debug registers and single steps");
}
