/* Time and timers of a guest. Time is counted by the TSC, from the start of the guest. Each vCPU
 * has a list of timers, in the order of their deadlines, and one hardware timer, that of its local
 * APIC, which is *armed* for the first of them. In deadline mode that timer takes a value of the
 * TSC; otherwise it counts down at a rate of its own. time.h has the contracts. */
#include <guest/guest.h>
#include <guest/lapic.h>
#include <guest/thread.h>
#include <guest/vcpu.h>
#include <takt/io.h>

#define CALIBRATE_MS 20u /* how long rates are measured */
#define PIT_HZ       1193182u
#define PIT_COUNT    (PIT_HZ * CALIBRATE_MS / 1000)
#define PIT_DATA2    0x42
#define PIT_COMMAND  0x43
#define PIT_ONE_SHOT 0xb0 /* a command: counter 2, both bytes, mode 0 */
#define PIT_GATE     0x61
/* Bits of PIT_GATE: counter 2 may count; its output goes to the speaker; its output. */
#define GATE_ON      0x01
#define GATE_SPEAKER 0x02
#define GATE_OUT     0x20

static u64 khz, tsc_start;
/* Factors, in parts of 2^32. */
static u64 ns_per_tsc, tsc_per_ns, lapic_per_ns;
static bool deadline_mode;

/* Multiplies by a factor in parts of 2^32. The product needs 128 bits. */
static u64 scale(u64 v, u64 factor) { return (unsigned __int128)v * factor >> 32; }

u64 tsc_khz(void) { return khz; }

u64 time_of_tsc(u64 tsc) { return scale(tsc - tsc_start, ns_per_tsc); }

u64 tsc_of_time(u64 ns) { return tsc_start + scale(ns, tsc_per_ns); }

u64 time_ns(void) { return time_of_tsc(rdtsc()); }

void delay_ns(u64 ns) {
    u64 end = time_ns() + ns;

    while (time_ns() < end) cpu_relax();
}

/* Measures the rates of the TSC and of the LAPIC's timer on a bare machine (Takt tells them): lets
 * counter 2 of the PIT, whose rate is known, count for CALIBRATE_MS, and sees how far the two have
 * come. */
static void calibrate(void) {
    u64 t;

    outb(PIT_GATE, (inb(PIT_GATE) & ~GATE_SPEAKER) | GATE_ON);
    outb(PIT_COMMAND, PIT_ONE_SHOT);
    outb(PIT_DATA2, PIT_COUNT & 0xff);
    lapic_write(LAPIC_LVT_TIMER, LVT_MASKED);
    lapic_write(LAPIC_TIMER_INITIAL, ~0u);
    outb(PIT_DATA2, PIT_COUNT >> 8);
    t = rdtsc();
    while (!(inb(PIT_GATE) & GATE_OUT)) {
    }
    khz = (rdtsc() - t) / CALIBRATE_MS;
    lapic_set_timer_khz((~0u - lapic_read(LAPIC_TIMER_CURRENT)) / CALIBRATE_MS);
    lapic_write(LAPIC_TIMER_INITIAL, 0);
}

/* Handles the timer's interrupt: calls the functions of the timers that are due. Each may set
 * timers again. At the end thread_timer() arms the hardware timer for whatever comes next. */
static void on_timer(void *arg) {
    struct vcpu *v = this_vcpu();
    u64 now = time_ns();

    v->timer_armed = 0;
    while (v->timers && v->timers->deadline <= now) {
        struct timer *t = v->timers;

        v->timers = t->next;
        t->active = false;
        if (t->period) /* periods that were missed are skipped */
            timer_start_periodic(t, MAX(t->deadline + t->period, now + t->period / 2), t->period,
                                 t->fn, t->arg);
        t->fn(t);
    }
    thread_timer(now);
}

/* Finds out the rates of the clocks, and sets the handler of the timer's interrupt. Takt tells the
 * rates of the TSC and of the LAPIC's timer by CPUID; on a bare machine they are measured. A rate
 * of 0 would make every division below fail later, so the guest ends here with a sentence. */
void time_init(void) {
    if (on_takt()) {
        struct cpuid c = cpuid(TAKT_CPUID_TIME, 0);

        khz = c.eax;
        lapic_set_timer_khz(c.ebx);
    } else {
        calibrate();
    }
    if (!khz || !lapic_timer_khz())
        guest_panic("the clock does not run: TSC %lu kHz, LAPIC timer %lu kHz", khz,
                    lapic_timer_khz());
    ns_per_tsc = (NS_PER_MS << 32) / khz; /* a rate in kHz counts ticks in a millisecond */
    tsc_per_ns = (khz << 32) / NS_PER_MS;
    lapic_per_ns = (lapic_timer_khz() << 32) / NS_PER_MS;
    tsc_start = rdtsc();
    irq_set_handler(VECTOR_TIMER, on_timer, NULL);
}

/* Sets up the timer of the vCPU that calls. */
void time_init_cpu(void) {
    u64 f = irq_save();
    u32 lvt = VECTOR_TIMER;

    deadline_mode = lapic_has_deadline() && !cmdline_has("nodeadline");
    if (deadline_mode) lvt |= LVT_DEADLINE;
    lapic_write(LAPIC_LVT_TIMER, lvt);
    this_vcpu()->timer_armed = 0;
    time_arm(0);
    irq_restore(f);
}

/* Arms the hardware timer of this vCPU for its first timer, or for `not_after` if that comes first
 * (0: no such limit). If the timer is armed for that time already, nothing is written, because each
 * write may cost an exit. */
void time_arm(u64 not_after) {
    struct vcpu *v = this_vcpu();
    u64 deadline = not_after, now, ticks = 1;

    if (v->timers && (!deadline || v->timers->deadline < deadline)) deadline = v->timers->deadline;
    if (deadline == v->timer_armed) return;
    v->timer_armed = deadline;
    if (!deadline) {
        if (deadline_mode)
            wrmsr(MSR_TSC_DEADLINE, 0);
        else
            lapic_write(LAPIC_TIMER_INITIAL, 0);
        return;
    }
    if (deadline_mode) {
        /* Writing 0 would disarm the timer. With any time that has passed, it fires at once. */
        wrmsr(MSR_TSC_DEADLINE, MAX(tsc_of_time(deadline), 1ull));
        return;
    }
    now = time_ns();
    /* Rounded up: otherwise the timer would fire one tick early, and then again at once. */
    if (deadline > now) ticks = scale(deadline - now, lapic_per_ns) + 1;
    lapic_write(LAPIC_TIMER_INITIAL, MIN(ticks, 0xffffffffull));
}

/* Puts the timer into the list of this vCPU, behind those with the same deadline. */
static void insert(struct timer *t) {
    struct timer **at = &this_vcpu()->timers;

    while (*at && (*at)->deadline <= t->deadline) at = &(*at)->next;
    t->next = *at;
    *at = t;
    t->active = true;
}

/* Has fn called at first_ns and then once in period_ns, in the timer's interrupt of this vCPU. The
 * hardware timer is armed anew only if this timer comes before all others. */
void timer_start_periodic(struct timer *t, u64 first_ns, u64 period_ns, void (*fn)(struct timer *t),
                          void *arg) {
    struct vcpu *v = this_vcpu();
    u64 f = irq_save();

    if (t->active) timer_stop(t);
    t->deadline = MAX(first_ns, 1ull); /* 0 means "none" to time_arm() */
    t->period = period_ns;
    t->fn = fn;
    t->arg = arg;
    insert(t);
    if (!v->timer_armed || first_ns < v->timer_armed) time_arm(v->timer_armed);
    irq_restore(f);
}

void timer_start(struct timer *t, u64 deadline_ns, void (*fn)(struct timer *t), void *arg) {
    timer_start_periodic(t, deadline_ns, 0, fn, arg);
}

/* Stops a timer of this vCPU; its function is not called any more. */
void timer_stop(struct timer *t) {
    struct timer **at;
    u64 f = irq_save();

    /* The hardware timer stays armed: on_timer() will find that nothing is due. */
    for (at = &this_vcpu()->timers; *at; at = &(*at)->next)
        if (*at == t) {
            *at = t->next;
            break;
        }
    t->active = false;
    irq_restore(f);
}
