/* Computes for ever on every vCPU, after a wait of up to 30 ms (phase_us=N, see <guest/phase.h>).
 * With `claims` on the command line it tells the hypervisor that it is I/O-intensive, although it
 * is not. */
#include <guest/compute.h>
#include <guest/event.h>
#include <guest/guest.h>
#include <guest/phase.h>
#include <guest/thread.h>
#include <guest/time.h>
#include <guest/vcpu.h>

/* Waits for its phase, so that VMs do not all begin at once, and then computes for ever. */
static void spin(void *arg) {
    u64 begin = time_ns() + cmdline_phase((u32)(u64)arg, PHASE_SPAN);

    while (time_ns() < begin) nap_until(begin);
    compute_for_ever();
}

/* Runs on every vCPU. */
int main(void) {
    unsigned n = vcpu_start_all();

    if (cmdline_has("claims")) hypercall1(TAKT_HC_IO_CLASS, 1);
    for (u64 i = 1; i < n; i++) thread_start(i, "spin", spin, (void *)i);
    spin((void *)0);
    return 0;
}
