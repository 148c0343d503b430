/* 32-bit code in compatibility mode: NULL segments, read-only ones, limits, and segments that
 * expand down, for accesses to memory and for string I/O. The hypervisor emulates the latter,
 * and must refuse what the processor would. */
#include <guest/string.h>
#include <guest/test.h>
#include <guest/vcpu.h>
#include <guest/x86.h>

#define SEL_TEST 0x50 /* two descriptors of our own, behind the library's */

static u64 gdt[16];
static u32 word = 0x12345678;

void c_es_read(void), c_es_ins(void), c_ss_push(void), c_fs_outs(void), c_es_write(void);
/* EBX has the selector to load, ECX an address. */
__asm__(".pushsection .text; .code32\n"
        "c_es_read: mov %ebx, %es; mov %es:(%ecx), %eax; ret\n"
        "c_es_write: mov %ebx, %es; mov %eax, %es:(%ecx); ret\n"
        "c_es_ins: mov %ebx, %es; mov %ecx, %edi; mov $0x5e0, %edx; insb; ret\n"
        "c_fs_outs: mov %ebx, %es; mov %ecx, %esi; mov $0x5e0, %edx; .byte 0x26; outsb; ret\n"
        "c_ss_push: mov %ebx, %ss; ret\n"
        ".code64; .popsection");

struct call {
    void (*fn)(void);
    struct compat_regs r;
};

static void run(void *arg) {
    struct call *c = arg;

    compat_call((void *)c->fn, &c->r);
}

static u8 call(void (*fn)(void), u32 selector, u64 address) {
    struct call c = { fn, { .rax = 1, .rbx = selector, .rcx = address } };
    struct exception e = try_run(run, &c);

    /* try_run() came back with whatever ES and SS the code had loaded. */
    __asm__ volatile("mov %0, %%es; mov %0, %%ss" : : "r"(SEL_DATA));
    return e.vector;
}

static void add_descriptors(void) {
    struct {
        u16 limit;
        u64 base;
    } __attribute__((packed)) r = { sizeof(gdt) - 1, (u64)gdt };

    memcpy(gdt, this_vcpu()->gdt, sizeof(this_vcpu()->gdt));
    gdt[SEL_TEST >> 3] = 0x0040930000000000 | 0xfff; /* 4 KiB from 0 */
    /* An expand-down segment, valid from 1 MiB + 4 KiB on. */
    gdt[(SEL_TEST >> 3) + 1] = 0x00c0970000000000 | 0x100;
    gdt[(SEL_TEST >> 3) + 2] = 0x00cf91000000ffff; /* read-only */
    gdt[(SEL_TEST >> 3) + 3] = 0x00cf13000000ffff; /* not present */
    __asm__ volatile("lgdt %0" : : "m"(r));
}

int main(void) {
    u64 w = (u64)&word;

    test_begin();
    irq_disable();
    add_descriptors();
    check_exception(call(c_es_read, SEL_DATA, w), EXC_NONE, "a flat ES");
    if (!test_on("qemu")) { /* whose CPU knows no limits and no types of segments */
        check_exception(call(c_es_read, 0, w), EXC_GP, "a NULL ES");
        check_exception(call(c_es_read, SEL_TEST, 0xffc), EXC_NONE, "the last word in a limit");
        check_exception(call(c_es_read, SEL_TEST, 0xffd), EXC_GP, "a word over the limit");
        check_exception(call(c_es_read, SEL_TEST + 8, 0x1000), EXC_GP,
                        "below an expand-down segment");
        check_exception(call(c_es_read, SEL_TEST + 8, w), w >= 0x101000 ? EXC_NONE : EXC_GP,
                        "in an expand-down segment");
        check_exception(call(c_es_write, SEL_TEST + 16, w), EXC_GP,
                        "a write to a read-only segment");
    }
    check_exception(call(c_es_read, SEL_TEST + 24, w), EXC_NP, "a segment that is not present");
    check_exception(call(c_ss_push, 0, w), EXC_GP, "a NULL SS");
    check_exception(call(c_ss_push, SEL_TEST + 24, w), EXC_SS, "an SS that is not present");
    check_exception(call(c_es_read, 0xfff8, w), EXC_GP, "a selector beyond the table");

    /* String I/O, which Takt does itself: the same rules. */
    check_exception(call(c_es_ins, SEL_DATA, w), EXC_NONE, "INS to a flat ES");
    CHECK((word & 0xff) == 0xff, "INS left %x", word);
    check_exception(call(c_es_ins, 0, w), EXC_GP, "INS to a NULL ES");
    check_exception(call(c_es_ins, SEL_TEST, 0x1000), EXC_GP, "INS beyond a limit");
    check_exception(call(c_es_ins, SEL_TEST + 8, 0x1000), EXC_GP,
                    "INS below an expand-down segment");
    check_exception(call(c_es_ins, SEL_TEST + 16, w), EXC_GP, "INS to a read-only segment");
    check_exception(call(c_fs_outs, SEL_TEST + 16, w), EXC_NONE, "OUTS from a read-only segment");
    check_exception(call(c_fs_outs, 0, w), EXC_GP, "OUTS from a NULL segment");
    check_exception(call(c_fs_outs, SEL_TEST, 0x1000), EXC_GP, "OUTS beyond a limit");
    return test_end("segments in 32-bit code");
}
