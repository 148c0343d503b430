/* Computes for ever, on every vCPU. */
#include <guest/guest.h>
#include <guest/thread.h>
#include <guest/vcpu.h>

static void spin(void *arg) {
    for (;;) __asm__ volatile("" : : : "memory");
}

int main(void) {
    unsigned n = vcpu_start_all();

    for (unsigned i = 1; i < n; i++) thread_start(i, "spin", spin, NULL);
    spin(NULL);
    return 0;
}
