/* Computes, and serves: percent=P (100) of each period_us=T (10000) on every vCPU, and a client's events on
 * vCPU 0, each of which takes work_us=W (50) of its time. With more than one vCPU, vCPU 0 only serves.
 *
 * client=ID is the VM that sends; its guest is client.c, with the same rate=R (300/s), seed=S (as the
 * machine's seed says) and start_ms=M (1000, hypervisor's time). phase_us=N: <guest/phase.h>. For the events from from_ms=F (2000) to to_ms=E (10000) it tells how
 * long after they were raised they were done with. */
#include <guest/arrivals.h>
#include <guest/event.h>
#include <guest/guest.h>
#include <guest/printf.h>
#include <guest/sort.h>
#include <guest/thread.h>
#include <guest/vcpu.h>

#define MAX_SAMPLES 65536

static u64 offset; /* from time_ns() to the hypervisor's time */
static u64 period, share, service, from, to;
static struct arrivals due;
static u32 late[MAX_SAMPLES], samples; /* ns */

static u64 now(void) { return time_ns() + offset; }

static u64 worked(u32 id) { return vcpu_times(id).run_ns; }

/* All that is due: an event that finds its bit set is told with the one before. */
static void on_event(u32 port, void *arg) {
    while (due.next <= now()) {
        u64 until = worked(0) + service;

        while (worked(0) < until)
            ;
        if (due.next >= from && due.next < to && samples < MAX_SAMPLES)
            late[samples++] = (u32)MIN(now() - due.next, 0xffffffffull);
        arrivals_advance(&due);
    }
}

static void report(void) {
    u64 sum = 0;

    irq_disable();
    sort_u32(late, samples);
    for (u32 i = 0; i < samples; i++) sum += late[i];
    if (samples)
        printf("mixed: %u events, ns from raised to done: mean %lu, p99 %u, max %u\n", samples, sum / samples,
               late[(samples * 99 + 99) / 100 - 1], late[samples - 1]);
    else
        printf("mixed: no events\n");
    irq_enable();
}

/* `work` of each period. */
static void compute(u32 id, u64 work) {
    u64 next = time_ns() + cmdline_phase(id, period);

    while (time_ns() < next) nap_until(next);
    for (bool told = false;;) {
        u64 until = worked(id) + work;

        if (id == 0 && !told && now() > to + NS_PER_S / 4) {
            report();
            told = true;
        }
        next += period;
        if (next < time_ns()) next = time_ns() + period;
        while (worked(id) < until && time_ns() < next)
            ;
        while (time_ns() < next) nap_until(next);
    }
}

static void other(void *arg) { compute((u64)arg, share); }

int main(void) {
    u64 n = vcpu_start_all();
    int port;

    if (!on_takt()) return 1;
    offset = hypercall0(TAKT_HC_TIME) - time_ns();
    period = cmdline_u64("period_us", 10000) * NS_PER_US;
    share = period * cmdline_u64("percent", 100) / 100;
    service = cmdline_u64("work_us", 50) * NS_PER_US;
    from = cmdline_u64("from_ms", 2000) * NS_PER_MS;
    to = cmdline_u64("to_ms", 10000) * NS_PER_MS;
    due = arrivals_begin(cmdline_u64("seed", arrivals_seed(takt_machine_seed(), takt_vm_id())),
                         cmdline_u64("rate", 300), cmdline_u64("start_ms", 1000) * NS_PER_MS);
    port = event_alloc(cmdline_u64("client", 0));
    if (port < 0 || event_set_handler(port, 0, on_event, NULL))
        guest_panic("no port for client=%lu", cmdline_u64("client", 0));
    for (u64 i = 1; i < n; i++) thread_start(i, "compute", other, (void *)i);
    compute(0, n > 1 ? 0 : share);
    return 0;
}
