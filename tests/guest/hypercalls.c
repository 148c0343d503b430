/* time: 1500 */
/* Hypercalls with numbers, pointers and modes that make no sense return an error and do nothing
 * else. Code at CPL 3 may not make any, or each program in a guest could shut its VM down. */
#include <guest/event.h>
#include <guest/mem.h>
#include <guest/string.h>
#include <guest/test.h>
#include <guest/time.h>
#include <guest/vcpu.h>
#include <guest/x86.h>

#define HIGH_DIRT 0xdeadbeef00000000ull

static void numbers(void) {
    static const u32 some[] = { 30,   32,     63,         128,        129,        255,       256,
                                1000, 0x3fff, 0x7fffffff, 0x80000000, 0xfffffffe, 0xffffffff };
    u64 rnd = 12345;

    for (unsigned i = 0; i < ARRAY_SIZE(some); i++)
        CHECK(hypercall(some[i], 1, 2, 3, 4) == -ENOSYS, "number %x", some[i]);
    for (unsigned i = 0; i < 500; i++) {
        u32 n = (rnd = rnd * 6364136223846793005ull + 1442695040888963407ull) >> 32;
        i64 want = -ENOSYS;

        if (n >= TAKT_HC_CONTROL && n <= TAKT_HC_CONTROL_LAST) want = -EPERM;
        if (n > TAKT_HC_STORE_NOTIFY) CHECK(hypercall(n, rnd, ~rnd, 0, 1) == want, "number %x", n);
    }
    for (u32 n = TAKT_HC_CONTROL; n <= TAKT_HC_CONTROL_LAST; n++)
        CHECK(hypercall(n, 0, 0, 0, 0) == -EPERM, "control call %u", n);
    CHECK(hypercall0(TAKT_HC_VERSION) == TAKT_ABI_VERSION, "version");
}

/* Calls that can do no harm: no shutdown, no flood of the console, no poll without end. */
static void random_arguments(void) {
    static const u32 calls[] = { TAKT_HC_EVTCHN_ALLOC, TAKT_HC_EVTCHN_BIND,   TAKT_HC_EVTCHN_SEND,
                                 TAKT_HC_EVTCHN_MASK,  TAKT_HC_EVTCHN_CLOSE,  TAKT_HC_EVTCHN_VECTOR,
                                 TAKT_HC_VCPU_INFO,    TAKT_HC_IO_REPORT,     TAKT_HC_BACK_PORT,
                                 TAKT_HC_BACK_LIST,    TAKT_HC_BACK_OFFER,    TAKT_HC_BACK_STATE,
                                 TAKT_HC_BACK_MAP,     TAKT_HC_BACK_UNMAP,    TAKT_HC_BACK_IRQ,
                                 TAKT_HC_BACK_BROKEN,  TAKT_HC_STORE_CONNECT, TAKT_HC_STORE_NOTIFY,
                                 TAKT_HC_IO_CLASS };
    u64 rnd = 99, a[4];

    for (unsigned i = 0; i < 2000; i++) {
        i64 r;

        for (unsigned j = 0; j < 4; j++) {
            rnd = rnd * 6364136223846793005ull + 1442695040888963407ull;
            a[j] = rnd >> (rnd & 63);
        }
        if (calls[i % ARRAY_SIZE(calls)] == TAKT_HC_VCPU_INFO) a[1] |= 1ull << 40; /* never RAM */
        r = hypercall(calls[i % ARRAY_SIZE(calls)], a[0], a[1], a[2], a[3]);
        CHECK(r >= -200 && r < TAKT_MAX_PORTS, "call %u gives %lx", calls[i % ARRAY_SIZE(calls)],
              r);
    }
    for (u32 p = 0; p < TAKT_MAX_PORTS; p++) event_close(p);
}

static void pointers(void) {
    static const u64 bad[] = { TAKT_LAPIC_GPA,     TAKT_INFO_GPA,
                               TAKT_SHARED_GPA,    TAKT_LOW_RAM_MAX,
                               0xd0000000,         0xfffffff0,
                               1ull << 32,         1ull << 40,
                               1ull << 52,         0x0000900000000000,
                               0x7fffffffffffffff, 0xffff800000000000,
                               0xffffffff80000000, ~0ull,
                               ~0ull - 15 };
    u64 end = mem_ram(); /* start page apart, RAM is in one piece */
    struct takt_vcpu_info copy;

    for (unsigned i = 0; i < ARRAY_SIZE(bad); i++) {
        CHECK(hypercall2(TAKT_HC_CONSOLE_WRITE, bad[i], 16) == -EFAULT, "console from %lx", bad[i]);
        CHECK(hypercall2(TAKT_HC_CONSOLE_READ, bad[i], 16) == -EFAULT, "console to %lx", bad[i]);
        CHECK(hypercall2(TAKT_HC_VCPU_INFO, 0, bad[i]) == -EFAULT, "info to %lx", bad[i]);
    }
    end = ALIGN_UP(end, 0x200000);
    CHECK(hypercall2(TAKT_HC_CONSOLE_WRITE, end - 8, 16) == -EFAULT,
          "console over the end of RAM at %lx", end);
    CHECK(hypercall2(TAKT_HC_VCPU_INFO, 0, end - 8) == -EFAULT, "info over the end of RAM");
    CHECK(hypercall2(TAKT_HC_CONSOLE_WRITE, 0x1000, 4097) == -EINVAL, "4097 bytes");
    CHECK(hypercall2(TAKT_HC_CONSOLE_WRITE, 0x1000, ~0ull) == -EINVAL, "2^64 - 1 bytes");
    CHECK(hypercall2(TAKT_HC_CONSOLE_WRITE, ~0ull, 1ull << 32) == -EINVAL, "2^32 bytes");
    CHECK(hypercall2(TAKT_HC_CONSOLE_WRITE, (u64) "", 0) == 0, "no bytes");
    CHECK(hypercall2(TAKT_HC_VCPU_INFO, vcpu_count(), (u64)&copy) == -EINVAL,
          "info of a vCPU too many");
    CHECK(hypercall2(TAKT_HC_VCPU_INFO, ~0ull, (u64)&copy) == -EINVAL, "info of vCPU -1");
    memset(&copy, 0, sizeof(copy));
    CHECK(hypercall2(TAKT_HC_VCPU_INFO, 0, (u64)&copy) == 0, "info");
    CHECK(copy.tsc_khz == tsc_khz() && !(copy.seq & 1), "info has %lu kHz, sequence %u",
          copy.tsc_khz, copy.seq);
}

/* ---- other modes ---- */

void compat_vmmcall(void), compat_vmcall(void), user_vmcall(void), user_vmmcall(void),
    user_compat_vmmcall(void), user_compat_vmcall(void);
__asm__(".pushsection .text\n"
        "user_vmmcall: mov %rdi, %rax; vmmcall; int $0x81\n"
        "user_vmcall: mov %rdi, %rax; vmcall; int $0x81\n"
        ".code32\n"
        "user_compat_vmmcall: mov %edi, %eax; vmmcall; int $0x81\n"
        "user_compat_vmcall: mov %edi, %eax; vmcall; int $0x81\n"
        "compat_vmmcall: vmmcall; ret\n"
        "compat_vmcall: vmcall; ret\n"
        ".code64\n"
        ".popsection");

static bool is_amd(void) { return cpuid(TAKT_CPUID_ABI, 0).ebx & TAKT_FEAT_VMMCALL; }

/* A hypercall from 32-bit code at CPL 0. */
static void call_from_32(struct compat_regs *r) {
    if (is_amd())
        compat_call(compat_vmmcall, r);
    else
        compat_call(compat_vmcall, r);
}

/* Hypercall n at CPL 3. *rax receives the result. */
static struct exception call_from_user(u32 n, bool in_32_bits, u64 *rax) {
    if (in_32_bits && is_amd()) return user_run(user_compat_vmmcall, n, true, rax);
    if (in_32_bits) return user_run(user_compat_vmcall, n, true, rax);
    if (is_amd()) return user_run(user_vmmcall, n, false, rax);
    return user_run(user_vmcall, n, false, rax);
}

static void modes(void) {
    struct compat_regs r;
    struct exception e;
    u64 rax;

    for (u32 n = 0; n <= 20; n++) {
        e = call_from_user(n, false, &rax);
        check_exception(e.vector, EXC_NONE, "hypercall at CPL 3");
        CHECK((i64)rax == -EPERM, "call %u at CPL 3: %lx", n, rax);
        e = call_from_user(n, true, &rax);
        check_exception(e.vector, EXC_NONE, "hypercall at CPL 3, 32 bits");
        CHECK((i32)rax == -EPERM, "call %u at CPL 3, 32 bits: %lx", n, rax);
    }
    r = (struct compat_regs){ .rax = TAKT_HC_VERSION | HIGH_DIRT };
    call_from_32(&r);
    CHECK((u32)r.rax == TAKT_ABI_VERSION, "version from 32 bits: %lx", r.rax);
    r = (struct compat_regs){ .rax = 0x3fff | HIGH_DIRT, .rbx = ~0ull };
    call_from_32(&r);
    CHECK((u32)r.rax == (u32)-ENOSYS, "unknown from 32 bits: %lx", r.rax);
    /* From 32 bits the upper halves of registers do not count: a pointer means the same with
     * rubbish in its upper half. */
    for (unsigned dirty = 0; dirty < 2; dirty++) {
        u64 d = dirty * HIGH_DIRT;
        struct takt_vcpu_info copy = { 0 };

        r = (struct compat_regs){ .rax = TAKT_HC_VCPU_INFO | d, .rbx = d, .rcx = (u64)&copy | d };
        call_from_32(&r);
        CHECK((u32)r.rax == 0 && copy.tsc_khz == tsc_khz(), "info from 32 bits, dirt %lx: %lx", d,
              r.rax);
    }
    /* From 64 bits they do count. */
    CHECK(hypercall2(TAKT_HC_VCPU_INFO, 1ull << 32, 0x1000) == -EINVAL, "vCPU 2^32");
    CHECK(hypercall1(TAKT_HC_EVTCHN_SEND, 1ull << 32) == -EINVAL, "port 2^32");
}

static void other_instruction(void) {
    u8 v;

    if (is_amd())
        v = FAULT_OF("vmcall", : : "a"(0) : "memory");
    else
        v = FAULT_OF("vmmcall", : : "a"(0) : "memory");
    CHECK(v == EXC_UD || v == EXC_NONE, "the other vendor's instruction: %s", exception_name(v));
}

int main(void) {
    test_begin();
    test_needs_takt();
    numbers();
    pointers();
    random_arguments();
    modes();
    other_instruction();
    return test_end("nonsense is an error");
}
