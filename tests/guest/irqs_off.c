/* vcpus: 4 */
/* time: 1000 */
/* vCPUs that switch interrupts off and spin for ever do not keep others on the same pCPUs from
 * running. */
#include <guest/test.h>
#include <guest/thread.h>
#include <guest/vcpu.h>

static void spin(void *arg) {
    irq_disable();
    for (;;)
        ;
}

int main(void) {
    unsigned n;

    test_begin();
    n = vcpu_start_all();
    if (n < 3) test_error("too few vCPUs");
    for (unsigned i = 1; i < n; i++) thread_start(i, "spin", spin, NULL);
    for (unsigned i = 0; i < 20; i++) sleep_ns(5 * NS_PER_MS);
    return test_end("those who want no interrupts are preempted all the same");
}
