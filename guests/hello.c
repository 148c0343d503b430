/* The smallest guest: it prints one line and ends. */
#include <guest/guest.h>
#include <guest/mem.h>
#include <guest/printf.h>
#include <guest/time.h>
#include <guest/vcpu.h>

/* Prints one line about the machine below. */
int main(void) {
    const char *below = "a bare machine", *plural = "s";

    if (on_takt()) below = "a VM of Takt";
    if (vcpu_count() == 1) plural = "";
    printf("hello from %s: %u vCPU%s, %lu KiB, TSC %lu kHz, command line \"%s\"\n", below,
           vcpu_count(), plural, mem_ram() / 1024, tsc_khz(), cmdline());
    return 0;
}
