#include "x86/trap.h"

#include "boot/layout.h"
#include "lib/printf.h"
#include "x86/cpu.h"
#include "x86/insn.h"

#define STRAY_STORM 1000u

struct gate {
    u64 low, high;
};

static struct gate idt[256];
extern const u64 trap_stubs[256];
static void (*irq_fn[256])(void);
void (*irq_eoi)(void);
void (*irq_mask_vector)(u8 vector);
void (*dump_hook)(void);
u64 stray_irqs;
volatile bool cpus_stop;

static const char *const trap_name[32] = {
    "divide error",
    "debug",
    "NMI",
    "breakpoint",
    "overflow",
    "bound",
    "invalid opcode",
    "device not available",
    "double fault",
    NULL,
    "invalid TSS",
    "segment not present",
    "stack fault",
    "general protection",
    "page fault",
    NULL,
    "x87 error",
    "alignment check",
    "machine check",
    "SIMD error",
    "virtualization exception",
    "control protection",
};

void traps_init(void) {
    for (unsigned v = 0; v < 256; v++) {
        u64 fn = trap_stubs[v], ist = v == 8 ? IST_DF : v == 2 ? IST_NMI : v == 18 ? IST_MC : IST_NONE;

        /* a 64-bit interrupt gate (SDM 3A 6.14.1) */
        idt[v].low = (fn & 0xffff) | SEL_CODE << 16 | ist << 32 | 0x8eull << 40 | (fn >> 16 & 0xffff) << 48;
        idt[v].high = fn >> 32;
    }
}

void traps_load(void) {
    struct __attribute__((packed)) {
        u16 limit;
        u64 base;
    } idtr = { sizeof(idt) - 1, (u64)idt };

    __asm__ volatile("lidt %0" : : "m"(idtr));
}

void irq_register(u8 vector, void (*fn)(void)) { irq_fn[vector] = fn; }

/* ---- dumps ---- */

struct symbol {
    u64 addr;
    const char *name;
};

/* From nm, in order of address; the first link of two has none. */
extern const struct symbol symtab[] __attribute__((weak));
extern const u64 symtab_count __attribute__((weak));
extern const u8 image_text[], image_text_end[];

const char *symbol_at(u64 addr, u64 *offset) {
    u64 lo = 0, hi = &symtab_count ? symtab_count : 0;

    *offset = 0;
    if (addr < (u64)image_text || addr >= (u64)image_text_end || !hi || addr < symtab[0].addr) return "?";
    while (hi - lo > 1) {
        u64 mid = (lo + hi) / 2;

        *(symtab[mid].addr <= addr ? &lo : &hi) = mid;
    }
    *offset = addr - symtab[lo].addr;
    return symtab[lo].name;
}

/* A frame pointer is followed only within the stack page run that it came from, upwards: a broken chain ends
 * it. */
void backtrace(u64 rip, u64 rbp) {
    u64 off, last = rbp;
    const char *name = symbol_at(rip, &off);

    log_err("  %016lx %s+0x%lx", rip, name, off);
    for (int i = 0;
         i < 16 && rbp && rbp % 8 == 0 && rbp >= last && rbp - last < STACK_SIZE && rbp >= STACK_BASE; i++) {
        const u64 *f = (const u64 *)rbp;

        if (!f[1]) break;
        name = symbol_at(f[1] - 1, &off);
        log_err("  %016lx %s+0x%lx", f[1], name, off + 1);
        last = rbp;
        rbp = f[0];
        if (rbp <= last) break;
    }
}

void dump_frame(const struct trap_frame *f) {
    log_err("CPU %u: rip %016lx rsp %016lx rflags %lx cs %lx", this_cpu()->id, f->rip, f->rsp, f->rflags,
            f->cs);
    log_err("rax %016lx rbx %016lx rcx %016lx rdx %016lx", f->rax, f->rbx, f->rcx, f->rdx);
    log_err("rsi %016lx rdi %016lx rbp %016lx r8  %016lx", f->rsi, f->rdi, f->rbp, f->r8);
    log_err("r9  %016lx r10 %016lx r11 %016lx r12 %016lx", f->r9, f->r10, f->r11, f->r12);
    log_err("r13 %016lx r14 %016lx r15 %016lx", f->r13, f->r14, f->r15);
    log_err("cr0 %lx cr2 %016lx cr3 %lx cr4 %lx", read_cr0(), read_cr2(), read_cr3(), read_cr4());
    backtrace(f->rip, f->rbp);
    if (dump_hook) dump_hook();
}

/* ---- dispatch ---- */

struct fixup {
    u64 insn, go_on;
};
extern const struct fixup ex_table[], ex_table_end[];

static u64 fixup_find(u64 rip) {
    for (const struct fixup *e = ex_table; e < ex_table_end; e++)
        if (e->insn == rip) return e->go_on;
    return 0;
}

static void handle_nmi(struct cpu *c, const struct trap_frame *f) {
    c->nmis++;
    while (cpus_stop) __asm__ volatile("cli; hlt");
    if (c->dump_wanted) {
        log_err("CPU %u was silent; it is here:", c->p.id);
        dump_frame(f);
        c->dump_wanted = false;
        return;
    }
    if (c->nmi_kicked) {
        c->nmi_kicked = false;
        return;
    }
    if (c->nmis <= 16) log_warn("CPU %u: NMI that nobody sent, at %lx; going on", c->p.id, f->rip);
}

/* Logs and clears the banks. What the CPU cannot go on from (MCG_STATUS.RIPV clear, or PCC in a bank, SDM
 * 3B 16.3.2.2) ends here. */
static void handle_machine_check(struct cpu *c, const struct trap_frame *f) {
    u64 status = rdmsr(MSR_MCG_STATUS), banks = rdmsr(MSR_MCG_CAP) & 0xff;
    bool fatal = !(status & 1);

    c->machine_checks++;
    log_err("CPU %u: machine check, MCG_STATUS %lx", c->p.id, status);
    for (u32 i = 0; i < banks; i++) {
        u64 s = rdmsr(MSR_MC0_STATUS + 4 * i);

        if (!(s & BIT(63))) continue;
        log_err("  bank %u: status %016lx", i, s);
        fatal |= s >> 57 & 1;
        wrmsr(MSR_MC0_STATUS + 4 * i, 0);
    }
    if (fatal) {
        dump_frame(f);
        panic("machine check that cannot be gone on from");
    }
    wrmsr(MSR_MCG_STATUS, 0);
}

/* An interrupt on a vector that nobody registered is counted; one that will not stop is masked at its source,
 * if that is known. */
static void handle_stray(u8 v) {
    static u32 count[256];

    stray_irqs++;
    if (++count[v] <= 4) log_warn("CPU %u: stray interrupt, vector 0x%x", this_cpu()->id, v);
    if (count[v] == STRAY_STORM) {
        log_warn("vector 0x%x: %u stray interrupts; masking it", v, STRAY_STORM);
        if (irq_mask_vector) irq_mask_vector(v);
    }
}

static void handle_irq(const struct trap_frame *f) {
    u8 v = (u8)f->vector;

    if (v == VEC_SPURIOUS) return; /* no EOI (SDM 3A 10.9) */
    if (irq_fn[v])
        irq_fn[v]();
    else
        handle_stray(v);
    if (irq_eoi) irq_eoi();
}

void trap_handle(struct trap_frame *f);
void trap_handle(struct trap_frame *f) {
    u64 go_on;

    if (f->vector >= 32) {
        handle_irq(f);
        return;
    }
    if (f->vector == 2) {
        handle_nmi(cpu_of(this_cpu()), f);
        return;
    }
    if (f->vector == 18) {
        handle_machine_check(cpu_of(this_cpu()), f);
        return;
    }
    go_on = f->vector == 13 || f->vector == 6 ? fixup_find(f->rip) : 0;
    if (go_on) {
        f->rip = go_on;
        return;
    }
    log_err("exception %lu (%s), error code %lx", f->vector,
            trap_name[f->vector] ? trap_name[f->vector] : "reserved", f->code);
    if (f->vector == 8 && f->rsp >= STACK_BASE && f->rsp - read_cr2() < PAGE_SIZE)
        log_err("the stack has run into its guard page");
    dump_frame(f);
    panic("exception in the hypervisor");
}
