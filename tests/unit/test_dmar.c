/* Firmware's table of IOMMUs: good ones, and ones that lie. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "platform/firmware.h"

static u8 table[16384];
static u32 end;
static struct dmar_info info;

static void put(u32 at, u64 v, unsigned bytes) { memcpy(table + at, &v, bytes); }

static int setup(void **state) {
    memset(table, 0, sizeof(table));
    end = 48;
    table[37] = 1;
    return 0;
}

/* What reads behind the end is found by the sanitizers of the fuzz target, and here by what stands there. */
static void parse(void) {
    u8 *exact = malloc(end);

    memcpy(exact, table, end);
    dmar_parse(&info, exact, end);
    free(exact);
}

static u32 unit(u64 base, u8 flags) {
    u32 at = end;

    put(at + 2, 16, 2);
    table[at + 4] = flags;
    put(at + 8, base, 8);
    end += 16;
    return at;
}

static u32 region(u64 first, u64 last) {
    u32 at = end;

    put(at, 1, 2);
    put(at + 2, 24, 2);
    put(at + 8, first, 8);
    put(at + 16, last, 8);
    end += 24;
    return at;
}

/* To the structure at `of`, the last one. */
static u32 scope(u32 of, u8 kind, u8 id, u8 bus, u32 hops) {
    u32 at = end;

    table[at] = kind;
    table[at + 1] = (u8)(6 + 2 * hops);
    table[at + 4] = id;
    table[at + 5] = bus;
    for (u32 i = 0; i < hops; i++) {
        table[at + 6 + 2 * i] = (u8)(0x1c + i);
        table[at + 7 + 2 * i] = (u8)i;
    }
    end += 6 + 2 * hops;
    put(of + 2, end - of, 2);
    return at;
}

static void test_good(void **state) {
    u32 u = unit(0xfed90000, 0), r;

    scope(u, DMAR_ENDPOINT, 0, 0, 1);
    scope(u, DMAR_IOAPIC, 2, 0xff, 1);
    unit(0xfed91000, 1);
    put(end, 7, 2); /* of a kind that nobody knows */
    put(end + 2, 12, 2);
    end += 12;
    r = region(0x7f000000, 0x7f1fffff);
    scope(r, DMAR_BRIDGE, 0, 3, 8);
    parse();
    assert_false(info.bad);
    assert_true(info.remaps_interrupts);
    assert_int_equal(info.nr_units, 2);
    assert_int_equal(info.unit[0].base, 0xfed90000);
    assert_false(info.unit[0].all);
    assert_true(info.unit[1].all);
    assert_int_equal(info.nr_regions, 1);
    assert_int_equal(info.region[0].first, 0x7f000000);
    assert_int_equal(info.region[0].last, 0x7f1fffff);
    assert_int_equal(info.nr_scopes, 3);
    assert_true(info.scope[0].kind == DMAR_ENDPOINT && !info.scope[0].of_region && info.scope[0].of == 0);
    assert_true(info.scope[1].kind == DMAR_IOAPIC && info.scope[1].id == 2 && info.scope[1].bus == 0xff);
    assert_true(info.scope[2].of_region && info.scope[2].hops == 8 && info.scope[2].bus == 3);
    assert_true(info.scope[2].path[7][0] == 0x23 && info.scope[2].path[7][1] == 7);
    table[37] = 0;
    parse();
    assert_false(info.remaps_interrupts);
}

static void test_none(void **state) {
    parse();
    assert_false(info.bad);
    assert_int_equal(info.nr_units + info.nr_scopes + info.nr_regions, 0);
    end = 47;
    parse();
    assert_true(info.bad);
}

static void bad(void) {
    parse();
    assert_true(info.bad);
    setup(NULL);
}

static void test_lengths(void **state) {
    static const u16 lengths[] = { 0, 1, 3, 4, 15, 17, 0xffff };
    static const u8 sizes[] = { 0, 1, 6, 7, 9, 10, 255 };

    for (u32 i = 0; i < ARRAY_SIZE(lengths); i++) {
        put(unit(0xfed90000, 1) + 2, lengths[i], 2);
        bad();
        put(region(0x1000, 0x1fff) + 2, lengths[i], 2);
        bad();
    }
    for (u32 i = 0; i < ARRAY_SIZE(sizes); i++) {
        table[scope(unit(0xfed90000, 1), DMAR_ENDPOINT, 0, 0, 1) + 1] = sizes[i];
        bad();
    }
    scope(unit(0xfed90000, 1), DMAR_ENDPOINT, 0, 0, DMAR_MAX_HOPS + 1);
    bad();
    unit(0xfed90000, 1);
    end -= 1; /* cut */
    bad();
    unit(0xfed90000, 1);
    end += 3; /* less than a head behind it */
    bad();
}

static void test_contents(void **state) {
    unit(0, 1);
    bad();
    unit(0xfed90800, 1);
    bad();
    put(unit(0xfed90000, 1) + 6, 1, 2); /* segment */
    bad();
    region(0x2000, 0x1fff);
    bad();
    region(0x1800, 0x1fff);
    bad();
    region(0x1000, 0x1ffe);
    bad();
    region(0x1000, ~0ull);
    parse();
    assert_false(info.bad); /* the driver refuses it */
    setup(NULL);
    unit(0, 1); /* what is bad is so whatever follows */
    unit(0xfed90000, 1);
    bad();
}

static void test_many(void **state) {
    u32 u;

    for (u32 i = 0; i < DMAR_MAX_UNITS; i++) unit(0xfed90000 + i * PAGE_SIZE, 0);
    parse();
    assert_false(info.bad);
    assert_int_equal(info.nr_units, DMAR_MAX_UNITS);
    unit(0xfee90000, 1);
    bad();
    for (u32 i = 0; i <= DMAR_MAX_REGIONS; i++) region(0x1000, 0x1fff);
    bad();
    u = unit(0xfed90000, 0);
    for (u32 i = 0; i < DMAR_MAX_SCOPES; i++) scope(u, DMAR_ENDPOINT, 0, 0, 1);
    parse();
    assert_false(info.bad);
    assert_int_equal(info.nr_scopes, DMAR_MAX_SCOPES);
    scope(u, DMAR_ENDPOINT, 0, 0, 1);
    bad();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_good, setup),    cmocka_unit_test_setup(test_none, setup),
        cmocka_unit_test_setup(test_lengths, setup), cmocka_unit_test_setup(test_contents, setup),
        cmocka_unit_test_setup(test_many, setup),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
