/* The handlers of exits by which a guest sees its CPU: CPUID, MSRs and control registers. */
#include <takt/seed.h>
#include "exit_rig.h"
#include "x86/tsc.h"

/* ---- CPUID ---- */

static void cpuid_exit(u32 leaf, u32 sub) {
    gpr[REG_RAX] = leaf | 0xdead00000000;
    gpr[REG_RCX] = sub | 0xdead00000000;
    gpr[REG_RBX] = gpr[REG_RDX] = ~0ull;
    assert_int_equal(handle((struct vm_exit){ .reason = EXIT_CPUID }), NO_GP);
    assert_true((gpr[REG_RAX] | gpr[REG_RBX] | gpr[REG_RCX] | gpr[REG_RDX]) >> 32 == 0);
}

static bool reads_zero(void) {
    return (gpr[REG_RAX] | gpr[REG_RBX] | gpr[REG_RCX] | gpr[REG_RDX]) == 0;
}

static void test_cpuid_unlisted(void **state) {
    static const u32 hidden[] = { 3,          5,          8,          9,          0xa,
                                  0xc,        0xe,        0xf,        0x10,       0x12,
                                  0x14,       0x15,       0x16,       0x1f,       0x20,
                                  0x40000005, 0x40000010, 0x400000ff, 0x8000000a, 0x8000001e,
                                  0x8000001f, 0x8fffffff, ~0u };
    u32 seed = 1;

    for (u32 i = 0; i < ARRAY_SIZE(hidden); i++) {
        cpuid_exit(hidden[i], 0);
        assert_true(reads_zero());
    }
    for (u32 i = 0; i < 100000; i++) {
        seed = seed * 1664525 + 1013904223;
        if (seed < 0x100 || (seed & 0xffffff00) == 0x40000000 || (seed & 0xffffff00) == 0x80000000)
            continue;
        cpuid_exit(seed, seed);
        assert_true(reads_zero());
    }
}

static void test_cpuid_features(void **state) {
    cpuid_exit(0, 0);
    assert_int_equal(gpr[REG_RAX], 0xd);
    cpuid_exit(1, 0);
    assert_int_equal(gpr[REG_RCX] & 0x80200000, 0x80200000); /* hypervisor, x2APIC */
    /* The guest does not see OSXSAVE, PCID, PDCM, VMX, SMX and MONITOR. */
    assert_int_equal(gpr[REG_RCX] & 0x08028068, 0);
    assert_int_equal(gpr[REG_RDX] & 0xf0640400, 0x10000000); /* HTT; no PBE, TM, ACPI, DS, PSN */
    assert_int_equal(gpr[REG_RBX] >> 24, 0);
    assert_int_equal(gpr[REG_RBX] >> 16 & 0xff, 4); /* 3 vCPUs take 4 ids */
    fake_of(v)->reg[VREG_CR4] |= BIT(18);
    cpuid_exit(1, 0);
    assert_true(gpr[REG_RCX] & BIT(27));
    cpuid_exit(6, 0);
    assert_int_equal(gpr[REG_RAX], 4); /* ARAT alone */
    cpuid_exit(7, 0);
    assert_int_equal(gpr[REG_RBX] & 0x00004c12, 0); /* TSC_ADJUST, HLE, INVPCID, RTM, MPX */
    assert_int_equal(gpr[REG_RCX] & 0x00010038, 0); /* PKU, OSPKE, WAITPKG, LA57 */
    assert_int_equal(gpr[REG_RDX] & 0xfc000000, 0); /* speculation control */
    cpuid_exit(0x80000001, 0);
    assert_int_equal(gpr[REG_RCX] & 4, 0); /* SVM */
    cpuid_exit(0x80000008, 0);
    assert_in_range(gpr[REG_RAX] & 0xff, 36, 48);
    assert_int_equal(gpr[REG_RAX] >> 8, 48);
}

static void test_cpuid_topology(void **state) {
    cpuid_exit(0xb, 0);
    assert_int_equal(gpr[REG_RAX], 0);
    assert_int_equal(gpr[REG_RCX], 0x100);
    cpuid_exit(0xb, 1);
    assert_int_equal(gpr[REG_RAX], 2);
    assert_int_equal(gpr[REG_RBX], 3);
    assert_int_equal(gpr[REG_RCX], 0x201);
    cpuid_exit(0xb, 7);
    assert_int_equal(gpr[REG_RCX], 7);
    assert_int_equal(gpr[REG_RBX], 0);
}

static void test_cpuid_xsave(void **state) {
    u32 full;

    if (!cpuid_guest_has(1, 2, 26)) skip();
    fake_of(v)->reg[VREG_XCR0] = 1;
    cpuid_exit(0xd, 0);
    assert_int_equal(gpr[REG_RAX], cpuid_xcr0_allowed());
    assert_int_equal(gpr[REG_RBX], 576);
    full = (u32)gpr[REG_RCX];
    fake_of(v)->reg[VREG_XCR0] = cpuid_xcr0_allowed();
    cpuid_exit(0xd, 0);
    assert_int_equal(gpr[REG_RBX], full);
    if (!(cpuid_xcr0_allowed() & 4)) skip();
    fake_of(v)->reg[VREG_XCR0] = 7;
    cpuid_exit(0xd, 0);
    assert_int_equal(gpr[REG_RBX], 576 + 256);
    cpuid_exit(0xd, 2);
    assert_int_equal(gpr[REG_RAX], 256);
    cpuid_exit(0xd, 9);
    assert_true(reads_zero());
    cpuid_exit(0xd, 1);
    assert_int_equal(gpr[REG_RAX] & ~7ull, 0);
}

static void test_cpuid_takt(void **state) {
    cpuid_exit(TAKT_CPUID_BASE, 0);
    assert_int_equal(gpr[REG_RAX], 0x40000004);
    assert_memory_equal(&gpr[REG_RBX], "Takt", 4);
    cpuid_exit(TAKT_CPUID_ABI, 0);
    assert_int_equal(gpr[REG_RAX], TAKT_ABI_VERSION);
    assert_int_equal(gpr[REG_RCX], vm->id);
    assert_int_equal(gpr[REG_RDX], 0);
    cpuid_exit(TAKT_CPUID_INFO, 0);
    assert_int_equal(gpr[REG_RAX], TAKT_SHARED_GPA);
    assert_int_equal(gpr[REG_RCX], 3);
    vm_seed = 0x1122334455667788;
    cpuid_exit(TAKT_CPUID_SEED, 0);
    assert_int_equal(gpr[REG_RAX], 0x55667788);
    assert_int_equal(gpr[REG_RBX], 0x11223344);
    assert_int_equal(gpr[REG_RCX] | gpr[REG_RDX] << 32, seed_of_vm(vm_seed, "guest"));
    cpuid_exit(TAKT_CPUID_PC + TAKT_CPUID_BASE, 0); /* only a PC has leaves there */
    assert_true(reads_zero());
}

/* ---- MSRs ---- */

static u32 rd(u32 msr) {
    gpr[REG_RCX] = msr | 0xdead00000000;
    gpr[REG_RAX] = gpr[REG_RDX] = ~0ull;
    return handle((struct vm_exit){ .reason = EXIT_RDMSR });
}

static u64 value(void) {
    assert_true((gpr[REG_RAX] | gpr[REG_RDX]) >> 32 == 0);
    return gpr[REG_RDX] << 32 | gpr[REG_RAX];
}

static u32 wr(u32 msr, u64 val) {
    gpr[REG_RCX] = msr;
    gpr[REG_RAX] = (u32)val | 0xdead00000000;
    gpr[REG_RDX] = val >> 32 | 0xdead00000000;
    return handle((struct vm_exit){ .reason = EXIT_WRMSR });
}

static void test_msr_unlisted(void **state) {
    static const u32 hidden[] = {
        0,          1,          0x11,       0x3b,       0x48,       0x49,      0xc1,
        0xce,       0xfe,       0x200,      0x250,      0x2ff,      0xe7,      0x10b,
        0x186,      0x1aa,      0x1ad,      0x1fc,      0x1fff,     0x2000,    0x345,
        0x38f,      0x3f1,      0x400,      0x480,      0x570,      0x7ff,     0x900,
        0xbff,      0xd90,      0xda0,      0xc00,      0x1000,     ~0u,       0xc0000085,
        0xc0000104, 0xc0001fff, 0xc0002000, 0xc0010114, 0xc0010117, 0x40000000
    };

    for (u32 i = 0; i < ARRAY_SIZE(hidden); i++) {
        assert_int_equal(rd(hidden[i]), EXC_GP);
        assert_int_equal(wr(hidden[i], 0), EXC_GP);
    }
    for (u32 m = 0x820; m < 0x900; m++) /* holes of the x2APIC, while it is not even on */
        assert_int_equal(rd(m), EXC_GP);
}

static void test_msr_values(void **state) {
    assert_int_equal(rd(0x1b), NO_GP);
    assert_int_equal(value(), 0xfee00900);
    assert_int_equal(rd(0x3a), NO_GP);
    assert_int_equal(value(), 1);
    assert_int_equal(wr(0x3a, 5), EXC_GP);
    assert_int_equal(wr(0x79, 0x1234), NO_GP); /* dropped */
    assert_int_equal(rd(0x10), NO_GP);
    assert_true(value() <= rdtsc() + vm->tsc_offset);
    assert_int_equal(wr(0x10, 0), NO_GP); /* dropped: it never stops */
    assert_int_equal(v->virt.tsc_offset, vm->tsc_offset);
    assert_int_equal(wr(0x1b, 0xfee00000 | 0x1000 | 0x900), EXC_GP); /* its page stays */
}

static void test_msr_addresses(void **state) {
    static const u32 addr[] = { 0x175,      0x176,      0xc0000082, 0xc0000083,
                                0xc0000100, 0xc0000101, 0xc0000102 };

    for (u32 i = 0; i < ARRAY_SIZE(addr); i++) {
        assert_int_equal(wr(addr[i], 0xffff800000001234), NO_GP);
        assert_int_equal(rd(addr[i]), NO_GP);
        assert_int_equal(value(), 0xffff800000001234);
        assert_int_equal(wr(addr[i], 0x0000800000000000), EXC_GP);
        assert_int_equal(wr(addr[i], 0x7fff800000001234), EXC_GP);
    }
    assert_int_equal(wr(0xc0000103, BIT(32)), EXC_GP);
    assert_int_equal(wr(0xc0000084, BIT(32)), EXC_GP);
}

static void test_msr_memory_types(void **state) {
    assert_int_equal(wr(0x277, 0x0007040600070406), NO_GP);
    assert_int_equal(wr(0x277, 0x0007040600070402), EXC_GP);
    assert_int_equal(wr(0x277, 0x0807040600070406), EXC_GP);
    assert_int_equal(fake_of(v)->reg[VREG_PAT], 0x0007040600070406);
}

static void test_msr_efer(void **state) {
    struct fake_vcpu *f = fake_of(v);

    assert_int_equal(wr(0xc0000080, 0x501), NO_GP);
    assert_int_equal(wr(0xc0000080, 0x1501), EXC_GP); /* SVME */
    assert_int_equal(wr(0xc0000080, 0x1), EXC_GP);    /* LME, with paging on */
    f->reg[VREG_CR0] = 0x11;
    f->reg[VREG_EFER] = 0;
    assert_int_equal(wr(0xc0000080, 0xd00), NO_GP);
    assert_int_equal(f->reg[VREG_EFER], 0x900); /* LMA is the CPU's */
}

/* ---- control registers ---- */

static void test_cr0(void **state) {
    struct fake_vcpu *f = fake_of(v);

    assert_int_equal(cr(0, 0x80000010), EXC_GP); /* PG without PE */
    assert_int_equal(cr(0, 0xa0000011), EXC_GP); /* NW without CD */
    assert_int_equal(cr(0, 0x100000000 | 0x80000011), EXC_GP);
    assert_int_equal(cr(0, 0x00000011), EXC_GP); /* out of paging, in 64-bit mode */
    assert_int_equal(cr(0, 0x80010001), NO_GP);
    assert_int_equal(f->reg[VREG_CR0], 0x80010011); /* ET stays */
    f->seg[SEG_CS].attr = 0xc9b;
    assert_int_equal(cr(0, 0x00000011), NO_GP); /* from compatibility mode */
    assert_int_equal(f->reg[VREG_EFER], 0x100);
    f->reg[VREG_CR4] = 0;
    assert_int_equal(cr(0, 0x80000011), EXC_GP); /* long mode without PAE */
    f->reg[VREG_CR4] = 0x20;
    assert_int_equal(cr(0, 0x80000011), NO_GP);
    assert_int_equal(f->reg[VREG_EFER], 0x500);
}

/* With PAE paging the four entries at CR3 are read at once. */
static void test_pae_entries(void **state) {
    struct fake_vcpu *f = fake_of(v);
    u64 entry[4] = { 0x20001, 0, 0x20002, 0x20001 }; /* one that is absent may hold anything */

    f->reg[VREG_CR0] = 0x11;
    f->reg[VREG_EFER] = 0;
    f->reg[VREG_CR3] = BUF + 0x20;
    f->seg[SEG_CS].attr = 0xc9b;
    guestmem_write(&vm->mem, BUF + 0x20, entry, sizeof(entry));
    assert_int_equal(cr(0, 0x80000011), NO_GP);
    assert_int_equal(cr(4, 0xa0), NO_GP);
    entry[3] |= 2;
    guestmem_write(&vm->mem, BUF + 0x20, entry, sizeof(entry));
    assert_int_equal(cr(4, 0x20), EXC_GP);
    assert_int_equal(cr(0, 0x11), NO_GP); /* out of paging nobody looks */
    assert_int_equal(cr(0, 0x80000011), EXC_GP);
    entry[3] = 1ull << 52 | 1;
    guestmem_write(&vm->mem, BUF + 0x20, entry, sizeof(entry));
    assert_int_equal(cr(0, 0x80000011), EXC_GP);
    f->reg[VREG_CR4] = 0;
    assert_int_equal(cr(0, 0x80000011), NO_GP);
    assert_int_equal(cr(4, 0x20), EXC_GP);
}

/* AMD's CPUs read an entry when they need it; and QEMU's has set bit 5 in those that it used. */
static void test_pae_entries_read_late(void **state) {
    const struct virt_ops *fake = virt;
    struct virt_ops late = *fake;
    u64 entry[4] = { 0x20021, 0x20021, 0x20021, 0x20021 };

    fake_of(v)->reg[VREG_CR0] = 0x11;
    fake_of(v)->reg[VREG_EFER] = 0;
    fake_of(v)->reg[VREG_CR3] = BUF;
    fake_of(v)->seg[SEG_CS].attr = 0xc9b;
    guestmem_write(&vm->mem, BUF, entry, sizeof(entry));
    assert_int_equal(cr(0, 0x80000011), EXC_GP);
    late.reads_pdptes = false;
    virt = &late;
    assert_int_equal(cr(0, 0x80000011), NO_GP);
    assert_int_equal(cr(4, 0xa0), NO_GP);
    virt = fake;
}

static void test_cr4_cr8(void **state) {
    assert_int_equal(cr(4, 0x20 | 0x2000), EXC_GP);  /* VMXE */
    assert_int_equal(cr(4, 0x20 | 0x20000), EXC_GP); /* PCIDE */
    assert_int_equal(cr(4, 0x20 | 0x1000), EXC_GP);  /* LA57 */
    assert_int_equal(cr(4, 0x20 | BIT(63)), EXC_GP);
    assert_int_equal(cr(4, 0), EXC_GP); /* PAE in long mode */
    assert_int_equal(cr(4, 0x6a0), NO_GP);
    assert_int_equal(fake_of(v)->reg[VREG_CR4], 0x6a0);
    assert_int_equal(cr(8, 16), EXC_GP);
    assert_int_equal(cr(8, 5), NO_GP);
    assert_int_equal(v->lapic.reg[R_TPR], 0x50);
    assert_int_equal(v->virt.cr8, 5);
    assert_int_equal(cr(3, BIT(60)), EXC_GP);
    assert_int_equal(cr(5, 0), EXC_GP);
    handle((struct vm_exit){ .reason = EXIT_CR, .cr = { .cr = 8, .gpr = 9 } });
    assert_int_equal(gpr[9], 5);
}

static u32 xsetbv(u32 index, u64 val) {
    gpr[REG_RCX] = index;
    gpr[REG_RAX] = (u32)val;
    gpr[REG_RDX] = val >> 32;
    return handle((struct vm_exit){ .reason = EXIT_XSETBV, .insn_len = 3 });
}

static void test_xsetbv(void **state) {
    struct fake_vcpu *f = fake_of(v);
    u64 all = cpuid_xcr0_allowed();

    assert_int_equal(xsetbv(0, 1), EXC_UD); /* OSXSAVE is off */
    f->reg[VREG_CR4] |= BIT(18);
    if (!all) skip();
    assert_int_equal(xsetbv(0, 3), NO_GP);
    assert_int_equal(f->reg[VREG_XCR0], 3);
    assert_int_equal(xsetbv(0, 0), EXC_GP);
    assert_int_equal(xsetbv(0, 2), EXC_GP);
    assert_int_equal(xsetbv(0, 5), EXC_GP);       /* AVX without SSE */
    assert_int_equal(xsetbv(0, 0x27), EXC_GP);    /* part of AVX-512 */
    assert_int_equal(xsetbv(0, 0xe3), EXC_GP);    /* AVX-512 without AVX */
    assert_int_equal(xsetbv(0, 0x60007), EXC_GP); /* AMX */
    assert_int_equal(xsetbv(0, all | BIT(63)), EXC_GP);
    assert_int_equal(xsetbv(1, 3), EXC_GP);
    assert_int_equal(xsetbv(0, all), NO_GP);
    f->cpl = 3;
    assert_int_equal(xsetbv(0, 3), EXC_GP);
    assert_int_equal(f->reg[VREG_XCR0], all);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_cpuid_unlisted),
        TEST(test_cpuid_features),
        TEST(test_cpuid_topology),
        TEST(test_cpuid_xsave),
        TEST(test_cpuid_takt),
        TEST(test_msr_unlisted),
        TEST(test_msr_values),
        TEST(test_msr_addresses),
        TEST(test_msr_efer),
        TEST(test_msr_memory_types),
        TEST(test_cr0),
        TEST(test_pae_entries),
        TEST(test_pae_entries_read_late),
        TEST(test_cr4_cr8),
        TEST(test_xsetbv),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
