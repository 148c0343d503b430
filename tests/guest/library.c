/* memory: 8 */
/* Those parts of the guest library that need no other vCPU: printf, strings, memory, the command
 * line, preemption. */
/* args: number=42 hex=0x2a flag text=hello=there bad=4x2 */
#include <guest/guest.h>
#include <guest/mem.h>
#include <guest/string.h>
#include <guest/test.h>
#include <guest/thread.h>

static void check_format(const char *got, const char *want) {
    CHECK(!strcmp(got, want), "\"%s\" instead of \"%s\"", got, want);
}

static void formats(void) {
    char b[64];

    snprintf(b, sizeof(b), "%d %i %u %x", -5, 7, 4000000000u, 0xbeef);
    check_format(b, "-5 7 4000000000 beef");
    snprintf(b, sizeof(b), "%5d|%-5d|%05d|%*d", 42, 42, -42, 4, 7);
    check_format(b, "   42|42   |-0042|   7");
    snprintf(b, sizeof(b), "%ld %lx %zu", (i64)1 << 63, ~0ul, sizeof(u64));
    check_format(b, "-9223372036854775808 ffffffffffffffff 8");
    snprintf(b, sizeof(b), "%s|%8s|%-8s|%.3s|%c%%", "abc", "abc", "abc", "abcdef", 'x');
    check_format(b, "abc|     abc|abc     |abc|x%");
    CHECK(snprintf(b, 4, "%s", "truncated") == 9, "snprintf returns what it would take");
    check_format(b, "tru");
    snprintf(b, sizeof(b), "%p", (void *)0x1234);
    check_format(b, "0000000000001234");
}

static void memory(void) {
    void *p[64];
    size_t before;
    u64 rnd = 3;

    free(malloc(1)); /* so that the class has its page */
    before = page_count_free();
    for (unsigned round = 0; round < 50; round++) {
        for (unsigned i = 0; i < ARRAY_SIZE(p); i++) {
            size_t n = (rnd = rnd * 6364136223846793005ull + 1442695040888963407ull) >> 52;

            p[i] = malloc(n);
            if (!p[i]) test_fatal("no memory in round %u", round);
            CHECK((u64)p[i] % 16 == 0, "malloc gives %lx", (u64)p[i]);
            memset(p[i], i, n);
            *(volatile u8 *)p[i] = i;
        }
        for (unsigned i = 0; i < ARRAY_SIZE(p); i++) {
            CHECK(*(u8 *)p[i] == i, "block %u is overwritten", i);
            free(p[i]);
        }
    }
    CHECK(before - page_count_free() < 300, "%lu pages are gone", before - page_count_free());
    CHECK(!malloc(1ull << 50), "malloc gives a pebibyte");
    CHECK(!calloc(1ull << 33, 1ull << 33), "calloc overflows");
}

/* Pages that were freed in any order are one piece of memory again. */
static void pages(void) {
    size_t all = page_count_free(), most = all - 32, n[48];
    void *p[48], *big = page_alloc(most);
    u64 rnd = 5;

    CHECK(big, "%lu of %lu pages in a row are not to be had", most, all);
    if (big) page_free(big, most);
    for (unsigned round = 0; round < 40; round++) {
        for (unsigned i = 0; i < ARRAY_SIZE(p); i++) {
            n[i] = 1 + ((rnd = rnd * 6364136223846793005ull + 1442695040888963407ull) >> 61);
            p[i] = page_alloc(n[i]);
            if (!p[i]) test_fatal("no pages in round %u", round);
            memset(p[i], i + 1, n[i] * PAGE_SIZE);
        }
        for (unsigned i = 0, k = round; i < ARRAY_SIZE(p); i++, k += 1 + 6 * (round % 2)) {
            u8 *q = p[k % ARRAY_SIZE(p)], *last = q + n[k % ARRAY_SIZE(p)] * PAGE_SIZE - 1;

            CHECK(*q == k % ARRAY_SIZE(p) + 1 && *last == *q, "pages %lx are somebody else's too",
                  (u64)q);
            page_free(q, n[k % ARRAY_SIZE(p)]);
        }
    }
    CHECK(page_count_free() == all, "%lu pages of %lu", page_count_free(), all);
    big = page_alloc(most);
    CHECK(big, "%lu pages in a row are gone for ever", most);
    if (big) page_free(big, most);
}

/* What a byte has to be that is inside or outside of what was copied. */
static u8 pattern(bool inside, u8 value) {
    if (inside) return value;
    return 0xee;
}

/* Copies of each length and alignment within a few words change what they should, and nothing
 * beside it. */
static void copies(void) {
    static u8 from[64], to[64];

    for (unsigned i = 0; i < sizeof(from); i++) from[i] = (u8)(i + 1);
    for (unsigned at = 0; at < 9; at++)
        for (unsigned len = 0; len < 40; len++) {
            bool ok = true;

            memset(to, 0xee, sizeof(to));
            memset(to + at, 0x11, len);
            for (unsigned i = 0; i < sizeof(to); i++) ok &= to[i] == pattern(i - at < len, 0x11);
            memcpy(to + at, from + 3, len);
            for (unsigned i = 0; i < sizeof(to); i++)
                ok &= to[i] == pattern(i - at < len, from[(3 + i - at) % sizeof(from)]);
            memcpy(to, from, sizeof(to));
            memmove(to + at, to + 4, len);
            for (unsigned i = 0; i < len; i++) ok &= to[at + i] == from[4 + i];
            CHECK(ok, "%u bytes at %u", len, at);
        }
}

static void words(void) {
    char b[16];

    CHECK(cmdline_u64("number", 0) == 42 && cmdline_u64("hex", 0) == 42, "numbers");
    CHECK(cmdline_u64("bad", 7) == 7 && cmdline_u64("none", 8) == 8, "numbers that are none");
    CHECK(cmdline_has("flag") && !cmdline_has("fla") && !cmdline_has("flags"), "flags");
    CHECK(cmdline_str("text", b, sizeof(b)) == 11 && !strcmp(b, "hello=there"), "text is \"%s\"",
          b);
    CHECK(cmdline_str("text", b, 4) == 3 && !strcmp(b, "hel"), "cut off, it is \"%s\"", b);
}

/* A deadline that has passed, the first of all too, is no wait. */
static void past(void) {
    struct semaphore never = SEMAPHORE(0);

    sleep_until(0);
    CHECK(!sem_down_until(&never, 0), "a semaphore that nobody raises");
}

static u32 woken;

static void sleeper(void *arg) {
    sleep_ns(2 * THREAD_QUANTUM);
    woken++;
}

/* While preemption is disabled, another thread becomes ready after the quantum is over. The thread
 * that runs goes on until it enables preemption, and the other one has its turn at once then. */
static void no_preemption(void) {
    struct thread *t = thread_start(0, "sleeper", sleeper, NULL);
    u64 until = time_ns() + 4 * THREAD_QUANTUM;

    if (!t) test_fatal("no memory");
    thread_yield();
    preempt_disable();
    while (time_ns() < until) CHECK(!woken, "a thread runs although preemption is disabled");
    preempt_enable();
    CHECK(woken == 1, "enabling preemption does not let the other thread run");
    thread_join(t);
}

int main(void) {
    test_begin();
    formats();
    memory();
    pages();
    copies();
    words();
    past();
    no_preemption();
    return test_end("the library's small things");
}
