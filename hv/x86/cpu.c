/* The tables that a CPU needs before it can take an interrupt or run C code that asks which CPU it
 * is on. The GDT describes segments, the IDT says where the handler of each vector is, and the TSS
 * holds stacks for exceptions that may come when the normal stack is of no use (IST). */
#include "x86/cpu.h"

#include "boot/layout.h"
#include "common/insn.h"
#include "x86/trap.h"

#define MSR_MISC_ENABLE         0x1a0
#define MISC_ENABLE_LIMIT_CPUID BIT(22)
#define PAT_WC                  1ull /* write-combining (SDM 3A table 12-10) */

u32 nr_cpus = 1;
struct cpu boot_cpu = { .p = { .self = &boot_cpu.p, .online = true } };
struct percpu *percpu_of[TAKT_MAX_CPUS] = { &boot_cpu.p };

extern const u8 trap_stubs[256][16];
static u64 idt[256][2]; /* all CPUs share it */

/* Returns the number of the stack on which an exception is handled. Exceptions that can come at any
 * time, also while the current stack is of no use, have stacks of their own. */
static u64 ist_of(unsigned vector) {
    switch (vector) {
    case TRAP_NMI: return IST_NMI;
    case TRAP_DF: return IST_DF;
    case TRAP_MC: return IST_MC;
    default: return IST_NONE;
    }
}

/* Fills the table with 64-bit interrupt gates (SDM 3A 6.14.1). */
static void fill_idt(void) {
    for (unsigned v = 0; v < 256; v++) {
        u64 fn = (u64)trap_stubs[v], ist = ist_of(v);

        idt[v][0] =
            (fn & 0xffff) | SEL_CODE << 16 | ist << 32 | 0x8eull << 40 | (fn >> 16 & 0xffff) << 48;
        idt[v][1] = fn >> 32;
    }
}

/* Lifts a limit that firmware can put on CPUID, for operating systems of the year 2000: then
 * there is no leaf beyond 3, and Takt needs some (SDM 4 table 2-2, IA32_MISC_ENABLE). */
static void lift_cpuid_limit(void) {
    struct cpuid id = cpuid(0, 0);

    if (id.ebx == CPUID_GENU && id.eax <= 3)
        wrmsr(MSR_MISC_ENABLE, rdmsr(MSR_MISC_ENABLE) & ~MISC_ENABLE_LIMIT_CPUID);
}

/* Makes entry 1 of the page attribute table write-combining, for the screen (hostmap.c); it is
 * write-through at first. No page has used entry 1 before, so no cache holds lines of it (SDM 3A
 * 12.12.4). */
static void pat_init(void) {
    u64 pat = rdmsr(MSR_PAT) & ~0xff00ull;

    wrmsr(MSR_PAT, pat | PAT_WC << 8);
}

/* Loads the tables of this CPU: GDT, IDT and TSS, and the base of GS. The segment registers keep
 * the values that boot.asm gave them: its GDT has the same descriptors at the same places.
 * this_cpu() finds the CPU's data by the base of GS, which is written last. */
void cpu_load_tables(struct cpu *c) {
    u64 tss = (u64)&c->tss;
    struct table_register gdtr = { sizeof(c->gdt) - 1, (u64)c->gdt },
                          idtr = { sizeof(idt) - 1, (u64)idt };

    lift_cpuid_limit();
    pat_init();
    if (c == &boot_cpu) fill_idt();
    /* 64-bit code, and data, of the kernel: both present, and for all of the address space (SDM 3A
     * figure 3-8) */
    c->gdt[SEL_CODE / 8] = 0x00af9b000000ffff;
    c->gdt[SEL_DATA / 8] = 0x00cf93000000ffff;
    /* an available 64-bit TSS (SDM 3A 8.2.3) */
    c->gdt[SEL_TSS / 8] =
        (sizeof(c->tss) - 1) | (tss & 0xffffff) << 16 | 0x89ull << 40 | (tss >> 24 & 0xff) << 56;
    c->gdt[SEL_TSS / 8 + 1] = tss >> 32;
    c->tss.iomap = sizeof(c->tss);
    __asm__ volatile("lgdt %0\n\tlidt %1\n\tltr %2"
                     :
                     : "m"(gdtr), "m"(idtr), "r"((u16)SEL_TSS)
                     : "memory");
    wrmsr(MSR_GS_BASE, (u64)&c->p);
}

/* Writes the cache lines of [p, p + len) back to memory. Lines have 64 bytes on every CPU that VT-d
 * is made with (SDM 2A, CLFLUSH). */
void cache_write_back(const void *p, u64 len) {
    for (u64 at = ALIGN_DOWN((u64)p, 64); at < (u64)p + len; at += 64)
        __asm__ volatile("clflush (%0)" : : "r"(at) : "memory");
    __asm__ volatile("mfence" : : : "memory");
}

/* Calls `fn` on the stack that ends at `top`. The old stack is given up, so `fn` must not
 * return. */
void stack_switch(u8 *top, void (*fn)(void)) {
    __asm__ volatile("mov %0, %%rsp\n\txor %%ebp, %%ebp\n\tcall *%1\n\tud2" : : "r"(top), "r"(fn));
    __builtin_unreachable();
}
