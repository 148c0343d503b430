#include "x86/cpu.h"

#include "boot/layout.h"
#include "x86/insn.h"
#include "x86/trap.h"

u32 nr_cpus = 1;
struct cpu boot_cpu = { .p = { .self = &boot_cpu.p, .online = true } };
struct percpu *percpu_of[TAKT_MAX_CPUS] = { &boot_cpu.p };

struct __attribute__((packed)) table_register {
    u16 limit;
    u64 base;
};

void cpu_load_tables(struct cpu *c) {
    u64 tss = (u64)&c->tss;
    struct table_register gdtr = { sizeof(c->gdt) - 1, (u64)c->gdt };

    c->gdt[SEL_CODE / 8] = 0x00af9b000000ffff;
    c->gdt[SEL_DATA / 8] = 0x00cf93000000ffff;
    /* an available 64-bit TSS (SDM 3A 8.2.3) */
    c->gdt[SEL_TSS / 8] =
        (sizeof(c->tss) - 1) | (tss & 0xffffff) << 16 | 0x89ull << 40 | (tss >> 24 & 0xff) << 56;
    c->gdt[SEL_TSS / 8 + 1] = tss >> 32;
    for (unsigned i = IST_DF; i < IST_NR; i++) c->tss.ist[i - 1] = (u64)c->ist_top[i];
    c->tss.iomap = sizeof(c->tss);

    __asm__ volatile("lgdt %0" : : "m"(gdtr));
    __asm__ volatile("pushq %0\n\t"
                     "leaq 1f(%%rip), %%rax\n\t"
                     "pushq %%rax\n\t"
                     "lretq\n"
                     "1:"
                     :
                     : "i"(SEL_CODE)
                     : "rax", "memory");
    __asm__ volatile("mov %0, %%ds\n\tmov %0, %%es\n\tmov %0, %%ss\n\tmov %1, %%fs\n\tmov %1, %%gs"
                     :
                     : "r"(SEL_DATA), "r"(0));
    wrmsr(MSR_GS_BASE, (u64)&c->p);
    __asm__ volatile("ltr %0" : : "r"((u16)SEL_TSS));
    traps_load();
}
