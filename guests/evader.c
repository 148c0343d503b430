/* Shows theft of service. A scheduler may charge time to the vCPU that runs when the tick comes.
 * This guest sleeps at each tick, so it is never charged, and runs for nothing.
 *
 * The ticks of the credit scheduler are at multiples of tick_us=T (10000) of the hypervisor's time,
 * on each further pCPU T/64 later; shift_us=S (0) is added. The guest begins as <guest/phase.h>
 * says (phase_us=N). It goes to sleep lead_us=L (200) before a tick, for nap_us=N (600). */
#include <guest/guest.h>
#include <guest/thread.h>
#include <guest/time.h>

/* Computes up to just before the tick, and sleeps over it. */
int main(void) {
    u64 tick = cmdline_u64("tick_us", 10000) * NS_PER_US;
    u64 lead = cmdline_u64("lead_us", 200) * NS_PER_US;
    u64 nap = cmdline_u64("nap_us", 600) * NS_PER_US;
    u64 next;

    sleep_until(time_ns() + cmdline_phase(0, tick));
    next = time_ns() + tick; /* the time of the next tick, by time_ns() */
    if (on_takt()) next -= hypercall0(TAKT_HC_TIME) % tick;
    next += cmdline_u64("shift_us", 0) * NS_PER_US;
    for (;;) {
        u64 now = time_ns();

        while (next < now + lead) next += tick;
        while (time_ns() < next - lead)
            ;
        sleep_until(next - lead + nap);
    }
}
