/* vcpus: 2 */
/* time: 2000 */
/* The TSC never stops and never goes back: over HLT, sleeping, exits and writes to its MSR, and
 * from one vCPU to another. It agrees with the hypervisor's clock. */
#include <guest/test.h>
#include <guest/thread.h>
#include <guest/vcpu.h>

static u64 last, backwards, worst;
static volatile u64 turn;

/* Two vCPUs pass a reading to and fro, and each must find that the other's is in its past. */
static void relay(void *arg) {
    u64 me = (u64)arg;

    for (unsigned i = 0; i < 10; i++) {
        for (unsigned spins = 0; turn % 2 != me; spins++) {
            if (spins % 1024 == 1023) hypercall0(TAKT_HC_YIELD);
        }
        u64 now = rdtsc();

        if (now < last) {
            backwards++;
            worst = MAX(worst, last - now);
        }
        last = now;
        __atomic_add_fetch(&turn, 1, __ATOMIC_SEQ_CST);
    }
}

/* Two readings of the hypervisor's clock, each between two of the TSC, because the vCPU may lose
 * its CPU at any point. */
static void against_hypervisor(void) {
    u64 t[4], ns[2], least, most;

    t[0] = rdtsc();
    ns[0] = hypercall0(TAKT_HC_TIME);
    t[1] = rdtsc();
    sleep_ns(50 * NS_PER_MS);
    t[2] = rdtsc();
    ns[1] = hypercall0(TAKT_HC_TIME);
    t[3] = rdtsc();
    least = (t[2] - t[1]) * 1000 / tsc_khz() * 1000;
    most = (t[3] - t[0]) * 1000 / tsc_khz() * 1000;
    CHECK(ns[1] - ns[0] >= least - least / 100 && ns[1] - ns[0] <= most + most / 100 + 1000,
          "the hypervisor counts %lu ns, the TSC from %lu to %lu", ns[1] - ns[0], least, most);
}

int main(void) {
    u64 a, b, old;
    struct thread *t;

    test_begin();
    a = rdtsc();
    for (unsigned i = 0; i < 5; i++) {
        sleep_ns(2 * NS_PER_MS);
        b = rdtsc();
        CHECK(b - a >= tsc_khz() * 2, "2 ms asleep were %lu ticks of %lu kHz", b - a, tsc_khz());
        a = b;
    }
    for (unsigned i = 0; i < 1000; i++) {
        cpuid(0, 0);
        b = rdtsc();
        CHECK(b > a, "went back over CPUID");
        a = b;
    }
    if (on_takt()) {
        old = rdmsr(MSR_TSC);
        CHECK(old >= a, "the MSR is behind RDTSC");
        wrmsr_fault(MSR_TSC, 0);
        wrmsr_fault(MSR_TSC, ~0ull);
        CHECK(rdtsc() >= old && rdtsc() - old < tsc_khz() * 1000000,
              "a write moved it: %lx, was %lx", rdtsc(), old);

        against_hypervisor();
    }
    if (vcpu_start_all() >= 2) {
        t = thread_start(1, "relay", relay, (void *)1);
        relay((void *)0);
        thread_join(t);
        CHECK(!backwards, "%lu times backwards between vCPUs, by up to %lu", backwards, worst);
    }
    return test_end("time goes on");
}
