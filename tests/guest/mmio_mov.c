/* Each form of MOV does the same on the page of a device as on memory: with registers, extended
 * by zeros and by the sign, with immediates, absolute addresses and segments, in 32-bit code,
 * and over a page boundary. The hypervisor emulates these, so a mistake in its decoder shows
 * here. */
#include <guest/lapic.h>
#include <guest/mem.h>
#include <guest/string.h>
#include <guest/test.h>
#include <guest/x86.h>

#define VERSION (TAKT_LAPIC_GPA + LAPIC_VERSION)
#define TPR     (TAKT_LAPIC_GPA + LAPIC_TPR)
#define LDR     (TAKT_LAPIC_GPA + LAPIC_LDR)
#define FILL    0x1122334455667788ull
#define MSR_FS  0xc0000100

static u32 version;

/* `insn` reads through RBX and leaves what it read in RAX, which held FILL before. */
#define LOADS(insn, at, want)                                                                      \
    do {                                                                                           \
        u64 a_ = FILL;                                                                             \
        __asm__ volatile(insn : "+a"(a_) : "b"(at) : "memory", "r8", "r9", "rcx", "rdx");          \
        CHECK(a_ == (want), insn ": %lx, not %lx", a_, (u64)(want));                               \
    } while (0)

/* `insn` writes 0x50 to TPR, through RBX, and some forms from RAX. */
#define STORES(insn, at, from)                                                                     \
    do {                                                                                           \
        lapic_write(LAPIC_TPR, 0x10);                                                              \
        __asm__ volatile(insn : : "a"((u64)(from)), "b"(at) : "memory", "r8", "r15", "rcx");       \
        CHECK(lapic_read(LAPIC_TPR) == 0x50, insn ": %x", lapic_read(LAPIC_TPR));                  \
        lapic_write(LAPIC_TPR, 0);                                                                 \
    } while (0)

static void loads(void) {
    u64 v = version;

    LOADS("movl (%%rbx), %%eax", VERSION, v);
    LOADS("movl 0x10(%%rbx), %%eax", VERSION - 0x10, v);
    LOADS("movl -0x1000(%%rbx), %%eax", VERSION + 0x1000, v);
    LOADS("mov $4, %%ecx; movl 0x10(%%rbx, %%rcx, 8), %%eax", VERSION - 0x30, v);
    LOADS("movl (%%rbx), %%r9d; mov %%r9, %%rax", VERSION, v);
    LOADS("mov %%rbx, %%r8; movl (%%r8), %%edx; mov %%rdx, %%rax", VERSION, v);
    LOADS("movl %%gs:(%%rbx), %%eax", VERSION - rdmsr(MSR_GS_BASE), v);
    LOADS(".byte 0x67; movl (%%rbx), %%eax", VERSION | 0xffff00000000ull, v);
    LOADS("movabs 0xfee00030, %%eax", 0, v);
    LOADS("movl 0xfffffffffee00030 - 0xffffffff00000000, %%eax", 0, v);
    LOADS("movslq (%%rbx), %%rax", VERSION, v);
    __asm__ volatile("movl $0x80000000, (%0)" : : "r"(LDR) : "memory");
    LOADS("movslq (%%rbx), %%rax", LDR, 0xffffffff80000000ull);
    LOADS("movl (%%rbx), %%eax", LDR, 0x80000000ull);
    __asm__ volatile("movl $0, (%0)" : : "r"(LDR) : "memory");
    /* Not 32 bits wide: there is no value to speak of, but the rest of the register stays or
     * goes as it should. */
    LOADS("movw (%%rbx), %%ax; mov $0, %%ax", VERSION, FILL & ~0xffffull);
    LOADS("movb (%%rbx), %%ah; mov $0, %%ah", VERSION, FILL & ~0xff00ull);
    LOADS("movzbl (%%rbx), %%eax; mov $0, %%al", VERSION, 0ull);
}

static void stores(void) {
    STORES("movl %%eax, (%%rbx)", TPR, 0x50);
    STORES("movl %%eax, (%%rbx)", TPR, 0xffffffff00000050);
    STORES("mov %%eax, %%r15d; movl %%r15d, 0x7f(%%rbx)", TPR - 0x7f, 0x50);
    STORES("movl $0x50, (%%rbx)", TPR, 0);
    STORES("movl $0x50, 0x12345(%%rbx)", TPR - 0x12345, 0);
    STORES("movabs %%eax, 0xfee00080", 0, 0x50);
    STORES("mov %%eax, %%ecx; .byte 0x3e; movl %%ecx, (%%rbx)", TPR, 0x50);
}

static void by_fs(void) {
    u64 fs = rdmsr(MSR_FS);
    u32 v;

    wrmsr(MSR_FS, TAKT_LAPIC_GPA);
    __asm__ volatile("movl %%fs:0x30, %0" : "=r"(v));
    wrmsr(MSR_FS, fs);
    CHECK(v == version, "by FS: %x", v);
}

/* 32-bit code: an absolute address, one in a register, and a constant that is stored. Each has a
 * length of its own. */
static void compat(void) {
    static const u8 code[] = {
        0xa1,
        0x30,
        0x00,
        0xe0,
        0xfe, /* mov eax, [0xfee00030] */
        0x8b,
        0x0d,
        0x30,
        0x00,
        0xe0,
        0xfe, /* mov ecx, [0xfee00030] */
        0x8b,
        0x53,
        0x30, /* mov edx, [ebx + 0x30] */
        /* mov dword [ebx + 0x80], 0x60 */
        0xc7,
        0x83,
        0x80,
        0x00,
        0x00,
        0x00,
        0x60,
        0x00,
        0x00,
        0x00,
        0x8b,
        0xb3,
        0x80,
        0x00,
        0x00,
        0x00, /* mov esi, [ebx + 0x80] */
        0xc3,
    };
    struct compat_regs r = { .rbx = TAKT_LAPIC_GPA };
    u8 *page = page_alloc(1);

    memcpy(page, code, sizeof(code));
    compat_call(page, &r);
    lapic_write(LAPIC_TPR, 0);
    CHECK((u32)r.rax == version && (u32)r.rcx == version && (u32)r.rdx == version,
          "32-bit loads: %lx %lx %lx", r.rax, r.rcx, r.rdx);
    CHECK((u32)r.rsi == 0x60, "32-bit store: %lx", r.rsi);
    page_free(page, 1);
}

/* mov eax, [0xfee00030] by moffs64, nine bytes, over the boundary of two pages that are apart in
 * memory; and with the second one missing: #PF there, and nothing read. */
static void over_a_boundary(void) {
    static const u8 code[] = { 0x31, 0xc0, 0xa1, 0x30, 0x00, 0xe0, 0xfe, 0, 0, 0, 0, 0xc3 };
    u64 va = 0x10000000000;
    u8 *a = page_alloc(1), *gap = page_alloc(1), *b = page_alloc(1);

    if (!a || !gap || !b || page_map(va, (u64)a, PTE_P | PTE_W) ||
        page_map(va + PAGE_SIZE, (u64)b, PTE_P | PTE_W))
        test_error("no memory");
    for (unsigned over = 1; over < sizeof(code) - 1; over++) { /* the XOR always in the first */
        u64 at = va + PAGE_SIZE - sizeof(code) + over;
        u64 (*fn)(void) = (u64(*)(void))at;
        struct exception e;

        memcpy((void *)at, code, sizeof(code));
        CHECK(fn() == version, "a load with %u bytes in the next page", over);
        page_map(va + PAGE_SIZE, 0, 0);
        e = try_run((void (*)(void *))at, NULL);
        page_map(va + PAGE_SIZE, (u64)b, PTE_P | PTE_W);
        check_exception(e.vector, EXC_PF, "a load that is cut off by a missing page");
        CHECK(e.cr2 == va + PAGE_SIZE, "CR2 %lx", e.cr2);
    }
}

int main(void) {
    test_begin();
    lapic_set_mode(false);
    version = lapic_read(LAPIC_VERSION);
    CHECK((version & 0xff) >= 0x10 && (version & 0xff) < 0x20, "version %x", version);
    loads();
    stores();
    by_fs();
    compat();
    over_a_boundary();
    return test_end("MOV works on a device's page");
}
