/* Access to configuration space by ports and by windows of memory, both made up here: which
 * window is believed, and where a read or a write goes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <string.h>

#include <takt/io.h>
#include "fake_log.h"
#include "platform/firmware.h"

static u32 model_address;
static u8 model_ports[4096]; /* of 00:00.0, and of no other function */
static u8 model_memory[4][2 << 20];
static u32 model_maps, model_out_of_reach;

static u32 model_port(u16 port, u32 size) {
    u32 offset = (model_address & 0xfc) | (port & 3), v = ~0u >> (32 - 8 * size);

    assert_true(model_address >> 31 && port >= 0xcfc);
    if (!(model_address >> 8 & 0xffff)) memcpy(&v, model_ports + offset, size);
    return v;
}

static void model_out(u16 port, u32 size, u32 v) {
    if (port == 0xcf8)
        model_address = v;
    else if (!(model_address >> 8 & 0xffff))
        memcpy(model_ports + ((model_address & 0xfc) | (port & 3)), &v, size);
}

/* The n-th window is the n-th piece of memory. */
static volatile void *model_map(u64 pa, u64 len) {
    if (model_out_of_reach) return NULL;
    assert_true(model_maps < ARRAY_SIZE(model_memory) && len <= sizeof(model_memory[0]));
    return model_memory[model_maps++];
}

#define inb(port)     ((u8)model_port(port, 1))
#define inw(port)     ((u16)model_port(port, 2))
#define inl(port)     model_port(port, 4)
#define outb(port, v) model_out(port, 1, v)
#define outw(port, v) model_out(port, 2, v)
#define outl(port, v) model_out(port, 4, v)
#define mmio_map      model_map
#include "hv/pci/space.c"
#undef mmio_map

static struct acpi_info acpi;
static struct memmap ram;

static void put(u8 *space, u32 at, u32 v) { memcpy(space + at, &v, 4); }

static int setup(void **state) {
    memset(model_ports, 0xff, sizeof(model_ports));
    memset(model_memory, 0xff, sizeof(model_memory));
    put(model_ports, PCI_ID, 0x12348086);
    put(model_memory[0], PCI_ID, 0x12348086);
    model_maps = model_out_of_reach = 0;
    acpi = (struct acpi_info){ .nr_ecams = 1, .ecam = { { 0xe0000000, 0, 0, 1 } } };
    ram = (struct memmap){ .nr = 1, .range = { { 0, 1 << 30 } } };
    return 0;
}

static void test_one(void **state) {
    assert_string_equal(pci_space_init(&acpi, &ram), "ECAM");
    put(model_memory[0], 0x104, 0xabcdef01); /* beyond what ports reach */
    assert_int_equal(pci_read(0, 0x104, 4), 0xabcdef01);
    assert_int_equal(pci_read(0, 0x106, 2), 0xabcd);
    assert_int_equal(pci_read(0, 0x107, 1), 0xab);
    pci_write(0x108, 0x40, 2, 0x1234); /* 01:01.0 */
    assert_int_equal(model_memory[0][0x108040], 0x34);
    assert_int_equal(model_memory[0][0x108042], 0xff);
    assert_int_equal(pci_read(0, 4096, 4), ~0u);
    assert_int_equal(pci_next_bus(0), 0);
    assert_int_equal(pci_next_bus(255), 255); /* by ports */
    assert_int_equal(pci_next_bus(256), PCI_NO_BUS);
}

static void test_ports(void **state) {
    acpi.nr_ecams = 0;
    assert_string_equal(pci_space_init(&acpi, &ram), "ports");
    assert_int_equal(pci_read(0, PCI_ID, 4), 0x12348086);
    assert_int_equal(pci_read(0, PCI_ID + 2, 2), 0x1234);
    assert_int_equal(pci_read(0, 0x100, 4), ~0u);
    assert_int_equal(pci_read(0, 0x100, 1), 0xff);
    pci_write(0, 0x42, 2, 0x5678);
    assert_int_equal(model_ports[0x43], 0x56);
    pci_write(0, 0x142, 2, 0);
    assert_int_equal(model_ports[0x43], 0x56);
    /* The ports reach segment 0 only. An access to another segment must not come to 00:00.0. */
    assert_int_equal(pci_read(1 << 16, PCI_ID, 4), ~0u);
    pci_write(1 << 16, 0x42, 2, 0);
    assert_int_equal(model_ports[0x43], 0x56);
}

static void test_segments(void **state) {
    acpi.nr_ecams = 3;
    acpi.ecam[1] = (struct acpi_ecam){ 0xd0000000, 2, 0x10, 0x11 };
    acpi.ecam[2] = (struct acpi_ecam){ 0x380000000000, 1, 0, 0 };
    put(model_memory[1], PCI_ID, 0x11112222);
    put(model_memory[2], PCI_ID, 0x33334444);
    assert_string_equal(pci_space_init(&acpi, &ram), "ECAM");
    assert_int_equal(pci_read(PCI_BDF(0x210, 0, 0), PCI_ID, 4), 0x11112222);
    assert_int_equal(pci_read(PCI_BDF(0x20f, 0, 0), PCI_ID, 4), ~0u);
    assert_int_equal(pci_read(PCI_BDF(0x212, 0, 0), PCI_ID, 4), ~0u);
    assert_int_equal(pci_read(PCI_BDF(0x100, 0, 0), PCI_ID, 4), 0x33334444);
    assert_int_equal(pci_next_bus(256), 0x100);
    assert_int_equal(pci_next_bus(0x101), 0x210);
    assert_int_equal(pci_next_bus(0x211), 0x211);
    assert_int_equal(pci_next_bus(0x212), PCI_NO_BUS);
}

/* Windows that cannot be true: each is left out by its own reason, and the others are used. */
static void test_odd(void **state) {
    static const struct {
        struct acpi_ecam e;
        const char *why;
    } odd[] = { { { 0, 1, 0, 0 }, "it is malformed" },
                { { 0xd0080000, 1, 0, 0 }, "it is malformed" },
                { { 0xd0000000, 1, 5, 4 }, "it is malformed" },
                { { ~0ull << 20, 1, 0, 0 }, "it is malformed" },
                { { 0x3ff00000, 1, 0, 0 }, "RAM lies there" },
                { { 0xd0000000, 0, 1, 2 }, "another window has these buses, or this memory" },
                { { 0xe0100000, 1, 0, 0 }, "another window has these buses, or this memory" },
                { { 0xd0000000, 0, 2, 2 }, "it does not show the same devices as the I/O ports" } };
    char sentence[160];

    for (u32 i = 0; i < ARRAY_SIZE(odd); i++) {
        setup(NULL);
        acpi.nr_ecams = 2;
        acpi.ecam[1] = odd[i].e;
        put(model_memory[1], PCI_ID, 0x11112222);
        assert_string_equal(pci_space_init(&acpi, &ram), "ECAM");
        hv_snprintf(
            sentence, sizeof(sentence),
            "MCFG: configuration space of segment %u, buses %02x to %02x, at %lx is not used: %s",
            odd[i].e.segment, odd[i].e.first, odd[i].e.last, odd[i].e.base, odd[i].why);
        assert_string_equal(fake_log_last, sentence);
        assert_int_equal(nr_windows, 1);
    }
    setup(NULL);
    put(model_memory[0], PCI_ID, 0);
    assert_string_equal(pci_space_init(&acpi, &ram), "ports");
    model_out_of_reach = 1;
    assert_string_equal(pci_space_init(&acpi, &ram), "ports");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_one, setup),
        cmocka_unit_test_setup(test_ports, setup),
        cmocka_unit_test_setup(test_segments, setup),
        cmocka_unit_test_setup(test_odd, setup),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
