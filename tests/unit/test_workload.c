/* What guests share that measure a disk: extents of files, and when requests in bursts are due. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include <guest/arrivals.h>
#include <guest/extents.h>

#define PAGES 16u

static u8 used[PAGES];

static void files_in_one_piece(void **state) {
    struct extents e;
    struct extent x;

    memset(used, 1, sizeof(used));
    extents_init(&e, used, PAGES);
    for (u32 i = 0; i < 4; i++) {
        x = extents_take(&e, 4);
        assert_int_equal(x.first, 4 * i);
        assert_int_equal(x.nr, 4);
    }
    assert_int_equal(e.free, 0);
    assert_int_equal(extents_take(&e, 1).nr, 0);
}

/* The search goes on behind what was taken last, and begins anew at the end of the disk. An extent
 * ends at a page that is in use, and at the end of the disk. */
static void holes(void **state) {
    struct extents e;
    struct extent x;

    extents_init(&e, used, PAGES);
    extents_take(&e, 14);
    extents_give(&e, (struct extent){ 3, 2 });
    extents_give(&e, (struct extent){ 8, 1 });
    assert_int_equal(e.free, 5);
    x = extents_take(&e, 4);
    assert_int_equal(x.first, 14);
    assert_int_equal(x.nr, 2);
    x = extents_take(&e, 4);
    assert_int_equal(x.first, 3);
    assert_int_equal(x.nr, 2);
    x = extents_take(&e, 4);
    assert_int_equal(x.first, 8);
    assert_int_equal(x.nr, 1);
    assert_int_equal(extents_take(&e, 4).nr, 0);
}

/* Random files that come and go: no page is in two of them, and the count of free ones is right. */
static void random_files(void **state) {
    struct extent held[PAGES];
    struct extents e;
    u64 rng = 1;
    u32 nr = 0, in_use = 0;

    extents_init(&e, used, PAGES);
    for (u32 step = 0; step < 10000; step++) {
        u32 seen[PAGES] = { 0 };

        if (seed_below(seed_next(&rng), 2) && e.free) {
            held[nr] = extents_take(&e, 1 + (u32)seed_below(seed_next(&rng), 5));
            assert_true(held[nr].nr > 0);
            in_use += held[nr++].nr;
        } else if (nr) {
            u32 i = (u32)seed_below(seed_next(&rng), nr);

            extents_give(&e, held[i]);
            in_use -= held[i].nr;
            held[i] = held[--nr];
        }
        for (u32 i = 0; i < nr; i++)
            for (u32 page = held[i].first; page < held[i].first + held[i].nr; page++)
                assert_int_equal(seen[page]++, 0);
        assert_int_equal(e.free, PAGES - in_use);
    }
}

/* 300 a second in bursts of 50 ms: 150 requests every 500 ms, within the first 50 of them. */
static void bursts(void **state) {
    struct bursts b = bursts_of(300, 50 * NS_PER_MS);

    assert_int_equal(b.requests, 150);
    for (u64 i = 0; i < 1000; i++) {
        u64 due = bursts_due(&b, i), in_period = due % (500 * NS_PER_MS);

        assert_int_equal(due / (500 * NS_PER_MS), i / 150);
        assert_true(in_period < 50 * NS_PER_MS);
        if (i % 150) assert_in_range(due - bursts_due(&b, i - 1), 333333, 333334);
    }
    assert_int_equal(bursts_wait(&b, 0), 500 * NS_PER_MS);
    assert_int_equal(bursts_wait(&b, 499 * NS_PER_MS), NS_PER_MS);
    assert_int_equal(bursts_of(1, NS_PER_MS).requests, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_in_one_piece),
        cmocka_unit_test(holes),
        cmocka_unit_test(random_files),
        cmocka_unit_test(bursts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
