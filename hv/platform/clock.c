/* Measures how fast the TSC (each CPU's counter of time) and the LAPIC's timer count. Both are
 * compared with a clock whose rate is known, the "reference": the HPET, or the PIT where there is
 * no HPET. Everything that Takt knows about time follows from these rates. The end of the file
 * compares the TSCs of two CPUs. */
#include "platform/clock.h"

#include <takt/errno.h>
#include <takt/io.h>
#include "lib/printf.h"
#include "platform/apic.h"
#include "platform/hostmap.h"
#include "platform/tscrate.h"
#include "common/insn.h"
#include "x86/tsc.h"

#define FS_PER_NS 1000000ull

/* Registers of the HPET: IA-PC HPET 2.3.4 to 2.3.7. */
#define HPET_PERIOD  4u /* the upper half of the capabilities: femtoseconds a tick */
#define HPET_CONFIG  0x10u
#define HPET_ON      1u
#define HPET_COUNTER 0xf0u
#define HPET_LONGEST (100 * FS_PER_NS) /* no HPET ticks more slowly */

/* Ports and commands of the PIT (8254), and of the port that holds the gate of its channel 2. */
#define PIT_CHANNEL_2 0x42
#define PIT_COMMAND   0x43
#define PIT_LATCH_2   0x80 /* keep the count of channel 2, so that both bytes belong together */
#define PIT_MODE_2    0xb4 /* channel 2, both bytes, mode 2: count down again and again */
#define PIT_COUNTS    0x10000u
#define PIT_FS        838095344 /* femtoseconds a tick: the PIT runs at 1.193182 MHz */
#define SPEAKER_PORT  0x61
#define SPEAKER_GATE  1 /* channel 2 counts */
#define SPEAKER_ON    2

/* A clock of a known rate that counts up: the TSC and the LAPIC's timer are measured by it. */
struct reference {
    const char *name;
    u64 fs; /* femtoseconds a tick */
    u32 mask;
    u32 (*read)(void);
};

u64 tsc_khz, tsc_boot, tsc_to_ns_mul, ns_to_tsc_mul, apic_timer_khz;
static volatile u8 *hpet;

/* These three read a clock that counts up. They are the member `read` of struct reference. */
static u32 read_hpet(void) { return mmio_read32(hpet + HPET_COUNTER); }

/* Reads channel 2 of the 8254 as a clock that counts up. The channel itself counts down from 65536
 * again and again (use_pit()). */
static u32 read_pit(void) {
    u32 n;

    outb(PIT_COMMAND, PIT_LATCH_2);
    n = inb(PIT_CHANNEL_2);
    return PIT_COUNTS - (n | (u32)inb(PIT_CHANNEL_2) << 8);
}

/* The LAPIC's timer counts down from ~0. */
static u32 read_apic_timer(void) { return ~apic_timer_left(); }

/* Starts the HPET (IA-PC HPET 2.3) as the reference. Returns false if it cannot be used. */
static bool use_hpet(const struct acpi_info *a, struct reference *r) {
    u64 period;

    if (!a->hpet_addr) return false;
    hpet = mmio_map(a->hpet_addr, PAGE_SIZE);
    if (!hpet) return false;
    period = mmio_read32(hpet + HPET_PERIOD);
    if (!period || period > HPET_LONGEST) return false;
    mmio_write32(hpet + HPET_CONFIG, mmio_read32(hpet + HPET_CONFIG) | HPET_ON);
    *r = (struct reference){ "HPET", period, ~0u, read_hpet };
    return true;
}

/* Starts channel 2 of the 8254 as the reference. Every PC has it, so we do not look for it first;
 * if it does not count, measure_tsc() finds that out. */
static bool use_pit(struct reference *r) {
    outb(SPEAKER_PORT, (inb(SPEAKER_PORT) & ~SPEAKER_ON) | SPEAKER_GATE);
    outb(PIT_COMMAND, PIT_MODE_2);
    outb(PIT_CHANNEL_2, 0); /* 0 stands for 65536 counts */
    outb(PIT_CHANNEL_2, 0);
    *r = (struct reference){ "8254", PIT_FS, PIT_COUNTS - 1, read_pit };
    return true;
}

/* One reading of the reference, between two of the TSC. */
struct sample {
    u32 ref;
    u64 tsc, width;
};

/* Reads the reference and the TSC at the same moment, as well as that is possible. The TSC is read
 * before and after; `width` is how far the two readings are apart. */
static struct sample sample_clock(const struct reference *r) {
    struct sample best = { 0, 0, ~0ull };

    /* Take the quickest of three readings: in an emulator the host may run something else in
     * between. */
    for (int i = 0; i < 3; i++) {
        u64 t0 = rdtsc();
        u32 ref = r->read();
        u64 t1 = rdtsc();

        if (t1 - t0 < best.width) best = (struct sample){ ref, t0 + (t1 - t0) / 2, t1 - t0 };
    }
    return best;
}

#define GOOD_ENOUGH  20000 /* stop when the error is under one part in so many */
#define STANDS_STILL ~0u
/* A clock that has not moved after so many samples stands still. They take some tenths of a second,
 * in which a clock that counts moves millions of times. */
#define MOST_SAMPLES 100000u
#define LONGEST_FS   (50 * NS_PER_MS * FS_PER_NS) /* the longest that a measurement takes */

/* Counts the ticks of `r` into *ref, and those of the TSC in the same time into *tsc, until their
 * ratio is known to one part in GOOD_ENOUGH, or for LONGEST_FS. Returns how far the ratio may be
 * off, in parts per million, or STANDS_STILL if `r` does not count. */
static u32 compare_clock(const struct reference *r, u64 *ref, u64 *tsc) {
    struct sample start = sample_clock(r), now;
    u64 error = 0;

    *ref = 0;
    for (u32 samples = 0; samples < MOST_SAMPLES && *ref * r->fs <= LONGEST_FS; samples++) {
        now = sample_clock(r);
        *ref = (now.ref - start.ref) & r->mask;
        *tsc = now.tsc - start.tsc;
        if (!*ref) continue;
        /* In ticks of the TSC: each sample may be off by half the time that it took, and the
         * reference by one of its own ticks. */
        error = (start.width + now.width) / 2 + *tsc / *ref + 1;
        if (error < *tsc / GOOD_ENOUGH) break;
    }
    if (!*ref || !*tsc) return STANDS_STILL;
    return (u32)MIN(error * 1000000 / *tsc, 999999ull);
}

/* Measures the TSC's rate by `r`; .khz is 0 if `r` does not count. */
static struct tsc_measured measure_tsc(const struct reference *r) {
    struct tsc_measured m = { 0 };
    u64 ref, tsc;

    m.ppm = compare_clock(r, &ref, &tsc);
    if (m.ppm != STANDS_STILL)
        m.khz = (u64)((unsigned __int128)tsc * 1000000000000ull / (ref * r->fs));
    return m;
}

/* Tells the operator which rate is used (`khz`) and how well it is known. `said` is what `leaf` of
 * CPUID gives (0: nothing), `m` is what was measured by `clock`. */
static void tell_rate(u64 khz, u64 said, const char *leaf, const char *clock,
                      const struct tsc_measured *m) {
    u64 mhz = khz / 1000, rest = khz % 1000;

    if (!m->khz)
        log_info("TSC: %lu.%03lu MHz by %s: no clock counts that could confirm it", mhz, rest,
                 leaf);
    else if (khz == said)
        log_info("TSC: %lu.%03lu MHz by %s, confirmed by the %s to within %u ppm", mhz, rest, leaf,
                 clock, m->ppm);
    else
        log_info("TSC: %lu.%03lu MHz by the %s, to within %u ppm", mhz, rest, clock, m->ppm);
    if (said && khz != said)
        log_warn("%s says %lu.%03lu MHz, which the measurement contradicts", leaf, said / 1000,
                 said % 1000);
}

/* Finds the rates of the TSC and of the APIC's timer. Returns 0, or -ENODEV if that is not
 * possible. Measures by the HPET, or else by the PIT. If CPUID names a rate and the measurement
 * agrees with it, CPUID's rate is used, because it is exact. The two factors `tsc_to_ns_mul` and
 * `ns_to_tsc_mul` turn a division at each reading of the clock into a multiplication; they have 32
 * bits behind the point. */
int clock_calibrate(const struct acpi_info *a) {
    struct reference r = { .name = NULL }, timer = { .mask = ~0u, .read = read_apic_timer };
    struct tsc_measured measured = { 0 };
    const char *leaf;
    u64 said = tsc_rate_said(&leaf), khz, ref, tsc;

    if (use_hpet(a, &r)) measured = measure_tsc(&r);
    if (!measured.khz && use_pit(&r)) measured = measure_tsc(&r);
    khz = measured.khz;
    if (said && tsc_rate_confirmed(said, &measured)) khz = said;
    if (!khz) return -ENODEV;
    tsc_khz = khz;
    tsc_to_ns_mul = (1000000ull << 32) / khz;
    ns_to_tsc_mul = (khz << 32) / 1000000;
    tell_rate(khz, said, leaf, r.name, &measured);
    if (apic_tsc_deadline) return 0;
    apic_timer_count(~0u);
    if (compare_clock(&timer, &ref, &tsc) != STANDS_STILL) apic_timer_khz = ref * khz / tsc;
    apic_timer_count(0);
    log_info("APIC timer: %lu.%03lu MHz", apic_timer_khz / 1000, apic_timer_khz % 1000);
    if (!apic_timer_khz) return -ENODEV;
    return 0;
}

/* Waits in a loop. It is for the start and the end of the machine, when no guest waits
 * meanwhile. */
void delay_ns(u64 ns) {
    u64 end = rdtsc() + ns_to_tsc(ns);

    while (rdtsc() < end) cpu_relax();
}

/* How often the other CPU compares its TSC, and how long each of the two takes part at most. After
 * hundreds of turns the largest difference has been seen to within some ticks. */
#define COMPARISONS 500
#define COMPARE_NS  (100 * NS_PER_MS)

/* `latest` is the largest TSC that either CPU has read. behind[true] is by how much the boot CPU's
 * TSC was seen to be behind it, and behind[false] the same for the other CPU. */
static volatile u64 latest, behind[2];

/* Compares this CPU's TSC with `latest`, and updates one of the two. If `latest` was written before
 * we read our TSC, our TSC must not be smaller: then time would go backwards from CPU to CPU. */
static void compare_once(bool boot_cpu) {
    u64 seen = latest, t;

    __asm__ volatile("lfence" : : : "memory");
    t = rdtsc();
    if (t < seen)
        behind[boot_cpu] = MAX(behind[boot_cpu], seen - t);
    else
        __atomic_compare_exchange_n(&latest, &seen, t, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
}

/* Compares the TSCs of the boot CPU and of another CPU. Both call it at the same time, the other
 * CPU with `mine` true; it sets *done at the end. clock_lag() tells the result. The two CPUs note
 * in turn the largest TSC that they have seen; compare_once() finds out whether one of them ever
 * reads a smaller one. */
void clock_compare(volatile bool *done, bool mine) {
    u64 end = rdtsc() + ns_to_tsc(COMPARE_NS);

    if (mine) {
        /* Wait for the boot CPU. Otherwise all comparisons could be over before it begins. */
        while (!latest && rdtsc() < end) cpu_relax();
        for (int i = 0; i < COMPARISONS; i++) compare_once(false);
        *done = true;
        return;
    }
    while (!*done && rdtsc() < end) compare_once(true);
}

/* Returns by how many ticks the other CPU's TSC is behind the boot CPU's, and forgets it. */
i64 clock_lag(void) {
    u64 late = behind[false], ahead = behind[true];

    latest = behind[false] = behind[true] = 0;
    if (late >= ahead) return (i64)late;
    return -(i64)ahead;
}
