/* Interrupts of devices that VMs have: lines, messages, and storms of them, which must not stop
 * the machine. */
#include <stdlib.h>
#include <string.h>
#include <takt/errno.h>

#include "give_rig.h"
#include "passthrough/interrupt.h"
#include "platform/irq.h"

static bool pending(const struct vm *vm, u32 port) {
    return vm->events.shared->pending[0] >> port & 1;
}

static bool take(struct vm *vm, u32 port) {
    bool was = pending(vm, port);

    vm->events.shared->pending[0] &= ~BIT(port);
    return was;
}

static void test_line(void **state) {
    struct vm *vm = driver();
    u32 port = vm->pci[0]->entry[0].port;

    assert_true(fake_pin.connected && !fake_pin.masked);
    assert_int_equal(fake_pin.gsi, 11);
    assert_int_equal(fake_pin.flags, 3); /* low, level */
    fake_interrupt(fake_pin.vector);
    assert_true(fake_pin.masked);
    assert_true(take(vm, port));
    assert_int_equal(give_eoi(vm, 0), 0);
    assert_false(fake_pin.masked);
    assert_false(pending(vm, port));
    fake_interrupt(fake_pin.vector);
    assert_true(take(vm, port));
    assert_int_equal(vm->pci[0]->interrupts, 2);
    fake_destroy(vm);
    assert_true(fake_pin.masked); /* by the interrupt, and it stays so */
}

static struct vm *racer;

static void interrupt_beside(void) { fake_interrupt(fake_pin.vector); }

static void eoi_beside(void) { give_eoi(racer, 0); }

/* An EOI and an interrupt come at the same instant, on two pCPUs. The next EOI opens the line. */
static void test_eoi_beside_an_interrupt(void **state) {
    struct vm *vm = racer = driver();

    fake_interrupt(fake_pin.vector);
    fake_pin_race = interrupt_beside;
    give_eoi(vm, 0); /* the line is unmasked, and it interrupts before the EOI is over */
    assert_int_equal(vm->pci[0]->interrupts, 2);
    give_eoi(vm, 0);
    assert_false(fake_pin.masked);

    fake_pin_race = eoi_beside; /* of an event before */
    fake_interrupt(fake_pin.vector);
    give_eoi(vm, 0);
    assert_false(fake_pin.masked);
    fake_destroy(vm);
}

/* Whoever acknowledges at once a line that does not fall gets so many a millisecond and no more. */
static void test_storm_of_a_line(void **state) {
    struct vm *vm = driver();
    u32 port = vm->pci[0]->entry[0].port, n = 0;

    for (; !fake_pin.masked && n < 100; n++) {
        fake_interrupt(fake_pin.vector);
        take(vm, port);
        give_eoi(vm, 0);
    }
    assert_int_equal(n, 20);
    give_eoi(vm, 0);
    assert_true(fake_pin.masked);
    fake_clock(1000 + NS_PER_MS);
    fake_advance(0);
    assert_false(fake_pin.masked);
    fake_interrupt(fake_pin.vector);
    assert_true(take(vm, port));
    give_eoi(vm, 0);
    assert_false(fake_pin.masked);
    for (u32 i = 0; i < 19; i++) { /* held again when it goes */
        fake_interrupt(fake_pin.vector);
        give_eoi(vm, 0);
    }
    assert_true(fake_pin.masked);
    fake_destroy(vm);
    fake_clock(1000 + 3 * NS_PER_MS);
    fake_advance(0);
    assert_true(fake_pin.masked);
}

static void test_where_lines_lead(void **state) {
    struct fake_pci *other = fake_pci_add(PCI_BDF(0, 4, 0), 0x12345678, 0);
    u32 gsi = 0, flags = 0;
    struct vm *vm, *second;

    fake_set(other, PCI_LINE, 1, 5); /* which ACPI has elsewhere, active high */
    init();
    assert_string_equal(interrupt_line(pci_at(1), &gsi, &flags), "its interrupt line register");
    assert_int_equal(gsi, 20);
    assert_int_equal(flags, 2);
    fake_set(other, PCI_LINE, 1, 0xff);
    init();
    assert_null(interrupt_line(pci_at(1), &gsi, &flags));
    config.pci[0] = PCI_BDF(0, 4, 0); /* it has none: so be it */
    vm = driver();
    assert_int_equal(vm->pci[0]->irq, PCI_NO_IRQ);
    assert_int_equal(give_eoi(vm, 0), 0);
    fake_destroy(vm);

    fake_set(other, PCI_LINE, 1, 11); /* that of the network card */
    init();
    vm = driver();
    config.pci[0] = NIC;
    strcpy(config.head.name, "second");
    second = fake_vm(&config);
    assert_null(second);
    assert_int_equal(fake_error, -EBUSY);
    assert_string_equal(fake_why, "PCI device 00:03.0 shares its interrupt line with 00:04.0");
    fake_destroy(vm);
}

static void put(u32 at, u64 v, unsigned bytes) { memcpy(fake_low_memory + at, &v, bytes); }

static void seal(u32 at, u32 len, u32 sum_at) {
    u8 sum = 0;

    for (u32 i = 0; i < len; i++) sum = (u8)(sum + fake_low_memory[at + i]);
    fake_low_memory[at + sum_at] = (u8)-sum;
}

/* Behind a bridge pins turn with the number of the device; the MP table knows bus 0 alone. */
static void test_behind_a_bridge(void **state) {
    static const u8 entries[] = { 1, 0, 'P',  'C',  'I', ' ', ' ', ' ', 2, 0,          0x11, 1,
                                  0, 0, 0xc0, 0xfe, 3,   0,   0,   0,   0, 1 << 2 | 3, 0,    19 };
    struct fake_pci *bridge = fake_pci_add(PCI_BDF(0, 1, 0), 0x12345678, 0x06040000);
    u32 gsi = 0, flags = 0;

    fake_pci_add(PCI_BDF(7, 2, 0), 0x12345678, 0)->space[PCI_PIN] = 2;
    bridge->space[PCI_HEADER] = 1;
    bridge->space[PCI_SECONDARY] = 7;
    fake_low_memory = calloc(1, 1 << 20);
    memcpy(fake_low_memory + 0xf0000, "_MP_", 4);
    put(0xf0004, 0x3000, 4);
    seal(0xf0000, 16, 10);
    memcpy(fake_low_memory + 0x3000, "PCMP", 4);
    put(0x3004, 44 + sizeof(entries), 2);
    memcpy(fake_low_memory + 0x302c, entries, sizeof(entries));
    seal(0x3000, 44 + sizeof(entries), 7);
    init();
    /* Behind a bridge, INTB (1) of device 2 becomes pin 1 + 2 = 3 of the bridge, which is device
     * 1. */
    assert_string_equal(interrupt_line(pci_find(PCI_BDF(7, 2, 0)), &gsi, &flags), "the MP table");
    assert_int_equal(gsi, 19);
    assert_int_equal(flags, 3);
    free(fake_low_memory);
    fake_low_memory = NULL;
    init();
}

static void test_msi(void **state) {
    struct vm *vm;
    u32 port, n;

    fake_pci_cap(nic, 0x40, PCI_CAP_MSI);
    fake_set(nic, 0x42, 2, 0x1f0 & ~0x71u); /* 64 bits, masks */
    fake_set(nic, 0x50, 4, ~0u);
    init();
    vm = driver();
    port = vm->pci[0]->entry[0].port;
    assert_int_equal(vm->pci[0]->irq, PCI_MSI);
    assert_int_equal(fake_get(nic, 0x44, 4), 0xfee00000 | vm->vcpu[0]->sched.cpu << 12);
    assert_int_equal(fake_get(nic, 0x48, 4), 0);
    assert_int_equal(fake_get(nic, 0x4c, 2), vm->pci[0]->entry[0].vector);
    assert_int_equal(fake_get(nic, 0x50, 4), ~1u);
    assert_true(fake_get(nic, 0x42, 2) & 1);
    assert_true(fake_get(nic, PCI_COMMAND, 2) & PCI_COMMAND_NO_INTX);
    for (n = 0; fake_get(nic, 0x42, 2) & 1 && n < 100; n++)
        fake_interrupt(vm->pci[0]->entry[0].vector);
    assert_int_equal(n, 20); /* a storm is held */
    assert_true(take(vm, port));
    give_eoi(vm, 0); /* that is for lines */
    assert_false(fake_get(nic, 0x42, 2) & 1);
    fake_clock(1000 + NS_PER_MS);
    fake_advance(0);
    assert_true(fake_get(nic, 0x42, 2) & 1);
    assert_true(take(vm, port)); /* one may have been lost */
    fake_destroy(vm);
    assert_false(fake_get(nic, 0x42, 2) & 1);
}

static u32 table_read(struct vm *vm, u64 at, u8 size) {
    struct bus_access a = { .addr = at, .size = size };
    u64 value = ~0ull;

    assert_true(bus_do(&vm->mmio, &a, &value));
    return (u32)value;
}

static void table_write(struct vm *vm, u64 at, u8 size, u64 value) {
    struct bus_access a = { .addr = at, .size = size, .write = true };

    assert_true(bus_do(&vm->mmio, &a, &value));
}

#define TABLE 0xfe002000u

static struct vm *msix_driver(void) {
    fake_pci_bar(nic, 4, 0xfe000000, 0x8000, 4);
    fake_pci_cap(nic, 0x60, PCI_CAP_MSIX);
    fake_set(nic, 0x62, 2, 299); /* 300 entries: two pages */
    fake_set(nic, 0x64, 4, 0x2004);
    memset(fake_registers, 0xff, sizeof(fake_registers));
    init();
    return driver();
}

/* The table is ours; of each entry there is an event, and a VM can mask it. */
static void test_msix(void **state) {
    struct vm *vm = msix_driver();
    struct assignment *a = vm->pci[0];

    assert_int_equal(a->irq, PCI_MSIX);
    assert_int_equal(fake_get(nic, 0x62, 2) & 0xc000, 0x8000);
    for (u64 at = 0; at < 0x8000; at += PAGE_SIZE)
        assert_int_equal(npt_lookup(&vm->virt.npt, 0xfe000000 + at, NULL),
                         at == 0x2000 || at == 0x3000 ? HPA_NONE : 0xfe000000 + at);
    assert_int_equal(a->nr_vectors, PCI_MAX_VECTORS);
    for (u32 n = 0; n < PCI_MAX_VECTORS; n++) {
        assert_int_equal(entry_word(vm, n, 0), 0xfee00000 | vm->vcpu[0]->sched.cpu << 12);
        assert_int_equal(entry_word(vm, n, 4), 0);
        assert_int_equal(entry_word(vm, n, 8), a->entry[n].vector);
        assert_int_equal(entry_word(vm, n, 12), n > 0);
        assert_int_equal(table_read(vm, TABLE + 16 * n, 4), 0);
        assert_int_equal(table_read(vm, TABLE + 16 * n + 8, 4), a->entry[n].port);
        assert_int_equal(table_read(vm, TABLE + 16 * n + 12, 4), n > 0);
        for (u32 k = 0; k < n; k++) assert_int_not_equal(a->entry[k].port, a->entry[n].port);
        fake_interrupt(a->entry[n].vector);
        for (u32 k = 0; k < PCI_MAX_VECTORS; k++)
            assert_int_equal(take(vm, a->entry[k].port), k == n);
    }
    /* The table ends here: what is behind it is not ours. */
    assert_int_equal(*(volatile u32 *)(a->pci->msix_table + 16 * PCI_MAX_VECTORS), ~0u);
    table_write(vm, TABLE + 2 * 16 + 12, 4, 0);
    assert_int_equal(entry_word(vm, 2, 12), 0);
    assert_int_equal(table_read(vm, TABLE + 2 * 16 + 12, 4), 0);
    table_write(vm, TABLE + 2 * 16 + 12, 4, ~0ull);
    assert_int_equal(entry_word(vm, 2, 12), 1);
    fake_destroy(vm);
    assert_int_equal(fake_get(nic, 0x62, 2) & 0x8000, 0);
}

/* What a VM writes elsewhere, in whatever width, changes nothing. */
static void test_msix_abuse(void **state) {
    struct vm *vm = msix_driver();
    u8 before[2 * PAGE_SIZE];

    memcpy(before, (const void *)vm->pci[0]->pci->msix_table, 16 * PCI_MAX_VECTORS);
    for (u32 size = 1; size <= 8; size *= 2)
        for (u64 at = TABLE; at + size <= TABLE + 0x2000; at += size) {
            if (size != 4 || at % 16 != 12 || at >= TABLE + 16 * PCI_MAX_VECTORS)
                table_write(vm, at, (u8)size, 0xfee01000fee01000);
            if (size != 4 || at >= TABLE + 16 * PCI_MAX_VECTORS)
                assert_int_equal(table_read(vm, at, (u8)size), 0);
        }
    assert_memory_equal((const void *)vm->pci[0]->pci->msix_table, before, 16 * PCI_MAX_VECTORS);
    fake_destroy(vm);
}

static void test_storm_of_messages(void **state) {
    struct vm *vm = msix_driver();
    u32 n = 0;

    for (; !(fake_get(nic, 0x62, 2) & 0x4000) && n < 100; n++)
        fake_interrupt(vm->pci[0]->entry[n % 3].vector);
    assert_int_equal(n, 20);
    fake_clock(1000 + NS_PER_MS);
    fake_advance(0);
    assert_int_equal(fake_get(nic, 0x62, 2) & 0xc000, 0x8000);
    for (n = 0; vm->state != VM_CRASHED && n < 1000; n++)
        fake_interrupt(vm->pci[0]->entry[0].vector);
    assert_int_equal(n, 20 + 64); /* it does not heed the mask */
    assert_string_equal(vm->why, "PCI device 00:03.0 goes on interrupting though it is masked");
    assert_false(fake_get(nic, PCI_COMMAND, 2) & PCI_COMMAND_MASTER);
    fake_destroy(vm);

    config.irq_rate = 3000; /* a second */
    vm = driver();
    for (n = 0; !(fake_get(nic, 0x62, 2) & 0x4000) && n < 100; n++)
        fake_interrupt(vm->pci[0]->entry[0].vector);
    assert_int_equal(n, 3);
    fake_destroy(vm);

    config.irq_rate = 1ull << 32; /* more than it could ever make */
    vm = driver();
    assert_int_equal(vm->pci[0]->burst, UINT32_MAX / 1000);
    fake_destroy(vm);
}

static void on_nothing(void *arg) {}

/* A device gets all of its interrupts or is not given at all. So what a VM sees of its table is
 * true. */
static void test_vectors_run_out(void **state) {
    int taken[64], n = 0;
    struct vm *vm = msix_driver();

    fake_destroy(vm);
    while (fake_vectors_used < 64 - 5) taken[n++] = irq_alloc(on_nothing, NULL);
    assert_null(fake_vm(&config));
    assert_int_equal(fake_error, -ENOSPC);
    assert_string_equal(fake_why,
                        "PCI device 00:03.0: it needs 16 interrupts, and there are too few left");
    assert_int_equal(fake_vectors_used, n);
    assert_int_equal(fake_get(nic, 0x62, 2) & 0x8000, 0);
    while (n > 64 - 16) irq_free(taken[--n]);
    fake_destroy(driver());
    while (n) irq_free(taken[--n]);
}

/* Messages go to the pCPU of the vCPU to which the event is bound. */
static void test_messages_follow(void **state) {
    struct assignment *a;
    u32 first, other;
    struct vm *vm;

    config.vcpus = 2;
    vm = msix_driver();
    a = vm->pci[0];
    assert_int_equal(evtchn_vector(&vm->events, a->entry[1].port, 1, 0x40), 0);
    first = a->entry[1].cpu;
    other = vm->vcpu[1]->sched.cpu = !first;
    fake_clock(1000 + 10 * NS_PER_MS);
    fake_interrupt(a->entry[1].vector);
    fake_advance(0);
    assert_int_equal(entry_word(vm, 1, 0), 0xfee00000 | other << 12);
    assert_int_equal(entry_word(vm, 0, 0), 0xfee00000 | vm->vcpu[0]->sched.cpu << 12);
    assert_int_equal(entry_word(vm, 1, 12), 1); /* as masked as it was */
    assert_int_equal(entry_word(vm, 0, 12), 0);
    fake_no_messages = vm->vcpu[1]->sched.cpu = first;
    fake_clock(1000 + 20 * NS_PER_MS);
    fake_interrupt(a->entry[1].vector);
    fake_advance(0);
    assert_int_equal(entry_word(vm, 1, 0), 0xfee00000 | other << 12); /* where they can */
    fake_no_messages = ~0u;
    fake_destroy(vm);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_line, setup, teardown),
        cmocka_unit_test_setup_teardown(test_eoi_beside_an_interrupt, setup, teardown),
        cmocka_unit_test_setup_teardown(test_storm_of_a_line, setup, teardown),
        cmocka_unit_test_setup_teardown(test_where_lines_lead, setup, teardown),
        cmocka_unit_test_setup_teardown(test_behind_a_bridge, setup, teardown),
        cmocka_unit_test_setup_teardown(test_msi, setup, teardown),
        cmocka_unit_test_setup_teardown(test_msix, setup, teardown),
        cmocka_unit_test_setup_teardown(test_msix_abuse, setup, teardown),
        cmocka_unit_test_setup_teardown(test_storm_of_messages, setup, teardown),
        cmocka_unit_test_setup_teardown(test_vectors_run_out, setup, teardown),
        cmocka_unit_test_setup_teardown(test_messages_follow, setup, teardown),
    };

    return cmocka_run_group_tests(tests, group_setup, NULL);
}
