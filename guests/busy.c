/* Computes for percent=P (40) of the time, in periods of period_us=T (10000), on every vCPU.
 * <guest/duty.h> explains how, and what loop=open and jitter_pct=J mean. The first period begins as
 * <guest/phase.h> says (phase_us=N). */
#include <guest/compute.h>
#include <guest/duty.h>
#include <guest/event.h>
#include <guest/guest.h>
#include <guest/thread.h>
#include <guest/vcpu.h>

static struct duty asked;

/* Returns for how many ns the vCPU has worked. Outside of Takt nobody counts it, so the clock has
 * to do. */
static u64 worked(u32 id) {
    if (on_takt()) return vcpu_times(id).run_ns;
    return time_ns();
}

/* Computes period by period. It works by the CPU time that the vCPU got, and not by the clock, so
 * that a vCPU that was kept waiting makes up for it. */
static void busy(void *arg) {
    u32 id = (u64)arg;
    u64 start = time_ns() + cmdline_phase(id, asked.period);
    struct duty d = asked;
    u64 left;

    while (time_ns() < start) nap_until(start);
    duty_begin(&d, start, worked(id), seed_of(takt_seed(), id));
    for (;;) {
        duty_look(&d, time_ns(), worked(id));
        left = duty_left(&d, worked(id));
        if (left)
            compute_some(left);
        else
            nap_until(d.next);
    }
}

/* Runs busy() on every vCPU. */
int main(void) {
    unsigned n = vcpu_start_all();

    asked = cmdline_duty(40);
    for (u64 i = 1; i < n; i++) thread_start(i, "busy", busy, (void *)i);
    busy((void *)0);
    return 0;
}
