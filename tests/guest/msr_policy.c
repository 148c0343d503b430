/* MSRs: those at the edges of the permission bitmaps, those with addresses that have to be
 * canonical, memory types, and those of the machine, which a guest must not reach. */
#include <guest/mem.h>
#include <guest/test.h>
#include <guest/x86.h>

#define NOT_CANONICAL 0x0000900000000000ull
#define CANONICAL     0xffff800012345000ull

static u8 rd(u32 msr) {
    u64 v;

    return rdmsr_fault(msr, &v);
}

static void edges(void) {
    static const u32 none[] = { 0x1ffe,     0x1fff,     0x2000,     0x2001,     0x0fffffff,
                                0x40000000, 0x4b564d00, 0x80000000, 0xbfffffff, 0xc0001ffe,
                                0xc0001fff, 0xc0002000, 0xc0011fff, 0xc0012000, 0xffffffff };

    for (unsigned i = 0; i < ARRAY_SIZE(none); i++) {
        char what[32];

        snprintf(what, sizeof(what), "RDMSR %x", none[i]);
        check_exception(rd(none[i]), EXC_GP, what);
        snprintf(what, sizeof(what), "WRMSR %x", none[i]);
        check_exception(wrmsr_fault(none[i], 0), EXC_GP, what);
    }
}

static void addresses(void) {
    static const u32 msrs[] = { MSR_FS_BASE,      MSR_KERNEL_GS_BASE, MSR_SYSENTER_ESP,
                                MSR_SYSENTER_EIP, MSR_LSTAR,          MSR_CSTAR };

    for (unsigned i = 0; i < ARRAY_SIZE(msrs); i++) {
        u64 old = rdmsr(msrs[i]), got;
        char what[32];
        u8 v = wrmsr_fault(msrs[i], NOT_CANONICAL);

        snprintf(what, sizeof(what), "%x not canonical", msrs[i]);
        /* APM2 6.1.2 lets AMD-V truncate SYSENTER's addresses to 32 bits. */
        if (v != EXC_GP && (msrs[i] == MSR_SYSENTER_ESP || msrs[i] == MSR_SYSENTER_EIP) &&
            !on_takt())
            continue;
        check_exception(v, EXC_GP, what);
        wrmsr(msrs[i], CANONICAL);
        got = rdmsr(msrs[i]);
        CHECK(got == CANONICAL || got == (u32)CANONICAL, "%x keeps %lx", msrs[i], got);
        wrmsr(msrs[i], old);
    }
    check_exception(wrmsr_fault(MSR_GS_BASE, NOT_CANONICAL), EXC_GP, "GS_BASE not canonical");
}

static void types(void) {
    u64 pat = rdmsr(MSR_PAT), v;

    check_exception(wrmsr_fault(MSR_PAT, 0x0007040600070402), EXC_GP, "PAT type 2");
    check_exception(wrmsr_fault(MSR_PAT, 0x0807040600070406), EXC_GP, "PAT type 8");
    check_exception(wrmsr_fault(MSR_PAT, 0x0007040600070403), EXC_GP, "PAT type 3");
    check_exception(wrmsr_fault(MSR_PAT, 0x0007010600070405), EXC_NONE, "a valid PAT");
    CHECK(rdmsr(MSR_PAT) == 0x0007010600070405, "PAT reads %lx", rdmsr(MSR_PAT));
    wrmsr(MSR_PAT, pat);
    if (!(cpuid(1, 0).edx & BIT(12))) {
        check_exception(rdmsr_fault(0xfe, &v), EXC_GP, "MTRRCAP, hidden");
        check_exception(wrmsr_fault(0x250, 0x0202020202020202), EXC_GP, "fixed MTRR, hidden");
        check_exception(wrmsr_fault(0x2ff, 0xc06), EXC_GP, "default MTRR type, hidden");
        check_exception(wrmsr_fault(0x200, 0x80000006), EXC_GP, "variable MTRR, hidden");
        return;
    }
    check_exception(rdmsr_fault(0xfe, &v), EXC_NONE, "MTRRCAP");
    check_exception(wrmsr_fault(0xfe, v), EXC_GP, "WRMSR MTRRCAP");
    check_exception(wrmsr_fault(0x250, 0x0202020202020202), EXC_GP, "fixed MTRR type 2");
    check_exception(wrmsr_fault(0x2ff, 0x803), EXC_GP, "default MTRR type 3");
    if (v & 0xff) {
        check_exception(wrmsr_fault(0x200, 0x80000007), EXC_GP, "variable MTRR type 7");
        check_exception(wrmsr_fault(0x200, 0xfff0000000000006), EXC_GP,
                        "variable MTRR beyond MAXPHYADDR");
        check_exception(wrmsr_fault(0x200, 0x80000006), EXC_NONE, "a variable MTRR");
        check_exception(wrmsr_fault(0x201, 0xf0000800), EXC_NONE, "and its mask");
        /* Overlapping: legal, and nothing of ours. */
        check_exception(wrmsr_fault(0x202, 0x80000000), EXC_NONE, "an overlapping MTRR");
        check_exception(wrmsr_fault(0x203, 0xf0000800), EXC_NONE, "and its mask");
        wrmsr(0x201, 0);
        wrmsr(0x203, 0);
    }
}

static void machine(void) {
    static const u32 writes[] = { 0x3a,       0x79,       0xce,       0x1a0,      0x1ad,
                                  0x1fc,      0x199,      0x19a,      0x1b0,      0x606,
                                  0x610,      0x620,      0x64c,      0x770,      0x774,
                                  0xc0010015, 0xc0010062, 0xc0010114, 0xc0010117, 0xc0010020 };
    u64 before[ARRAY_SIZE(writes)], after;
    u8 readable[ARRAY_SIZE(writes)];

    for (unsigned i = 0; i < ARRAY_SIZE(writes); i++)
        readable[i] = rdmsr_fault(writes[i], &before[i]);
    for (unsigned i = 0; i < ARRAY_SIZE(writes); i++) {
        u8 v = wrmsr_fault(writes[i], 0xffffffffffffffff);

        CHECK(v == EXC_GP || v == EXC_NONE, "WRMSR %x: %s", writes[i], exception_name(v));
        if (readable[i] != EXC_NONE) continue;
        check_exception(rdmsr_fault(writes[i], &after), EXC_NONE, "reading it again");
        CHECK(after == before[i], "MSR %x took a write: %lx instead of %lx", writes[i], after,
              before[i]);
    }
}

static void speculation(void) {
    check_exception(wrmsr_fault(0x48, 0xfffffffffffffff0), EXC_GP, "SPEC_CTRL reserved bits");
    check_exception(wrmsr_fault(0x49, 0xfffffffffffffffe), EXC_GP, "PRED_CMD reserved bits");
    check_exception(wrmsr_fault(0x10b, 0xfffffffffffffffe), EXC_GP, "FLUSH_CMD reserved bits");
}

static void efer(void) {
    u64 e = rdmsr(MSR_EFER);

    check_exception(wrmsr_fault(MSR_EFER, e | BIT(1)), EXC_GP, "EFER reserved bit");
    check_exception(wrmsr_fault(MSR_EFER, e & ~EFER_LME), EXC_GP, "EFER.LME off while paging");
    if (on_takt()) check_exception(wrmsr_fault(MSR_EFER, e | BIT(12)), EXC_GP, "EFER.SVME");
    check_exception(wrmsr_fault(MSR_EFER, e | EFER_NXE),
                    cpuid(0x80000001, 0).edx >> 20 & 1 ? EXC_NONE : EXC_GP, "EFER.NXE");
    check_exception(wrmsr_fault(MSR_EFER, e | EFER_SCE), EXC_NONE, "EFER.SCE");
    CHECK(rdmsr(MSR_EFER) == (e | EFER_SCE), "EFER reads %lx", rdmsr(MSR_EFER));
    wrmsr(MSR_EFER, e);
}

int main(void) {
    test_begin();
    if (on_takt()) {
        edges();
        machine();
        speculation();
    }
    if (!test_on("qemu")) /* whose CPU takes any address, where the MSR is left to the guest */
        addresses();
    types();
    efer();
    return test_end("MSRs by policy");
}
