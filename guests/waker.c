/* Sleeps and wakes every period_us=T (10000) by the LAPIC timer, and reports how late it woke: every
 * report_s=R (5) seconds, and at the end if it has one (count=N wakes). */
#include <guest/event.h>
#include <guest/guest.h>
#include <guest/printf.h>
#include <guest/string.h>
#include <guest/thread.h>

#define BUCKETS 40 /* of powers of two of ns */

static u64 bucket[BUCKETS], total, worst;

static void add(u64 ns) {
    unsigned b = ns ? 64 - __builtin_clzll(ns) : 0;

    bucket[MIN(b, BUCKETS - 1u)]++;
    total++;
    worst = MAX(worst, ns);
}

/* The upper edge of the bucket in which the sample lies. */
static u64 percentile(u64 permille) {
    u64 seen = 0;

    for (unsigned b = 0; b < BUCKETS; b++) {
        seen += bucket[b];
        if (seen * 1000 >= total * permille) return MIN(1ull << b, worst);
    }
    return worst;
}

static void report(const char *what) {
    printf("waker%s: %lu wakes, late by p50 <= %lu us, p99 <= %lu us, max %lu us\n", what, total,
           percentile(500) / 1000, percentile(990) / 1000, worst / 1000);
}

int main(void) {
    u64 period = cmdline_u64("period_us", 10000) * NS_PER_US, count = cmdline_u64("count", 0);
    u64 every = cmdline_u64("report_s", 5) * NS_PER_S;
    u64 due = time_ns() + period, next_report = time_ns() + every;

    for (u64 i = 0; !count || i < count; i++) {
        u64 now;

        nap_until(due);
        now = time_ns();
        add(now - due);
        due += period;
        if (due < now) due = now + period;
        if (now >= next_report) {
            report("");
            next_report = now + every;
        }
    }
    report(" (end)");
    return 0;
}
