/* The load of <guest/background.h>. */
#include <guest/background.h>
#include <guest/compute.h>
#include <guest/duty.h>
#include <guest/guest.h>
#include <guest/phase.h>
#include <guest/thread.h>
#include <guest/vcpu.h>

/* A thread that has been woken waits for so long at most, in ns. The thread that computes would
 * otherwise keep its vCPU for a whole THREAD_QUANTUM. Linux lets one that was woken run at once. */
#define TURN NS_PER_MS

static void compute(void *arg) { compute_for_ever(); }

/* Keeps vCPU `arg` busy for the part of the time that the word busy=P of the command line asks for;
 * it runs as a thread of that vCPU. What other threads of the vCPU compute counts as well, so it
 * computes only what is missing. guest/duty.h says how much that is in each period. */
static void compute_part(void *arg) {
    u32 id = (u32)(u64)arg;
    u64 start = time_ns() + cmdline_phase(id, PHASE_SPAN);
    struct duty d = cmdline_duty(cmdline_u64("busy", 0));

    sleep_until(start);
    duty_begin(&d, start, vcpu_times(id).run_ns, seed_of(takt_seed(), id));
    for (;;) {
        u64 left, now, end;

        duty_look(&d, time_ns(), vcpu_times(id).run_ns);
        left = duty_left(&d, vcpu_times(id).run_ns);
        if (!left) {
            sleep_until(d.next);
            continue;
        }
        now = time_ns();
        for (end = now + MIN(left, TURN); now < end; now = time_ns()) compute_some(end - now);
        thread_yield();
    }
}

/* Starts the threads that compute on the last vCPUs, if the command line has `busy`. */
void background_start(u32 last) {
    void (*fn)(void *) = compute;
    u64 nr = cmdline_u64("busy_vcpus", 1);

    if (!cmdline_has("busy")) return;
    if (cmdline_u64("busy", 0)) fn = compute_part;
    if (nr > last + 1) guest_panic("busy_vcpus=%lu: only %u vCPUs can compute", nr, last + 1);
    for (u64 i = 0; i < nr; i++)
        if (!thread_start((u32)(last - i), "background", fn, (void *)(last - i)))
            guest_panic("there is no memory for a thread that computes");
}
