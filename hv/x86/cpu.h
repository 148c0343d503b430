/* A CPU's own tables and stacks. */
#ifndef HV_X86_CPU_H
#define HV_X86_CPU_H

#include "lib/timerq.h"
#include "x86/percpu.h"

#define STACK_SIZE  16384u
#define ISTACK_SIZE 8192u

/* The 64-bit TSS (SDM 3A 8.7). */
struct __attribute__((packed)) tss {
    u32 reserved0;
    u64 rsp[3];
    u64 reserved1;
    u64 ist[7];
    u64 reserved2;
    u16 reserved3, iomap;
};

/* The operand of LGDT, LIDT and SIDT (SDM 3A 2.4). */
struct __attribute__((packed)) table_register {
    u16 limit;
    u64 base;
};

/* Stacks of their own for some exceptions, as the gates of the IDT number them. */
enum { IST_NONE, IST_DF, IST_NMI, IST_MC, IST_NR };

struct cpu {
    struct percpu p;           /* GS points here */
    u64 gdt[5];                /* null, code, data, TSS (two entries): SEL_* of boot/layout.h */
    struct tss tss;            /* its ist[n - 1] is where stack IST_n ends */
    volatile bool dump_wanted; /* an NMI was sent so that this CPU logs what it is doing */
    /* how many NMIs were sent because this CPU did not take a kick; changed atomically */
    u32 nmi_kicks;
    volatile u64 kicked_at; /* TSC at a kick that it has not answered yet; 0: there is none */
    /* it is in cpu_halt(), so its heartbeat does not change until its next deadline */
    volatile bool halted;
    u32 silent;                   /* how many times in a row it was found silent */
    struct timer heartbeat_timer; /* of hv/platform/smp.c */
};

static inline struct cpu *cpu_of(struct percpu *p) { return container_of(p, struct cpu, p); }

/* The boot CPU's area, on whose early stack the hypervisor starts. */
extern struct cpu boot_cpu;

/* Writes the cache lines of [p, p + len) back to memory. */
void cache_write_back(const void *p, u64 len);

/* Loads GDT, IDT, TSS and GS of `c` on this CPU, lifts a limit that the firmware may have put on
 * CPUID, and sets up the page attribute table. Each CPU has to call it before anything else,
 * because this_cpu() works only afterwards. c->tss.ist may still be empty. */
void cpu_load_tables(struct cpu *c);
/* Continues in `fn` on the stack that ends at `top`; never returns. */
void stack_switch(u8 *top, void (*fn)(void)) __attribute__((noreturn));

#endif
