/* The lowest part of a guest in the simulation of the whole machine, in place of
 * guestlib/start.asm and entry.asm: how a guest begins, its exits, which are calls, and how it
 * takes interrupts.
 *
 * This file is compiled without counting instructions, because it counts them, and because its
 * first function runs before the guest's own addresses are right. */
#include <guest/compute.h>
#include <guest/guest.h>
#include <guest/lapic.h>
#include <guest/mem.h>
#include <guest/string.h>
#include <guest/thread.h>
#include <guest/vcpu.h>
#include <takt/io.h>

#define PAUSE_INSTRUCTIONS 40 /* PAUSE takes as long as that many instructions, or longer */

/* The most that compute_some() lets pass at once. So often at least, a program looks at its clocks.
 */
#define COMPUTE_NS 100000u

struct rela { /* an entry of .rela.dyn: System V gABI, chapter 4 */
    u64 offset, info;
    i64 addend;
};

struct whole_port *volatile whole_port;
/* port->left, while the guest executes. All of the guest is compiled with -ffixed-r15, so the
 * register keeps it, and a basic block counts itself without touching memory that another one has
 * just written (count.awk). */
register i64 whole_left __asm__("r15");
i64 whole_per_instruction; /* port->per_instruction, which is the same for all vCPUs of the VM */

_Static_assert(__builtin_offsetof(struct whole_port, left) == 0, "the code below reads it");

extern const struct rela rela_first[], rela_last[];
extern char boot_stack[];

/* What guestlib's files take from start.asm. */
char boot_guard[PAGE_SIZE] __attribute__((aligned(PAGE_SIZE)));
char boot_stack[THREAD_STACK] __attribute__((aligned(PAGE_SIZE)));
u64 boot_pml4[512] __attribute__((aligned(PAGE_SIZE)));
u64 ap_stack;
struct vcpu *ap_vcpu;
/* What they take from entry.asm, and only an exception or a test of other modes would use. */
char trap_entries[256 * 16], user_return[1], try_return[1];

void trap(struct trap_frame *f);
void vcpu_main(struct vcpu *v);
void whole_start(struct whole_port *port, u64 info);
void whole_entry(void);
void ap_entry(void);
void __sanitizer_cov_trace_pc(void);
void whole_out_of_time(void);
i64 hypercall_vmcall(u32 number, u64 a, u64 b, u64 c, u64 d);
i64 hypercall_vmmcall(u32 number, u64 a, u64 b, u64 c, u64 d);
u64 user_enter(u64 rip, u64 arg, u64 cs, u64 ss, u64 rsp);
void try_enter(void (*fn)(void *), void *arg);

/* The machine jumps to whole_entry with the port in RDI and the address of the start information in
 * RSI, and to ap_entry where struct whole_ap says so. */
__asm__(".pushsection .text.start, \"ax\"\n"
        ".globl whole_entry\n"
        "whole_entry:\n"
        "    leaq boot_stack+16384(%rip), %rsp\n"
        "    movq (%rdi), %r15\n" /* port->left */
        "    xorl %ebp, %ebp\n"
        "    call whole_start\n"
        "    ud2\n"
        ".popsection\n"
        ".pushsection .text\n"
        "ap_entry:\n"
        "    movq ap_stack(%rip), %rsp\n"
        "    movq ap_vcpu(%rip), %rdi\n"
        "    movq whole_port(%rip), %rax\n"
        "    movq (%rax), %r15\n" /* port->left */
        "    xorl %ebp, %ebp\n"
        "    call vcpu_main\n"
        "    ud2\n"
        /* void thread_switch(u64 *save_rsp, u64 new_rsp), as in guestlib/entry.asm, but R15 belongs
         * to no thread */
        ".globl thread_switch\n"
        "thread_switch:\n"
        "    pushq %rbx\n    pushq %rbp\n    pushq %r12\n"
        "    pushq %r13\n    pushq %r14\n    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    addq $8, %rsp\n    popq %r14\n    popq %r13\n"
        "    popq %r12\n    popq %rbp\n    popq %rbx\n"
        "    ret\n"
        ".popsection\n"
        /* What vcpu_start_all() copies to the page where the other vCPUs begin. */
        ".pushsection .data\n"
        ".balign 8\n"
        ".globl ap_start, ap_end\n"
        "ap_start: .quad 0x7061656c6f6877, ap_entry, whole_port\n"
        "ap_end:\n"
        ".popsection\n");

/* ---- exits ---- */

/* Makes the call of the machine. While the hypervisor executes, R15 is its own. */
static void exit_to(struct whole_call *c) {
    whole_port->left = whole_left;
    whole_port->call(c);
    whole_left = whole_port->left;
}

/* Takes what the hypervisor wants the guest to take, as the CPU does at an entry. If another
 * interrupt waits at the end of a handler, it is taken in the same loop and not by irq_restore():
 * after IRET a CPU has the stack free, too, so a flow of interrupts must not use it up. */
static void take_event(void) {
    struct whole_call window = { .reason = WHOLE_WINDOW, .rip = (u64)__builtin_return_address(0) };

    while (whole_port->event) {
        struct trap_frame f = { .vector = whole_port->vector,
                                .code = whole_port->code,
                                .rip = (u64)__builtin_return_address(0),
                                .cs = SEL_CODE64,
                                .rflags = read_rflags() };

        whole_port->event = false;
        whole_port->irqs = false;
        trap(&f);
        whole_port->irqs = f.rflags & RFLAGS_IF;
        if (whole_port->irqs && whole_port->attention) exit_to(&window);
    }
}

static void leave(struct whole_call *c) {
    c->rip = (u64)__builtin_return_address(0);
    do {
        exit_to(c);
        take_event();
    } while (c->again);
}

/* The guest has computed as long as it may: time has to pass for the others, too. */
void whole_out_of_time(void) {
    struct whole_call c = { .reason = WHOLE_TIME };

    leave(&c);
}

/* The compiler puts a call of this function at the beginning of each basic block. Nearly all of
 * these calls are replaced by the instructions of count.awk, which count the whole block. */
void __sanitizer_cov_trace_pc(void) {
    whole_left -= whole_per_instruction;
    if (whole_left < 0) whole_out_of_time();
}

/* The linker puts these in the place of memcpy() and memset(), which are basic blocks of any length
 * (--wrap). */
void *__real_memcpy(void *to, const void *from, size_t n);
void *__wrap_memcpy(void *to, const void *from, size_t n);
void *__real_memset(void *to, int c, size_t n);
void *__wrap_memset(void *to, int c, size_t n);

static void charge(size_t bytes) {
    whole_left -= (i64)whole_elements(bytes) * whole_port->per_element;
}

void *__wrap_memcpy(void *to, const void *from, size_t n) {
    charge(n);
    return __real_memcpy(to, from, n);
}

void *__wrap_memset(void *to, int c, size_t n) {
    charge(n);
    return __real_memset(to, c, n);
}

void whole_window(void) {
    struct whole_call c = { .reason = WHOLE_WINDOW };

    leave(&c);
}

void whole_halt(void) {
    struct whole_call c = { .reason = WHOLE_HLT };

    whole_port->irqs = true;
    leave(&c);
}

u64 rdtsc(void) {
    const struct whole_port *p = whole_port;

    return (p->end - (u64)whole_left) / PS_PER_NS + p->tsc_offset;
}

void cpu_relax(void) {
    whole_left -= PAUSE_INSTRUCTIONS * whole_per_instruction;
    if (whole_left < 0) whole_out_of_time();
}

void compute_for_ever(void) {
    struct whole_call c = { .reason = WHOLE_COMPUTE, .gpa = ~0ull };

    for (;;) leave(&c);
}

void compute_some(u64 ns) {
    struct whole_call c = { .reason = WHOLE_COMPUTE, .gpa = MIN(ns, COMPUTE_NS) };

    leave(&c);
}

struct cpuid cpuid(u32 leaf, u32 sub) {
    struct whole_call c = { .reason = WHOLE_CPUID, .gpr = { [PORT_RAX] = leaf, [PORT_RCX] = sub } };

    leave(&c);
    return (struct cpuid){ .eax = (u32)c.gpr[PORT_RAX],
                           .ebx = (u32)c.gpr[PORT_RBX],
                           .ecx = (u32)c.gpr[PORT_RCX],
                           .edx = (u32)c.gpr[PORT_RDX] };
}

u64 rdmsr(u32 msr) {
    struct whole_call c = { .reason = WHOLE_RDMSR, .gpr = { [PORT_RCX] = msr } };

    leave(&c);
    return (u64)(u32)c.gpr[PORT_RAX] | c.gpr[PORT_RDX] << 32;
}

/* GS is the guest's own, and writing its base causes no exit. */
void wrmsr(u32 msr, u64 v) {
    struct whole_call c = { .reason = WHOLE_WRMSR,
                            .gpr = {
                                [PORT_RCX] = msr, [PORT_RAX] = (u32)v, [PORT_RDX] = v >> 32 } };

    if (msr == MSR_GS_BASE)
        whole_port->area = (void *)v;
    else
        leave(&c);
}

#define NO_CR(n)                                                                                   \
    u64 read_cr##n(void) { return 0; }                                                             \
    void write_cr##n(u64 v) {}

NO_CR(0)
NO_CR(2)
NO_CR(3)
NO_CR(4)
NO_CR(8)

/* An argument may be a pointer. The hypervisor gets the guest-physical address of what it points
 * to. */
static u64 argument(u64 a) {
    if (a - whole_port->base < PORT_SPAN) return a - whole_port->base;
    return a;
}

/* The registers are those of guestlib/entry.asm. */
i64 hypercall_vmcall(u32 number, u64 a, u64 b, u64 c, u64 d) {
    struct whole_call call = { .reason = WHOLE_HYPERCALL,
                               .gpr = { [PORT_RAX] = number,
                                        [PORT_RBX] = argument(a),
                                        [PORT_RCX] = argument(b),
                                        [PORT_RDX] = argument(c),
                                        [PORT_RSI] = argument(d) } };

    leave(&call);
    return (i64)call.gpr[PORT_RAX];
}

i64 hypercall_vmmcall(u32 number, u64 a, u64 b, u64 c, u64 d) {
    return hypercall_vmcall(number, a, b, c, d);
}

/* ---- ports and registers ---- */

static u32 port_io(u16 port, u8 size, bool in, u32 v) {
    struct whole_call c = {
        .reason = WHOLE_PORT_IO, .port = port, .size = size, .in = in, .gpr = { [PORT_RAX] = v }
    };

    leave(&c);
    return (u32)c.gpr[PORT_RAX];
}

void outb(u16 port, u8 v) { port_io(port, 1, false, v); }
void outw(u16 port, u16 v) { port_io(port, 2, false, v); }
void outl(u16 port, u32 v) { port_io(port, 4, false, v); }
u8 inb(u16 port) { return (u8)port_io(port, 1, true, 0); }
u16 inw(u16 port) { return (u16)port_io(port, 2, true, 0); }
u32 inl(u16 port) { return port_io(port, 4, true, 0); }

/* What the CPU would report of a MOV between RAX and (RDX): the opcode, behind a prefix if it is
 * one of 16 bits, and the ModRM byte that names these two operands. */
#define PREFIX_16   0x66
#define MODRM_RDX   2
#define MOV_LOAD    0x8b /* to RAX */
#define MOV_STORE   0x89
#define MOV_LOAD_8  0x8a
#define MOV_STORE_8 0x88

static u32 mmio(u8 opcode, bool write, const volatile void *p, u32 v) {
    struct whole_call c = { .reason = WHOLE_MMIO,
                            .gpa = (u64)p,
                            .write = write,
                            .nr_bytes = 2,
                            .bytes = { opcode, MODRM_RDX },
                            .gpr = { [PORT_RAX] = v, [PORT_RDX] = (u64)p } };

    leave(&c);
    return (u32)c.gpr[PORT_RAX];
}

u16 mmio_read16(const volatile void *p) {
    struct whole_call c = { .reason = WHOLE_MMIO,
                            .gpa = (u64)p,
                            .nr_bytes = 3,
                            .bytes = { PREFIX_16, MOV_LOAD, MODRM_RDX },
                            .gpr = { [PORT_RDX] = (u64)p } };

    leave(&c);
    return (u16)c.gpr[PORT_RAX];
}

u8 mmio_read8(const volatile void *p) { return (u8)mmio(MOV_LOAD_8, false, p, 0); }
void mmio_write8(volatile void *p, u8 v) { mmio(MOV_STORE_8, true, p, v); }
u32 mmio_read32(const volatile void *p) { return mmio(MOV_LOAD, false, p, 0); }
void mmio_write32(volatile void *p, u32 v) { mmio(MOV_STORE, true, p, v); }

void *pa_to_ptr(u64 pa) { return (void *)(whole_port->base + pa); }

u64 ptr_to_pa(const volatile void *p) { return (u64)p - whole_port->base; }

/* ---- start ---- */

/* Makes addresses in the guest's data right: the image was linked for address 0 of the VM's RAM. */
static void relocate(u64 base) {
    for (const struct rela *r = rela_first; r < rela_last; r++)
        *(u64 *)(base + r->offset) = base + (u64)r->addend;
}

void whole_start(struct whole_port *port, u64 info) {
    relocate(port->base);
    port->slot = (struct whole_port **)&whole_port;
    whole_port = port;
    whole_per_instruction = port->per_instruction;
    guest_start(pa_to_ptr(info));
}

u64 user_enter(u64 rip, u64 arg, u64 cs, u64 ss, u64 rsp) {
    guest_panic("the simulation has no user mode");
}

void try_enter(void (*fn)(void *), void *arg) {
    guest_panic("the simulation cannot survive exceptions");
}
