/* XSETBV: each illegal value of XCR0 is #GP (SDM 2A, XSETBV), and at CPL 3 every value is. Legal
 * ones are kept. An illegal one that got through would make the hypervisor's own XSAVE fault. */
#include <guest/test.h>
#include <guest/trap.h>
#include <guest/x86.h>

static u8 xsetbv(u32 index, u64 v) {
    exception_clear();
    __asm__ volatile(FIXUP("xsetbv") : : "a"((u32)v), "d"((u32)(v >> 32)), "c"(index) : "memory");
    return exception_get().vector;
}

static u64 xgetbv(void) {
    u32 lo, hi;

    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return (u64)hi << 32 | lo;
}

void user_xsetbv(void);
__asm__("user_xsetbv: xor %ecx, %ecx; xor %edx, %edx; mov $3, %eax; xsetbv; int $0x81");

int main(void) {
    u64 all, cr4 = read_cr4();

    test_begin();
    if (!(cpuid(1, 0).ecx & BIT(26))) test_skip("no XSAVE");
    check_exception(xsetbv(0, 1), EXC_UD, "XSETBV without CR4.OSXSAVE");
    CHECK(!(cpuid(1, 0).ecx & BIT(27)), "OSXSAVE is shown too early");
    write_cr4(cr4 | CR4_OSXSAVE);
    CHECK(cpuid(1, 0).ecx & BIT(27), "OSXSAVE is not shown");
    all = cpuid(0xd, 0).eax | (u64)cpuid(0xd, 0).edx << 32;
    CHECK((all & 3) == 3, "XCR0 may have %lx", all);
    CHECK(xgetbv() == 1, "XCR0 is %lx at first", xgetbv());
    check_exception(xsetbv(0, 0), EXC_GP, "XCR0 of 0");
    check_exception(xsetbv(0, 2), EXC_GP, "XCR0 without x87");
    check_exception(xsetbv(0, 5), EXC_GP, "AVX without SSE");
    check_exception(xsetbv(0, 0x27), EXC_GP, "a part of AVX-512");
    check_exception(xsetbv(0, 0x67), EXC_GP, "another part of AVX-512");
    check_exception(xsetbv(0, 0xe3), EXC_GP, "AVX-512 without AVX");
    check_exception(xsetbv(0, 0x20007), EXC_GP, "a part of AMX");
    check_exception(xsetbv(0, 1ull << 63 | 3), EXC_GP, "bit 63");
    check_exception(xsetbv(1, 3), EXC_GP, "XCR1");
    check_exception(xsetbv(0xffffffff, 3), EXC_GP, "XCR -1");
    for (unsigned bit = 0; bit < 64; bit++)
        if (!(all >> bit & 1))
            check_exception(xsetbv(0, all | 1ull << bit), EXC_GP, "a bit that is not offered");
    CHECK(xgetbv() == 1, "XCR0 is %lx after all these", xgetbv());
    check_exception(xsetbv(0, 3), EXC_NONE, "x87 and SSE");
    check_exception(xsetbv(0, all), EXC_NONE, "all that is offered");
    CHECK(xgetbv() == all, "XCR0 is %lx instead of %lx", xgetbv(), all);
    check_exception(user_run(user_xsetbv, 0, false, NULL).vector, EXC_GP, "XSETBV at CPL 3");
    CHECK(xgetbv() == all, "XCR0 is %lx after CPL 3's", xgetbv());
    CHECK(cpuid(0xd, 0).ebx == cpuid(0xd, 0).ecx, "XSAVE area now %u, at most %u",
          cpuid(0xd, 0).ebx, cpuid(0xd, 0).ecx);
    return test_end("XCR0 obeys the manual");
}
