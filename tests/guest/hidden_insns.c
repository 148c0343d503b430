/* Instructions of features that guests do not have are #UD, or #GP where the manual says so.
 * Harmless ones work. */
#include <guest/mem.h>
#include <guest/test.h>
#include <guest/x86.h>

static u8 area[4096] __attribute__((aligned(4096)));

#define UD(what, insn)                                                                             \
    check_exception(FAULT_OF(insn,                                                                 \
                             :                                                                     \
                             : "D"(area), "a"(0), "c"(0), "d"(0)                                   \
                             : "rbx", "r8", "memory", "cc"),                                       \
                    EXC_UD, what)
#define OK(what, insn)                                                                             \
    check_exception(FAULT_OF(insn,                                                                 \
                             :                                                                     \
                             : "D"(area), "a"(0), "c"(0), "d"(0)                                   \
                             : "rbx", "r8", "memory", "cc"),                                       \
                    EXC_NONE, what)
#define NOT_RUN(what, insn)                                                                        \
    do {                                                                                           \
        u8 v_ = FAULT_OF(insn,                                                                     \
                         :                                                                         \
                         : "D"(area), "a"(0), "c"(0), "d"(0)                                       \
                         : "rbx", "r8", "memory", "cc");                                           \
        CHECK(v_ == EXC_UD || v_ == EXC_GP, "%s: %s", what, exception_name(v_));                   \
    } while (0)

int main(void) {
    test_begin();
    test_needs_takt();
    UD("MONITOR", "monitor");
    UD("MWAIT", "mwait");
    if (!test_on("qemu")) { /* which has no VT-x, and executes these two as nothing at all */
        UD("VMXON", "vmxon (%%rdi)");
        UD("VMPTRLD", "vmptrld (%%rdi)");
    }
    UD("VMXOFF", "vmxoff");
    UD("VMLAUNCH", "vmlaunch");
    UD("VMRESUME", "vmresume");
    UD("VMREAD", "vmread %%r8, %%r8");
    UD("INVEPT", ".byte 0x66, 0x0f, 0x38, 0x80, 0x07");
    UD("INVVPID", ".byte 0x66, 0x0f, 0x38, 0x81, 0x07");
    UD("VMFUNC", ".byte 0x0f, 0x01, 0xd4");
    UD("VMRUN", "vmrun");
    UD("VMLOAD", "vmload");
    UD("VMSAVE", "vmsave");
    UD("STGI", "stgi");
    UD("CLGI", "clgi");
    UD("INVLPGA", "invlpga");
    UD("SKINIT", "skinit");
    UD("RSM", "rsm");
    UD("GETSEC", ".byte 0x0f, 0x37");
    NOT_RUN("ENCLS", ".byte 0x0f, 0x01, 0xcf");
    NOT_RUN("ENCLU", ".byte 0x0f, 0x01, 0xd7");
    NOT_RUN("ENCLV", ".byte 0x0f, 0x01, 0xc0");
    NOT_RUN("PCONFIG", ".byte 0x0f, 0x01, 0xc5");
    NOT_RUN("WRMSRNS", ".byte 0x0f, 0x01, 0xc6");
    NOT_RUN("UMONITOR", ".byte 0xf3, 0x0f, 0xae, 0xf0");
    NOT_RUN("UMWAIT", ".byte 0xf2, 0x41, 0x0f, 0xae, 0xf0");
    NOT_RUN("TPAUSE", ".byte 0x66, 0x41, 0x0f, 0xae, 0xf0");
    check_exception(FAULT_OF("rdpmc", : : "c"(0) : "rax", "rdx"), EXC_GP, "RDPMC");
    check_exception(wrmsr_fault(0xda0, 1), EXC_GP, "XSS");
    OK("WBINVD", "wbinvd");
    OK("INVD", "invd");
    OK("CLFLUSH", "clflush (%%rdi)");
    OK("CLDEMOTE", ".byte 0x0f, 0x1c, 0x07");
    OK("NOP", "nopl (%%rdi)");
    /* What INVD would have thrown away is still there. */
    for (unsigned i = 0; i < sizeof(area); i++) area[i] = i;
    __asm__ volatile("invd" : : : "memory");
    for (unsigned i = 0; i < sizeof(area); i++) CHECK(area[i] == (u8)i, "INVD lost byte %u", i);
    return test_end("what is hidden does not work");
}
