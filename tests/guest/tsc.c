/* vcpus: 2 */
/* time: 1200 */
/* The TSC never stops and never goes back: over HLT, sleeping, exits, writes to its MSR, and from vCPU to
 * vCPU; and it agrees with the hypervisor's clock. */
#include <guest/test.h>
#include <guest/thread.h>
#include <guest/vcpu.h>

static u64 last, backwards, worst;
static volatile u64 turn;

/* Two vCPUs pass a reading to and fro; each must find the other's in its past. */
static void relay(void *arg)
{
    u64 me = (u64)arg;

    for (unsigned i = 0; i < 100; i++) {
        for (unsigned spins = 0; turn % 2 != me; spins++) {
            cpu_relax();
            if (spins % 64 == 63)
                hypercall0(TAKT_HC_YIELD);
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

int main(void)
{
    u64 a, b, old, ns, tsc;
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
        CHECK(rdtsc() >= old && rdtsc() - old < tsc_khz() * 1000, "a write moved it: %lx, was %lx", rdtsc(),
              old);

        ns = hypercall0(TAKT_HC_TIME);
        tsc = rdtsc();
        sleep_ns(50 * NS_PER_MS);
        ns = hypercall0(TAKT_HC_TIME) - ns;
        tsc = (rdtsc() - tsc) * 1000 / tsc_khz() * 1000;
        CHECK(ns > 50 * NS_PER_MS && ns < tsc + tsc / 20 + 100000 && tsc < ns + ns / 20 + 100000,
              "the hypervisor counts %lu ns, the TSC %lu", ns, tsc);
    }
    if (vcpu_start_all() >= 2) {
        t = thread_start(1, "relay", relay, (void *)1);
        relay((void *)0);
        thread_join(t);
        CHECK(!backwards, "%lu times backwards between vCPUs, by up to %lu", backwards, worst);
    }
    return test_end("time goes on");
}
