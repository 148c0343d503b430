/* only: bochs */
/* vcpus: 2 */
/* time: 800 */
/* A data breakpoint on the stack to which #DB is delivered raises #DB again, without end
 * (CVE-2015-8104). The other vCPU and the machine must go on. */
#include <guest/test.h>
#include <guest/thread.h>
#include <guest/vcpu.h>

static u64 stack[64] __attribute__((aligned(64)));
static volatile bool began;

void db_entry(void);
__asm__(".pushsection .text; db_entry: jmp db_entry; .popsection");

static void loop(void *arg) {
    struct {
        u16 limit;
        u64 base;
    } __attribute__((packed)) r;
    u64 *watched = &stack[63]; /* SS of the frame */

    irq_disable();
    trap_set_entry(EXC_DB, db_entry);
    __asm__ volatile("sidt %0" : "=m"(r));
    ((u8 *)r.base)[EXC_DB * 16 + 4] = 2;
    this_vcpu()->tss.ist[1] = (u64)(stack + 64);
    __asm__ volatile("mov %0, %%dr0; mov %1, %%dr7"
                     :
                     : "r"(watched), "r"(0x402ull | 1 << 16 | 2 << 18));
    began = true;
    *(volatile u64 *)watched = 1;
    for (;;)
        ;
}

int main(void) {
    test_begin();
    if (vcpu_start_all() < 2) test_error("one vCPU only");
    thread_start(1, "loop", loop, NULL);
    for (unsigned i = 0; i < 10; i++) sleep_ns(5 * NS_PER_MS);
    CHECK(began, "the loop never began");
    return test_end("an endless delivery is its own vCPU's problem");
}
