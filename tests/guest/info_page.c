/* vcpus: 3 */
/* cpus: 0 */
/* time: 1200 */
/* The vCPUs' times: run, stolen and blocked add up to what has passed, and each grows when it should. */
#include <guest/test.h>
#include <guest/thread.h>
#include <guest/vcpu.h>

static volatile bool stop;

static void spin(void *arg) {
    while (!stop) cpu_relax();
}

static u64 sum(struct vcpu_times t) { return t.run_ns + t.stolen_ns + t.blocked_ns; }

int main(void) {
    struct vcpu_times a, b;
    struct thread *t[3];
    u64 slack = test_on("qemu") ? 50 * NS_PER_MS : 0; /* its host may stop us between two readings */
    u64 start, passed;
    unsigned n;

    test_begin();
    test_needs_takt();
    n = vcpu_start_all();
    a = vcpu_times(0);
    start = time_ns();
    sleep_ns(20 * NS_PER_MS);
    b = vcpu_times(0);
    passed = time_ns() - start;
    CHECK(b.blocked_ns - a.blocked_ns + b.stolen_ns - a.stolen_ns >= 19 * NS_PER_MS,
          "asleep 20 ms, blocked %lu ns, stolen %lu ns", b.blocked_ns - a.blocked_ns,
          b.stolen_ns - a.stolen_ns);
    CHECK(b.wakes > a.wakes, "no wake was counted");
    CHECK(b.wake_tsc > a.wake_tsc && b.wake_tsc <= rdtsc(), "woken at %lx, now %lx", b.wake_tsc, rdtsc());
    CHECK(sum(b) - sum(a) <= passed + passed / 10 + slack &&
              sum(b) - sum(a) + slack >= passed - passed / 4 - 1000000,
          "the three sums grew by %lu in %lu ns", sum(b) - sum(a), passed);

    /* All on one pCPU: each gets a part, and the rest is stolen. */
    for (unsigned i = 1; i < n; i++) t[i] = thread_start(i, "spin", spin, NULL);
    a = vcpu_times(0);
    start = time_ns();
    while (time_ns() < start + 200 * NS_PER_MS) cpu_relax();
    b = vcpu_times(0);
    passed = time_ns() - start;
    stop = true;
    CHECK(b.stolen_ns - a.stolen_ns > passed / 4, "%lu ns stolen of %lu by two others",
          b.stolen_ns - a.stolen_ns, passed);
    CHECK(b.run_ns - a.run_ns > passed / 10 && b.run_ns - a.run_ns < passed, "ran %lu of %lu ns",
          b.run_ns - a.run_ns, passed);
    CHECK(sum(b) - sum(a) <= passed + passed / 10 + slack && sum(b) - sum(a) + slack >= passed - passed / 10,
          "the three sums grew by %lu in %lu ns", sum(b) - sum(a), passed);
    for (unsigned i = 1; i < n; i++) thread_join(t[i]);
    return test_end("times add up");
}
