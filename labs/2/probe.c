/* The grader's guest: makes hypercalls from all kinds of code, asks for your leaf, and prints what
 * came. */
#include <guest/guest.h>
#include <guest/printf.h>
#include <guest/trap.h>
#include <takt/mine.h>
#include "common/insn.h"

#define CHUNK 0x200000u   /* a VM's RAM comes in pieces of 2 MiB */
#define PAST  (64u << 20) /* behind the RAM of this VM */

static u8 big[3u << 20]; /* a border of two chunks is in it */

void probe_compat(void), probe_user(void);
__asm__(".pushsection .text\n"
        "probe_user: mov %rdi, %rax; vmcall; int $0x81\n"
        ".code32\n"
        "probe_compat: vmcall; ret\n"
        ".code64\n"
        ".popsection");

/* Calls that Takt has: they tell whether your hypervisor decodes the exit. */
static void old_calls(void) {
    struct compat_regs r = { .rax = 99 };
    i64 before = hypercall0(TAKT_HC_TIME);
    u64 rax = 0;

    printf("probe: version %lx\n", hypercall0(TAKT_HC_VERSION));
    printf("probe: time grows %d\n", hypercall0(TAKT_HC_TIME) > before);
    user_run(probe_user, TAKT_HC_VERSION, false, &rax);
    printf("probe: at CPL 3 %ld\n", (i64)rax);
    compat_call(probe_compat, &r);
    printf("probe: from 32-bit code %lx\n", r.rax);
}

static void leaf(void) {
    struct cpuid first = cpuid(MINE_CPUID, 0), last;

    printf("probe: highest leaf %x\n", cpuid(TAKT_CPUID_BASE, 0).eax);
    printf("probe: leaf %x %u %x\n", first.eax, first.ecx, first.edx);
    first = cpuid(MINE_CPUID, 0);
    for (u32 i = 0; i < 100; i++) cpuid(TAKT_CPUID_BASE, 0);
    last = cpuid(MINE_CPUID, 0);
    printf("probe: 100 CPUIDs, exits %u\n", last.ebx - first.ebx - 1);
}

/* Returns the sum that the hypercall says, less what it should be. */
static i64 off(const u8 *p, u64 len) {
    i64 sum = 0;

    for (u64 i = 0; i < len; i++) sum += p[i];
    return hypercall2(MINE_HC_SUM, (u64)p, len) - sum;
}

static void calls(void) {
    u8 *border = (u8 *)(((u64)big / CHUNK + 1) * CHUNK);

    for (u32 i = 0; i < sizeof(big); i++) big[i] = (u8)(i * 7 + 1);
    printf("probe: sums are off by %ld %ld %ld\n", off(big, 1), off(big, 4096), off(big, 0));
    printf("probe: behind the RAM %ld\n", hypercall2(MINE_HC_SUM, PAST, 16));
    printf("probe: too long %ld\n", hypercall2(MINE_HC_SUM, (u64)big, 4097));
    printf("probe: two chunks, off by %ld\n", off(border - 1000, 3000));
}

int main(void) {
    old_calls();
    leaf();
    calls();
    return 0;
}
