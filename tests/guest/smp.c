/* vcpus: 4 */
/* time: 2500 */
/* All vCPUs start, take IPIs, and run threads that hand over by semaphore and mutex and are
 * preempted. */
#include <guest/guest.h>
#include <guest/lapic.h>
#include <guest/test.h>
#include <guest/thread.h>
#include <guest/vcpu.h>

#define ROUNDS      20
#define VECTOR_TEST 0x50

static struct mutex mutex = MUTEX;
static u64 shared_count, ipis[TAKT_MAX_VCPUS];
static struct semaphore ping = SEMAPHORE(0), pong = SEMAPHORE(0);
static volatile bool stop;

static void on_ipi(void *arg) { __atomic_add_fetch(&ipis[this_vcpu()->id], 1, __ATOMIC_RELAXED); }

static void adder(void *arg) {
    for (unsigned i = 0; i < ROUNDS; i++) {
        mutex_lock(&mutex);
        u64 v = shared_count;
        cpu_relax();
        shared_count = v + 1;
        mutex_unlock(&mutex);
    }
}

static void ponger(void *arg) {
    for (unsigned i = 0; i < ROUNDS; i++) {
        sem_down(&ping);
        sem_up(&pong);
    }
}

static void hog(void *arg) {
    while (!stop) (*(volatile u64 *)arg)++;
}

static void where(void *arg) { *(u32 *)arg = lapic_id(); }

static void test_ipis(unsigned n) {
    u64 end;

    irq_set_handler(VECTOR_TEST, on_ipi, NULL);
    for (unsigned i = 0; i < n; i++) lapic_ipi(i, VECTOR_TEST);
    lapic_icr(0, ICR_OTHERS | ICR_ASSERT | VECTOR_TEST);
    end = time_ns() + NS_PER_S;
    for (unsigned i = 0; i < n; i++) {
        u64 sent = 2;

        if (i == 0) sent = 1;
        while (__atomic_load_n(&ipis[i], __ATOMIC_RELAXED) < sent && time_ns() < end)
            thread_yield();
        /* Two that arrive before the first one is taken may become one. */
        CHECK(ipis[i] >= 1 && ipis[i] <= sent, "vCPU %u took %lu IPIs", i, ipis[i]);
    }
    for (unsigned i = 1; i < n; i++) {
        u32 id = ~0u;
        vcpu_call(i, where, &id);
        CHECK(id == i, "vCPU %u has LAPIC id %u", i, id);
    }
}

static void test_threads(unsigned n) {
    struct thread *t[TAKT_MAX_VCPUS], *p;
    u64 spun[2] = { 0, 0 };

    for (unsigned i = 0; i < n; i++) t[i] = thread_start(i, "adder", adder, NULL);
    for (unsigned i = 0; i < n; i++) thread_join(t[i]);
    CHECK(shared_count == (u64)n * ROUNDS, "the mutex let %lu of %u additions through",
          shared_count, n * ROUNDS);

    p = thread_start(n - 1, "ponger", ponger, NULL);
    for (unsigned i = 0; i < ROUNDS; i++) {
        sem_up(&ping);
        sem_down(&pong);
    }
    thread_join(p);

    t[0] = thread_start(0, "hog", hog, &spun[0]);
    t[1] = thread_start(0, "hog", hog, &spun[1]);
    sleep_ns(10 * THREAD_QUANTUM);
    stop = true;
    thread_join(t[0]);
    thread_join(t[1]);
    CHECK(spun[0] && spun[1], "of two hogs on a vCPU only one ran: %lu %lu", spun[0], spun[1]);
}

static void test_timeout(void) {
    struct semaphore never = SEMAPHORE(0);
    u64 start = time_ns();

    CHECK(!sem_down_until(&never, start + 5 * NS_PER_MS), "a semaphore at 0 was had");
    CHECK(time_ns() >= start + 5 * NS_PER_MS, "timed out early");
}

int main(void) {
    unsigned want = vcpu_count(), n;

    test_begin();
    n = vcpu_start_all();
    CHECK(n == want, "%u of %u vCPUs started", n, want);
    test_ipis(n);
    test_threads(n);
    test_timeout();
    return test_end("vCPUs, IPIs, threads");
}
