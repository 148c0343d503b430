/* time: 1500 */
/* The timer of the local APIC: one-shot, periodic, TSC deadline; small counts, dividers, changes
 * while it runs; masked and stopped. */
#include <guest/lapic.h>
#include <guest/test.h>
#include <guest/time.h>

#define VECTOR 0x60

static volatile u64 ticks, when, stop_after;

static void on_tick(void *arg) {
    ticks++;
    when = rdtsc();
    if (ticks == stop_after) lapic_write(LAPIC_TIMER_INITIAL, 0);
}

static bool wait_ticks(u64 n, u64 ns) {
    u64 end = time_ns() + ns;

    while (ticks < n && time_ns() < end) cpu_relax();
    return ticks >= n;
}

static void quiet(void) {
    lapic_write(LAPIC_LVT_TIMER, LVT_MASKED | VECTOR);
    lapic_write(LAPIC_TIMER_INITIAL, 0);
    ticks = 0;
}

static void one_shot(void) {
    u64 per_ms = lapic_timer_khz(), start;
    static const u8 divide[] = { 0xb, 0x0, 0x1, 0x2, 0x3, 0x8, 0x9, 0xa };

    for (unsigned i = 0; i < ARRAY_SIZE(divide); i++) { /* by 1, 2, 4 ... 128 */
        quiet();
        lapic_write(LAPIC_TIMER_DIVIDE, divide[i]);
        CHECK(lapic_read(LAPIC_TIMER_DIVIDE) == divide[i], "divider %x reads %x", divide[i],
              lapic_read(LAPIC_TIMER_DIVIDE));
        lapic_write(LAPIC_LVT_TIMER, VECTOR);
        start = rdtsc();
        lapic_write(LAPIC_TIMER_INITIAL, per_ms * 2 >> i);
        CHECK(wait_ticks(1, 500 * NS_PER_MS), "divided by %u it never fired", 1u << i);
        CHECK(when - start >= tsc_khz() * 19 / 10, "divided by %u it fired after %lu of %lu ticks",
              1u << i, when - start, tsc_khz() * 2);
        CHECK(lapic_read(LAPIC_TIMER_CURRENT) == 0, "a one-shot timer goes on counting");
    }
    lapic_write(LAPIC_TIMER_DIVIDE, 0xb);
    quiet();
    lapic_write(LAPIC_LVT_TIMER, VECTOR);
    lapic_write(LAPIC_TIMER_INITIAL, 1);
    CHECK(wait_ticks(1, 500 * NS_PER_MS), "a count of 1 never fired");
    delay_ns(NS_PER_MS);
    CHECK(ticks == 1, "one-shot fired %lu times", ticks);
}

static void periodic(void) {
    u64 start;

    quiet();
    lapic_write(LAPIC_LVT_TIMER, LVT_PERIODIC | VECTOR);
    start = rdtsc();
    lapic_write(LAPIC_TIMER_INITIAL, lapic_timer_khz());
    CHECK(wait_ticks(20, 2 * NS_PER_S), "periodic fired %lu times only", ticks);
    CHECK(when - start >= 19 * tsc_khz(), "20 periods of 1 ms in %lu ticks of %lu kHz",
          when - start, tsc_khz());
    CHECK(lapic_read(LAPIC_TIMER_CURRENT) <= lapic_timer_khz(), "current count above the initial");
    /* Masked, it counts but does not fire. */
    lapic_write(LAPIC_LVT_TIMER, LVT_MASKED | LVT_PERIODIC | VECTOR);
    delay_ns(NS_PER_MS);
    ticks = 0;
    delay_ns(5 * NS_PER_MS);
    CHECK(ticks == 0, "masked, and fired %lu times", ticks);
    if (!on_takt()) return;
    /* The smallest period: it must not take the machine with it. On a slow one there is no time
     * for anything but the handler, so it is the handler that stops it. */
    quiet();
    stop_after = 20;
    lapic_write(LAPIC_LVT_TIMER, LVT_PERIODIC | VECTOR);
    lapic_write(LAPIC_TIMER_INITIAL, 1);
    CHECK(wait_ticks(20, NS_PER_S), "period 1 fired %lu times", ticks);
    stop_after = 0;
    delay_ns(NS_PER_MS);
    ticks = 0;
    delay_ns(5 * NS_PER_MS);
    CHECK(ticks == 0, "a count of 0 does not stop it");
}

static void changes(void) {
    quiet();
    lapic_write(LAPIC_LVT_TIMER, VECTOR);
    lapic_write(LAPIC_TIMER_INITIAL, lapic_timer_khz() * 1000);
    for (unsigned i = 0; i < 100; i++) {
        lapic_write(LAPIC_TIMER_DIVIDE, i & 0xb);
        CHECK(lapic_read(LAPIC_TIMER_CURRENT) <= lapic_timer_khz() * 1000, "current %x",
              lapic_read(LAPIC_TIMER_CURRENT));
    }
    lapic_write(LAPIC_TIMER_DIVIDE, 0xb);
    lapic_write(LAPIC_LVT_TIMER, LVT_PERIODIC | VECTOR);
    lapic_write(LAPIC_TIMER_INITIAL, lapic_timer_khz());
    CHECK(wait_ticks(2, NS_PER_S), "from one-shot to periodic: %lu", ticks);
    quiet();
}

static void deadline(void) {
    u64 due;

    if (!lapic_has_deadline()) {
        check_exception(wrmsr_fault(MSR_TSC_DEADLINE, 0), EXC_GP, "TSC deadline, hidden");
        return;
    }
    lapic_write(LAPIC_LVT_TIMER, LVT_DEADLINE | VECTOR);
    CHECK(rdmsr(MSR_TSC_DEADLINE) == 0, "deadline is %lx at first", rdmsr(MSR_TSC_DEADLINE));
    for (unsigned i = 0; i < 10; i++) {
        ticks = 0;
        due = rdtsc() + tsc_khz();
        wrmsr(MSR_TSC_DEADLINE, due);
        CHECK(rdmsr(MSR_TSC_DEADLINE) == due || ticks, "the deadline reads %lx",
              rdmsr(MSR_TSC_DEADLINE));
        CHECK(wait_ticks(1, 500 * NS_PER_MS), "the deadline passed in silence");
        CHECK(when >= due, "fired %lu ticks early", due - when);
        CHECK(rdmsr(MSR_TSC_DEADLINE) == 0, "it reads %lx after firing", rdmsr(MSR_TSC_DEADLINE));
    }
    ticks = 0;
    wrmsr(MSR_TSC_DEADLINE, 1); /* long ago: at once */
    CHECK(wait_ticks(1, 500 * NS_PER_MS), "a deadline in the past never fired");
    wrmsr(MSR_TSC_DEADLINE, rdtsc() + tsc_khz() * 3);
    wrmsr(MSR_TSC_DEADLINE, 0);
    ticks = 0; /* if this took longer than that, it was right to fire */
    delay_ns(5 * NS_PER_MS);
    CHECK(ticks == 0, "disarmed, and fired");
    wrmsr(MSR_TSC_DEADLINE, ~0ull); /* never */
    wrmsr(MSR_TSC_DEADLINE, 0);
    /* In deadline mode the count registers do nothing. */
    lapic_write(LAPIC_TIMER_INITIAL, 1000);
    CHECK(lapic_read(LAPIC_TIMER_CURRENT) == 0, "the count runs in deadline mode");
    /* Leaving the mode disarms it. */
    wrmsr(MSR_TSC_DEADLINE, rdtsc() + tsc_khz() * 3);
    lapic_write(LAPIC_LVT_TIMER, VECTOR);
    ticks = 0;
    delay_ns(5 * NS_PER_MS);
    CHECK(ticks == 0, "leaving deadline mode left it armed");
}

/* HLT sleeps until the interrupt comes, not less long and not for ever. */
static void halt(void) {
    u64 start;

    for (unsigned i = 0; i < 20; i++) {
        quiet();
        irq_disable();
        lapic_write(LAPIC_LVT_TIMER, VECTOR);
        start = rdtsc();
        lapic_write(LAPIC_TIMER_INITIAL, lapic_timer_khz());
        while (!ticks) {
            irq_enable_and_halt();
            irq_disable();
        }
        irq_enable();
        CHECK(when - start >= tsc_khz() * 9 / 10, "HLT ended after %lu of %lu ticks", when - start,
              tsc_khz());
    }
}

int main(void) {
    test_begin();
    irq_set_handler(VECTOR, on_tick, NULL);
    one_shot();
    periodic();
    changes();
    deadline();
    quiet();
    halt();
    quiet();
    return test_end("the LAPIC timer in all its modes");
}
