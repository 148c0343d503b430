/* The bus of virtual devices: which device answers at which address, and that an access across
 * the end of a device goes nowhere. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "vdev/bus.h"

static u64 last_addr, written;

static void dev(void *d, const struct bus_access *a, u64 *value) {
    last_addr = a->addr;
    if (a->write)
        written = *value;
    else if (d)
        *value = *(u64 *)d;
}

static bool rd(struct bus *b, u64 addr, u8 size, u64 *v) {
    const struct bus_access a = { .addr = addr, .size = size };

    return bus_do(b, &a, v);
}

static void test_routes(void **state) {
    struct bus b = { 0 };
    u64 one = 1, two = 2, v = 99;

    bus_add(&b, 0x3f8, 8, dev, &one);
    bus_add(&b, 0xe9, 1, dev, &two);
    bus_add(&b, 0x400, 2, dev, NULL);
    assert_true(rd(&b, 0x3f8, 1, &v));
    assert_int_equal(v, 1);
    assert_true(rd(&b, 0xe9, 1, &v));
    assert_int_equal(v, 2);
    assert_true(rd(&b, 0x401, 1, &v)); /* a device that says nothing reads 0 */
    assert_int_equal(v, 0);
    assert_false(rd(&b, 0xe8, 1, &v));
    assert_false(rd(&b, 0xea, 1, &v));
    assert_false(rd(&b, 0x402, 1, &v));
    assert_false(rd(&b, 0xe8, 2, &v));  /* begins before */
    assert_false(rd(&b, 0x3fd, 4, &v)); /* spans two devices */
    assert_false(rd(&b, 0x401, 2, &v));
    assert_true(rd(&b, 0x3fc, 4, &v));
    assert_int_equal(last_addr, 0x3fc);
    v = 77;
    assert_true(bus_do(&b, &(struct bus_access){ .addr = 0x3f9, .size = 1, .write = true }, &v));
    assert_int_equal(written, 77);
}

static void test_top_of_the_address_space(void **state) {
    struct bus b = { 0 };
    u64 one = 1, v;

    bus_add(&b, ~0ull - 16, 16, dev, &one);
    assert_true(rd(&b, ~0ull - 8, 8, &v));
    assert_false(rd(&b, ~0ull - 7, 8, &v));
    assert_false(rd(&b, ~0ull, 8, &v));
}

/* Devices that come and go use the same places again. */
static void test_remove(void **state) {
    struct bus b = { 0 };
    u64 one = 1, two = 2, v;

    bus_add(&b, 0x1000, 0x1000, dev, &one);
    for (u32 i = 0; i < 3 * BUS_RANGES; i++) {
        bus_add(&b, 0x2000, 0x1000, dev, &two);
        assert_true(rd(&b, 0x2000, 4, &v) && v == 2);
        bus_remove(&b, &two);
        assert_false(rd(&b, 0x2000, 4, &v));
        assert_true(rd(&b, 0x1000, 4, &v) && v == 1);
    }
    assert_int_equal(b.nr, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_routes),
        cmocka_unit_test(test_remove),
        cmocka_unit_test(test_top_of_the_address_space),
    };

    return cmocka_run_group_tests_name("bus", tests, NULL, NULL);
}
