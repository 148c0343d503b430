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

/* What reads behind the end is found by the sanitizers of the fuzz target, and here by what
 * stands there. */
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
    assert_false(info.unsure);
    assert_true(info.remaps_interrupts);
    assert_int_equal(info.nr_units, 2);
    assert_int_equal(info.unit[0].base, 0xfed90000);
    assert_false(info.unit[0].all);
    assert_true(info.unit[1].all);
    assert_int_equal(info.nr_regions, 1);
    assert_int_equal(info.region[0].first, 0x7f000000);
    assert_int_equal(info.region[0].last, 0x7f1fffff);
    assert_int_equal(info.nr_scopes, 3);
    assert_true(info.scope[0].kind == DMAR_ENDPOINT && !info.scope[0].of_region &&
                info.scope[0].of == 0);
    assert_true(info.scope[1].kind == DMAR_IOAPIC && info.scope[1].id == 2 &&
                info.scope[1].bus == 0xff);
    assert_true(info.scope[2].of_region && info.scope[2].hops == 8 && info.scope[2].bus == 3);
    assert_true(info.scope[2].path[7][0] == 0x23 && info.scope[2].path[7][1] == 7);
    assert_null(info.unit[0].odd);
    assert_null(info.unit[1].odd);
    assert_int_equal(info.lost_regions, 0);
    table[37] = 0;
    parse();
    assert_false(info.remaps_interrupts);
}

/* Firmware's wish that x2APIC stays off counts with interrupt remapping alone, and not once it
 * is on. */
static void test_x2apic_opt_out(void **state) {
    struct acpi_info acpi = { 0 };

    for (u8 flags = 0; flags < 8; flags++) {
        table[37] = flags;
        assert_int_equal(dmar_opts_out_of_x2apic(table, 48), (flags & 3) == 3);
    }
    assert_false(dmar_opts_out_of_x2apic(table, 47));
    assert_true(acpi_wants_x2apic(&acpi, false));
    acpi.x2apic_opt_out = true;
    assert_false(acpi_wants_x2apic(&acpi, false));
    assert_true(acpi_wants_x2apic(&acpi, true));
}

static void test_none(void **state) {
    parse();
    assert_false(info.unsure);
    assert_int_equal(info.nr_units + info.nr_scopes + info.nr_regions, 0);
    end = 47;
    parse();
    assert_true(info.unsure);
}

/* Two good units with a device each, around what a test adds. */
static u32 first_unit(void) {
    setup(NULL);
    scope(unit(0xfed80000, 0), DMAR_ENDPOINT, 0, 0, 1);
    return end;
}

static void last_unit(void) { scope(unit(0xfed81000, 0), DMAR_ENDPOINT, 0, 1, 1); }

static bool is_good(u32 n, u64 base) {
    return n < info.nr_units && info.unit[n].base == base && !info.unit[n].odd &&
           !info.unit[n].unsure;
}

/* A length that does not hold hides what follows, but not what was before. */
static void test_lengths(void **state) {
    static const u16 lengths[] = { 0, 1, 3, 0xffff };

    for (u32 i = 0; i < ARRAY_SIZE(lengths); i++)
        for (u32 kind = 0; kind < 2; kind++) {
            u32 at = first_unit();

            if (kind)
                region(0x1000, 0x1fff);
            else
                unit(0xfed90000, 1);
            put(at + 2, lengths[i], 2);
            last_unit();
            parse();
            assert_true(info.unsure);
            assert_true(is_good(0, 0xfed80000));
            assert_int_equal(info.nr_units, 1);
            assert_int_equal(info.nr_scopes, 1);
        }
    first_unit();
    unit(0xfed90000, 1);
    end -= 1; /* cut */
    parse();
    assert_true(info.unsure && is_good(0, 0xfed80000) && info.nr_units == 1);
    first_unit();
    end += 3; /* less than a head behind it */
    parse();
    assert_true(info.unsure && is_good(0, 0xfed80000));
}

/* A unit that is too short for its fields may be anywhere, with any device. */
static void test_short_unit(void **state) {
    for (u32 length = 4; length < 16; length++) {
        u32 at = first_unit();

        put(at + 2, length, 2);
        end = at + length;
        last_unit();
        parse();
        assert_true(info.unsure);
        assert_int_equal(info.nr_units, 2);
        assert_true(is_good(0, 0xfed80000) && is_good(1, 0xfed81000));
    }
    first_unit();
    put(end, 1, 2); /* a region that is too short */
    put(end + 2, 20, 2);
    end += 20;
    last_unit();
    parse();
    assert_false(info.unsure);
    assert_int_equal(info.lost_regions, 1);
    assert_true(is_good(1, 0xfed81000));
}

/* A scope that is malformed costs only its own unit, and the devices that no other scope names. */
static void test_scopes(void **state) {
    static const u8 sizes[] = { 0, 1, 5, 6, 7, 9, 11, 255 };

    for (u32 i = 0; i < ARRAY_SIZE(sizes); i++) {
        u32 u;

        first_unit();
        u = unit(0xfed90000, 0);
        scope(u, DMAR_ENDPOINT, 0, 2, 1);
        table[scope(u, DMAR_ENDPOINT, 0, 3, 1) + 1] = sizes[i];
        last_unit();
        parse();
        assert_false(info.unsure);
        assert_int_equal(info.nr_units, 3);
        assert_true(info.unit[1].unsure);
        assert_string_equal(info.unit[1].odd,
                            "the entry of its IOMMU in firmware's table is malformed");
        assert_true(is_good(0, 0xfed80000) && is_good(2, 0xfed81000));
    }
    first_unit();
    scope(unit(0xfed90000, 0), DMAR_ENDPOINT, 0, 2, DMAR_MAX_HOPS + 1);
    last_unit();
    parse();
    assert_true(info.unit[1].unsure && is_good(2, 0xfed81000));
    assert_int_equal(info.nr_scopes, 2);
    first_unit();
    scope(region(0x1000, 0x1fff), DMAR_ENDPOINT, 0, 2, DMAR_MAX_HOPS + 1);
    last_unit();
    parse();
    assert_int_equal(info.lost_regions, 1);
    assert_true(is_good(0, 0xfed80000) && is_good(1, 0xfed81000));
}

/* A unit with odd fields is known by its devices, and is not used. */
static void test_odd_units(void **state) {
    static const struct {
        u64 base;
        u8 flags;
        u16 segment;
        const char *odd;
    } odd[] = { { 0, 0, 0, "firmware's table tells no address of its IOMMU" },
                { 0xfed90800, 0, 0, "firmware's table tells no address of its IOMMU" },
                { 0xfed80000, 0, 0, "firmware's table has another IOMMU at the same address" },
                { 0xfed90000, 1, 0, NULL },
                { 0xfed90000, 0, 3, NULL } };

    for (u32 i = 0; i < ARRAY_SIZE(odd); i++) {
        u32 at = first_unit();

        scope(unit(odd[i].base, odd[i].flags), DMAR_ENDPOINT, 0, 2, 1);
        put(at + 6, odd[i].segment, 2);
        last_unit();
        parse();
        assert_false(info.unsure || info.unit[1].unsure);
        if (odd[i].odd)
            assert_string_equal(info.unit[1].odd, odd[i].odd);
        else
            assert_true(is_good(1, 0xfed90000));
        assert_int_equal(info.unit[1].segment, odd[i].segment);
        assert_int_equal(info.scope[1].of, 1);
        assert_true(is_good(0, 0xfed80000) && is_good(2, 0xfed81000));
    }
    setup(NULL);
    unit(0xfed80000, 1);
    put(unit(0xfed81000, 1) + 6, 1, 2); /* one for all others in each segment */
    unit(0xfed82000, 1);
    parse();
    assert_true(is_good(0, 0xfed80000) && is_good(1, 0xfed81000));
    assert_string_equal(info.unit[2].odd, "firmware's table has two IOMMUs for all other devices");
}

static void test_odd_regions(void **state) {
    static const u64 odd[][2] = { { 0x2000, 0x1fff }, { 0x1800, 0x1fff }, { 0x1000, 0x1ffe } };

    for (u32 i = 0; i < ARRAY_SIZE(odd); i++) {
        first_unit();
        put(region(odd[i][0], odd[i][1]) + 6, 2, 2);
        parse();
        assert_true(info.region[0].odd && info.region[0].segment == 2);
        assert_true(is_good(0, 0xfed80000) && !info.unsure && !info.lost_regions);
    }
    first_unit();
    region(0x1000, ~0ull);
    parse();
    assert_false(info.region[0].odd); /* the driver refuses it */
}

static void test_many(void **state) {
    u32 u;

    for (u32 i = 0; i < DMAR_MAX_UNITS; i++) unit(0xfe000000 + i * PAGE_SIZE, 0);
    parse();
    assert_false(info.unsure);
    assert_int_equal(DMAR_MAX_UNITS, 64);
    assert_int_equal(info.nr_units, DMAR_MAX_UNITS);
    unit(0xfee90000, 1);
    parse();
    assert_true(info.unsure);
    assert_int_equal(info.nr_units, DMAR_MAX_UNITS);
    setup(NULL);
    for (u32 i = 0; i <= DMAR_MAX_REGIONS; i++) region(0x1000, 0x1fff);
    parse();
    assert_int_equal(DMAR_MAX_REGIONS, 32);
    assert_int_equal(info.nr_regions, DMAR_MAX_REGIONS);
    assert_int_equal(info.lost_regions, 1);
    setup(NULL);
    u = unit(0xfed90000, 0);
    for (u32 i = 0; i < DMAR_MAX_SCOPES; i++) scope(u, DMAR_ENDPOINT, 0, 0, 1);
    parse();
    assert_false(info.unit[0].unsure);
    assert_int_equal(info.nr_scopes, DMAR_MAX_SCOPES);
    scope(u, DMAR_ENDPOINT, 0, 0, 1);
    parse();
    assert_true(info.unit[0].unsure);
    assert_int_equal(info.nr_scopes, DMAR_MAX_SCOPES);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_good, setup),
        cmocka_unit_test_setup(test_x2apic_opt_out, setup),
        cmocka_unit_test_setup(test_none, setup),
        cmocka_unit_test_setup(test_lengths, setup),
        cmocka_unit_test_setup(test_short_unit, setup),
        cmocka_unit_test_setup(test_scopes, setup),
        cmocka_unit_test_setup(test_odd_units, setup),
        cmocka_unit_test_setup(test_odd_regions, setup),
        cmocka_unit_test_setup(test_many, setup),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
