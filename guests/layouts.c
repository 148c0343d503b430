/* Measures what exits cost in many layouts of the code that causes them. A hypervisor may have to
 * read the instruction that exited, and remembers where it found it. What that costs depends on
 * where the instruction is: guests/bench.c has one layout, and it may be a lucky one.
 *
 * Each operation is an instruction and a RET, which are copied to the place that is measured and
 * called there. The cost of the call, with the RET alone at the same place, is taken off. For each
 * operation there is a line `LAYOUT name kind worst best`; both are medians over n=N (100) calls in
 * the worst and the best layout of that kind:
 *   shift  at 16 places in a page, one byte after the other
 *   end    at the end of a page: up to it, or over it
 *   pair   two places in turn, with the same lowest bits, in each of 63 pairs of pages
 *   code32 in a code segment of 32 bits */
#include <guest/guest.h>
#include <guest/lapic.h>
#include <guest/mem.h>
#include <guest/printf.h>
#include <guest/sort.h>
#include <guest/string.h>
#include <guest/trap.h>
#include <guest/x86.h>
#include <takt/io.h>

#define MAX_N       1000
#define PAGES       64
#define SHIFTS      16
#define VECTOR_SELF 0x50
#define MSR_MISC    0x1a0 /* IA32_MISC_ENABLE, which the hypervisor intercepts */
#define MSR_X2      0x800
#define PORT_NOBODY 0x5e4
#define HC_UNKNOWN  0x3fff
#define RET         0xc3
#define RET_FAR     0xcb

struct op {
    const char *name;
    u8 code[4], len; /* without its RET */
    bool x2;         /* needs the local APIC in x2APIC mode; all others want xAPIC mode */
    bool no_32;      /* is not measured in a segment of 32 bits */
    u32 eax, ecx, edx, edi;
};

static struct op ops[] = {
    { "cpuid", { 0x0f, 0xa2 }, 2, .x2 = false },
    { "hypercall_null", { 0x0f, 0x01, 0xc1 }, 3, .eax = HC_UNKNOWN }, /* VMCALL; see main() */
    { "rdmsr", { 0x0f, 0x32 }, 2, .ecx = MSR_MISC },
    { "pio_unclaimed", { 0xec }, 1, .edx = PORT_NOBODY },
    { "lapic_read", { 0x8b, 0x07 }, 2, .edi = TAKT_LAPIC_GPA + LAPIC_ID },
    { "lapic_write", { 0x89, 0x07 }, 2, .edi = TAKT_LAPIC_GPA + LAPIC_TIMER_DIVIDE },
    { "self_ipi",
      { 0x89, 0x07 },
      2,
      .no_32 = true,
      .edi = TAKT_LAPIC_GPA + LAPIC_ICR,
      .eax = ICR_SELF | ICR_ASSERT | VECTOR_SELF },
    { "x2apic_read", { 0x0f, 0x32 }, 2, .x2 = true, .ecx = MSR_X2 + LAPIC_ID / 16 },
    { "x2apic_self_ipi",
      { 0x0f, 0x30 },
      2,
      .x2 = true,
      .no_32 = true,
      .eax = VECTOR_SELF,
      .ecx = MSR_X2 + 0x3f },
};

static u8 *code; /* PAGES pages, one more behind them */
static u32 iterations;

/* The handlers do no more than end the interrupt. */
void self_entry(void), self_x2_entry(void);
__asm__(".pushsection .text\n"
        "self_entry:\n"
        "  push %rax; mov $0xfee000b0, %eax; movl $0, (%rax); pop %rax; iretq\n"
        "self_x2_entry:\n"
        "  push %rax; push %rcx; push %rdx\n"
        "  mov $0x80b, %ecx; xor %eax, %eax; xor %edx, %edx; wrmsr\n"
        "  pop %rdx; pop %rcx; pop %rax; iretq\n"
        ".popsection");

/* Copies an operation, or nothing if `op` is NULL, and `ret` behind it, to `to`. */
static void put(u8 *to, const struct op *op, u8 ret) {
    if (op) {
        memcpy(to, op->code, op->len);
        to += op->len;
    }
    *to = ret;
}

/* Calls what is at `at`, and returns how long that takes. */
static u32 run_once(const struct op *op, const u8 *at) {
    u64 a = op->eax, c = op->ecx, d = op->edx, t = rdtsc();

    __asm__ volatile("call *%[at]"
                     : "+a"(a), "+c"(c), "+d"(d)
                     : [at] "S"(at), "D"((u64)op->edi)
                     : "rbx", "r8", "r9", "r10", "r11", "cc", "memory");
    return (u32)(rdtsc() - t);
}

/* Does the same by a far call into the code segment of 32 bits. */
static u32 run_once_32(const struct op *op, const u8 *at) {
    struct {
        u32 offset;
        u16 selector;
    } __attribute__((packed)) far = { (u32)(u64)at, SEL_CODE32 };
    u64 a = op->eax, c = op->ecx, d = op->edx, t = rdtsc();

    __asm__ volatile("lcall *(%[far])"
                     : "+a"(a), "+c"(c), "+d"(d)
                     : [far] "S"(&far), "D"((u64)op->edi)
                     : "rbx", "r8", "r9", "r10", "r11", "cc", "memory");
    return (u32)(rdtsc() - t);
}

typedef u32 (*run_fn)(const struct op *op, const u8 *at);

/* Returns the median cost of calls that alternate between two places, which may be the same. */
static u32 median_at(const struct op *op, const struct op *put_op, u8 *first, u8 *second,
                     run_fn run, u8 ret) {
    static u32 sample[MAX_N];
    u32 n = 0;

    put(first, put_op, ret);
    put(second, put_op, ret);
    while (n < iterations) {
        u32 cost = run(op, first), other = cost;

        if (first != second) other = run(op, second);
        sample[n++] = MAX(cost, other);
    }
    sort_u32(sample, n);
    return sample[n / 2];
}

struct range {
    u32 worst, best;
};

/* Adds to *r what an operation costs at these places, without the call. */
static void measure(struct range *r, const struct op *op, u8 *first, u8 *second, run_fn run,
                    u8 ret) {
    u32 empty = median_at(op, NULL, first, second, run, ret);
    u32 cost = median_at(op, op, first, second, run, ret) - empty;

    r->worst = MAX(r->worst, cost);
    r->best = MIN(r->best, cost);
}

static void report(const struct op *op, const char *kind, struct range r) {
    printf("LAYOUT %s %s %u %u\n", op->name, kind, r.worst, r.best);
}

/* Measures an operation in all layouts. Interrupts are on for those that cause one. */
static void measure_op(const struct op *op) {
    const struct range none = { 0, ~0u };
    struct range r = none;
    u64 flags;

    for (u32 i = 0; i < SHIFTS; i++) {
        u8 *at = code + 0x100 + i;

        measure(&r, op, at, at, run_once, RET);
    }
    report(op, "shift", r);
    r = none;
    for (u32 i = 1; i <= op->len + 1u; i++) {
        u8 *at = code + PAGE_SIZE - i;

        measure(&r, op, at, at, run_once, RET);
    }
    report(op, "end", r);
    r = none;
    for (u32 i = 1; i < PAGES; i++)
        measure(&r, op, code + 0x200, code + i * PAGE_SIZE + 0x200, run_once, RET);
    report(op, "pair", r);
    if (op->no_32) return;
    r = none;
    flags = irq_save(); /* the handlers are for 64-bit code */
    measure(&r, op, code + 0x300, code + 0x300, run_once_32, RET_FAR);
    irq_restore(flags);
    report(op, "code32", r);
}

int main(void) {
    iterations = MIN(cmdline_u64("n", 100), (u64)MAX_N);
    iterations = MAX(iterations, 1u);
    code = page_alloc(PAGES + 1);
    if (!code) guest_panic("there is no memory for %u pages of code", PAGES + 1);
    if (on_takt() && cpuid(TAKT_CPUID_ABI, 0).ebx & TAKT_FEAT_VMMCALL) ops[1].code[2] = 0xd9;
    for (u32 i = 0; i < ARRAY_SIZE(ops); i++) {
        u64 flags = irq_save();

        if (ops[i].x2 && !lapic_has_x2()) {
            irq_restore(flags);
            continue;
        }
        lapic_set_mode(ops[i].x2);
        trap_set_entry(VECTOR_SELF, ops[i].x2 ? self_x2_entry : self_entry);
        irq_restore(flags);
        measure_op(&ops[i]);
    }
    printf("LAYOUT end\n");
    return 0;
}
