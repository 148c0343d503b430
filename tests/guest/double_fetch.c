/* vcpus: 2 */
/* time: 1000 */
/* One vCPU changes the memory to which the arguments of another vCPU's hypercalls point, all the
 * time. Each call must succeed or fail. If the hypervisor read a value twice, it could check one
 * and use another. */
#include <guest/mem.h>
#include <guest/string.h>
#include <guest/test.h>
#include <guest/thread.h>
#include <guest/vcpu.h>

static volatile bool stop;
static u8 *shared;

static void scribble(void *arg) {
    u64 x = 1;

    while (!stop)
        for (unsigned i = 0; i < PAGE_SIZE / 8; i++)
            ((volatile u64 *)shared)[i] = (x = x * 6364136223846793005ull + 1) | 0x2020202020202020;
}

int main(void) {
    struct thread *t;
    u64 wrote = 0;

    test_begin();
    test_needs_takt();
    shared = page_alloc(1);
    if (!shared || vcpu_start_all() < 2) test_error("too little of something");
    t = thread_start(1, "scribble", scribble, NULL);
    for (unsigned i = 0; i < 200; i++) {
        i64 n = i % 8 ? 7 : hypercall2(TAKT_HC_CONSOLE_WRITE, (u64)shared, 7);
        struct takt_vcpu_info copy;

        CHECK(n == 7 || n == -EAGAIN, "console: %ld", n);
        wrote += MAX(n, 0);
        CHECK(hypercall2(TAKT_HC_VCPU_INFO, 1, (u64)shared) == 0, "info into the changing page");
        CHECK(hypercall2(TAKT_HC_VCPU_INFO, 1, (u64)&copy) == 0 && copy.tsc_khz == tsc_khz() &&
                  !(copy.seq & 1),
              "info of the other one: %lu kHz, sequence %u", copy.tsc_khz, copy.seq);
    }
    stop = true;
    thread_join(t);
    CHECK(wrote, "nothing was written");
    console_write("\n", 1);
    return test_end("what changes under way is read once");
}
