/* The MP table, which lists CPUs where firmware has no ACPI: a good one, and ones that lie. */
#include "acpi_rig.h"

#define MP 0x3000u

static struct mp_info mp;
static u32 mp_at;

static void mp_entry(const u8 *e, u32 size) {
    memcpy(mem + mp_at, e, size);
    mp_at += size;
}

#define MP_ENTRY(...) mp_entry((const u8[]){ __VA_ARGS__ }, sizeof((const u8[]){ __VA_ARGS__ }))

static void mp_seal(void) {
    memcpy(mem + 0xf0010, "_MP_", 4);
    put(0xf0014, MP, 4);
    mem[0xf0018] = 1;
    seal(0xf0010, 16, 10);
    memcpy(mem + MP, "PCMP", 4);
    put(MP + 4, mp_at - MP, 2);
    seal(MP, mp_at - MP, 7);
}

/* As QEMU has it: two buses, one IOAPIC, one device. */
static void mp_begin(void) {
    mp_at = MP + 44;
    mp_entry((const u8[20]){ 0 }, 20);
    MP_ENTRY(1, 0, 'P', 'C', 'I', ' ', ' ', ' ');
    MP_ENTRY(1, 1, 'I', 'S', 'A', ' ', ' ', ' ');
    MP_ENTRY(2, 7, 0x11, 1, 0, 0, 0xc0, 0xfe);
    info =
        (struct acpi_info){ .nr_ioapics = 2, .ioapic = { { 0xfec10000, 0 }, { 0xfec00000, 24 } } };
}

static void test_mp(void **state) {
    mp_parse(&mp, &info);
    assert_int_equal(mp.nr, 0);
    assert_false(mp.bad);
    mp_begin();
    MP_ENTRY(3, 0, 0x0d, 0, 0, 3 << 2 | 1, 7, 11);
    MP_ENTRY(3, 0, 0, 0, 1, 9, 7, 9);  /* not of PCI */
    MP_ENTRY(3, 3, 0, 0, 0, 8, 7, 12); /* not an ordinary interrupt */
    MP_ENTRY(3, 0, 0, 0, 5, 8, 7, 12); /* a bus, an IOAPIC that are not there */
    MP_ENTRY(3, 0, 0, 0, 0, 8, 6, 12);
    MP_ENTRY(3, 0, 0, 0, 0, 31 << 2, 7, 23);
    MP_ENTRY(4, 3, 0, 0, 1, 0, 0, 0);
    mp_seal();
    mp_parse(&mp, &info);
    assert_false(mp.bad);
    assert_int_equal(mp.nr, 2);
    assert_int_equal(mp.route[0].bus, 0);
    assert_int_equal(mp.route[0].device, 3);
    assert_int_equal(mp.route[0].pin, 1);
    assert_int_equal(mp.route[0].flags, 0x0d);
    assert_int_equal(mp.route[0].gsi, 24 + 11);
    assert_int_equal(mp.route[1].device, 31);
    assert_int_equal(mp.route[1].gsi, 24 + 23);
    info.nr_ioapics = 1; /* ACPI knows another one only */
    mp_parse(&mp, &info);
    assert_int_equal(mp.nr, 0);
}

static void test_mp_lies(void **state) {
    mp_begin();
    MP_ENTRY(3, 0, 0, 0, 0, 8, 7, 11);
    MP_ENTRY(3, 0, 0, 0); /* reaches beyond the end */
    mp_seal();
    mp_parse(&mp, &info);
    assert_int_equal(mp.nr, 1);
    assert_true(mp.bad);
    mem[MP + 49] ^= 1; /* the entry does not matter, so only the checksum notices this */
    mp_parse(&mp, &info);
    assert_int_equal(mp.nr, 0);
    assert_true(mp.bad);
    put(MP + 4, 10, 2); /* shorter than its head */
    mp_parse(&mp, &info);
    assert_true(mp.nr == 0 && mp.bad);
    put(0xf0014, 0xfffffff0, 4); /* nowhere */
    seal(0xf0010, 16, 10);
    mp_parse(&mp, &info);
    assert_true(mp.nr == 0 && mp.bad);
    mp_begin();
    for (u32 i = 0; i < MP_MAX_ROUTES + 50; i++) MP_ENTRY(3, 0, 0, 0, 0, (u8)(i << 2), 7, (u8)i);
    mp_seal();
    mp_parse(&mp, &info);
    assert_int_equal(mp.nr, MP_MAX_ROUTES);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_mp, setup),
        cmocka_unit_test_setup(test_mp_lies, setup),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
