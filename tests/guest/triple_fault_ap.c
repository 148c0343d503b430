/* expect: crashed */
/* vcpus: 2 */
/* A triple fault of another vCPU than the first stops the VM just the same. */
#include <guest/test.h>
#include <guest/thread.h>
#include <guest/vcpu.h>

static void fall(void *arg) {
    static const u8 no_idt[10];

    __asm__ volatile("lidt %0; ud2" : : "m"(no_idt));
}

int main(void) {
    test_begin();
    if (vcpu_start_all() < 2) test_error("one vCPU only");
    thread_start(1, "fall", fall, NULL);
    sleep_ns(200 * NS_PER_MS);
    test_survived();
}
