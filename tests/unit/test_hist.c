#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include "common/hist.h"

static void test_percentiles(void **state) {
    static struct hist h;

    assert_int_equal(hist_percentile(&h, 500), 0);
    for (u64 i = 1; i <= 1000; i++) hist_add(&h, i * 1000);
    u64 p50 = hist_percentile(&h, 500), p99 = hist_percentile(&h, 990);

    assert_in_range(p50, 500000, 500000 * 9 / 8);
    assert_in_range(p99, 990000, 1000000);
    assert_int_equal(hist_percentile(&h, 1000), 1000000);
    assert_int_equal(h.count, 1000);
    h = (struct hist){ 0 };
    assert_int_equal(h.max, 0);
}

/* Histograms, at the edge of each bucket: a single sample is reported exactly (limited by the
 * maximum), and no percentile is below its sample. */
static void test_single_values(void **state) {
    static struct hist h;

    for (unsigned s = 0; s < 64; s++)
        for (int d = -1; d <= 1; d++) {
            u64 v = (1ull << s) + (u64)(i64)d;

            h = (struct hist){ 0 };
            hist_add(&h, v);
            assert_true(hist_percentile(&h, 500) == v);
        }
}

static void test_error_bound(void **state) {
    static struct hist h;

    for (u64 v = 1; v < 1ull << 35; v = v * 17 / 16 + 1) {
        h = (struct hist){ 0 };
        hist_add(&h, v);
        hist_add(&h, 1ull << 40);
        u64 p = hist_percentile(&h, 500);

        assert_true(p >= v && p <= v + v / 8);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_percentiles),
        cmocka_unit_test(test_single_values),
        cmocka_unit_test(test_error_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
