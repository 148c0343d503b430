/* Keeps the stamps of a guest, which say when it passed the borders between layers, and prints them
 * at the end, for `make bench`. stamps.h explains them. */
#include "guests/stamped/stamps.h"
#include <guest/guest.h>
#include <guest/printf.h>
#include <guest/string.h>
#include <guest/thread.h>
#include <guest/time.h>

#define LINE    150 /* characters; the log takes a line of up to 160 every 10 ms */
#define ONE     20  /* the most characters of a stamp */
#define LINE_NS (12 * NS_PER_MS)
#define TRIES   16

u64 stamps[STAMPS];
u32 nr_stamps;

void *__wrap_memcpy(void *to, const void *from, size_t n);
void *__real_memcpy(void *to, const void *from, size_t n);

void *__wrap_memcpy(void *to, const void *from, size_t n) {
    if (n < STAMP_BYTES) return __real_memcpy(to, from, n);
    stamp('<');
    __real_memcpy(to, from, n);
    stamp('>');
    return to;
}

/* Makes two stamps around nothing, for pair_cost(). */
static void nothing(void) {
    stamp('<');
    __asm__ volatile("" : : : "memory");
    stamp('>');
}

/* Returns what a pair of stamps costs, around a call that takes no time. */
static u32 pair_cost(void) {
    void (*volatile f)(void) = nothing;
    u64 t, empty;

    t = rdtsc();
    empty = rdtsc() - t;
    t = rdtsc();
    f();
    t = rdtsc() - t;
    nr_stamps -= 2;
    return (u32)(t - empty);
}

/* Returns how far the hypervisor's time, in ticks of the TSC, is ahead of this guest's TSC. It
 * contains the way into the hypervisor, which has as many instructions in every guest. An interrupt
 * on that way makes the number larger, so it is the least of several. */
static i64 base_of_tsc(void) {
    i64 least = (i64)(~0ull >> 1);

    for (u32 i = 0; i < TRIES; i++) {
        u64 now = rdtsc();
        u64 then = (u64)hypercall0(TAKT_HC_TIME) * tsc_khz() / 1000000;

        least = MIN(least, (i64)(then - now));
    }
    return least;
}

/* Prints all stamps on the console. Times are printed as differences, in hexadecimal, to save
 * characters. The lines come slowly enough for the log to take them all. */
void stamps_print(void) {
    u32 n = MIN(nr_stamps, STAMPS), cost;
    i64 base = base_of_tsc();
    u64 last = 0;

    nr_stamps = 0;
    cost = pair_cost();
    nr_stamps = STAMPS; /* no stamp is recorded from now on */
    printf("STAMPS %u pair %u base %ld\n", n, cost, base);
    for (u32 i = 0; i < n;) {
        char line[LINE];
        int at = snprintf(line, sizeof(line), "STAMPS");

        for (; i < n && at < LINE - ONE; i++) {
            i64 d = (i64)((stamps[i] >> 8) - last);
            const char *sign = "";

            if (d < 0) sign = "-";
            at += snprintf(line + at, ONE, " %c%s%lx", (char)stamps[i], sign, MAX(d, -d));
            last = stamps[i] >> 8;
        }
        sleep_ns(LINE_NS);
        printf("%s\n", line);
    }
    printf("STAMPS end\n");
}
