/* Copies a block of memory over and over, as the Copy of McCalpin's STREAM does, and prints how
 * fast that is. With a block that is larger than the CPU's caches this is the bandwidth of memory;
 * with a small one it shows what a VM loses when others use its cache in between.
 *
 *   block=BYTES (262144)  what is copied at a time
 *   start_ms=T (0)        begins T ms after the start of the VM
 *   report_ms=T (1000)    prints a line each T ms, of what was copied since the last one
 *   count=N               ends after N lines */
#include <guest/guest.h>
#include <guest/mem.h>
#include <guest/printf.h>
#include <guest/string.h>
#include <guest/thread.h>
#include <guest/time.h>

/* Copies the block over and over, and prints the bandwidth once in report_ms. Ends after `count`
 * lines, or never. */
int main(void) {
    u64 block = cmdline_u64("block", 256 << 10), count = cmdline_u64("count", 0);
    u64 every = cmdline_u64("report_ms", 1000) * NS_PER_MS;
    u8 *from = malloc(block), *to = malloc(block);
    u64 start, copied = 0, now;

    if (!from || !to) guest_panic("membw: block=%lu is more than this VM's memory", block);
    memset(from, 1, block);
    sleep_ns(cmdline_u64("start_ms", 0) * NS_PER_MS);
    start = time_ns();
    for (u64 lines = 0; !count || lines < count;) {
        memcpy(to, from, block);
        __asm__ volatile("" ::: "memory"); /* else the compiler would copy once only */
        copied += block;
        now = time_ns();
        if (now - start < every) continue;
        printf("membw: %lu bytes in %lu ns, %lu MB/s\n", copied, now - start,
               copied * 1000 / (now - start));
        copied = 0;
        start = now;
        lines++;
    }
    return 0;
}
