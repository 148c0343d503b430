/* The smallest guest: one line, and the end. */
#include <guest/guest.h>
#include <guest/mem.h>
#include <guest/printf.h>
#include <guest/time.h>
#include <guest/vcpu.h>

int main(void) {
    printf("hello from %s: %u vCPU%s, %lu KiB, TSC %lu kHz, command line \"%s\"\n",
           on_takt() ? "a VM of Takt" : "a bare machine", vcpu_count(), vcpu_count() == 1 ? "" : "s",
           mem_ram() / 1024, tsc_khz(), cmdline());
    return 0;
}
