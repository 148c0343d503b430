/* Gates and TSSs that long mode does not have, or that are malformed, used by INT, LTR, a far
 * jump and IRET. Each is a fault whose error code names the descriptor. */
#include <guest/string.h>
#include <guest/test.h>
#include <guest/vcpu.h>
#include <guest/x86.h>

#define VECTOR  0x90
#define TSS_SEL 0x50

static u64 gdt[16];

static u8 *gate(u8 vector) {
    struct {
        u16 limit;
        u64 base;
    } __attribute__((packed)) r;

    __asm__ volatile("sidt %0" : "=m"(r));
    return (u8 *)r.base + vector * 16;
}

static void through_gate(u8 attr, u8 want, const char *what) {
    u8 *g = gate(VECTOR), old = g[5];
    struct exception e;

    g[5] = attr;
    exception_clear();
    __asm__ volatile(FIXUP("int $0x90") : : : "memory");
    e = exception_get();
    g[5] = old;
    check_exception(e.vector, want, what);
    CHECK(want == EXC_NONE || e.code == VECTOR * 8 + 2, "%s: error code %x", what, e.code);
}

/* ICEBP is delivered as #DB through its gate. A fault of that delivery has the RIP of the ICEBP. */
static void icebp(void) {
    u8 *g = gate(EXC_DB), old = g[5];
    u64 at;
    struct exception e;

    g[5] = old & ~0x80;
    exception_clear();
    __asm__ volatile("lea 661f(%%rip), %0\n" FIXUP(".byte 0xf1") : "=r"(at) : : "memory");
    e = exception_get();
    g[5] = old;
    check_exception(e.vector, EXC_NP, "ICEBP through a gate that is not present");
    CHECK(e.rip == at, "#NP at %lx, ICEBP at %lx", e.rip, at);
}

static u8 load_tr(u16 selector) {
    exception_clear();
    __asm__ volatile(FIXUP("ltr %w0") : : "r"(selector) : "memory");
    return exception_get().vector;
}

static u8 far_jump(u16 selector) {
    struct {
        u32 offset;
        u16 selector;
    } __attribute__((packed)) to = { 0, selector };

    exception_clear();
    __asm__ volatile(FIXUP("ljmp *%0") : : "m"(to) : "memory");
    return exception_get().vector;
}

static void nothing(void *arg) {}

void user_int(void);
__asm__(".pushsection .text; user_int: int $0x90; int $0x81; .popsection");

/* IRET with NT set is a fault: in long mode there is no task to go back to. */
static u8 iret_nt(void) {
    exception_clear();
    __asm__ volatile("mov %%ss, %%eax; push %%rax; lea 8(%%rsp), %%rax; push %%rax\n"
                     "pushfq; push $0x8; lea 662f(%%rip), %%rax; push %%rax\n"
                     "pushfq; orl $0x4000, (%%rsp); popfq\n"
                     "661: iretq\n"
                     ".pushsection .fixup,\"a\"; .balign 8; .quad 661b, 663f; .popsection\n"
                     "663: add $40, %%rsp\n"
                     "662: pushfq; andl $~0x4000, (%%rsp); popfq"
                     :
                     :
                     : "rax", "memory", "cc");
    return exception_get().vector;
}

int main(void) {
    struct {
        u16 limit;
        u64 base;
    } __attribute__((packed)) r = { sizeof(gdt) - 1, (u64)gdt };
    u64 base = (u64)&this_vcpu()->tss;
    u64 tss = 0x67 | (base & 0xffffff) << 16 | (base >> 24 & 0xff) << 56;

    test_begin();
    irq_disable();
    irq_set_handler(VECTOR, nothing, NULL);
    through_gate(0x8e, EXC_NONE, "an interrupt gate");
    through_gate(0x0e, EXC_NP, "a gate that is not present");
    through_gate(0x85, EXC_GP, "a task gate");
    through_gate(0x86, EXC_GP, "a 16-bit gate");
    through_gate(0x8c, EXC_GP, "a call gate");
    through_gate(0x80, EXC_GP, "a gate of type 0");
    /* AMD-V has no way to deliver it exactly: it exits with RIP behind it */
    if (!test_on("qemu")) icebp();
    check_exception(user_run(user_int, 0, false, NULL).vector, EXC_GP,
                    "a gate of DPL 0 from CPL 3");

    memcpy(gdt, this_vcpu()->gdt, sizeof(this_vcpu()->gdt));
    gdt[TSS_SEL >> 3] = tss | 0x89ull << 40;
    gdt[(TSS_SEL >> 3) + 1] = base >> 32;
    gdt[(TSS_SEL >> 3) + 2] = tss | 0x09ull << 40; /* not present */
    gdt[(TSS_SEL >> 3) + 4] = tss | 0x81ull << 40; /* a 16-bit TSS */
    __asm__ volatile("lgdt %0" : : "m"(r));
    check_exception(load_tr(SEL_TSS), EXC_GP, "LTR of a busy TSS");
    check_exception(load_tr(TSS_SEL + 16), EXC_NP, "LTR of a TSS that is not present");
    check_exception(load_tr(SEL_DATA), EXC_GP, "LTR of a data segment");
    check_exception(load_tr(0xff0), EXC_GP, "LTR beyond the table");
    check_exception(far_jump(TSS_SEL), EXC_GP, "a far jump to a TSS");
    check_exception(far_jump(SEL_DATA), EXC_GP, "a far jump to data");
    check_exception(load_tr(TSS_SEL), EXC_NONE, "LTR of a good one");
    if (!test_on("qemu")) { /* whose CPU does not look that closely */
        check_exception(load_tr(TSS_SEL + 32), EXC_GP, "LTR of a 16-bit TSS");
        check_exception(load_tr(0), EXC_GP, "LTR of nothing");
        check_exception(iret_nt(), EXC_GP, "IRET with NT");
    }
    irq_enable();
    return test_end("no tasks in long mode");
}
