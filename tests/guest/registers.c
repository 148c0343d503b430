/* vms: 2 */
/* vcpus: 2 */
/* cpus: 0 */
/* time: 1500 */
/* memory: 4 */
/* Four vCPUs of two VMs take turns on one pCPU. Each fills every register that a guest can
 * change (docs/virt.md has the list) with values of its own, lets the others run, and must find
 * its values again. A register that is not switched would leak the data of one VM to another. */
#include <guest/mem.h>
#include <guest/string.h>
#include <guest/test.h>
#include <guest/thread.h>
#include <guest/vcpu.h>

#define ROUNDS 20

struct regs {
    u64 gpr[13]; /* all but RAX, RSP and the pointer to this, RDI */
    u64 dr[4], dr6, dr7;
    u8 vec[16][64] __attribute__((aligned(64))); /* ZMM, YMM or XMM */
    u32 mxcsr, fcw;
};

static u32 seed;

/* Loads the GPRs from where RDI points to, yields by TAKT_HC_YIELD, and stores them. */
__asm__(
    ".pushsection .text\n"
    ".macro GPRS op\n"
    "  \\op 0, %rbx; \\op 8, %rcx; \\op 16, %rdx; \\op 24, %rbp; \\op 32, %rsi; \\op 40, %r8; \\op "
    "48, %r9\n"
    "  \\op 56, %r10; \\op 64, %r11; \\op 72, %r12; \\op 80, %r13; \\op 88, %r14; \\op 96, %r15\n"
    ".endm\n"
    ".macro LOAD off, reg\n  mov \\off(%rdi), \\reg\n.endm\n"
    ".macro STORE off, reg\n  mov \\reg, \\off(%rdi)\n.endm\n"
    "yield_vmmcall:\n"
    "  push %rbx; push %rbp; push %r12; push %r13; push %r14; push %r15\n"
    "  GPRS LOAD\n"
    "  mov $4, %eax; vmmcall\n"
    "  GPRS STORE\n"
    "  pop %r15; pop %r14; pop %r13; pop %r12; pop %rbp; pop %rbx; ret\n"
    "yield_vmcall:\n"
    "  push %rbx; push %rbp; push %r12; push %r13; push %r14; push %r15\n"
    "  GPRS LOAD\n"
    "  mov $4, %eax; vmcall\n"
    "  GPRS STORE\n"
    "  pop %r15; pop %r14; pop %r13; pop %r12; pop %rbp; pop %rbx; ret\n"
    ".popsection");
void yield_vmmcall(struct regs *r);
void yield_vmcall(struct regs *r);

static u64 next_random(u64 *state) {
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    return *state ^ *state >> 29;
}

/* ---- MSRs ---- */

static const struct {
    u32 msr;
    const char *name;
    u64 mask;     /* the bits that may have any value */
    bool address; /* it holds an address, which must be canonical */
} msrs[] = {
    { MSR_STAR, "STAR", ~0ull, false },
    { MSR_LSTAR, "LSTAR", ~0ull, true },
    { MSR_CSTAR, "CSTAR", ~0ull, true },
    { MSR_FMASK, "FMASK", 0xffffffff, false },
    { MSR_KERNEL_GS_BASE, "KERNEL_GS_BASE", ~0ull, true },
    { MSR_FS_BASE, "FS_BASE", ~0ull, true },
    { MSR_SYSENTER_CS, "SYSENTER_CS", 0xffff, false },
    { MSR_SYSENTER_ESP, "SYSENTER_ESP", 0xffffffff, true },
    { MSR_SYSENTER_EIP, "SYSENTER_EIP", 0xffffffff, true },
    { MSR_TSC_AUX, "TSC_AUX", 0xffffffff, false },
};
static const u8 pat_types[] = { 0, 1, 4, 5, 6, 7 };

static bool has_msr(unsigned i) {
    return msrs[i].msr != MSR_TSC_AUX || cpuid(0x80000001, 0).edx & BIT(27);
}

static u64 msr_value(unsigned i, u64 *rnd) {
    u64 v = next_random(rnd) & msrs[i].mask;

    if (!msrs[i].address) return v;
    v = (u64)((i64)(v << 17) >> 17); /* bits 47 to 63 are the same */
    if (msrs[i].mask != ~0ull) v &= 0x7fffffff;
    return v;
}

static void write_msrs(u64 *rnd) {
    u64 pat = 0;

    for (unsigned i = 0; i < ARRAY_SIZE(msrs); i++)
        if (has_msr(i)) wrmsr(msrs[i].msr, msr_value(i, rnd));
    for (unsigned i = 1; i < 8; i++)
        pat |= (u64)pat_types[next_random(rnd) % ARRAY_SIZE(pat_types)] << 8 * i;
    wrmsr(MSR_PAT, pat | 6); /* entry 0 is what our memory is */
}

/* What an instruction finds, not only what RDMSR is told. */
static void check_in_use(void) {
    u64 want = rdmsr(MSR_KERNEL_GS_BASE), got;
    u32 lo, hi, aux;

    __asm__ volatile("swapgs; rdmsr; swapgs" : "=a"(lo), "=d"(hi) : "c"(MSR_GS_BASE));
    got = (u64)hi << 32 | lo;
    CHECK(got == want, "SWAPGS finds %lx instead of %lx", got, want);
    if (!has_msr(ARRAY_SIZE(msrs) - 1)) return;
    __asm__ volatile("rdtscp" : "=c"(aux) : : "rax", "rdx");
    CHECK(aux == rdmsr(MSR_TSC_AUX), "RDTSCP finds %x instead of %lx", aux, rdmsr(MSR_TSC_AUX));
}

static void check_msrs(u64 *rnd) {
    u64 pat = 6, got;

    for (unsigned i = 0; i < ARRAY_SIZE(msrs); i++) {
        u64 want;

        if (!has_msr(i)) continue;
        want = msr_value(i, rnd);
        got = rdmsr(msrs[i].msr);
        CHECK(got == want, "%s is %lx instead of %lx", msrs[i].name, got, want);
    }
    for (unsigned i = 1; i < 8; i++)
        pat |= (u64)pat_types[next_random(rnd) % ARRAY_SIZE(pat_types)] << 8 * i;
    check_in_use();
    got = rdmsr(MSR_PAT);
    CHECK(got == pat, "PAT is %lx instead of %lx", got, pat);
}

/* ---- debug registers, XCR0, CR2, CR8, segments ---- */

/* A data segment: that of the kernel, or another one. */
static u16 data_selector(u64 *rnd, u16 other) {
    if (next_random(rnd) & 1) return SEL_DATA;
    return other;
}

static void write_others(struct regs *r, u64 *rnd) {
    u16 ds, es;

    for (unsigned i = 0; i < 4; i++) r->dr[i] = next_random(rnd) & 0x7ffffffffff8;
    r->dr6 = 0xffff0ff0 | (next_random(rnd) & 0xf) | (next_random(rnd) & BIT(14));
    r->dr7 = 0x400 | (next_random(rnd) & 0xffff0000); /* kinds and sizes, none enabled */
    __asm__ volatile(
        "mov %0, %%dr0; mov %1, %%dr1; mov %2, %%dr2; mov %3, %%dr3; mov %4, %%dr6; mov %5, %%dr7"
        :
        : "r"(r->dr[0]), "r"(r->dr[1]), "r"(r->dr[2]), "r"(r->dr[3]), "r"(r->dr6), "r"(r->dr7));
    write_cr2(next_random(rnd));
    write_cr8(next_random(rnd) & 7);
    ds = data_selector(rnd, SEL_USER_DATA);
    es = data_selector(rnd, 0);
    __asm__ volatile("mov %0, %%ds; mov %1, %%es" : : "r"(ds), "r"(es));
}

static void check_others(struct regs *r, u64 *rnd) {
    u64 d[6], cr2, cr8;
    u16 ds, es, want;

    for (unsigned i = 0; i < 7; i++) next_random(rnd); /* those that the debug registers got */
    __asm__ volatile(
        "mov %%dr0, %0; mov %%dr1, %1; mov %%dr2, %2; mov %%dr3, %3; mov %%dr6, %4; mov %%dr7, %5"
        : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3]), "=r"(d[4]), "=r"(d[5]));
    for (unsigned i = 0; i < 4; i++)
        CHECK(d[i] == r->dr[i], "DR%u is %lx instead of %lx", i, d[i], r->dr[i]);
    CHECK(d[4] == r->dr6, "DR6 is %lx instead of %lx", d[4], r->dr6);
    CHECK(d[5] == r->dr7, "DR7 is %lx instead of %lx", d[5], r->dr7);
    cr2 = next_random(rnd);
    CHECK(read_cr2() == cr2, "CR2 is %lx instead of %lx", read_cr2(), cr2);
    cr8 = next_random(rnd) & 7;
    CHECK(read_cr8() == cr8, "CR8 is %lx instead of %lx", read_cr8(), cr8);
    __asm__ volatile("mov %%ds, %0; mov %%es, %1" : "=r"(ds), "=r"(es));
    want = data_selector(rnd, SEL_USER_DATA);
    CHECK(ds == want, "DS is %x instead of %x", ds, want);
    want = data_selector(rnd, 0);
    CHECK(es == want, "ES is %x instead of %x", es, want);
}

/* ---- vector registers: the compiler does not use them, so they keep their values from one
 * function to the next ---- */

#define VEC16(op, pre)                                                                             \
    op(0, pre) op(1, pre) op(2, pre) op(3, pre) op(4, pre) op(5, pre) op(6, pre) op(7, pre)        \
        op(8, pre) op(9, pre) op(10, pre) op(11, pre) op(12, pre) op(13, pre) op(14, pre)          \
            op(15, pre)
#define LOAD_XMM(n, p)  "movups " #n "*64(%0), %%xmm" #n "\n"
#define LOAD_YMM(n, p)  "vmovups " #n "*64(%0), %%ymm" #n "\n"
#define LOAD_ZMM(n, p)  "vmovups " #n "*64(%0), %%zmm" #n "\n"
#define STORE_XMM(n, p) "movups %%xmm" #n ", " #n "*64(%0)\n"
#define STORE_YMM(n, p) "vmovups %%ymm" #n ", " #n "*64(%0)\n"
#define STORE_ZMM(n, p) "vmovups %%zmm" #n ", " #n "*64(%0)\n"

/* How many bytes of a vector register XCR0 lets this vCPU use. */
static unsigned width(u64 xcr0) {
    if ((xcr0 & 0xe7) == 0xe7 && cpuid(7, 0).ebx & BIT(16)) return 64;
    if ((xcr0 & 7) == 7 && cpuid(1, 0).ecx & BIT(28)) return 32;
    return 16;
}

static void load_vectors(struct regs *r, u64 *rnd, unsigned width) {
    for (unsigned i = 0; i < 16; i++)
        for (unsigned j = 0; j < 64; j++) r->vec[i][j] = next_random(rnd) >> 13;
    r->mxcsr = 0x1f80 ^ (next_random(rnd) & 0x6000);
    r->fcw = 0x37f ^ (next_random(rnd) & 0xc00);
    if (width == 64)
        __asm__ volatile(VEC16(LOAD_ZMM, ) : : "r"(r->vec) : "memory");
    else if (width == 32)
        __asm__ volatile(VEC16(LOAD_YMM, ) : : "r"(r->vec) : "memory");
    else
        __asm__ volatile(VEC16(LOAD_XMM, ) : : "r"(r->vec) : "memory");
    __asm__ volatile("ldmxcsr %0; fninit; fldcw %1; fldpi; fld1" : : "m"(r->mxcsr), "m"(r->fcw));
    if (width == 64)
        __asm__ volatile("kmovw %k0, %%k1; kmovw %k1, %%k7"
                         :
                         : "r"(r->mxcsr ^ seed), "r"(r->fcw ^ seed));
}

static void check_vectors(const struct regs *r, unsigned width) {
    static struct regs seen[TAKT_MAX_VCPUS];
    struct regs *s = &seen[this_vcpu()->id];
    u32 mxcsr = 0, k1 = 0, k7 = 0;
    u16 fcw = 0, fsw = 0;

    if (width == 64)
        __asm__ volatile(VEC16(STORE_ZMM, ) : : "r"(s->vec) : "memory");
    else if (width == 32)
        __asm__ volatile(VEC16(STORE_YMM, ) : : "r"(s->vec) : "memory");
    else
        __asm__ volatile(VEC16(STORE_XMM, ) : : "r"(s->vec) : "memory");
    __asm__ volatile("stmxcsr %0; fnstcw %1; fnstsw %2" : "=m"(mxcsr), "=m"(fcw), "=m"(fsw));
    for (unsigned i = 0; i < 16; i++)
        CHECK(!memcmp(s->vec[i], r->vec[i], width), "vector register %u has changed", i);
    CHECK(mxcsr == r->mxcsr, "MXCSR is %x instead of %x", mxcsr, r->mxcsr);
    CHECK(fcw == r->fcw, "FCW is %x instead of %x", fcw, r->fcw);
    CHECK((fsw >> 11 & 7) == 6, "the x87 stack's top is %u instead of 6", fsw >> 11 & 7);
    if (width == 64) {
        __asm__ volatile("kmovw %%k1, %0; kmovw %%k7, %1" : "=r"(k1), "=r"(k7));
        CHECK(k1 == (u16)(r->mxcsr ^ seed) && k7 == (u16)(r->fcw ^ seed), "opmask registers %x %x",
              k1, k7);
    }
}

/* ---- */

static u64 set_xcr0(u64 v) {
    if (!(cpuid(1, 0).ecx & BIT(26))) return 3;
    write_cr4(read_cr4() | CR4_OSXSAVE);
    __asm__ volatile("xsetbv" : : "a"((u32)v), "d"(0), "c"(0));
    return v;
}

static void check_xcr0(u64 want) {
    u32 lo, hi;

    if (!(read_cr4() & CR4_OSXSAVE)) return;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    CHECK(((u64)hi << 32 | lo) == want, "XCR0 is %x%08x instead of %lx", hi, lo, want);
}

static void work(void *arg) {
    static struct regs all[TAKT_MAX_VCPUS], kept[TAKT_MAX_VCPUS];
    u32 me = this_vcpu()->id;
    struct regs *r = &all[me], *before = &kept[me];
    bool vmmcall = cpuid(TAKT_CPUID_ABI, 0).ebx & TAKT_FEAT_VMMCALL;
    u64 rnd = (u64)seed << 32 | me << 8 | 1, f;

    preempt_disable();
    f = irq_save();
    for (unsigned i = 0; i < ROUNDS; i++) {
        u64 xcr0 = cpuid(0xd, 0).eax, start = rnd;
        unsigned w;

        /* Every second vCPU enables only x87 and SSE in every second round. */
        if (i & me & 1) xcr0 = 3;
        xcr0 = set_xcr0(xcr0);
        w = width(xcr0);

        write_msrs(&rnd);
        write_others(r, &rnd);
        load_vectors(r, &rnd, w);
        for (unsigned g = 0; g < ARRAY_SIZE(r->gpr); g++) r->gpr[g] = next_random(&rnd);
        *before = *r;
        for (unsigned n = 0; n < 3; n++) {
            if (vmmcall)
                yield_vmmcall(r);
            else
                yield_vmcall(r);
        }
        for (unsigned g = 0; g < ARRAY_SIZE(r->gpr); g++)
            CHECK(r->gpr[g] == before->gpr[g], "GPR %u is %lx instead of %lx", g, r->gpr[g],
                  before->gpr[g]);
        check_vectors(before, w);
        check_xcr0(xcr0);
        check_msrs(&start);
        check_others(before, &start);
        __asm__ volatile("mov %0, %%ds; mov %0, %%es; fninit" : : "r"(SEL_DATA));
        write_cr8(0);
    }
    irq_restore(f);
    preempt_enable();
}

int main(void) {
    struct thread *t;

    test_begin();
    test_needs_takt();
    seed = cmdline_u64("vm", 7) * 0x9e3779b1;
    if (vcpu_start_all() < 2) test_error("one vCPU only");
    t = thread_start(1, "work", work, NULL);
    work(NULL);
    thread_join(t);
    return test_end("every register is each vCPU's own");
}
