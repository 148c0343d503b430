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

/* What LGDT, LIDT and SIDT have as operand (SDM 3A 2.4). */
struct __attribute__((packed)) table_register {
    u16 limit;
    u64 base;
};

enum { IST_NONE, IST_DF, IST_NMI, IST_MC, IST_NR }; /* as in the IDT's gates */

struct cpu {
    struct percpu p;           /* first: GS points here */
    u64 gdt[5];                /* null, code, data, TSS (two entries): SEL_* of boot/layout.h */
    struct tss tss;            /* its ist[n - 1] is where stack IST_n ends */
    volatile bool dump_wanted; /* an NMI was sent to learn what this CPU does */
    u32 nmi_kicks;             /* NMIs sent instead of interrupts that it did not take; atomic */
    volatile u64 kicked_at;    /* TSC of a kick that was not answered yet; 0: none */
    volatile bool halted;      /* in cpu_halt(): its heartbeat stands still until its next deadline */
    u32 silent;                /* how often it was found silent in a row */
    struct timer kick_timer, heartbeat_timer; /* hv/platform/smp.c's */
};

static inline struct cpu *cpu_of(struct percpu *p) { return container_of(p, struct cpu, p); }

/* The boot CPU's area, on whose early stack the hypervisor starts. */
extern struct cpu boot_cpu;

/* Memory then has what the caches have of these bytes. */
void cache_write_back(const void *p, u64 len);

/* The first thing on each CPU: loads GDT, IDT, TSS and GS of `c`, lifts a limit that firmware put on CPUID,
 * and sets up the page attribute table. c->tss.ist may still be empty. */
void cpu_load_tables(struct cpu *c);
/* Continues in `fn` on the stack that ends at `top`; never returns. */
void stack_switch(u8 *top, void (*fn)(void)) __attribute__((noreturn));

#endif
