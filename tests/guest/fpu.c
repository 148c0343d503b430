/* The registers of the FPU keep their values while another VM runs on the same pCPU, whether the
 * guest may use XSAVE or only FXSAVE. CPUID shows AVX only together with XSAVE. */
/* vms: 2 */
/* keys: cpus = 0 */
#include <guest/test.h>
#include <guest/time.h>
#include <guest/x86.h>
#include <takt/abi.h>

#define CPUID_XSAVE  BIT(26) /* leaf 1, ECX */
#define CPUID_AVX    BIT(28)
#define CPUID_FMA    BIT(12)

#define FCW_EXTENDED 0x037f
#define TIME_NS      (200 * 1000000ull) /* several slices of each VM */

/* What this VM keeps in its registers: other numbers than those of the other VM. */
static u64 pattern(u32 n) { return (u64)cpuid(TAKT_CPUID_ABI, 0).ecx * 0x1111111111ull + n; }

static void fill(void) {
    u64 a = pattern(1), b = pattern(2);

    __asm__ volatile("fninit\n\tfildq %0\n\tmovq %0, %%xmm0\n\tmovq %1, %%xmm15"
                     :
                     : "m"(a), "m"(b));
}

static void check_registers(void) {
    u64 x87, xmm0, xmm15;

    __asm__ volatile("fld %%st(0)\n\tfistpq %0\n\tmovq %%xmm0, %1\n\tmovq %%xmm15, %2"
                     : "=m"(x87), "=m"(xmm0), "=m"(xmm15));
    CHECK(x87 == pattern(1), "ST0 holds %lx instead of %lx", x87, pattern(1));
    CHECK(xmm0 == pattern(1), "XMM0 holds %lx instead of %lx", xmm0, pattern(1));
    CHECK(xmm15 == pattern(2), "XMM15 holds %lx instead of %lx", xmm15, pattern(2));
}

int main(void) {
    u32 features = cpuid(1, 0).ecx;
    u16 fcw;
    u64 end;

    test_begin();
    if (!(features & CPUID_XSAVE)) {
        CHECK(!(features & (CPUID_AVX | CPUID_FMA)), "AVX or FMA without XSAVE: %x", features);
        CHECK(!cpuid(0xd, 0).eax, "XCR0 may have %x without XSAVE", cpuid(0xd, 0).eax);
    }
    write_cr0((read_cr0() & ~CR0_EM) | CR0_MP);
    write_cr4(read_cr4() | CR4_OSFXSR);
    __asm__ volatile("fnstcw %0" : "=m"(fcw));
    CHECK(fcw == FCW_EXTENDED || fcw == 0x40, "the control word is %x at first", fcw);
    fill();
    for (end = time_ns() + TIME_NS; time_ns() < end;) check_registers();
    return test_end("registers of the FPU");
}
