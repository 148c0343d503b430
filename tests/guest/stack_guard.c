/* vcpus: 2 */
/* vms: 2 */
/* A thread that needs more than its stack meets a page that is not mapped, and the library says
 * which thread it was. Without that page it would write over what lies below, and something else
 * would go wrong later. */
#include <guest/mem.h>
#include <guest/string.h>
#include <guest/test.h>
#include <guest/thread.h>
#include <guest/vcpu.h>

#define PAGES (THREAD_STACK / 4096)

static void nothing(void *arg) {}

static void sum_up(void *arg) { *(unsigned *)arg += (unsigned)page_count_free(); }

/* Stacks that were freed are ordinary memory again, and all of it is mapped. */
static void check_reuse(void) {
    size_t before, pages = 4 * (PAGES + 1);
    unsigned sum = 0;
    char *p;

    thread_join(thread_start(0, "first", nothing, NULL)); /* may need a page table for good */
    before = page_count_free();
    for (unsigned i = 0; i < 8; i++) thread_join(thread_start(i & 1, "again", sum_up, &sum));
    CHECK(page_count_free() == before, "%lu pages free after threads, %lu before",
          page_count_free(), before);
    p = page_alloc(pages);
    if (!p) test_error("no memory");
    memset(p, 0x5a, pages * 4096);
    page_free(p, pages);
}

static int deep(int n) {
    volatile char room[1024];

    room[0] = (char)n;
    return n ? deep(n - 1) + room[0] : 0;
}

/* One variable that is larger than the guard page: it must not be jumped over. */
static char wide(void) {
    volatile char room[3 * THREAD_STACK];

    room[0] = 1;
    return room[0];
}

static void on_panic(const char *why) {
    static const char want[] =
        "thread \"deep\" needs more than its stack of 16384 bytes (THREAD_STACK)";

    if (strncmp(why, want, sizeof(want) - 1)) test_fatal("said: %s", why);
    guest_exit(test_end("the thread is named"));
}

static void overflow(void *arg) {
    if (arg)
        wide();
    else
        deep(1000);
    test_fatal("the stack has no end");
}

int main(void) {
    static char wide_too;

    test_begin();
    if (vcpu_start_all() != 2) test_error("the other vCPU does not come");
    check_reuse();
    guest_panic_hook = on_panic;
    thread_join(thread_start(1, "deep", overflow, cmdline_u64("vm", 1) == 2 ? &wide_too : NULL));
    return test_end("unreachable");
}
