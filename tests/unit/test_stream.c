/* The frames of the trace stream. tests/tools/test_trace.py reads them as the tools do. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "trace/stream.h"

static u8 out[STREAM_FRAME_MAX];

static void test_known_bytes(void **state) {
    /* The sum was worked out by hand: it is Fletcher-16 of 56 09 28 00 and 40 bytes of payload. */
    struct stream s = { .seq = 9 };
    u32 a = 0, b = 0;
    unsigned n = stream_vm(&s, out, 3, 2, "web");

    assert_int_equal(n, 48);
    assert_memory_equal(out, "\xa5\x54V\x09\x28\x00\x03\x00\x00\x00\x02\x00\x00\x00web\0", 18);
    for (unsigned i = 2; i < 46; i++) {
        a += out[i];
        b += a;
    }
    assert_int_equal(out[46], a % 255);
    assert_int_equal(out[47], b % 255);
    assert_int_equal(s.seq, 10);
}

static void test_names_are_cut(void **state) {
    struct stream s = { 0 };
    char name[40];

    memset(name, 'x', sizeof(name));
    assert_int_equal(stream_vm(&s, out, 0, 1, name), 48);
    assert_int_equal(out[45], 'x');
}

static void test_records(void **state) {
    struct trace_record r[9] = { { .ns = 5, .event = TRC_WAKE }, { .ns = 6 } };
    struct stream s = { .seq = 255 };

    assert_int_equal(stream_records(&s, out, r, 2), 8 + 64);
    assert_int_equal(out[2], 'R');
    assert_memory_equal(out + 6, r, 64);
    assert_int_equal(s.seq, 0);
    assert_int_equal(stream_records(&s, out, r, 9), STREAM_FRAME_MAX); /* no more than fits */
    assert_int_equal(stream_header(&s, out, 4, 77), 8 + 24);
    assert_memory_equal(out + 6, "TAKTRACE\1\0\0\0\4\0\0\0\x4d", 17);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_bytes),
        cmocka_unit_test(test_names_are_cut),
        cmocka_unit_test(test_records),
    };

    return cmocka_run_group_tests_name("stream", tests, NULL, NULL);
}
