/* The hypervisor skips an instruction that exits by its true length: with prefixes, at the end
 * of a page, and over a page boundary. With a wrong length the guest would go on in the middle
 * of an instruction. */
#include <guest/lapic.h>
#include <guest/mem.h>
#include <guest/string.h>
#include <guest/test.h>
#include <guest/vcpu.h>
#include <guest/x86.h>
#include <takt/io.h>

/* Runs `insn`, and then counts the one-byte instructions behind it. After a wrong length too few
 * of them are executed, or something else. */
#define SLED                                                                                       \
    "inc %%ebx; inc %%ebx; inc %%ebx; inc %%ebx; inc %%ebx; inc %%ebx; inc %%ebx; inc %%ebx"
#define RUN(what, insn, a, c)                                                                      \
    do {                                                                                           \
        u32 n_ = 0, a_ = (a), c_ = (c), d_ = 0;                                                    \
        u8 v_;                                                                                     \
        exception_clear();                                                                         \
        __asm__ volatile(FIXUP(insn) "mov $0, %%ebx; " SLED                                        \
                         : "=&b"(n_), "+a"(a_), "+c"(c_), "+d"(d_)                                 \
                         :                                                                         \
                         : "memory", "r8", "r9");                                                  \
        v_ = exception_get().vector;                                                               \
        check_exception(v_, EXC_NONE, what);                                                       \
        CHECK(n_ == 8, "%s: %u of 8 instructions behind it ran", what, n_);                        \
    } while (0)

static void prefixed(void) {
    RUN("CPUID", "cpuid", 0, 0);
    RUN("66 CPUID", ".byte 0x66, 0x0f, 0xa2", 0, 0);
    RUN("F2 CPUID", ".byte 0xf2, 0x0f, 0xa2", 0, 0);
    RUN("F3 CPUID", ".byte 0xf3, 0x0f, 0xa2", 0, 0);
    RUN("REX CPUID", ".byte 0x48, 0x0f, 0xa2", 0, 0);
    RUN("CS CPUID", ".byte 0x2e, 0x0f, 0xa2", 0, 0);
    RUN("67 CPUID", ".byte 0x67, 0x0f, 0xa2", 0, 0);
    RUN("13 prefixes CPUID",
        ".byte 0x2e, 0x3e, 0x26, 0x36, 0x64, 0x65, 0x66, 0x67, 0x2e, 0x3e, 0x26, 0x36, 0x4f, 0x0f, "
        "0xa2",
        0, 0);
    RUN("RDMSR", "rdmsr", 0, 0x1a0);
    RUN("66 RDMSR", ".byte 0x66, 0x0f, 0x32", 0, 0x1a0);
    RUN("REX DS RDMSR", ".byte 0x3e, 0x41, 0x0f, 0x32", 0, 0x1a0);
    RUN("IN", "inb $0x80, %%al", 0, 0);
    RUN("66 IN", "inw $0x80, %%ax", 0, 0);
    RUN("F3 REX IN", ".byte 0xf3, 0x48, 0xed", 0, 0);
    RUN("OUT", "outb %%al, $0x80", 0, 0);
    RUN("PAUSE", "pause", 0, 0);
    RUN("WBINVD", "wbinvd", 0, 0);
    RUN("CS WBINVD", ".byte 0x2e, 0x0f, 0x09", 0, 0);
    RUN("MOV CR0", "mov %%cr0, %%r8; mov %%r8, %%cr0", 0, 0);
    RUN("CS MOV CR4", "mov %%cr4, %%r8; .byte 0x2e, 0x41, 0x0f, 0x22, 0xe0", 0, 0);
    RUN("MOV CR8", "mov %%cr8, %%r8; mov %%r8, %%cr8", 0, 0);
}

static void hypercalls(void) {
    bool amd = cpuid(TAKT_CPUID_ABI, 0).ebx & TAKT_FEAT_VMMCALL;

    if (amd) {
        RUN("VMMCALL", "vmmcall", TAKT_HC_VERSION, 0);
        RUN("REX VMMCALL", ".byte 0x48, 0x0f, 0x01, 0xd9", TAKT_HC_VERSION, 0);
        RUN("CS VMMCALL", ".byte 0x2e, 0x0f, 0x01, 0xd9", TAKT_HC_VERSION, 0);
    } else {
        RUN("VMCALL", "vmcall", TAKT_HC_VERSION, 0);
        RUN("REX VMCALL", ".byte 0x48, 0x0f, 0x01, 0xc1", TAKT_HC_VERSION, 0);
        RUN("CS VMCALL", ".byte 0x2e, 0x0f, 0x01, 0xc1", TAKT_HC_VERSION, 0);
    }
}

/* CPUID; RET as the last bytes before a page that is not there, and across two pages that are
 * apart in memory. */
static void at_page_ends(void) {
    static const u8 code[] = {
        0x53, 0x31, 0xc0, 0x2e, 0x0f, 0xa2, 0x5b, 0xc3
    }; /* push rbx; xor; cs cpuid; pop; ret */
    u64 va = 0x10000000000;
    u8 *a = page_alloc(1), *gap = page_alloc(1), *b = page_alloc(1);
    struct exception e;

    if (!a || !gap || !b || page_map(va, (u64)a, PTE_P | PTE_W) ||
        page_map(va + PAGE_SIZE, (u64)b, PTE_P | PTE_W))
        test_error("no memory");
    for (unsigned over = 0; over <= sizeof(code); over++) {
        u64 at = va + PAGE_SIZE - sizeof(code) + over;

        memcpy((void *)at, code, sizeof(code));
        e = try_run((void (*)(void *))at, NULL);
        check_exception(e.vector, EXC_NONE, "CPUID near a page's end");
    }
    /* Without the second page: what lies in the first runs, then #PF for the fetch at the
     * boundary. */
    for (unsigned over = 0; over <= sizeof(code); over++) {
        u64 at = va + PAGE_SIZE - sizeof(code) + over;

        memcpy((void *)at, code, sizeof(code));
        page_map(va + PAGE_SIZE, 0, 0);
        e = try_run((void (*)(void *))at, NULL);
        page_map(va + PAGE_SIZE, (u64)b, PTE_P | PTE_W);
        check_exception(e.vector, over ? EXC_PF : EXC_NONE, "CPUID cut off by a missing page");
        CHECK(!over || e.cr2 == va + PAGE_SIZE, "%u bytes over: CR2 is %lx", over, e.cr2);
    }
}

int main(void) {
    test_begin();
    prefixed();
    if (on_takt()) hypercalls();
    at_page_ends();
    return test_end("instructions are as long as they are");
}
