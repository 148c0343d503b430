/* Your guest. It uses the leaf and the hypercall of your hypervisor (takt/mine.h). */
#include <guest/guest.h>
#include <guest/mem.h>
#include <guest/printf.h>
#include <takt/mine.h>

#define LEN 1000u

struct leaf {
    u32 eax, ebx, ecx, edx;
};

/* Executes CPUID for your leaf. All four registers change. */
static struct leaf mine_leaf(void) {
    struct leaf l;

    __asm__ volatile("cpuid"
                     : "=a"(l.eax), "=b"(l.ebx), "=c"(l.ecx), "=d"(l.edx)
                     : "a"(MINE_CPUID), "c"(0));
    return l;
}

/* Makes your hypercall by VMCALL: the number in EAX, the arguments in RBX and RCX, the result in
 * RAX. The hypervisor reads memory. `p` is where the bytes are: in this guest an address is also a
 * guest-physical address. */
static i64 mine_sum(const void *p, u64 len) {
    i64 result;

    __asm__ volatile("vmcall" : "=a"(result) : "a"(MINE_HC_SUM), "b"(p), "c"(len) : "memory");
    return result;
}

/* Returns how many exits `n` of your hypercalls cost, as your leaf counts them. The exit of the
 * first CPUID is counted by the second. */
static u32 cost_of(u32 n, const void *p) {
    u32 before = mine_leaf().ebx;

    for (u32 i = 0; i < n; i++) mine_sum(p, LEN);
    return mine_leaf().ebx - before - 1;
}

int main(void) {
    static u8 bytes[LEN];
    u32 sign = mine_leaf().eax;

    for (u32 i = 0; i < LEN; i++) bytes[i] = (u8)i;
    printf("mine: sign %c%c%c%c\n", sign & 255, sign >> 8 & 255, sign >> 16 & 255, sign >> 24);
    printf("mine: sum %ld\n", mine_sum(bytes, LEN));
    printf("mine: cost of 50 %u\n", cost_of(50, bytes));
    return 0;
}
