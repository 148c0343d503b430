#include "platform/clock.h"

#include <takt/errno.h>
#include <takt/io.h>
#include "lib/printf.h"
#include "platform/apic.h"
#include "platform/hostmap.h"
#include "x86/insn.h"
#include "x86/tsc.h"

#define FS_PER_NS 1000000ull

/* A clock that counts up, to measure by. */
struct reference {
    const char *name;
    u64 fs; /* femtoseconds a tick */
    u32 mask;
    u32 (*read)(void);
};

u64 tsc_khz, tsc_boot, tsc_to_ns_mul, ns_to_tsc_mul, apic_timer_khz;
static volatile u8 *hpet;

static u32 read_hpet(void) { return mmio_read32(hpet + 0xf0); }

/* Channel 2 of the 8254, gated on, counting down from 65536 again and again. */
static u32 read_pit(void) {
    u32 n;

    outb(0x43, 0x80);
    n = inb(0x42);
    return 0x10000 - (n | (u32)inb(0x42) << 8);
}

static u32 read_apic_timer(void) { return ~apic_timer_left(); }

/* IA-PC HPET 2.3 */
static bool use_hpet(const struct acpi_info *a, struct reference *r) {
    u64 period;

    hpet = a->hpet_addr ? mmio_map(a->hpet_addr, PAGE_SIZE) : NULL;
    period = hpet ? mmio_read32(hpet + 4) : 0;
    if (!period || period > 100 * FS_PER_NS) return false;
    mmio_write32(hpet + 0x10, mmio_read32(hpet + 0x10) | 1);
    *r = (struct reference){ "HPET", period, ~0u, read_hpet };
    return true;
}

static bool use_pit(struct reference *r) {
    outb(0x61, (inb(0x61) & ~2) | 1);
    outb(0x43, 0xb4); /* channel 2, both bytes, mode 2 */
    outb(0x42, 0);
    outb(0x42, 0);
    *r = (struct reference){ "8254", 838095344, 0xffff, read_pit };
    return true;
}

/* One reading of the reference, between two of the TSC. */
struct sample {
    u32 ref;
    u64 tsc, width;
};

static struct sample sample(const struct reference *r) {
    struct sample best = { 0, 0, ~0ull };

    for (int i = 0; i < 3; i++) { /* the narrowest of three: the host of an emulator may have been away */
        u64 t0 = rdtsc();
        u32 ref = r->read();
        u64 t1 = rdtsc();

        if (t1 - t0 < best.width) best = (struct sample){ ref, t0 + (t1 - t0) / 2, t1 - t0 };
    }
    return best;
}

#define GOOD_ENOUGH 20000 /* stop when the error is under one part in so many */
#define LONGEST_FS  (50 * NS_PER_MS * FS_PER_NS)

/* Watches `r` until both differences are known to one part in GOOD_ENOUGH, or as well as can be: the ticks
 * of `r` in *ref, those of the TSC in *tsc. False: it stands still. */
static bool compare(const struct reference *r, u64 *ref, u64 *tsc) {
    struct sample start = sample(r), now;

    *ref = 0;
    for (u32 polls = 0; polls < 100000 && *ref * r->fs <= LONGEST_FS; polls++) {
        now = sample(r);
        *ref = (now.ref - start.ref) & r->mask;
        *tsc = now.tsc - start.tsc;
        /* in ticks of the TSC: half of each bracket, and one tick of the reference */
        if (*ref && (start.width + now.width) / 2 + *tsc / *ref + 1 < *tsc / GOOD_ENOUGH) break;
    }
    return *ref;
}

/* The TSC's speed by `r`, 0 if `r` is of no use. */
static u64 measure(const struct reference *r) {
    u64 ref, tsc;

    return compare(r, &ref, &tsc) ? (u64)((unsigned __int128)tsc * 1000000000000ull / (ref * r->fs)) : 0;
}

int clock_calibrate(const struct acpi_info *a) {
    struct cpuid c = cpuid_or_zero(0x15, 0); /* SDM 2A CPUID, leaf 15h */
    u64 said = c.eax && c.ebx && c.ecx ? (u64)c.ecx * c.ebx / c.eax / 1000 : 0, khz = 0, ref, tsc;
    struct reference r, timer = { .mask = ~0u, .read = read_apic_timer };

    if (use_hpet(a, &r)) khz = measure(&r);
    if (!khz && use_pit(&r)) khz = measure(&r);
    if (said && (!khz || (said - said / 1000 < khz && khz < said + said / 1000))) {
        r.name = khz ? "CPUID 15h, confirmed" : "CPUID 15h: no clock counts that could confirm it";
        khz = said;
    }
    if (!khz) return -ENODEV;
    tsc_khz = khz;
    tsc_to_ns_mul = (1000000ull << 32) / khz;
    ns_to_tsc_mul = (khz << 32) / 1000000;
    log_info("TSC: %lu.%03lu MHz by %s", khz / 1000, khz % 1000, r.name);
    if (apic_tsc_deadline) return 0;
    apic_timer_count(~0u);
    if (compare(&timer, &ref, &tsc)) apic_timer_khz = ref * khz / tsc;
    apic_timer_count(0);
    log_info("APIC timer: %lu.%03lu MHz", apic_timer_khz / 1000, apic_timer_khz % 1000);
    return apic_timer_khz ? 0 : -ENODEV;
}

void delay_ns(u64 ns) {
    u64 end = rdtsc() + ns_to_tsc(ns);

    while (rdtsc() < end) cpu_relax();
}

/* The newest TSC that either CPU has read; and by how much each was seen behind it, the boot CPU's last. */
static volatile u64 latest, behind[2];

/* If a value was written before we read our TSC, our TSC must not be smaller. */
static void compare_once(bool boot_cpu) {
    u64 seen = latest, t;

    __asm__ volatile("lfence" : : : "memory");
    t = rdtsc();
    if (t < seen)
        behind[boot_cpu] = MAX(behind[boot_cpu], seen - t);
    else
        __atomic_compare_exchange_n(&latest, &seen, t, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
}

void clock_compare(volatile bool *done, bool mine) {
    for (int i = 0; mine && i < 500; i++) compare_once(false);
    if (mine) *done = true;
    for (u64 end = rdtsc() + ns_to_tsc(100 * NS_PER_MS); !*done && rdtsc() < end;) compare_once(true);
}

i64 clock_lag(void) {
    u64 late = behind[false], ahead = behind[true];

    latest = behind[false] = behind[true] = 0;
    return late >= ahead ? (i64)late : -(i64)ahead;
}
