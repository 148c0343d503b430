/* vcpus: 3 */
/* cpus: 0 */
/* time: 1200 */
/* The times of a vCPU on its information page: run, stolen and blocked add up to the time that
 * has passed, and each grows when it should. Guests use them to correct their own accounting. */
#include <guest/test.h>
#include <guest/thread.h>
#include <guest/vcpu.h>

static volatile bool stop;

static void spin(void *arg) {
    while (!stop) cpu_relax();
}

static u64 sum(struct vcpu_times t) { return t.run_ns + t.stolen_ns + t.blocked_ns; }

/* A reading between two of the clock, because the vCPU may lose its CPU at any point, and QEMU
 * the CPU of its host. */
struct reading {
    u64 before, after;
    struct vcpu_times times;
};

static struct reading take(void) {
    struct reading r = { .before = time_ns() };

    r.times = vcpu_times(0);
    r.after = time_ns();
    return r;
}

static void check_sums(const struct reading *a, const struct reading *b) {
    u64 grew = sum(b->times) - sum(a->times), least = b->before - a->after,
        most = b->after - a->before;

    CHECK(grew >= least - least / 100 - 1000 && grew <= most + most / 100 + 1000,
          "the three sums grew by %lu in %lu to %lu ns", grew, least, most);
}

int main(void) {
    struct reading first, now;
    struct vcpu_times a, b;
    struct thread *t[3];
    unsigned n;

    test_begin();
    test_needs_takt();
    n = vcpu_start_all();
    first = take();
    sleep_ns(20 * NS_PER_MS);
    now = take();
    a = first.times;
    b = now.times;
    CHECK(b.blocked_ns - a.blocked_ns + b.stolen_ns - a.stolen_ns >= 19 * NS_PER_MS,
          "asleep 20 ms, blocked %lu ns, stolen %lu ns", b.blocked_ns - a.blocked_ns,
          b.stolen_ns - a.stolen_ns);
    CHECK(b.wakes > a.wakes, "no wake was counted");
    CHECK(b.wake_tsc > a.wake_tsc && b.wake_tsc <= rdtsc(), "woken at %lx, now %lx", b.wake_tsc,
          rdtsc());
    check_sums(&first, &now);

    /* All on one pCPU: each gets a part, and the rest is stolen. */
    for (unsigned i = 1; i < n; i++) t[i] = thread_start(i, "spin", spin, NULL);
    first = take();
    a = first.times;
    do {
        cpu_relax();
        now = take();
        b = now.times;
    } while ((b.run_ns - a.run_ns < 40 * NS_PER_MS || b.stolen_ns - a.stolen_ns < 40 * NS_PER_MS) &&
             now.after - first.before < 4 * NS_PER_S);
    stop = true;
    CHECK(b.run_ns - a.run_ns >= 40 * NS_PER_MS && b.stolen_ns - a.stolen_ns >= 40 * NS_PER_MS,
          "with two others on the pCPU it ran %lu ns, and %lu were stolen", b.run_ns - a.run_ns,
          b.stolen_ns - a.stolen_ns);
    CHECK(b.blocked_ns == a.blocked_ns, "it blocked %lu ns and never slept",
          b.blocked_ns - a.blocked_ns);
    check_sums(&first, &now);
    for (unsigned i = 1; i < n; i++) thread_join(t[i]);
    return test_end("times add up");
}
