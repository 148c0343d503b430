/* time: 1500 */
/* INS and OUTS, which the hypervisor emulates: counts, directions, widths and overrides. A page
 * fault in the middle leaves registers from which the instruction can go on. A count without end
 * is preempted. */
#include <guest/mem.h>
#include <guest/string.h>
#include <guest/test.h>
#include <guest/time.h>
#include <takt/io.h>

#define NOBODY 0x5e0
#define VA     0x10000000000ull

static u8 buf[256];

static void ins(void) {
    u8 *to = buf + 16;
    u64 n = 8;

    memset(buf, 0, sizeof(buf));
    __asm__ volatile("rep insb" : "+D"(to), "+c"(n) : "d"(NOBODY) : "memory");
    CHECK(n == 0 && to == buf + 24, "INS: count %lu, pointer +%ld", n, to - buf);
    for (unsigned i = 0; i < sizeof(buf); i++)
        CHECK(buf[i] == (i >= 16 && i < 24 ? 0xff : 0), "INS wrote %x at %u", buf[i], i);

    memset(buf, 0, sizeof(buf));
    to = buf + 100;
    n = 5;
    __asm__ volatile("std; rep insl; cld" : "+D"(to), "+c"(n) : "d"(NOBODY) : "memory");
    CHECK(n == 0 && to == buf + 80, "INS backwards: count %lu, pointer +%ld", n, to - buf);
    for (unsigned i = 0; i < sizeof(buf); i++)
        CHECK(buf[i] == (i >= 84 && i < 104 ? 0xff : 0), "INS backwards wrote %x at %u", buf[i], i);

    memset(buf, 0, sizeof(buf));
    to = buf;
    __asm__ volatile("insw" : "+D"(to) : "d"(NOBODY) : "memory");
    CHECK(to == buf + 2 && buf[0] == 0xff && buf[1] == 0xff && !buf[2], "one INSW");

    n = 0;
    to = buf;
    __asm__ volatile("rep insb" : "+D"(to), "+c"(n) : "d"(NOBODY) : "memory");
    CHECK(n == 0 && to == buf, "a count of 0 moves something");

    n = 300; /* more than a burst of the hypervisor's */
    to = page_alloc(1);
    memset(to, 0, 4096);
    __asm__ volatile("rep insb" : "+D"(to), "+c"(n) : "d"(NOBODY) : "memory");
    CHECK(n == 0 && to[-1] == 0xff && to[-300] == 0xff && to[0] == 0, "300 bytes");
}

static void outs(void) {
    const char *from = "hello from OUTS\n";
    u64 n = strlen(from);

    __asm__ volatile("rep outsb" : "+S"(from), "+c"(n) : "d"(TAKT_DEBUGCON_PORT) : "memory");
    CHECK(n == 0 && *from == 0, "OUTS: count %lu", n);
}

static u64 fault_count, fault_di;

static bool on_pf(struct trap_frame *f) {
    fault_count = f->rcx;
    fault_di = f->rdi;
    page_map(VA + PAGE_SIZE, (u64)buf & ~4095ull, PTE_P | PTE_W); /* now it is there */
    return true;
}

/* INS from the last bytes of a page into one that is not there. The handler maps that, and the
 * rest goes on. */
static void fault_in_middle(void) {
    u8 *page = page_alloc(1);
    u64 to = VA + PAGE_SIZE - 5, n = 12;

    if (!page || page_map(VA, (u64)page, PTE_P | PTE_W) || page_map(VA + PAGE_SIZE, 0, 0))
        test_error("no memory");
    exception_set_hook(EXC_PF, on_pf);
    __asm__ volatile("rep insb" : "+D"(to), "+c"(n) : "d"(NOBODY) : "memory");
    exception_set_hook(EXC_PF, NULL);
    CHECK(fault_count == 7 && fault_di == VA + PAGE_SIZE, "faulted with count %lu at %lx",
          fault_count, fault_di);
    CHECK(n == 0 && to == VA + PAGE_SIZE + 7, "then count %lu at %lx", n, to);
}

static volatile u64 ticks;

static void on_timer(struct timer *t) { ticks++; }

static void without_end(void) {
    struct timer t = { 0 };
    struct exception e;
    u64 va = VA + 0x200000;

    /* A count of 2^32, over some pages and then beyond them: a fault, after interrupts have come
     * by. */
    for (unsigned i = 0; i < 2; i++) page_map(va + i * PAGE_SIZE, (u64)buf & ~4095ull, PTE_P);
    page_map(va + 2 * PAGE_SIZE, 0, 0);
    timer_start_periodic(&t, time_ns() + NS_PER_MS, NS_PER_MS, on_timer, NULL);
    exception_clear();
    __asm__ volatile(FIXUP("rep outsb") : : "S"(va), "c"(1ull << 32), "d"(NOBODY) : "memory");
    e = exception_get();
    timer_stop(&t);
    check_exception(e.vector, EXC_PF, "OUTS over the end of what is mapped");
    CHECK(e.cr2 == va + 2 * PAGE_SIZE, "fault at %lx", e.cr2);
}

static void bad_addresses(void) {
    exception_clear();
    __asm__ volatile(FIXUP("insb") : : "D"(0x0000900000000000ull), "d"(NOBODY) : "memory");
    check_exception(exception_get().vector, EXC_GP, "INS to an address that is not canonical");
    exception_clear();
    __asm__ volatile(FIXUP("outsb") : : "S"(0x0000900000000000ull), "d"(NOBODY) : "memory");
    check_exception(exception_get().vector, EXC_GP, "OUTS from an address that is not canonical");
}

int main(void) {
    test_begin();
    test_needs_takt();
    ins();
    outs();
    fault_in_middle();
    without_end();
    bad_addresses();
    return test_end("string I/O");
}
