/* The registers by which ACPI switches a machine off and resets it: what is written to which of
 * them, and in which order. The test plays the ports. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>
#include <takt/io.h>

#include "platform/clock.h"
#include "platform/hostmap.h"

enum { PM1A = 0x604, PM1B = 0x704, SMI = 0xb2, SCI_EN = 1 };

static char wrote[256]; /* "PORT.BYTES=VALUE " for each access */
static u16 pm1[2];      /* what the registers hold */
static bool hands_over; /* the firmware does as it is asked */
static u64 waited;      /* ns */
static u8 memory_register;
static u64 mapped;

static void note(u16 port, unsigned bytes, u32 v) {
    size_t n = strlen(wrote);

    snprintf(wrote + n, sizeof(wrote) - n, "%x.%u=%x ", port, bytes, v);
}

static void model_outb(u16 port, u8 v) {
    note(port, 1, v);
    if (port == SMI && hands_over) pm1[0] |= SCI_EN;
}

static void model_outw(u16 port, u16 v) {
    note(port, 2, v);
    pm1[port == PM1B] = v;
}

static void model_outl(u16 port, u32 v) { note(port, 4, v); }

static u16 model_inw(u16 port) { return pm1[port == PM1B]; }

void delay_ns(u64 ns) { waited += ns; }

volatile void *mmio_map(hpa_t pa, u64 len) {
    mapped = pa;
    return len == 1 ? &memory_register : NULL;
}

#define outb model_outb
#define outw model_outw
#define outl model_outl
#define inw  model_inw
#include "hv/platform/acpi_power.c"

static void begin(struct acpi_power p, u16 a, u16 b) {
    wrote[0] = 0;
    pm1[0] = a;
    pm1[1] = b;
    waited = mapped = memory_register = 0;
    hands_over = true;
    acpi_power_init(&p);
}

static void test_off(void **state) {
    begin((struct acpi_power){ .s5_known = true, .type_a = 5, .pm1a = PM1A }, SCI_EN, 0);
    acpi_off();
    assert_string_equal(wrote, "604.2=1401 604.2=3401 ");
    assert_int_equal(waited, NS_PER_S);
}

/* Two registers: both have the type before the first is told to go. What belongs to others
 * stays, an older type and the bit that asks for SMIs do not. */
static void test_off_by_two_registers(void **state) {
    begin(
        (struct acpi_power){
            .s5_known = true, .type_a = 7, .type_b = 2, .pm1a = PM1A, .pm1b = PM1B },
        SCI_EN | 2 | 4 | 3 << 10, 2);
    acpi_off();
    assert_string_equal(wrote, "604.2=1c03 704.2=802 604.2=3c03 704.2=2802 ");
}

/* In legacy mode the firmware is asked first to hand over; one that does not is not waited for
 * long. */
static void test_handover(void **state) {
    const struct acpi_power p = {
        .s5_known = true, .pm1a = PM1A, .smi_command = SMI, .acpi_enable = 0xa0
    };

    begin(p, 0, 0);
    acpi_off();
    assert_string_equal(wrote, "b2.1=a0 604.2=1 604.2=2001 ");
    assert_int_equal(waited, NS_PER_S);
    begin(p, 0, 0);
    hands_over = false;
    acpi_off();
    assert_string_equal(wrote, "b2.1=a0 604.2=0 604.2=2000 ");
    assert_int_equal(waited, 4 * NS_PER_S);
    begin(p, SCI_EN, 0);
    acpi_off();
    assert_string_equal(wrote, "604.2=1 604.2=2001 ");
}

static void test_nothing_is_known(void **state) {
    begin((struct acpi_power){ .pm1a = PM1A }, 0, 0); /* no \_S5_ */
    acpi_off();
    begin((struct acpi_power){ .s5_known = true }, 0, 0); /* no register */
    acpi_off();
    acpi_reset();
    assert_string_equal(wrote, "");
    assert_int_equal(waited, 0);
}

static void test_reset(void **state) {
    begin((struct acpi_power){ .can_reset = true,
                               .reset_space = ACPI_SPACE_IO,
                               .reset_address = 0xcf9,
                               .reset_value = 6 },
          0, 0);
    acpi_reset();
    assert_string_equal(wrote, "cf9.1=6 ");
    assert_int_equal(waited, 100 * NS_PER_MS);
    /* Device 31, function 3, offset 0x4e. */
    begin((struct acpi_power){ .can_reset = true,
                               .reset_space = ACPI_SPACE_PCI,
                               .reset_address = 31ull << 32 | 3 << 16 | 0x4e,
                               .reset_value = 9 },
          0, 0);
    acpi_reset();
    assert_string_equal(wrote, "cf8.4=8000fb4c cfe.1=9 ");
    begin((struct acpi_power){ .can_reset = true,
                               .reset_space = ACPI_SPACE_MEMORY,
                               .reset_address = 0xfed80000,
                               .reset_value = 0x42 },
          0, 0);
    assert_int_equal(mapped, 0xfed80000);
    acpi_reset();
    assert_string_equal(wrote, "");
    assert_int_equal(memory_register, 0x42);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_off),      cmocka_unit_test(test_off_by_two_registers),
        cmocka_unit_test(test_handover), cmocka_unit_test(test_nothing_is_known),
        cmocka_unit_test(test_reset),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
