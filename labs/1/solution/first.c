/* Your first guest. Its command line has name=NAME and ticks=N. */
#include <guest/guest.h>
#include <guest/printf.h>
#include <guest/thread.h>
#include <guest/time.h>
#include <guest/vcpu.h>

#define ROUNDS 1000u
#define PERIOD (10 * NS_PER_MS)

static u64 counted; /* by all vCPUs */
static struct semaphore done = SEMAPHORE(0);

/* Prints `hello from NAME: N vCPUs`. */
static void hello(void) {
    char name[32];

    cmdline_str("name", name, sizeof(name));
    printf("hello from %s: %u vCPUs\n", name, vcpu_count());
}

/* Prints `tick I at T` n times: the first one 10 ms after `begin`, and then every 10 ms. T is the
 * time since `begin` in ms. What a line costs, or a wait for the pCPU, must not add up. */
static void ticks(u64 begin, u64 n) {
    for (u64 i = 1; i <= n; i++) {
        sleep_until(begin + i * PERIOD);
        printf("tick %lu at %lu\n", i, (time_ns() - begin) / NS_PER_MS);
    }
}

/* Adds 1 to `counted`, ROUNDS times, and says that this thread is done. The threads of all vCPUs
 * run it at the same time. */
static void count(void *arg) {
    for (u32 i = 0; i < ROUNDS; i++) __atomic_fetch_add(&counted, 1, __ATOMIC_RELAXED);
    sem_up(&done);
}

/* Starts all vCPUs, and runs count() in a thread on each. Waits for all of them. Returns how many
 * threads there were. */
static u32 everywhere(void) {
    u32 n = vcpu_start_all();

    for (u32 i = 0; i < n; i++) thread_start(i, "count", count, NULL);
    for (u32 i = 0; i < n; i++) sem_down(&done);
    return n;
}

int main(void) {
    u32 threads;

    hello();
    ticks(time_ns(), cmdline_u64("ticks", 0));
    threads = everywhere();
    printf("%u threads have counted to %lu\n", threads, counted);
    return 7;
}
