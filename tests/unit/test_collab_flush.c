/* Algorithm 1 of IOrchestra as a table of states: which VM is told to flush
 * (drivers/collab/flush.h). The orders of messages are in test_collab_orders.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <takt/seed.h>
#include "drivers/collab/flush.h"

#define NOW  (10 * NS_PER_S)
#define LATE (NOW - FLUSH_PATIENCE)

static const struct {
    const char *what;
    bool idle;
    struct flush_disk d[3];
    u32 chosen;
} table[] = {
    { "nothing is dirty", true, { { 0 } }, FLUSH_NOBODY },
    { "the device is busy", false, { { true, false, 5, 0 } }, FLUSH_NOBODY },
    { "the only one", true, { { 0 }, { true, false, 5, 0 } }, 1 },
    { "some, not all, are dirty: the slip of the paper", true, { { true, false, 1, 0 } }, 0 },
    { "most dirty pages",
      true,
      { { true, false, 4, 0 }, { true, false, 9, 0 }, { true, false, 8, 0 } },
      1 },
    { "of equals the first", true, { { 0 }, { true, false, 9, 0 }, { true, false, 9, 0 } }, 1 },
    { "a count without the flag counts for nothing",
      true,
      { { false, false, 99, 0 }, { true, false, 1, 0 } },
      1 },
    { "the flag without a count is a claim as well", true, { { true, false, 0, 0 } }, 0 },
    { "one has been asked", true, { { true, true, 4, NOW }, { true, false, 9, 0 } }, FLUSH_NOBODY },
    { "also if its flag is gone already",
      true,
      { { false, true, 0, NOW }, { true, false, 9, 0 } },
      FLUSH_NOBODY },
    { "just not late", true, { { true, true, 4, LATE + 1 }, { true, false, 9, 0 } }, FLUSH_NOBODY },
    { "it is late: another one", true, { { true, true, 99, LATE }, { true, false, 9, 0 } }, 1 },
    { "it is late: it is not asked again", true, { { true, true, 99, LATE } }, FLUSH_NOBODY },
    { "a claim of 2^63 pages", true, { { true, false, 9, 0 }, { true, false, 1ull << 63, 0 } }, 1 },
};

static void test_table(void **state) {
    for (u32 i = 0; i < ARRAY_SIZE(table); i++) {
        u32 chosen = flush_choose(table[i].d, 3, table[i].idle, NOW);

        if (chosen != table[i].chosen)
            fail_msg("%s: %u instead of %u", table[i].what, chosen, table[i].chosen);
    }
    assert_int_equal(flush_choose(NULL, 0, true, NOW), FLUSH_NOBODY);
}

/* Below a tenth of the bandwidth. */
static void test_idle(void **state) {
    assert_true(flush_device_idle(0, 100));
    assert_true(flush_device_idle(9, 100));
    assert_false(flush_device_idle(10, 100));
    assert_true(flush_device_idle(~0ull, 0));
}

/* Over many seeds: the VM that is chosen has dirty pages and has not been asked yet. No other VM
 * that could be chosen has more. */
static void test_most_dirty(void **state) {
    for (u64 seed = 0; seed < 500; seed++) {
        u64 rng = seed;
        struct flush_disk d[16];
        u32 n = (u32)(seed_next(&rng) % 17), chosen;

        for (u32 i = 0; i < n; i++)
            d[i] = (struct flush_disk){ seed_next(&rng) % 2, seed_next(&rng) % 4 == 0,
                                        seed_next(&rng) % 100, 0 };
        chosen = flush_choose(d, n, true, NOW);
        for (u32 i = 0; i < n; i++) {
            bool may = d[i].has_dirty_pages && !d[i].flush_now;

            if (may) assert_true(chosen != FLUSH_NOBODY && d[chosen].nr >= d[i].nr);
        }
        if (chosen != FLUSH_NOBODY) assert_true(d[chosen].has_dirty_pages && !d[chosen].flush_now);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_idle),
        cmocka_unit_test(test_most_dirty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
