/* The console takes any bytes and any number of them, with NULs and escape sequences, and a
 * flood of them never stops the guest. */
#include <guest/mem.h>
#include <guest/string.h>
#include <guest/test.h>
#include <guest/thread.h>

int main(void) {
    static const char odd[] = "a\0b\33[2J\33]0;title\7\r\10\177\200\377\n";
    u64 start, taken = 0, full = 0;
    char *flood = page_alloc(1), in[16];
    i64 n;

    test_begin();
    test_needs_takt();
    if (!flood) test_error("no memory");
    memset(flood, 'x', PAGE_SIZE);
    for (unsigned i = 127; i < PAGE_SIZE; i += 128) flood[i] = '\n';
    CHECK(hypercall2(TAKT_HC_CONSOLE_WRITE, (u64)odd, sizeof(odd)) == sizeof(odd), "odd bytes");
    CHECK(hypercall2(TAKT_HC_CONSOLE_WRITE, (u64)odd, 0) == 0, "no bytes");
    n = hypercall2(TAKT_HC_CONSOLE_READ, (u64)in, sizeof(in));
    CHECK(n == 0, "read %ld bytes that nobody typed", n);
    /* As fast as it can: the ring fills, which is told, and nothing waits. */
    start = time_ns();
    for (unsigned i = 0; i < 16; i++) {
        n = hypercall2(TAKT_HC_CONSOLE_WRITE, (u64)flood, PAGE_SIZE);
        CHECK(n == -EAGAIN || (n > 0 && n <= (i64)PAGE_SIZE), "flood: %ld", n);
        taken += MAX(n, 0);
        full += n == -EAGAIN || n < (i64)PAGE_SIZE;
    }
    CHECK(full > 0, "64 KiB at once fitted");
    CHECK(taken >= PAGE_SIZE / 2, "only %lu bytes were taken", taken);
    CHECK(time_ns() - start < NS_PER_S, "16 calls took %lu ns", time_ns() - start);
    sleep_ns(50 * NS_PER_MS);
    return test_end("a console for all bytes");
}
