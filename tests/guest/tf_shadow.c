/* The trap flag together with the interrupt shadows of STI and MOV SS, and with ICEBP. Some of
 * these combinations are states that a VM entry refuses (SDM 3C 26.3.1.5), so the hypervisor
 * must not pass them on. */
#include <guest/test.h>
#include <guest/trap.h>
#include <guest/x86.h>

static volatile u32 hits;

static bool on_db(struct trap_frame *f) {
    hits++;
    return true;
}

#define TF_ON  "pushfq; orl $0x100, (%%rsp); popfq\n"
#define TF_OFF "pushfq; andl $~0x100, (%%rsp); popfq\n"
#define RUN(what, insns)                                                                           \
    do {                                                                                           \
        hits = 0;                                                                                  \
        __asm__ volatile("mov %%ss, %%r8d\n" TF_ON insns "\n" TF_OFF                               \
                         :                                                                         \
                         : "a"(0), "c"(0)                                                          \
                         : "rbx", "rdx", "r8", "memory", "cc");                                    \
        CHECK(hits > 0, "%s: no #DB at all", what);                                                \
    } while (0)

int main(void) {
    test_begin();
    irq_disable();
    exception_set_hook(EXC_DB, on_db);
    for (unsigned i = 0; i < 20; i++) {
        RUN("STI; ICEBP", "sti; .byte 0xf1; cli");
        RUN("MOV SS; ICEBP", "mov %%r8d, %%ss; .byte 0xf1");
        RUN("STI; NOP", "sti; nop; cli");
        RUN("MOV SS; CPUID", "mov %%r8d, %%ss; cpuid");
        RUN("STI; CPUID", "sti; cpuid; cli");
        RUN("MOV SS; IN", "mov %%r8d, %%ss; inb $0x80, %%al");
        RUN("STI; MOV SS; ICEBP", "sti; mov %%r8d, %%ss; .byte 0xf1; cli");
    }
    return test_end("single steps through shadows");
}
