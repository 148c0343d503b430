/* Computes for ever, on every vCPU. With `claims` on the command line it says that it is I/O-intensive. */
#include <guest/guest.h>
#include <guest/thread.h>
#include <guest/vcpu.h>

static void spin(void *arg) {
    for (;;) __asm__ volatile("" : : : "memory");
}

int main(void) {
    unsigned n = vcpu_start_all();

    if (cmdline_has("claims")) hypercall1(TAKT_HC_IO_CLASS, 1);
    for (unsigned i = 1; i < n; i++) thread_start(i, "spin", spin, NULL);
    spin(NULL);
    return 0;
}
