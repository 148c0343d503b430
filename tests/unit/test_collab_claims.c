/* Claims of guests that do not fit what is measured (drivers/collab/claims.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "drivers/collab/claims.h"

#define MS NS_PER_MS

/* It is no flood if a VM makes as many changes as are allowed, second after second. One more is a
 * flood, once. After a second the disk is listened to again, as if nothing had happened. */
static void test_flood(void **state) {
    struct claims c = { 0 };
    u64 now = 5 * NS_PER_S;

    for (u32 s = 0; s < 5; s++, now += CLAIMS_SECOND)
        for (u32 i = 0; i < CLAIMS_CHANGES; i++) assert_false(claims_change(&c, now + i));
    for (u32 i = 0; i < CLAIMS_CHANGES; i++) assert_false(claims_change(&c, now));
    assert_true(claims_change(&c, now + 900 * MS));
    assert_int_equal(c.deaf_until, now + 1900 * MS);
    for (u32 i = 0; i < CLAIMS_CHANGES; i++) assert_false(claims_change(&c, c.deaf_until));
    assert_true(claims_change(&c, c.deaf_until));
}

/* A VM that never writes what it claims to have is found at the third flush in a row, and again
 * later. */
static void test_empty_flushes(void **state) {
    struct claims c = { 0 };

    for (u32 round = 0; round < 2; round++) {
        for (u32 i = 1; i < CLAIMS_EMPTY; i++) {
            claims_asked(&c, 100, 7000);
            assert_false(claims_flushed(&c, 7000 + 24 * PAGE_SIZE, NS_PER_S));
        }
        claims_asked(&c, 100, 7000);
        assert_true(claims_flushed(&c, 7000, NS_PER_S));
        assert_int_equal(c.doubt_until, NS_PER_S + CLAIMS_DISTRUST);
    }
}

/* A quarter of what was claimed is enough, and an honest flush makes up for those before. */
static void test_honest(void **state) {
    struct claims c = { 0 };

    for (u32 i = 0; i < 20; i++) {
        u64 pages = i % CLAIMS_EMPTY ? 0 : 25;

        claims_asked(&c, 100, 0);
        assert_false(claims_flushed(&c, pages * PAGE_SIZE, 0));
    }
    claims_asked(&c, 0, 0); /* nothing claimed, nothing to write */
    assert_false(claims_flushed(&c, 0, 0));
    assert_int_equal(c.empty, 0);
}

static void test_more_than_the_disk_has(void **state) {
    assert_int_equal(claims_pages(1ull << 63, 256), 256);
    assert_int_equal(claims_pages(255, 256), 255);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flood),
        cmocka_unit_test(test_empty_flushes),
        cmocka_unit_test(test_honest),
        cmocka_unit_test(test_more_than_the_disk_has),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
