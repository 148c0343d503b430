/* A feature that CPUID shows works. One that it hides is #UD, where the processor can be told to
 * make it so: a guest that finds it by trying must not use it. */
#include <guest/mem.h>
#include <guest/test.h>
#include <guest/x86.h>

enum { EAX, EBX, ECX, EDX };

static u8 area[4096] __attribute__((aligned(64)));

#define PROBE(name, insn) PROBE_IN(name, "", insn, "")
#define PROBE_IN(name, before, insn, after)                                                        \
    static u8 probe_##name(void) {                                                                 \
        exception_clear();                                                                         \
        __asm__ volatile(before "\n" FIXUP(insn) after                                             \
                         :                                                                         \
                         : "D"(area), "S"(area + 1024), "a"(0), "c"(0), "d"(0)                     \
                         : "memory", "cc", "r8", "r9", "r10", "r11");                              \
        return exception_get().vector;                                                             \
    }

PROBE(sse2, "movdqa (%%rdi), %%xmm0")
PROBE(sse3, "haddps %%xmm0, %%xmm0")
PROBE(pclmul, "pclmulqdq $0, %%xmm0, %%xmm0")
PROBE(ssse3, "pshufb %%xmm0, %%xmm0")
PROBE(fma, "vfmadd132ps %%xmm0, %%xmm0, %%xmm0")
PROBE(cx16, "cmpxchg16b (%%rdi)")
PROBE(sse41, "pmulld %%xmm0, %%xmm0")
PROBE(sse42, "pcmpgtq %%xmm0, %%xmm0")
PROBE(movbe, "movbe (%%rdi), %%r8d")
PROBE(popcnt, "popcnt %%r8d, %%r8d")
PROBE(aes, "aesenc %%xmm0, %%xmm0")
PROBE(xsave, "xsave (%%rdi)")
PROBE(avx, "vaddps %%ymm0, %%ymm0, %%ymm0")
PROBE(f16c, "vcvtph2ps %%xmm0, %%xmm0")
PROBE(rdrand, "rdrand %%r8d")
PROBE(fxsr, "fxsave (%%rdi)")
PROBE(clflush, "clflush (%%rdi)")
PROBE(fsgsbase, "rdfsbase %%r8")
PROBE(bmi1, "andn %%r8d, %%r8d, %%r8d")
PROBE(avx2, "vpaddd %%ymm0, %%ymm0, %%ymm0")
PROBE(bmi2, "pdep %%r8d, %%r8d, %%r8d")
PROBE(erms, "rep movsb")
PROBE_IN(invpcid, "mov $2, %%r8d", "invpcid (%%rdi), %%r8", "")
PROBE(rtm, "xtest")
PROBE(avx512f, "vpaddd %%zmm0, %%zmm0, %%zmm0")
PROBE(rdseed, "rdseed %%r8d")
PROBE(adx, "adcx %%r8d, %%r8d")
PROBE(smap, "clac")
PROBE(clflushopt, "clflushopt (%%rdi)")
PROBE(clwb, "clwb (%%rdi)")
PROBE(sha, "sha1msg1 %%xmm0, %%xmm0")
PROBE(pku, "rdpkru")
PROBE(waitpkg, "tpause %%r8d")
PROBE(gfni, "gf2p8mulb %%xmm0, %%xmm0")
PROBE(vaes, "vaesenc %%ymm0, %%ymm0, %%ymm0")
PROBE(vpclmul, "vpclmulqdq $0, %%ymm0, %%ymm0, %%ymm0")
PROBE(rdpid, "rdpid %%r8")
PROBE(movdiri, "movdiri %%r8d, (%%rdi)")
PROBE(movdir64b, "movdir64b (%%rsi), %%rdi")
PROBE(serialize, "serialize")
PROBE(rdtscp, "rdtscp")
PROBE(rdtsc, "rdtsc")
PROBE(lahf, "lahf")
PROBE(lzcnt, "lzcnt %%r8d, %%r8d")
PROBE(sse4a, "movntss %%xmm0, (%%rdi)")
PROBE(prefetchw, "prefetchw (%%rdi)")
PROBE_IN(xgetbv1, "mov $1, %%ecx", "xgetbv", "")
PROBE(xsaveopt, "xsaveopt (%%rdi)")
PROBE(xsavec, "xsavec (%%rdi)")
PROBE(xsaves, "xsaves (%%rdi)")
PROBE_IN(monitor, "mov %%rdi, %%rax", "monitor", "")
PROBE(vmx, "vmxoff")
PROBE(svm, "clgi")
PROBE(rdpru, "rdpru")
PROBE(mcommit, ".byte 0xf3, 0x0f, 0x01, 0xfa")
PROBE_IN(clzero, "mov %%rdi, %%rax", "clzero", "")
PROBE(wbnoinvd, "wbnoinvd")
PROBE(cmov, "cmovz %%r8d, %%r8d")
PROBE(cx8, "cmpxchg8b (%%rdi)")

static const struct {
    const char *name;
    u32 leaf, sub;
    u8 reg, bit;
    bool must_hide; /* the CPU can be told to refuse it, or it may never be shown */
    u8 (*probe)(void);
} features[] = {
    { "TSC", 1, 0, EDX, 4, false, probe_rdtsc },
    { "CX8", 1, 0, EDX, 8, false, probe_cx8 },
    { "CMOV", 1, 0, EDX, 15, false, probe_cmov },
    { "CLFLUSH", 1, 0, EDX, 19, false, probe_clflush },
    { "FXSR", 1, 0, EDX, 24, false, probe_fxsr },
    { "SSE2", 1, 0, EDX, 26, false, probe_sse2 },
    { "SSE3", 1, 0, ECX, 0, false, probe_sse3 },
    { "PCLMULQDQ", 1, 0, ECX, 1, false, probe_pclmul },
    { "MONITOR", 1, 0, ECX, 3, true, probe_monitor },
    { "VMX", 1, 0, ECX, 5, true, probe_vmx },
    { "SSSE3", 1, 0, ECX, 9, false, probe_ssse3 },
    { "FMA", 1, 0, ECX, 12, false, probe_fma },
    { "CX16", 1, 0, ECX, 13, false, probe_cx16 },
    { "SSE4.1", 1, 0, ECX, 19, false, probe_sse41 },
    { "SSE4.2", 1, 0, ECX, 20, false, probe_sse42 },
    { "MOVBE", 1, 0, ECX, 22, false, probe_movbe },
    { "POPCNT", 1, 0, ECX, 23, false, probe_popcnt },
    { "AES", 1, 0, ECX, 25, false, probe_aes },
    { "XSAVE", 1, 0, ECX, 26, true, probe_xsave },
    { "AVX", 1, 0, ECX, 28, true, probe_avx },
    { "F16C", 1, 0, ECX, 29, false, probe_f16c },
    { "RDRAND", 1, 0, ECX, 30, false, probe_rdrand },
    { "FSGSBASE", 7, 0, EBX, 0, true, probe_fsgsbase },
    { "BMI1", 7, 0, EBX, 3, false, probe_bmi1 },
    { "AVX2", 7, 0, EBX, 5, false, probe_avx2 },
    { "BMI2", 7, 0, EBX, 8, false, probe_bmi2 },
    { "ERMS", 7, 0, EBX, 9, false, probe_erms },
    { "INVPCID", 7, 0, EBX, 10, false, probe_invpcid },
    { "RTM", 7, 0, EBX, 11, false, probe_rtm },
    { "AVX512F", 7, 0, EBX, 16, true, probe_avx512f },
    { "RDSEED", 7, 0, EBX, 18, false, probe_rdseed },
    { "ADX", 7, 0, EBX, 19, false, probe_adx },
    { "SMAP", 7, 0, EBX, 20, false, probe_smap },
    { "CLFLUSHOPT", 7, 0, EBX, 23, false, probe_clflushopt },
    { "CLWB", 7, 0, EBX, 24, false, probe_clwb },
    { "SHA", 7, 0, EBX, 29, false, probe_sha },
    { "PKU", 7, 0, ECX, 3, true, probe_pku },
    { "WAITPKG", 7, 0, ECX, 5, false, probe_waitpkg },
    { "GFNI", 7, 0, ECX, 8, false, probe_gfni },
    { "VAES", 7, 0, ECX, 9, false, probe_vaes },
    { "VPCLMULQDQ", 7, 0, ECX, 10, false, probe_vpclmul },
    { "RDPID", 7, 0, ECX, 22, false, probe_rdpid },
    { "MOVDIRI", 7, 0, ECX, 27, false, probe_movdiri },
    { "MOVDIR64B", 7, 0, ECX, 28, false, probe_movdir64b },
    { "SERIALIZE", 7, 0, EDX, 14, false, probe_serialize },
    { "XSAVEOPT", 0xd, 1, EAX, 0, false, probe_xsaveopt },
    { "XSAVEC", 0xd, 1, EAX, 1, false, probe_xsavec },
    { "XGETBV1", 0xd, 1, EAX, 2, false, probe_xgetbv1 },
    { "XSAVES", 0xd, 1, EAX, 3, false, probe_xsaves },
    { "LAHF", 0x80000001, 0, ECX, 0, false, probe_lahf },
    { "SVM", 0x80000001, 0, ECX, 2, true, probe_svm },
    { "LZCNT", 0x80000001, 0, ECX, 5, false, probe_lzcnt },
    { "SSE4A", 0x80000001, 0, ECX, 6, false, probe_sse4a },
    { "PREFETCHW", 0x80000001, 0, ECX, 8, false, probe_prefetchw },
    { "RDTSCP", 0x80000001, 0, EDX, 27, false, probe_rdtscp },
    { "CLZERO", 0x80000008, 0, EBX, 0, false, probe_clzero },
    { "RDPRU", 0x80000008, 0, EBX, 4, false, probe_rdpru },
    { "MCOMMIT", 0x80000008, 0, EBX, 8, false, probe_mcommit },
    { "WBNOINVD", 0x80000008, 0, EBX, 9, false, probe_wbnoinvd },
};

static bool shown(unsigned i) {
    struct cpuid c = cpuid(features[i].leaf, features[i].sub);
    const u32 r[] = { c.eax, c.ebx, c.ecx, c.edx };

    if (features[i].leaf > cpuid(features[i].leaf & 0x80000000, 0).eax) return false;
    return r[features[i].reg] >> features[i].bit & 1;
}

/* Switches on everything that CPUID allows, so that it is not a feature's own switch that
 * refuses it. */
static void switch_on(void) {
    struct cpuid l1 = cpuid(1, 0), l7 = cpuid(7, 0);
    u64 cr4 = read_cr4();
    u32 xcr0 = cpuid(0xd, 0).eax;

    if (l7.ebx & BIT(0)) cr4 |= CR4_FSGSBASE;
    if (l7.ecx & BIT(3)) cr4 |= BIT(22);
    if (l1.ecx & BIT(26)) cr4 |= CR4_OSXSAVE;
    write_cr4(cr4);
    if (l1.ecx & BIT(26)) __asm__ volatile("xsetbv" : : "a"(xcr0), "d"(0), "c"(0));
}

int main(void) {
    test_begin();
    switch_on();
    for (unsigned i = 0; i < ARRAY_SIZE(features); i++) {
        bool there = shown(i);
        u8 got = features[i].probe();

        if (there)
            CHECK(got == EXC_NONE, "%s is shown and raises %s", features[i].name,
                  exception_name(got));
        else if (features[i].must_hide && on_takt())
            CHECK(got == EXC_UD, "%s is hidden and gives %s", features[i].name,
                  exception_name(got));
        else
            CHECK(got == EXC_NONE || got == EXC_UD || got == EXC_GP, "%s gives %s",
                  features[i].name, exception_name(got));
    }
    return test_end("what is shown works");
}
