/* vcpus: 3 */
/* time: 800 */
/* INIT and SIPI where they are not expected: to a vCPU that runs, twice, to one that does not
 * exist, and to the vCPU itself. */
#include <guest/lapic.h>
#include <guest/string.h>
#include <guest/test.h>
#include <guest/time.h>
#include <guest/vcpu.h>

#define PAGE    0x10000
#define STARTED (*(volatile u32 *)(PAGE + 0xe00))
#define SPINS   (*(volatile u32 *)(PAGE + 0xe04))
#define SIPI    (ICR_SIPI | ICR_ASSERT | PAGE >> 12)
#define INIT    (ICR_INIT | ICR_ASSERT)

extern char stub[], stub_end[];

__asm__(".pushsection .text\n"
        "stub: .code16\n"
        "  cli; mov %cs, %ax; mov %ax, %ds\n"
        "  incl 0xe00\n"
        "1: incl 0xe04; pause; jmp 1b\n"
        "stub_end: .code64\n"
        ".popsection");

static bool started(u32 n) {
    u64 end = time_ns() + NS_PER_S;

    while (STARTED < n && time_ns() < end) cpu_relax();
    return STARTED == n;
}

static bool runs(void) {
    u64 end = time_ns() + NS_PER_S;
    u32 before = SPINS;

    while (SPINS == before && time_ns() < end) cpu_relax();
    return SPINS != before;
}

static bool stands_still(void) {
    u32 before;

    delay_ns(5 * NS_PER_MS); /* what was under way */
    before = SPINS;
    delay_ns(60 * NS_PER_MS); /* two slices: it had its chance */
    return SPINS == before;
}

int main(void) {
    test_begin();
    if (vcpu_count() < 3) test_error("needs three vCPUs");
    memset((void *)PAGE, 0, PAGE_SIZE);
    memcpy((void *)PAGE, stub, stub_end - stub);

    vcpu_start_raw(1, PAGE >> 12);
    if (!started(1)) test_fatal("vCPU 1 did not start");
    for (unsigned i = 0; i < 100; i++) lapic_icr(1, SIPI);
    CHECK(runs() && STARTED == 1, "SIPI to a vCPU that runs started it %u times", STARTED);
    lapic_icr(1, INIT);
    CHECK(stands_still(), "a vCPU runs on after INIT");
    lapic_icr(1, INIT);
    lapic_icr(1, SIPI);
    lapic_icr(1, SIPI);
    CHECK(started(2) && runs(), "started %u times, not twice", STARTED);
    lapic_icr(1, INIT);
    lapic_icr(1, ICR_NMI | ICR_ASSERT); /* nobody is there to take it */
    CHECK(stands_still(), "an NMI starts a vCPU that waits for SIPI");
    CHECK(STARTED == 2, "started %u times", STARTED);

    for (u32 id = 3; id < 255; id++) {
        lapic_icr(id, INIT);
        lapic_icr(id, SIPI);
        lapic_icr(id, ICR_NMI | ICR_ASSERT);
        lapic_ipi(id, 0x50);
    }
    lapic_icr(0, INIT);
    lapic_icr(0, SIPI);
    CHECK(STARTED == 2, "INIT and SIPI to nobody started one: %u", STARTED);
    lapic_icr(2, SIPI); /* as every vCPU but the first, it waits from the beginning */
    CHECK(started(3), "vCPU 2 did not start");
    return test_end("INIT and SIPI do what they should, and to whom they should");
}
