/* Combinations of bits in control registers that the manual forbids are #GP and change nothing
 * (SDM 3A 2.5). If the hypervisor let one pass, the next entry would fail. */
#include <guest/mem.h>
#include <guest/string.h>
#include <guest/test.h>
#include <guest/x86.h>

static u8 set_cr0(u64 v) {
    exception_clear();
    __asm__ volatile(FIXUP("mov %0, %%cr0") : : "r"(v) : "memory");
    return exception_get().vector;
}

static u8 set_cr3(u64 v) {
    exception_clear();
    __asm__ volatile(FIXUP("mov %0, %%cr3") : : "r"(v) : "memory");
    return exception_get().vector;
}

static u8 set_cr4(u64 v) {
    exception_clear();
    __asm__ volatile(FIXUP("mov %0, %%cr4") : : "r"(v) : "memory");
    return exception_get().vector;
}

static u8 set_cr8(u64 v) {
    exception_clear();
    __asm__ volatile(FIXUP("mov %0, %%cr8") : : "r"(v) : "memory");
    return exception_get().vector;
}

static void cr0(void) {
    u64 old = read_cr0();

    check_exception(set_cr0(old & ~CR0_PE), EXC_GP, "CR0.PG without PE");
    check_exception(set_cr0(old & ~CR0_PG), EXC_GP, "CR0.PG off in 64-bit code");
    check_exception(set_cr0((old & ~CR0_CD) | CR0_NW), EXC_GP, "CR0.NW without CD");
    if (!test_on("qemu")) /* which drops them where nothing else changes */
        check_exception(set_cr0(old | 1ull << 40), EXC_GP, "CR0 beyond 32 bits");
    CHECK(read_cr0() == old, "CR0 is %lx, was %lx", read_cr0(), old);
    check_exception(set_cr0(old & ~CR0_ET), EXC_NONE, "CR0.ET off");
    CHECK(read_cr0() & CR0_ET, "CR0.ET can be cleared");
    check_exception(set_cr0(old & ~CR0_WP), EXC_NONE, "CR0.WP off");
    CHECK(!(read_cr0() & CR0_WP), "CR0.WP stays");
    check_exception(set_cr0(old | CR0_CD | CR0_NW), EXC_NONE, "CR0.CD and NW");
    CHECK((read_cr0() & (CR0_CD | CR0_NW)) == (CR0_CD | CR0_NW) || !on_takt(),
          "CR0.CD is not kept: %lx", read_cr0());
    check_exception(set_cr0(old), EXC_NONE, "CR0 back");
    check_exception(set_cr0(old | CR0_TS), EXC_NONE, "CR0.TS");
    check_exception(FAULT_OF("fninit"), EXC_NM, "x87 with CR0.TS");
    check_exception(FAULT_OF("clts"), EXC_NONE, "CLTS");
    CHECK(read_cr0() == old, "CR0 is %lx after CLTS", read_cr0());
    check_exception(FAULT_OF("smsw %%ax; lmsw %%ax", : : : "rax"), EXC_NONE, "LMSW");
    CHECK(read_cr0() == old, "CR0 is %lx after LMSW", read_cr0());
}

/* While CR0.CD is set, more accesses to CR0 exit than otherwise. They must do the same as ever,
 * also with operands in memory, and with NMIs, interrupts and single steps between them. */
static void cr0_cache_off(void) {
    u64 old = read_cr0(), off = old | CR0_CD;
    volatile u16 word = 0, *nowhere = (volatile u16 *)(1ull << 45);
    u16 reg = 0;

    check_exception(set_cr0(off), EXC_NONE, "CR0.CD");
    for (unsigned i = 0; i < 100; i++) {
        check_exception(FAULT_OF("smsw %0", : "=m"(word) : : "memory"), EXC_NONE, "SMSW to memory");
        __asm__ volatile("smsw %0" : "=r"(reg));
        CHECK(word == (u16)old && reg == (u16)old, "SMSW: %x and %x, not %x", word, reg, (u16)old);
        word |= CR0_TS;
        check_exception(FAULT_OF("lmsw %0",
                                 :
                                 : "m"(word)
                                 : "memory"),
                        EXC_NONE, "LMSW from memory");
        CHECK(read_cr0() == (off | CR0_TS), "CR0 is %lx after LMSW", read_cr0());
        check_exception(FAULT_OF("clts"), EXC_NONE, "CLTS");
        CHECK(read_cr0() == off, "CR0 is %lx after CLTS", read_cr0());
    }
    check_exception(FAULT_OF("lmsw (%0)",
                             :
                             : "r"(nowhere)
                             : "memory"),
                    EXC_PF, "LMSW from nowhere");
    CHECK(read_cr0() == off, "CR0 is %lx, not %lx", read_cr0(), off);
    check_exception(set_cr0(off | CR0_NW), EXC_NONE, "CR0.NW with CD");
    CHECK(read_cr0() == (off | CR0_NW), "CR0 is %lx", read_cr0());
    check_exception(set_cr0(old), EXC_NONE, "CR0.CD and NW off");
    CHECK(read_cr0() == old, "CR0 is %lx, was %lx", read_cr0(), old);
}

/* With CR0.WP a write to a read-only page faults, without it it does not. */
static void write_protection(void) {
    u64 va = 0x10000000000, old = read_cr0();
    u8 *page = page_alloc(1);
    volatile u8 *p = (volatile u8 *)va;

    if (!page || page_map(va, (u64)page, PTE_P)) test_error("no memory");
    for (unsigned i = 0; i < 100; i++) {
        exception_clear();
        __asm__ volatile(FIXUP("movb $1, (%0)") : : "r"(p) : "memory");
        check_exception(exception_get().vector, EXC_PF, "a write to a read-only page");
        set_cr0(old & ~CR0_WP);
        exception_clear();
        __asm__ volatile(FIXUP("movb $2, (%0)") : : "r"(p) : "memory");
        check_exception(exception_get().vector, EXC_NONE, "the same without CR0.WP");
        set_cr0(old);
    }
}

static void cr3(void) {
    u64 old = read_cr3();
    u32 bits = cpuid(0x80000008, 0).eax & 0xff;

    CHECK(bits >= 36 && bits <= 52, "MAXPHYADDR %u", bits);
    if (!test_on("qemu")) { /* as of CR0 */
        check_exception(set_cr3(old | 1ull << bits), EXC_GP, "CR3 beyond MAXPHYADDR");
        check_exception(set_cr3(old | 1ull << 62), EXC_GP, "CR3 bit 62");
    }
    CHECK(read_cr3() == old, "CR3 is %lx, was %lx", read_cr3(), old);
    check_exception(set_cr3(old), EXC_NONE, "CR3 as it was");
}

static void cr4(void) {
    u64 old = read_cr4();

    check_exception(set_cr4(old & ~CR4_PAE), EXC_GP, "CR4.PAE off in long mode");
    check_exception(set_cr4(old | BIT(31)), EXC_GP, "CR4 bit 31");
    check_exception(set_cr4(old | BIT(40)), EXC_GP, "CR4 bit 40");
    if (on_takt()) check_exception(set_cr4(old | CR4_VMXE), EXC_GP, "CR4.VMXE");
    if (!(cpuid(1, 0).ecx & BIT(17)))
        check_exception(set_cr4(old | CR4_PCIDE), EXC_GP, "CR4.PCIDE, hidden");
    check_exception(set_cr4(old | CR4_LA57), EXC_GP, "CR4.LA57 in long mode");
    CHECK(read_cr4() == old, "CR4 is %lx, was %lx", read_cr4(), old);
    check_exception(set_cr4(old | CR4_TSD | CR4_PGE), EXC_NONE, "CR4.TSD and PGE");
    CHECK(read_cr4() == (old | CR4_TSD | CR4_PGE), "CR4 is %lx", read_cr4());
    check_exception(set_cr4(old | CR4_MCE), EXC_NONE, "CR4.MCE on");
    CHECK(read_cr4() == (old | CR4_MCE), "CR4 is %lx with MCE", read_cr4());
    check_exception(set_cr4(old & ~CR4_MCE), EXC_NONE, "CR4.MCE off");
    if (!test_on("qemu")) /* which intercepts reads of CR4 only together with those of CR0 */
        CHECK(read_cr4() == (old & ~CR4_MCE), "CR4 is %lx without MCE", read_cr4());
    check_exception(set_cr4(old), EXC_NONE, "CR4 back");
}

static void cr8(void) {
    if (!test_on("qemu")) { /* as of CR0 */
        check_exception(set_cr8(16), EXC_GP, "CR8 of 16");
        check_exception(set_cr8(1ull << 32), EXC_GP, "CR8 beyond 32 bits");
    }
    for (u64 i = 0; i < 16; i++) {
        check_exception(set_cr8(i), EXC_NONE, "CR8");
        CHECK(read_cr8() == i, "CR8 is %lu instead of %lu", read_cr8(), i);
    }
    set_cr8(0);
}

static void others(void) {
    check_exception(FAULT_OF(".byte 0x0f, 0x20, 0xc8", : : : "rax"), EXC_UD, "MOV from CR1");
    check_exception(FAULT_OF(".byte 0x0f, 0x22, 0xe8", : : : "rax"), EXC_UD, "MOV to CR5");
    check_exception(FAULT_OF(".byte 0x44, 0x0f, 0x20, 0xf8", : : : "rax"), EXC_UD, "MOV from CR15");
}

int main(void) {
    test_begin();
    cr0();
    cr0_cache_off();
    write_protection();
    cr3();
    cr4();
    cr8();
    others();
    return test_end("control registers obey the manual");
}
