/* Formatted output, compared with that of libc, and the image's own string functions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/printf.h"

#define memcpy  own_memcpy
#define memmove own_memmove
#define memset  own_memset
#define memcmp  own_memcmp
#define strlen  own_strlen
#define strnlen own_strnlen
#define strcmp  own_strcmp
#define strncmp own_strncmp
#define strchr  own_strchr
#undef COMMON_STRING_H
#include "common/string.h"
/* strnlen() reads the whole aligned word in which a text ends, on purpose. */
#pragma GCC diagnostic ignored "-Warray-bounds"
#include "common/string.c"
#undef memcpy
#undef memmove
#undef memset
#undef memcmp
#undef strlen
#undef strnlen
#undef strcmp
#undef strncmp
#undef strchr

#define SAME(...)                                                                                  \
    do {                                                                                           \
        char a_[128], b_[128];                                                                     \
        int n_ = hv_snprintf(a_, sizeof(a_), __VA_ARGS__),                                         \
            m_ = snprintf(b_, sizeof(b_), __VA_ARGS__);                                            \
        assert_string_equal(a_, b_);                                                               \
        assert_int_equal(n_, m_);                                                                  \
    } while (0)

static void test_numbers(void **state) {
    SAME("%d %d %d", 0, -1, 2147483647);
    SAME("%d", (int)-2147483647 - 1);
    SAME("%ld %lu", (long)-9223372036854775807 - 1, ~0ul);
    SAME("%llx %lx %x", 0x123456789abcdefull, ~0ul, 42);
    SAME("[%8x|%-8x|%016lx]", 42, 42, ~0ul);
    SAME("[%5d|%-5d|%05d]", 42, 42, 42);
    SAME("[%5d|%-5d|%05d]", -42, -42, -42);
    SAME("%u%% %c%c", 99u, 'o', 'k');
    SAME("[%*d|%-*d|%*d]", 6, 1, 6, 2, -6, 3);
    SAME("%02x:%02x", 0xa, 0x1f);
    SAME("%zu %i %040d", (size_t)7, -7, -42);
}

static void test_strings(void **state) {
    SAME("[%s|%8s|%-8s|%*s|%2s]", "text", "text", "text", -6, "text", "text");
    SAME("[%.2s|%.*s|%6.3s|%-6.3s|%.9s|%.0s]", "text", 3, "text", "text", "text", "text", "text");
}

static void test_plural(void **state) {
    char buf[32];

    for (u32 n = 0; n < 3; n++) {
        hv_snprintf(buf, sizeof(buf), "%u VM%s", n, plural(n));
        assert_string_equal(buf, ((const char *[]){ "0 VMs", "1 VM", "2 VMs" })[n]);
    }
}

static void test_bounds(void **state) {
    char buf[8];

    memset(buf, 'x', sizeof(buf));
    assert_int_equal(hv_snprintf(buf, 4, "%s", "longer"), 6);
    assert_memory_equal(buf, "lon\0xxxx", 8);
    assert_int_equal(hv_snprintf(NULL, 0, "%d", 12345), 5);
    assert_int_equal(hv_snprintf(buf, 1, "a"), 1);
    assert_int_equal(buf[0], 0);
}

static void test_string_functions(void **state) {
    u8 a[300], b[300];

    srand(1);
    for (int i = 0; i < 5000; i++) {
        size_t n = (size_t)rand() % 100, from = (size_t)rand() % 100, to = (size_t)rand() % 100;

        for (size_t k = 0; k < sizeof(a); k++) a[k] = b[k] = (u8)rand();
        own_memmove(a + to, a + from, n);
        memmove(b + to, b + from, n);
        assert_memory_equal(a, b, sizeof(a));
        own_memset(a + to, i, n);
        memset(b + to, i, n);
        assert_memory_equal(a, b, sizeof(a));
        own_memcpy(a + 200, a + from, n);
        memcpy(b + 200, b + from, n);
        assert_memory_equal(a, b, sizeof(a));
        assert_int_equal(own_memcmp(a, b + 1, n) > 0, memcmp(a, b + 1, n) > 0);
    }
    assert_int_equal(own_strlen("abc"), 3);
    assert_int_equal(own_strnlen("abc", 2), 2);
    assert_true(own_strcmp("abc", "abd") < 0 && own_strcmp("b", "abc") > 0 &&
                own_strcmp("", "") == 0);
    assert_true(own_strncmp("abcx", "abcy", 3) == 0 && own_strncmp("ab", "abc", 3) < 0);
    assert_string_equal(own_strchr("a=b", '='), "=b");
    assert_null(own_strchr("ab", '='));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers),          cmocka_unit_test(test_strings),
        cmocka_unit_test(test_plural),           cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_string_functions),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
