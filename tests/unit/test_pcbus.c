/* The PCI bus of a VM that is a PC: what its operating system reads and writes at the ports of
 * configuration space, where it sees the BARs of its devices, and how a device's interrupt becomes
 * the message that it has asked for. An IOMMU confines the device here unless a test says
 * otherwise; test_vtd.c has what that means. */
#include <string.h>
#include <takt/errno.h>

#include "give_rig.h"
#include "passthrough/pcbus.h"
#include "passthrough/vtd.h"

static const char *not_confined;

static const char *refused_by_iommu(const struct pci_device *d) { return not_confined; }

static int prepare(struct vm *vm, const struct pci_device *d) { return 0; }

static int attach(struct assignment *a, struct vm *vm) { return 0; }

#define iommu_refused refused_by_iommu
#define iommu_prepare prepare
#define iommu_attach  attach
#define ram           ram_of_the_machine
#include "hv/passthrough/give.c"
#undef ram

#define VECTOR   0x51u
#define MSIX     0x70u /* capabilities of the card */
#define EXPRESS  0xa0u
#define PM       0x40u
#define MSI      0x50u
#define TABLE    0xfea10000ull /* its MSI-X table, in BAR 0 */
#define HIGH_BAR 0x2fe440000ull
#define ABSENT   0xffffffffu

static struct vm *pc;

/* The card has a BAR of 32 bits with the MSI-X table, one of 64 bits above 4 GiB, and capabilities
 * of which a VM may use MSI-X and PCI Express. */
static int pc_setup(void **state) {
    setup(state);
    not_confined = NULL;
    fake_pci_bar(nic, 0, 0xfea00000, 0x20000, 0);
    fake_pci_bar(nic, 1, 0, 0, 0);
    fake_pci_bar(nic, 2, HIGH_BAR, 0x4000, 4);
    fake_pci_cap(nic, PM, PCI_CAP_PM);
    fake_pci_cap(nic, MSI, PCI_CAP_MSI);
    fake_pci_cap(nic, MSIX, PCI_CAP_MSIX);
    fake_pci_cap(nic, EXPRESS, PCI_CAP_EXPRESS);
    fake_set(nic, PCI_HEADER, 1, 0x80); /* a device of several functions */
    fake_set(nic, PM + 2, 2, 0x1234);
    fake_set(nic, MSI + 2, 2, 0x80);
    fake_set(nic, MSIX + 2, 2, 2); /* three entries */
    fake_set(nic, MSIX + 4, 4, 0x10000);
    fake_set(nic, EXPRESS + 2, 2, 0x0012);
    fake_set(nic, EXPRESS + 4, 4, BIT(28) | 0x21);
    init();
    config.unsafe_dma = false;
    config.vcpus = 2;
    strcpy(config.kernel, config.image);
    *config.image = 0;
    pc = driver();
    for (u32 i = 0; i < 2; i++) pc->vcpu[i]->lapic.reg[R_SVR] = 0x1ff; /* switched on */
    pcbus_part.make(pc);
    return 0;
}

static int pc_teardown(void **state) {
    if (pc) fake_destroy(pc);
    return teardown(state);
}

static u64 port(u32 at, u8 size, bool write, u64 value) {
    struct bus_access a = { .addr = at, .size = size, .write = write };

    assert_true(bus_do(&pc->ports, &a, &value));
    return value & ~0ull >> (64 - 8 * size);
}

static void select(u32 slot, u32 reg) { port(0xcf8, 4, true, BIT(31) | slot << 11 | (reg & 0xfc)); }

static u32 get(u32 slot, u32 reg, u8 size) {
    select(slot, reg);
    return (u32)port(0xcfc + (reg & 3), size, false, 0);
}

static void put(u32 reg, u8 size, u32 value) {
    select(1, reg);
    port(0xcfc + (reg & 3), size, true, value);
}

static u32 table(u32 entry, u32 at) {
    struct bus_access a = { .addr = TABLE + 16 * entry + at, .size = 4 };
    u64 value;

    assert_true(bus_do(&pc->mmio, &a, &value));
    return (u32)value;
}

static void set_table(u32 entry, u32 at, u32 value) {
    struct bus_access a = { .addr = TABLE + 16 * entry + at, .size = 4, .write = true };
    u64 v = value;

    assert_true(bus_do(&pc->mmio, &a, &v));
}

static bool has_vector(u32 vcpu) {
    return pc->vcpu[vcpu]->lapic.reg[R_IRR + VECTOR / 32] >> VECTOR % 32 & 1;
}

/* ---- configuration space ---- */

static void test_bus(void **state) {
    assert_int_equal(get(0, 0, 4), 0x00081b36);
    assert_int_equal(get(0, 8, 4), 0x06000000);
    assert_int_equal(get(0, 0x10, 4), 0);
    assert_int_equal(port(0xcf8, 4, false, 0), BIT(31) | 0x10);
    assert_int_equal(get(1, 0, 4), 0x100e8086);
    assert_int_equal(get(1, 2, 2), 0x100e);
    assert_int_equal(get(1, 1, 1), 0x80);
    assert_int_equal(get(1, 0x0b, 1), 0x02);
    assert_int_equal(get(1, 0x0e, 1), 0); /* its other functions are not the VM's */
    assert_int_equal(get(2, 0, 4), ABSENT);
    port(0xcf8, 4, true, BIT(31) | BIT(16) | 1 << 11); /* another bus */
    assert_int_equal((u32)port(0xcfc, 4, false, 0), ABSENT);
    port(0xcf8, 4, true, BIT(31) | 1 << 8 | 1 << 11); /* another function */
    assert_int_equal((u32)port(0xcfc, 4, false, 0), ABSENT);
    port(0xcf8, 4, true, 1 << 11); /* not switched on */
    assert_int_equal((u32)port(0xcfc, 4, false, 0), ABSENT);
    port(0xcf8, 1, true, 0); /* the address register has only 32 bits at once */
    assert_int_equal(port(0xcf8, 4, false, 0), 1 << 11);
}

static void test_no_pc(void **state) {
    struct bus_access a = { .addr = 0xcfc, .size = 4 };
    u64 value;

    fake_destroy(pc);
    strcpy(config.image, config.kernel);
    *config.kernel = 0;
    pc = driver();
    pcbus_part.make(pc);
    assert_false(bus_do(&pc->ports, &a, &value));
}

static void test_bars(void **state) {
    u64 high = TAKT_BAR_GPA + 2 * BAR_MAX + HIGH_BAR % BAR_MAX;

    assert_int_equal(get(1, 0x10, 4), 0xfea00000);
    assert_int_equal(get(1, 0x18, 4), (u32)high | 4);
    assert_int_equal(get(1, 0x1c, 4), high >> 32);
    for (u32 reg = 0x10; reg < 0x28; reg += 4) put(reg, 4, ~0u);
    assert_int_equal(get(1, 0x10, 4), 0xfffe0000);
    assert_int_equal(get(1, 0x14, 4), 0);
    assert_int_equal(get(1, 0x18, 4), 0xffffc004);
    assert_int_equal(get(1, 0x1c, 4), 0xffffffff);
    for (u32 reg = 0x10; reg < 0x28; reg += 4) put(reg, 4, 0xf0000000); /* they stay */
    assert_int_equal(get(1, 0x10, 4), 0xfea00000);
    assert_int_equal(get(1, 0x1c, 4), high >> 32);
    put(0x30, 4, ~0u);
    assert_int_equal(get(1, 0x30, 4), 0);                 /* no ROM */
    assert_int_equal(fake_get(nic, 0x10, 4), 0xfea00000); /* and nothing of this reached it */
    assert_int_equal(fake_get(nic, 0x18, 4), (u32)HIGH_BAR | 4);
    assert_int_equal(pc->pci[0]->refused, 0);
}

static void test_command(void **state) {
    assert_true(fake_get(nic, PCI_COMMAND, 2) & PCI_COMMAND_MASTER);
    put(PCI_COMMAND, 2, 0x540);
    assert_int_equal(get(1, PCI_COMMAND, 2), 0x540);
    assert_int_equal(fake_get(nic, PCI_COMMAND, 2), PCI_COMMAND_MEMORY | PCI_COMMAND_NO_INTX);
    put(PCI_COMMAND, 4, PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER);
    assert_int_equal(get(1, PCI_COMMAND, 2), PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER);
    assert_true(fake_get(nic, PCI_COMMAND, 2) & PCI_COMMAND_MASTER);
    assign_off(pc->pci[0], false); /* it is being taken away */
    put(PCI_COMMAND, 2, PCI_COMMAND_MASTER);
    assert_int_equal(get(1, PCI_COMMAND, 2), 0);
    put(0x3c, 1, 11);
    assert_int_equal(get(1, 0x3c, 4), 11); /* no pin, whatever the card has */
}

/* The list can be followed, and has what a VM may use. */
static void test_capabilities(void **state) {
    u32 seen = 0;

    for (u32 at = get(1, 0x34, 1); at; at = get(1, at + 1, 1)) {
        u32 id = get(1, at, 1), expected = 0;

        if (at == MSIX) expected = PCI_CAP_MSIX;
        if (at == EXPRESS) expected = PCI_CAP_EXPRESS;
        assert_int_equal(id, expected);
        if (!id) assert_int_equal(get(1, at + 2, 2) | get(1, at + 4, 4), 0);
        seen++;
    }
    assert_int_equal(seen, 4);
    assert_int_equal(get(1, EXPRESS + 2, 2), 0x0092); /* integrated in the root complex */
    assert_int_equal(get(1, EXPRESS + 4, 4), 0x21);   /* without a reset of its own */
    put(PM + 4, 2, 3);                                /* to sleep */
    assert_int_equal(fake_get(nic, PM + 4, 2), 0);
    put(MSI + 2, 2, 1);
    assert_int_equal(fake_get(nic, MSI + 2, 2), 0x80);
}

/* ---- interrupts ---- */

static void ask(u32 entry, u32 vcpu) {
    set_table(entry, 0, 0xfee00000 | vcpu << 12);
    set_table(entry, 4, 0);
    set_table(entry, 8, VECTOR);
}

static void test_msix(void **state) {
    struct assignment *a = pc->pci[0];

    assert_int_equal(get(1, MSIX + 2, 2), 2);
    for (u32 n = 0; n < 3; n++) assert_int_equal(entry_word(pc, n, 12), 1); /* all are masked */
    ask(1, 1);
    assert_int_equal(table(1, 0), 0xfee01000);
    assert_int_equal(table(1, 8), VECTOR);
    assert_int_equal(table(1, 12), 1);
    assert_int_equal(entry_word(pc, 1, 8), a->entry[1].vector); /* the card has Takt's own */
    set_table(1, 12, 0);
    assert_int_equal(table(1, 12), 0);
    assert_int_equal(entry_word(pc, 1, 12), 1); /* MSI-X is still off */
    put(MSIX + 2, 2, BIT(15) | BIT(14));
    assert_int_equal(get(1, MSIX + 2, 2), 2 | BIT(15) | BIT(14));
    assert_int_equal(entry_word(pc, 1, 12), 1); /* and now masked as a whole */
    put(MSIX + 2, 2, BIT(15));
    assert_int_equal(entry_word(pc, 1, 12), 0);
    assert_int_equal(entry_word(pc, 0, 12), 1);
    fake_interrupt(a->entry[1].vector);
    assert_true(has_vector(1));
    assert_false(has_vector(0));
    assert_false(pc->events.shared->pending[0] >> a->entry[1].port & 1);
    assert_int_equal(a->interrupts, 1);
    put(MSIX + 2, 2, 0);
    assert_int_equal(entry_word(pc, 1, 12), 1);
}

/* A message reaches LAPICs and nothing else, with a vector and a mode that a LAPIC takes. */
static void test_odd_messages(void **state) {
    int vector = pc->pci[0]->entry[0].vector;

    put(MSIX + 2, 2, BIT(15));
    ask(0, 0);
    set_table(0, 0, 0xfed00000);
    fake_interrupt(vector);
    assert_false(has_vector(0));
    ask(0, 0);
    set_table(0, 4, 1);
    fake_interrupt(vector);
    assert_false(has_vector(0));
    ask(0, 0x55); /* there is no such vCPU */
    fake_interrupt(vector);
    assert_false(has_vector(0));
    ask(0, 0);
    set_table(0, 8, ~0u);
    fake_interrupt(vector);
    set_table(0, 0, ~0u);
    fake_interrupt(vector);
    assert_false(has_vector(0));
    ask(0, 0);
    fake_interrupt(vector);
    assert_true(has_vector(0));
}

/* ---- which devices it may have ---- */

static void test_refused(void **state) {
    fake_destroy(pc);
    pc = NULL;
    nic->master_once = false;
    not_confined = "no IOMMU is in use";
    config.unsafe_dma = true;
    refused(-EPERM, "PCI device 00:03.0 reaches all memory, as no IOMMU is in use: no VM with a "
                    "kernel= can have it");
    not_confined = NULL;
    fake_set(nic, MSIX, 1, 0xee);
    init();
    refused(-EINVAL, "PCI device 00:03.0: it has no MSI-X, and so no interrupt for a VM with a "
                     "kernel=");
}

int main(void) {
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, pc_setup, pc_teardown)
        T(test_bus),          T(test_no_pc), T(test_bars),         T(test_command),
        T(test_capabilities), T(test_msix),  T(test_odd_messages), T(test_refused)
    };

    return cmocka_run_group_tests(tests, group_setup, NULL);
}
