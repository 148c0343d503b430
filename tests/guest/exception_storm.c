/* vcpus: 2 */
/* cpus: 0 */
/* only: bochs */
/* time: 1000 */
/* On one vCPU each delivery of #DB causes another #DB (CVE-2015-8104). It must not keep the pCPU
 * for itself. */
#include <guest/mem.h>
#include <guest/test.h>
#include <guest/thread.h>
#include <guest/vcpu.h>
#include <guest/x86.h>

struct __attribute__((packed)) table {
    u16 limit;
    u64 base;
};

static u8 stack[4096] __attribute__((aligned(16)));
static volatile bool started;

/* #DB is delivered on a stack of its own (IST 7), always the same; a breakpoint watches the
 * first word that is pushed there. So the handler's first instruction is never executed. */
static void storm(void *arg) {
    u64 *watched = (u64 *)(stack + sizeof(stack)) - 1;
    struct table gdt, idt;
    u32 *descriptor;
    u16 tr;
    u8 *tss;

    irq_disable();
    __asm__ volatile("sgdt %0\n\tsidt %1\n\tstr %2" : "=m"(gdt), "=m"(idt), "=r"(tr));
    descriptor = (u32 *)(gdt.base + tr);
    tss = (u8 *)(u64)(descriptor[0] >> 16 | (descriptor[1] & 0xff) << 16 |
                      (descriptor[1] & 0xff000000) | (u64)descriptor[2] << 32);
    *(u64 *)(tss + 36 + 8 * 6) = (u64)(stack + sizeof(stack)); /* IST 7: SDM 3A figure 8-11 */
    ((u8 *)idt.base)[16 * EXC_DB + 4] |= 7;
    __asm__ volatile("mov %0, %%dr0" : : "r"(watched));
    __asm__ volatile("mov %0, %%dr7" : : "r"(0x90402ull)); /* DR0 global, on writes, 8 bytes */
    started = true;
    *watched = 1;
    for (;;)
        ;
}

int main(void) {
    test_begin();
    if (vcpu_start_all() < 2) test_error("too few vCPUs");
    thread_start(1, "storm", storm, NULL);
    for (unsigned i = 0; i < 20; i++) sleep_ns(5 * NS_PER_MS);
    CHECK(started, "the other vCPU never ran");
    return test_end("an endless delivery of exceptions is preempted");
}
