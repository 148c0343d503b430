/* Computes, and serves events beside that.
 *
 * On every vCPU it computes for percent=P (100) of the time, in periods of period_us=T (10000), as
 * <guest/duty.h> explains (loop=open, jitter_pct=J). The first period begins as <guest/phase.h>
 * says (phase_us=N). On vCPU 0 it also serves the events of a client, each of which takes work_us=W
 * (50) more. With more than one vCPU, vCPU 0 only serves.
 *
 * client=ID is the VM that sends. Its guest is client.c, with the same rate=R (300 a second),
 * seed=S (else the machine's seed) and start_ms=M (1000, in the hypervisor's time). So this guest
 * knows when each event was raised. For the events from from_ms=F (2000) to to_ms=E (10000) it
 * prints how long they took until they were done, in all and in each half of that time. */
#include <guest/arrivals.h>
#include <guest/compute.h>
#include <guest/duty.h>
#include <guest/event.h>
#include <guest/guest.h>
#include <guest/printf.h>
#include <guest/sort.h>
#include <guest/thread.h>
#include <guest/vcpu.h>

#define MAX_SAMPLES 65536

static u64 offset; /* add it to time_ns() to get the hypervisor's time */
static u64 service, from, to;
static struct duty asked;
static struct arrivals due;
static u64 late[MAX_SAMPLES]; /* ns, in the order in which the events were done */
static u32 samples;
/* How many of them belong to the first half of the time from `from` to `to`. */
static u32 first_samples;
/* How long vCPU 0 has worked for events, in ns. The interrupt handler adds to it. */
static volatile u64 served;

static u64 now(void) { return time_ns() + offset; }

static u64 ran(u32 id) { return vcpu_times(id).run_ns; }

/* Returns for how many ns a vCPU has computed, without what it did for events. */
static u64 worked(u32 id) {
    u64 before, ns;

    do { /* until no event comes between the two reads */
        before = served;
        ns = ran(id);
    } while (before != served);
    if (id) return ns;
    return ns - before;
}

/* Serves all events that are due. An event that is raised while the bit of an earlier one is still
 * set brings no interrupt of its own, so the arrival times decide and not the interrupts. */
static void on_event(u32 port, void *arg) {
    while (due.next <= now()) {
        u64 began = ran(0);

        while (ran(0) < began + service)
            ;
        if (due.next >= from && due.next < to && samples < MAX_SAMPLES) {
            late[samples++] = now() - due.next;
            if (now() < from + (to - from) / 2) first_samples = samples;
        }
        arrivals_advance(&due);
        served += ran(0) - began;
    }
}

/* Prints one line on `n` events: mean, 99th percentile and maximum of the time until they were
 * done. Sorts the samples. */
static void report_part(const char *part, u64 *ns, u32 n) {
    u64 sum = 0;

    sort_u64(ns, n);
    for (u32 i = 0; i < n; i++) sum += ns[i];
    if (n)
        printf("mixed: %s: %u events, ns from raised to done: mean %lu, p99 %lu, max %lu\n", part,
               n, sum / n, ns[(n * 99 + 99) / 100 - 1], ns[n - 1]);
    else
        printf("mixed: %s: no events\n", part);
}

/* Prints the report. The halves come first, because sorting the whole mixes them. An event belongs
 * to the half in which it is done. If the halves differ, the measurement began before the machine
 * had settled. */
static void report(void) {
    irq_disable();
    report_part("half 1", late, first_samples);
    report_part("half 2", late + first_samples, samples - first_samples);
    report_part("whole", late, samples);
    irq_enable();
}

/* Prints the report once, at a time when the last of the events should have been done. */
static void report_in_time(void) {
    static bool told;

    if (told || now() <= to + NS_PER_S / 4) return;
    report();
    told = true;
}

/* Computes period by period by the CPU time that the vCPU got, without the time for events. */
static void compute(u32 id, struct duty d) {
    u64 start = time_ns() + cmdline_phase(id, d.period), left;

    while (time_ns() < start) nap_until(start);
    duty_begin(&d, start, worked(id), seed_of(takt_seed(), id));
    for (;;) {
        if (id == 0) report_in_time();
        duty_look(&d, time_ns(), worked(id));
        left = duty_left(&d, worked(id));
        if (left)
            compute_some(left);
        else
            nap_until(d.next);
    }
}

static void other(void *arg) { compute((u64)arg, asked); }

/* Starts the thread that computes and the one that serves events. On one vCPU the same vCPU
 * computes and serves; the interrupt of an event comes in between. */
int main(void) {
    u64 n = vcpu_start_all();
    int port;

    if (!on_takt()) return 1;
    offset = hypercall0(TAKT_HC_TIME) - time_ns();
    asked = cmdline_duty(100);
    service = cmdline_u64("work_us", 50) * NS_PER_US;
    from = cmdline_u64("from_ms", 2000) * NS_PER_MS;
    to = cmdline_u64("to_ms", 10000) * NS_PER_MS;
    due = arrivals_begin(cmdline_u64("seed", arrivals_seed(takt_machine_seed(), takt_vm_id())),
                         cmdline_u64("rate", 300), cmdline_u64("start_ms", 1000) * NS_PER_MS);
    port = event_alloc(cmdline_u64("client", 0));
    if (port < 0 || event_set_handler(port, 0, on_event, NULL))
        guest_panic("there is no event channel to the VM client=%lu", cmdline_u64("client", 0));
    for (u64 i = 1; i < n; i++) thread_start(i, "compute", other, (void *)i);
    if (n == 1) compute(0, asked);
    /* This vCPU only serves. It wakes once a second, to see whether it is time to report. */
    compute(0, (struct duty){ .period = NS_PER_S });
    return 0;
}
