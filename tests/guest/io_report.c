/* vcpus: 1 */
/* time: 800 */
/* A driver reports interrupts that Takt does not see: `n` (200) of them every `every` ms (20)
 * for `ms` ms (100). Then it is quiet for `quiet` ms (0). Reports that cannot be true are
 * refused. */
#include <guest/event.h>
#include <guest/guest.h>
#include <guest/test.h>
#include <guest/thread.h>

int main(void) {
    u64 n = cmdline_u64("n", 200), every = cmdline_u64("every", 20) * NS_PER_MS, next = time_ns();
    u64 end = next + cmdline_u64("ms", 100) * NS_PER_MS;

    test_begin();
    test_needs_takt();
    CHECK(hypercall1(TAKT_HC_IO_REPORT, 0) == 0, "none is none");
    CHECK(hypercall1(TAKT_HC_IO_REPORT, TAKT_IO_REPORT_MAX) == 0, "the most");
    CHECK(hypercall1(TAKT_HC_IO_REPORT, TAKT_IO_REPORT_MAX + 1) == -EINVAL, "more than the most");
    CHECK(hypercall1(TAKT_HC_IO_REPORT, 1ull << 32) == -EINVAL, "2^32");
    CHECK(hypercall1(TAKT_HC_IO_REPORT, ~0ull) == -EINVAL, "2^64 - 1");
    for (; next < end; next += every) {
        sleep_until(next);
        CHECK(hypercall1(TAKT_HC_IO_REPORT, n) == 0, "%lu", n);
    }
    sleep_ns(cmdline_u64("quiet", 0) * NS_PER_MS + 1);
    return test_end("reported");
}
