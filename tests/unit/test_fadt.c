/* The FADT and the state S5 of ACPI, which say how a machine is switched off and reset. */
#include "acpi_rig.h"

enum { FADT = 0x2000, DSDT = 0x4000, SSDT = 0x6000 };

/* Bytes of AML behind the header of the table at `at`, which ends with them. */
static void aml(u32 at, const char *signature, const u8 *bytes, u32 n) {
    memcpy(mem + at + 36, bytes, n);
    table(at, signature, 36 + n);
}

#define AML(at, signature, ...)                                                                    \
    aml(at, signature, (const u8[]){ __VA_ARGS__ }, sizeof((const u8[]){ __VA_ARGS__ }))

/* A FADT as QEMU's q35 has it (ACPI 3), and the DSDT's name for state S5. */
static void fadt_begin(void) {
    static const u32 at[] = { FADT, SSDT };

    rsdp(2);
    root(true, 2, at);
    put(FADT + 40, DSDT, 4);
    put(FADT + 48, 0xb2, 4); /* SMI_CMD, ACPI_ENABLE */
    mem[FADT + 52] = 2;
    put(FADT + 64, 0x604, 4);    /* PM1a_CNT_BLK */
    put(FADT + 112, BIT(10), 4); /* RESET_REG_SUP */
    mem[FADT + 116] = 1;         /* RESET_REG: a port */
    put(FADT + 120, 0xcf9, 8);
    mem[FADT + 128] = 0x0f;
    put(FADT + 140, DSDT, 8);
    table(FADT, "FACP", 244);
    AML(DSDT, "DSDT", 0x10, 0x20, 8, '_', 'S', '5', '_', 0x12, 6, 4, 10, 5, 1, 0, 0);
    table(SSDT, "SSDT", 36);
}

static void test_fadt(void **state) {
    fadt_begin();
    assert_int_equal(parse(), 0);
    assert_true(info.power.s5_known);
    assert_int_equal(info.power.type_a, 5);
    assert_int_equal(info.power.type_b, 1);
    assert_int_equal(info.power.pm1a, 0x604);
    assert_int_equal(info.power.pm1b, 0);
    assert_int_equal(info.power.smi_command, 0xb2);
    assert_int_equal(info.power.acpi_enable, 2);
    assert_true(info.power.can_reset);
    assert_int_equal(info.power.reset_space, ACPI_SPACE_IO);
    assert_int_equal(info.power.reset_address, 0xcf9);
    assert_int_equal(info.power.reset_value, 0x0f);
    assert_int_equal(info.bad_tables, 0);
}

/* Firmware of ACPI 1 has neither a reset register nor addresses of 8 bytes; one of ACPI 2 may have
 * nothing else. */
static void test_fadt_of_either_kind(void **state) {
    fadt_begin();
    put(FADT + 140, 0xdead0000, 8); /* beyond the end: not part of the table */
    table(FADT, "FACP", 116);
    assert_int_equal(parse(), 0);
    assert_true(info.power.s5_known);
    assert_int_equal(info.power.pm1a, 0x604);
    assert_false(info.power.can_reset);

    fadt_begin();
    put(FADT + 40, 0, 4);
    put(FADT + 64, 0, 4);
    mem[FADT + 172] = mem[FADT + 184] = 1; /* X_PM1a_CNT_BLK, X_PM1b_CNT_BLK: ports */
    put(FADT + 176, 0x1804, 8);
    put(FADT + 188, 0x1904, 8);
    table(FADT, "FACP", 244);
    assert_int_equal(parse(), 0);
    assert_true(info.power.s5_known);
    assert_int_equal(info.power.pm1a, 0x1804);
    assert_int_equal(info.power.pm1b, 0x1904);
    mem[FADT + 172] = 0; /* in memory: no port */
    table(FADT, "FACP", 244);
    assert_int_equal(parse(), 0);
    assert_int_equal(info.power.pm1a, 0);

    fadt_begin();
    put(FADT + 112, BIT(10) | BIT(20), 4); /* HW_REDUCED_ACPI */
    table(FADT, "FACP", 244);
    assert_int_equal(parse(), 0);
    assert_int_equal(info.power.pm1a, 0);
    assert_true(info.power.can_reset);
}

/* Whether there is a keyboard controller: flag 8042 of IAPC_BOOT_ARCH (ACPI 6.5, 5.2.9.3), which
 * tables before revision 3 do not have. */
static void test_fadt_keyboard(void **state) {
    static const struct {
        u8 revision;
        u32 len;
        u8 flags; /* BIT(0): there are devices on the ISA bus, which says nothing of the keyboard */
        bool none;
    } cases[] = {
        { 3, 244, BIT(1) | BIT(0), false },
        { 3, 244, BIT(1), false },
        { 3, 244, BIT(0), true },
        { 6, 276, 0, true },
        { 6, 276, BIT(1), false },
        { 1, 116, 0, false },
        { 2, 244, 0, false },
        { 3, 243, 0, false },
    };

    for (u32 i = 0; i < ARRAY_SIZE(cases); i++) {
        fadt_begin();
        mem[FADT + 8] = cases[i].revision;
        mem[FADT + 109] = cases[i].flags;
        table(FADT, "FACP", cases[i].len);
        assert_int_equal(parse(), 0);
        if (info.no_keyboard_controller != cases[i].none) fail_msg("case %u", i);
    }
    root(true, 0, NULL); /* no FADT at all */
    assert_int_equal(parse(), 0);
    assert_false(info.no_keyboard_controller);
}

static void test_fadt_lies(void **state) {
    fadt_begin();
    put(FADT + 64, 0x10604, 4); /* no port */
    put(FADT + 120, 0x10cf9, 8);
    table(FADT, "FACP", 244);
    assert_int_equal(parse(), 0);
    assert_int_equal(info.power.pm1a, 0);
    assert_false(info.power.can_reset);

    fadt_begin();
    mem[FADT + 116] = 3; /* in a place that the standard does not allow */
    table(FADT, "FACP", 244);
    assert_int_equal(parse(), 0);
    assert_false(info.power.can_reset);

    fadt_begin();
    put(FADT + 112, 0, 4); /* the register is described, but not there */
    table(FADT, "FACP", 244);
    assert_int_equal(parse(), 0);
    assert_false(info.power.can_reset);

    fadt_begin();
    put(FADT + 140, 0xe0, 8); /* X_DSDT leads nowhere: then DSDT counts */
    table(FADT, "FACP", 244);
    assert_int_equal(parse(), 0);
    assert_true(info.power.s5_known);

    fadt_begin();
    table(FADT, "FACP", 128); /* the reset value is cut off; X_DSDT, too */
    assert_int_equal(parse(), 0);
    assert_false(info.power.can_reset);
    assert_true(info.power.s5_known);
    table(FADT, "FACP", 115); /* shorter than any */
    assert_int_equal(parse(), 0);
    assert_int_equal(info.power.pm1a, 0);
    assert_false(info.power.s5_known);

    fadt_begin();
    mem[FADT + 9] ^= 1; /* the checksum */
    assert_int_equal(parse(), 0);
    assert_int_equal(info.power.pm1a, 0);
    assert_int_equal(info.bad_tables, 1);

    fadt_begin();
    mem[DSDT + 9] ^= 1;
    assert_int_equal(parse(), 0);
    assert_int_equal(info.power.pm1a, 0x604);
    assert_false(info.power.s5_known);
    assert_int_equal(info.bad_tables, 1);

    fadt_begin();
    put(DSDT + 4, 0xfff000, 4); /* longer than the memory */
    assert_int_equal(parse(), 0);
    assert_false(info.power.s5_known);
    assert_int_equal(info.bad_tables, 1);
}

/* Each case is a whole DSDT. Behind its end lie bytes that would complete a package that is cut
 * off. So code that reads beyond the end would find a package. */
static void test_s5(void **state) {
    static const struct {
        bool known;
        u8 a, b, n, bytes[16];
    } cases[] = {
        { true, 0, 0, 12, { 8, '_', 'S', '5', '_', 0x12, 6, 4, 0, 0, 0, 0 } }, /* as QEMU */
        /* The name may begin with a backslash, which is the root. */
        { true, 7, 7, 13, { 8, '\\', '_', 'S', '5', '_', 0x12, 6, 2, 10, 7, 10, 7 } },
        { true,
          5,
          0,
          13,
          { 8, '_', 'S', '5', '_', 0x12, 0x40, 0, 4, 10, 5, 0, 0 } }, /* a length of 2 bytes */
        { true, 1, 1, 10, { 8, '_', 'S', '5', '_', 0x12, 4, 2, 1, 1 } },
        /* This is the name of another state. */
        { false, 0, 0, 12, { 8, '_', 'S', '4', '_', 0x12, 6, 4, 0, 0, 0, 0 } },
        /* The name is there, but this does not define it. */
        { false, 0, 0, 12, { 9, '_', 'S', '5', '_', 0x12, 6, 4, 0, 0, 0, 0 } },
        /* The name stands for something that is not a package. */
        { false, 0, 0, 12, { 8, '_', 'S', '5', '_', 0x11, 6, 4, 0, 0, 0, 0 } },
        /* The package has one element, and two are needed. */
        { false, 0, 0, 12, { 8, '_', 'S', '5', '_', 0x12, 3, 1, 0, 0, 0, 0 } },
        /* A sleep type has three bits, and 8 does not fit into them. */
        { false, 0, 0, 12, { 8, '_', 'S', '5', '_', 0x12, 6, 4, 10, 8, 0, 0 } },
        /* One element is an expression. */
        { false, 0, 0, 12, { 8, '_', 'S', '5', '_', 0x12, 6, 4, 0, 0xff, 0, 0 } },
        /* The table is cut off before its end. */
        { false, 0, 0, 5, { 8, '_', 'S', '5', '_' } },
        { false, 0, 0, 6, { 8, '_', 'S', '5', '_', 0x12 } },
        { false, 0, 0, 7, { 8, '_', 'S', '5', '_', 0x12, 6 } },
        { false, 0, 0, 7, { 8, '_', 'S', '5', '_', 0x12, 0xc0 } },
        { false, 0, 0, 8, { 8, '_', 'S', '5', '_', 0x12, 6, 4 } },
        { false, 0, 0, 9, { 8, '_', 'S', '5', '_', 0x12, 6, 4, 10 } },
        { false, 0, 0, 10, { 8, '_', 'S', '5', '_', 0x12, 6, 4, 10, 5 } },
        { false, 0, 0, 11, { 8, '_', 'S', '5', '_', 0x12, 6, 4, 10, 5, 10 } },
    };

    for (u32 i = 0; i < ARRAY_SIZE(cases); i++) {
        setup(NULL);
        fadt_begin();
        memset(mem + DSDT + 36, 1, 64); /* AML's "one", which completes every package */
        aml(DSDT, "DSDT", cases[i].bytes, cases[i].n);
        assert_int_equal(parse(), 0);
        if (info.power.s5_known != cases[i].known) fail_msg("case %u", i);
        assert_int_equal(info.power.type_a, cases[i].a);
        assert_int_equal(info.power.type_b, cases[i].b);
        assert_int_equal(info.bad_tables, 0);
    }
}

/* Some firmware has the sleep states in a table of their own. The DSDT is read first, and what it
 * says is believed. */
static void test_s5_in_an_ssdt(void **state) {
    fadt_begin();
    AML(SSDT, "SSDT", 8, '_', 'S', '5', '_', 0x12, 6, 4, 10, 6, 10, 6);
    assert_int_equal(parse(), 0);
    assert_int_equal(info.power.type_a, 5);
    table(DSDT, "DSDT", 36);
    assert_int_equal(parse(), 0);
    assert_true(info.power.s5_known);
    assert_int_equal(info.power.type_a, 6);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_fadt, setup),
        cmocka_unit_test_setup(test_fadt_of_either_kind, setup),
        cmocka_unit_test_setup(test_fadt_keyboard, setup),
        cmocka_unit_test_setup(test_fadt_lies, setup),
        cmocka_unit_test_setup(test_s5, setup),
        cmocka_unit_test_setup(test_s5_in_an_ssdt, setup),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
