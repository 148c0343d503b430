/* vcpus: 3 */
/* time: 1500 */
/* IPIs that make no sense: vectors below 16, destinations that do not exist, reserved modes,
 * storms of NMI and INIT, SIPI without INIT and to a vCPU that runs. Only the vCPUs of this VM
 * may notice anything, and none of them may be lost. */
#include <guest/lapic.h>
#include <guest/test.h>
#include <guest/thread.h>
#include <guest/vcpu.h>

#define VECTOR   0x70
#define PATIENCE (4 * NS_PER_S) /* a vCPU may lose its CPU for long: on QEMU its host may be busy */

static u64 taken[TAKT_MAX_VCPUS], nmis;

static void on_ipi(void *arg) { __atomic_add_fetch(&taken[this_vcpu()->id], 1, __ATOMIC_RELAXED); }

static bool on_nmi(struct trap_frame *f) {
    __atomic_add_fetch(&nmis, 1, __ATOMIC_RELAXED);
    return true;
}

/* The destination that means all vCPUs. */
static u32 everybody(void) {
    if (lapic_is_x2()) return 0xffffffff;
    return 255;
}

static void settle(void) { sleep_ns(5 * NS_PER_MS); }

/* Waits until each vCPU has taken as many interrupts as it should, `first` on vCPU 0 and `rest` on
 * each other one, and checks that none takes more. */
static void expect_taken(unsigned n, u64 first, u64 rest, const char *what) {
    u64 end = time_ns() + PATIENCE;

    for (unsigned i = 0; i < n; i++) {
        u64 want = rest;

        if (i == 0) want = first;
        while (__atomic_load_n(&taken[i], __ATOMIC_RELAXED) < want && time_ns() < end)
            thread_yield();
        CHECK(taken[i] == want, "%s: vCPU %u took %lu instead of %lu", what, i, taken[i], want);
    }
}

static u64 all_taken(unsigned n) {
    u64 s = 0;

    for (unsigned i = 0; i < n; i++) s += __atomic_load_n(&taken[i], __ATOMIC_RELAXED);
    return s;
}

static void illegal_vectors(void) {
    lapic_write(LAPIC_ESR, 0);
    for (u8 v = 0; v < 16; v++) {
        lapic_self_ipi(v);
        lapic_ipi(0, v);
        lapic_icr(0, ICR_ALL | ICR_ASSERT | v);
    }
    settle();
    lapic_write(LAPIC_ESR, 0);
    CHECK(lapic_read(LAPIC_ESR) & 0x60, "ESR is %x after illegal vectors", lapic_read(LAPIC_ESR));
    lapic_write(LAPIC_ESR, 0);
    lapic_write(LAPIC_ESR, 0);
    CHECK(lapic_read(LAPIC_ESR) == 0, "ESR stays %x", lapic_read(LAPIC_ESR));
    /* An error vector that is illegal itself must not recurse. */
    lapic_write(LAPIC_LVT_ERROR, 3);
    lapic_self_ipi(2);
    lapic_write(LAPIC_LVT_TIMER, 5);
    lapic_write(LAPIC_TIMER_INITIAL, 100);
    delay_ns(NS_PER_MS);
    lapic_write(LAPIC_LVT_ERROR, VECTOR_APICERROR);
}

static void nobody(unsigned n) {
    static const u32 ids[] = { 64, 100, 200, 254 };
    u64 before = all_taken(n);

    for (unsigned i = 0; i < ARRAY_SIZE(ids); i++) lapic_ipi(ids[i], VECTOR);
    lapic_ipi(n, VECTOR);
    if (lapic_is_x2()) {
        lapic_ipi(0x100, VECTOR);
        lapic_ipi(0x7fffffff, VECTOR);
        lapic_ipi(0xfffffffe, VECTOR);
    }
    settle();
    CHECK(all_taken(n) == before, "an IPI to nobody reached somebody");
}

static void shorthands(unsigned n) {
    for (unsigned i = 0; i < n; i++) taken[i] = 0;
    lapic_icr(0, ICR_ALL | ICR_ASSERT | VECTOR);
    expect_taken(n, 1, 1, "all");
    lapic_icr(0, ICR_OTHERS | ICR_ASSERT | VECTOR);
    expect_taken(n, 1, 2, "others");
    lapic_icr(everybody(), ICR_ASSERT | VECTOR);
    expect_taken(n, 2, 3, "broadcast");
    /* With lowest priority, to all: one vCPU takes it, or it is dropped. */
    lapic_icr(everybody(), ICR_LOWEST | ICR_ASSERT | VECTOR);
    settle();
    CHECK(all_taken(n) <= 3 * n, "lowest priority reached several");
    /* Logical, by LDR: clusters of 16 in x2APIC. */
    if (lapic_is_x2()) {
        u64 before = taken[n - 1], end = time_ns() + PATIENCE;

        lapic_icr(1u << (n - 1), ICR_LOGICAL | ICR_ASSERT | VECTOR);
        while (__atomic_load_n(&taken[n - 1], __ATOMIC_RELAXED) == before && time_ns() < end)
            thread_yield();
        CHECK(taken[n - 1] == before + 1, "logical: vCPU %u took %lu", n - 1,
              taken[n - 1] - before);
    }
}

static void odd_modes(unsigned n) {
    for (u32 mode = 0; mode < 8; mode++)
        if (mode == 2 || mode == 3 || mode == 7) /* SMI, reserved, ExtINT */
            for (u32 sh = 0; sh < 4; sh++) {
                u32 icr = mode << 8 | sh << 18 | ICR_ASSERT | VECTOR;

                if (lapic_is_x2())
                    wrmsr_fault(0x830, icr);
                else
                    lapic_icr(0, icr);
            }
    if (lapic_is_x2())
        check_exception(wrmsr_fault(0x830, 1ull << 31 | 1 << 13), EXC_GP, "reserved ICR bits");
    /* SIPI to those that run, and to ourselves; the de-assert of INIT: nothing. */
    for (unsigned i = 0; i < 20; i++) {
        lapic_icr(1, ICR_SIPI | ICR_ASSERT | 0x9f);
        lapic_icr(0, ICR_OTHERS | ICR_SIPI | ICR_ASSERT | 0x9f);
        lapic_icr(1, ICR_INIT | 0x8000);
    }
    settle();
    shorthands(n);
}

static void nmi_storm(unsigned n) {
    u64 end = time_ns() + PATIENCE;

    exception_set_hook(EXC_NMI, on_nmi);
    for (unsigned i = 0; i < 50; i++) lapic_icr(0, ICR_OTHERS | ICR_NMI | ICR_ASSERT);
    while (__atomic_load_n(&nmis, __ATOMIC_RELAXED) < n - 1 && time_ns() < end) thread_yield();
    settle();
    CHECK(nmis >= n - 1 && nmis <= 50 * (n - 1), "%lu NMIs of 50 a vCPU", nmis);
}

static void init_storm(unsigned n) {
    u64 end = time_ns() + PATIENCE;

    for (unsigned i = 0; i < 50; i++) lapic_icr(2, ICR_INIT | ICR_ASSERT);
    lapic_ipi(2, VECTOR); /* it waits for a SIPI: lost */
    settle();
    taken[2] = 0;
    vcpu_get(2)->online = false;
    CHECK(vcpu_start_all() == n, "after INITs it does not start again");
    lapic_ipi(2, VECTOR);
    while (!__atomic_load_n(&taken[2], __ATOMIC_RELAXED) && time_ns() < end) thread_yield();
    CHECK(taken[2] == 1, "and takes %lu IPIs", taken[2]);
}

int main(void) {
    unsigned n;

    test_begin();
    n = vcpu_start_all();
    if (n < 3) test_error("too few vCPUs");
    irq_set_handler(VECTOR, on_ipi, NULL);
    illegal_vectors();
    time_init_cpu();
    nobody(n);
    shorthands(n);
    odd_modes(n);
    nmi_storm(n);
    init_storm(n);
    return test_end("IPIs go where they should");
}
