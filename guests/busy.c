/* Computes percent=P (40) of the time, in periods of period_us=T (10000), on every vCPU.
 *
 * Work is measured by the vCPU's own run time, so that time stolen by others does not count as work; in each
 * period it does its share or, if it does not get that far, goes on until the period is over. Without Takt
 * the clock is all there is. The first period begins as <guest/phase.h> says (phase_us=N). */
#include <guest/event.h>
#include <guest/guest.h>
#include <guest/thread.h>
#include <guest/vcpu.h>

static u64 period, work;

static u64 worked(u32 id) { return on_takt() ? vcpu_times(id).run_ns : time_ns(); }

static void busy(void *arg) {
    u32 id = (u64)arg;
    u64 next = time_ns() + cmdline_phase(id, period);

    while (time_ns() < next) nap_until(next);
    for (;;) {
        u64 until = worked(id) + work;

        next += period;
        if (next < time_ns())
            next = time_ns() + period; /* a whole period was stolen: what was missed is not made up for */
        while (worked(id) < until && time_ns() < next)
            ;
        nap_until(next);
    }
}

int main(void) {
    unsigned n = vcpu_start_all();

    period = cmdline_u64("period_us", 10000) * NS_PER_US;
    work = period * cmdline_u64("percent", 40) / 100;
    for (u64 i = 1; i < n; i++) thread_start(i, "busy", busy, (void *)i);
    busy((void *)0);
    return 0;
}
