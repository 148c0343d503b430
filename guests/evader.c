/* Computes between the scheduler's ticks and sleeps over each of them: tick_us=T (10000), lead_us=L (100) is
 * how long before the tick it goes to sleep, nap_us=N (200) for how long. Where time is charged by who runs
 * at the tick, it runs for nothing.
 *
 * It finds the phase of the ticks by itself: being descheduled in the middle of a period shifts its guess. */
#include <guest/guest.h>
#include <guest/thread.h>
#include <guest/time.h>

int main(void) {
    u64 tick = cmdline_u64("tick_us", 10000) * NS_PER_US;
    u64 lead = cmdline_u64("lead_us", 100) * NS_PER_US;
    u64 nap = cmdline_u64("nap_us", 200) * NS_PER_US;
    u64 next = time_ns() + tick;

    for (;;) {
        u64 last = time_ns(), now;

        while ((now = time_ns()) < next - lead) {
            if (now - last > tick / 10)
                next = now + tick; /* somebody ran: he was let in at a tick, or when one came */
            last = now;
        }
        sleep_until(next - lead + nap);
        next += tick;
        if (next < time_ns() + lead) next = time_ns() + tick;
    }
}
