/* Devices that firmware left as masters of the bus: which of them have to stop before Takt uses
 * the memory, and which firmware still needs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <string.h>

#include "fake_log.h"
#include "fake_machine.h"
#include "fake_pci.h"
#include "passthrough/quiesce.h"
#include "passthrough/vtd.h"

#define DEVICE PCI_BDF(0, 3, 0)

static struct fake_pci *device;
static struct acpi_info no_tables;

static int group_setup(void **state) {
    fake_machine("credit");
    return 0;
}

static void add(u32 class_rev) {
    fake_pci_reset();
    memset(fake_registers, 0, sizeof(fake_registers));
    device = fake_pci_add(DEVICE, 0x12345678, class_rev);
    fake_pci_bar(device, 0, 0xfebc0000, 0x1000, 0);
    fake_set(device, PCI_COMMAND, 2, 7);
    pci_enumerate();
}

/* Returns whether the device is still master of the bus. */
static bool stays(void) {
    pci_quiesce();
    return fake_get(device, PCI_COMMAND, 2) & PCI_COMMAND_MASTER;
}

static void test_classes(void **state) {
    static const struct {
        u32 class_rev;
        bool stays;
    } kinds[] = { { 0x02000000, false }, { 0x02800000, false }, { 0x01060100, false },
                  { 0x01080200, false }, { 0x0c030000, false }, { 0x0c033000, false },
                  { 0x0c050000, true },  { 0x03000000, true },  { 0x06010000, true },
                  { 0x04030000, true } };

    for (u32 i = 0; i < ARRAY_SIZE(kinds); i++) {
        add(kinds[i].class_rev);
        assert_int_equal(stays(), kinds[i].stays);
        assert_int_equal(fake_get(device, PCI_COMMAND, 2) & 3, 3); /* it decodes as before */
    }
    add(0x02000000);
    assert_false(stays());
    assert_string_equal(fake_log_last,
                        "PCI device 00:03.0: firmware left bus mastering on; now it is off");
    fake_device[0].touched = 0;
    assert_false(stays()); /* one that is no master is left alone */
    assert_int_equal(fake_device[0].touched, 0);
    add(0x06040000);
    device->space[PCI_HEADER] = 1; /* what is behind a bridge needs it */
    pci_enumerate();
    assert_true(stays());
}

static void test_uhci(void **state) {
    add(0x0c030000);
    fake_set(device, 0xc0, 2, 0x2000);
    assert_false(stays());
    add(0x0c030000);
    fake_set(device, 0xc0, 2, 0x2010);
    assert_true(stays());
    assert_string_equal(fake_log_last,
                        "PCI device 00:03.0 stays master of the bus: firmware makes a PS/2"
                        " keyboard of a USB one by it");
}

static u32 *registers(void) { return (u32 *)(fake_registers + PAGE_SIZE * fake_mappings); }

static void test_ohci(void **state) {
    add(0x0c031000);
    registers()[1] = 0x80;
    assert_false(stays());
    add(0x0c031000);
    registers()[1] = 0x180;
    assert_true(stays());
    add(0x0c031000);
    registers()[1] = 0x180;
    /* Its registers cannot be reached, so firmware does not use it. */
    fake_set(device, PCI_COMMAND, 2, 5);
    assert_false(stays());
}

static void test_ehci(void **state) {
    for (u32 owned = 0; owned < 2; owned++) {
        add(0x0c032000);
        registers()[2] = 0x6800;
        fake_set(device, 0x68, 4, 1 | owned << 16);
        assert_int_equal(stays(), owned);
    }
    add(0x0c032000);
    registers()[2] = 0x0800; /* within the header */
    fake_set(device, 0x08, 4, 1 | 1 << 16);
    assert_false(stays());
}

static void test_xhci(void **state) {
    for (u32 owned = 0; owned < 2; owned++) {
        add(0x0c033000);
        registers()[4] = 0x100u << 16;
        registers()[0x100] = 2 | 4 << 8; /* another capability before it */
        registers()[0x104] = 1 | owned << 16;
        assert_int_equal(stays(), owned);
    }
    add(0x0c033000);
    registers()[4] = 0xffffu << 16; /* behind the registers */
    assert_false(stays());
    add(0x0c033000);
    registers()[4] = 0x10u << 16;
    for (u32 i = 0x10; i < 0x400; i++) registers()[i] = 2 | 1 << 8; /* a list without end */
    assert_false(stays());
}

/* A card that firmware reads its temperature from: DMAR names memory for it. */
static void test_region(void **state) {
    static u8 table[48 + 32] = { [37] = 1, [48] = 1, [50] = 32, [48 + 24] = DMAR_ENDPOINT, 8 };
    struct acpi_info acpi = { .dmar = table, .dmar_len = sizeof(table) };

    table[48 + 9] = 0x10; /* 1000 to 1fff */
    table[48 + 17] = 0x1f;
    table[48 + 16] = 0xff;
    table[48 + 24 + 6] = 3;
    add(0x02000000);
    iommu_read(&acpi, false);
    assert_true(stays());
    assert_string_equal(
        fake_log_last,
        "PCI device 00:03.0 stays master of the bus: firmware goes on using it (RMRR)");
    table[48 + 24 + 6] = 4; /* another one's */
    iommu_read(&acpi, false);
    assert_false(stays());
    iommu_read(&no_tables, false);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_classes), cmocka_unit_test(test_uhci), cmocka_unit_test(test_ohci),
        cmocka_unit_test(test_ehci),    cmocka_unit_test(test_xhci), cmocka_unit_test(test_region),
    };

    return cmocka_run_group_tests(tests, group_setup, NULL);
}
