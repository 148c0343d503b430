/* Sleeps and wakes every period_us=T (10000) by the timer of the local APIC, and measures how late
 * each wake is. It reports every report_s=R (5) seconds, and at its end if it has one (after
 * count=N wakes). The first wake is as <guest/phase.h> says (phase_us=N). */
#include <guest/event.h>
#include <guest/guest.h>
#include <guest/printf.h>
#include <guest/string.h>
#include <guest/thread.h>
#include "common/hist.h"

static struct hist late;

static void report(const char *what) {
    printf("waker%s: %lu wakes, late by p50 <= %lu us, p99 <= %lu us, max %lu us\n", what,
           late.count, hist_percentile(&late, 500) / 1000, hist_percentile(&late, 990) / 1000,
           late.max / 1000);
}

/* Sleeps and wakes periodically, and measures how late each wake comes. If a wake comes so late
 * that the next one is over, too, that one is left out. */
int main(void) {
    u64 period = cmdline_u64("period_us", 10000) * NS_PER_US, count = cmdline_u64("count", 0);
    u64 every = cmdline_u64("report_s", 5) * NS_PER_S;
    u64 due = time_ns() + cmdline_phase(0, period), next_report = time_ns() + every;

    for (u64 i = 0; !count || i < count; i++) {
        u64 now;

        nap_until(due);
        now = time_ns();
        hist_add(&late, now - due);
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
