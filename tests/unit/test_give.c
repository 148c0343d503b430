/* Devices of the machine given to VMs: what is refused, what a VM gets, interrupts, and that all of it is
 * taken back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <takt/device.h>
#include <takt/errno.h>

#include "fake_log.h"
#include "fake_machine.h"
#include "fake_pci.h"
#include "fake_timer.h"
#include "npt_model.h"
#include "passthrough/give.h"
#include "passthrough/interrupt.h"
#include "passthrough/mediate.h"
#include "passthrough/sriov.h"

#define NIC PCI_BDF(0, 3, 0)

static const struct acpi_info acpi = { .nr_ioapics = 1,
                                       .ioapic = { { 0xfec00000, 0 } },
                                       .nr_overrides = 1,
                                       .override = { { .irq = 5, .gsi = 20, .flags = 0x0d } } };
static struct fake_pci *nic;
static struct config_vm config;
static u64 frames, heap;

static void no_vms(void) {
    frames = frame_free_count();
    heap = heap_in_use();
}

/* RAM of the machine ends at 1 GiB and at 6 GiB. */
static void init(void) {
    pci_enumerate();
    give_init(&acpi, 1ull << 30, 6ull << 30);
    no_vms();
}

static int group_setup(void **state) {
    struct config_vm c = fake_config("first", 1);

    fake_machine("credit");
    fake_destroy(fake_vm(&c));
    return 0;
}

static int setup(void **state) {
    fake_pci_reset();
    nic = fake_pci_add(NIC, 0x100e8086, 0x02000003);
    fake_pci_bar(nic, 0, 0xfebc0000, 0x20000, 0);
    fake_pci_bar(nic, 1, 0xc040, 0x40, 1);
    config = fake_config("driver", 1);
    config.memory = 6 << 20;
    config.pci[config.nr_pci++] = NIC;
    config.unsafe_dma = true;
    init();
    fake_clock(1000);
    return 0;
}

static int teardown(void **state) {
    assert_int_equal(frame_free_count(), frames);
    assert_int_equal(heap_in_use(), heap);
    assert_int_equal(fake_vectors_used, 0);
    assert_false(fake_get(nic, PCI_COMMAND, 2) & PCI_COMMAND_MASTER);
    for (u32 i = 0; i < pci_count(); i++) assert_null(pci_at(i)->owner);
    return 0;
}

static void refused(int error, const char *why) {
    assert_null(fake_vm(&config));
    assert_int_equal(fake_error, error);
    assert_string_equal(fake_why, why);
    assert_false(nic->master_once);
}

static struct vm *driver(void) {
    struct vm *vm = fake_vm(&config);

    assert_non_null(vm);
    return vm;
}

static void test_refused(void **state) {
    struct fake_pci *other = fake_pci_add(PCI_BDF(0, 4, 0), 0x12345678, 0);

    config.unsafe_dma = false;
    refused(-EPERM,
            "PCI device 00:03.0 reaches all memory, as no IOMMU is in use: it needs unsafe_dma = yes");
    config.unsafe_dma = true;
    config.pci[0] = PCI_BDF(0, 9, 1);
    refused(-ENOENT, "there is no PCI device 00:09.1");

    config.pci[0] = PCI_BDF(0, 4, 0);
    other->space[PCI_HEADER] = 1;
    init();
    refused(-EINVAL, "PCI device 00:04.0: it is a bridge");
    other->space[PCI_HEADER] = 0x7f;
    init();
    refused(-EINVAL, "PCI device 00:04.0: its configuration space is not understood");
    other->space[PCI_HEADER] = 0;
    fake_set(other, PCI_CLASS_REV, 4, 0x06010000);
    init();
    refused(-EINVAL, "PCI device 00:04.0: it is a part of the machine itself");
    fake_set(other, PCI_CLASS_REV, 4, 0x03000000);
    init();
    refused(-EINVAL, "PCI device 00:04.0: the screen shows the log");
}

static void test_bad_places(void **state) {
    static const struct {
        u64 addr;
        u32 type;
        const char *why;
    } bad[] = {
        { 0, 0, "firmware gave a BAR of it no address" },
        { 0x3ff00000, 0, "a BAR of it lies where none can be" }, /* RAM of the machine */
        { 0xfec00000, 0, "a BAR of it lies where none can be" }, /* IOAPIC and the like */
        { 0xffff0000, 0, "a BAR of it lies where none can be" },
        { 0x17fff0000, 4, "a BAR of it lies where none can be" },  /* RAM above 4 GiB */
        { 0x4000000000, 4, "a BAR of it lies where none can be" }, /* windows into other VMs */
        { 0x180, 1, "a BAR of it lies where none can be" },        /* ports that VMs have of their own */
    };
    char why[128];

    for (u32 i = 0; i < ARRAY_SIZE(bad); i++) {
        memset(nic->writable + PCI_BAR0, 0, 24);
        memset(nic->space + PCI_BAR0, 0, 24);
        fake_pci_bar(nic, 2, bad[i].addr, bad[i].type & 1 ? 0x40 : 0x10000, bad[i].type);
        init();
        hv_snprintf(why, sizeof(why), "PCI device 00:03.0: %s", bad[i].why);
        refused(-EINVAL, why);
    }
    fake_pci_bar(nic, 2, 0x200000000, BIT(31), 4);
    init();
    refused(-EINVAL, "PCI device 00:03.0: a BAR of it is larger than 1 GiB");
    memset(nic->writable + PCI_BAR0, 0, 24);
    fake_pci_bar(nic, 2, 0x180000000, 0x10000, 4); /* behind all RAM */
    init();
    fake_destroy(driver());
    config.memory = 8 << 20;
    fake_pci_bar(nic, 2, 0xfe001000, 0x100, 0); /* 256 bytes, and another device's in the same page */
    fake_pci_bar(fake_pci_add(PCI_BDF(0, 4, 0), 0x12345678, 0), 0, 0xfe001200, 0x100, 0);
    init();
    assert_null(fake_vm(&config));
    assert_string_equal(fake_why, "PCI device 00:03.0 has registers in one page with 00:04.0");
}

/* Ranges of ports are few a VM, and some are its own: 13 are left for devices. */
static void test_too_many_ports(void **state) {
    config.nr_pci = 0;
    for (u32 i = 0; i < 3; i++) {
        struct fake_pci *f = fake_pci_add(PCI_BDF(0, 4 + i, 0), 0x12345678, 0);

        for (u32 k = 0; k < (i < 2 ? 6 : 1); k++) fake_pci_bar(f, k, 0x1000 + 0x200 * i + 0x40 * k, 0x40, 1);
        fake_set(f, PCI_LINE, 1, 0xff); /* no interrupt */
        config.pci[config.nr_pci++] = PCI_BDF(0, 4 + i, 0);
    }
    init();
    fake_destroy(driver());
    fake_pci_bar(&fake_device[fake_nr_devices - 1], 1, 0x1440, 0x40, 1);
    init();
    assert_null(fake_vm(&config));
    assert_int_equal(fake_error, -ENOSPC);
    assert_string_equal(fake_why, "PCI device 00:06.0: it has too many ranges of ports");
}

/* Of `nr` pages from `at` on those that are mapped. */
static u32 pages(const struct vm *vm, u64 at, u32 nr) {
    u32 n = 0;

    for (u32 i = 0; i < nr && vm->virt.mem; i++)
        n += npt_lookup(&vm->virt.npt, at + i * PAGE_SIZE, NULL) != HPA_NONE;
    return n;
}

/* No part of the making of a VM takes long: it looks at one BAR, or maps 64 MiB of it in 2 MiB pages, or 64
 * pages of 4 KiB. */
static void test_parts(void **state) {
    struct fake_pci *big = fake_pci_add(PCI_BDF(0, 4, 0), 0x12345678, 0);
    const u64 first = 0x200000000, stride = 64 << 20;
    u32 claiming = 0, mapped = 0, small = 0, before;
    struct vm *vm = NULL;

    for (u32 i = 0; i < 3; i++) fake_pci_bar(big, 2 * i, first + i * BIT(30), BIT(30), 4);
    fake_pci_cap(big, 0x60, PCI_CAP_MSIX);
    fake_set(big, 0x62, 2, 2047);
    fake_set(big, 0x64, 4, 0x3fff000 | 2); /* its table is in two of the 2 MiB pages of the second BAR */
    config.pci[config.nr_pci++] = PCI_BDF(0, 4, 0);
    init();
    assert_int_equal(vm_create(&config, NULL, NULL), 0);
    vm = vm_find("driver");
    while (vm->state == VM_CREATING) {
        claiming += vm->nr_pci < 2;
        for (u32 i = 0; i < 2 && vm->virt.mem && mapped < 48; i++) {
            if (npt_lookup(&vm->virt.npt, first + mapped * stride + 0x10000, NULL) == HPA_NONE) break;
            assert_int_equal(i, 0);
            mapped++;
        }
        before = small;
        small = pages(vm, first + BIT(30) + (62 << 20), 1024); /* where the table is */
        assert_in_range(small, before, before + 64);
        assert_true(work_run());
    }
    assert_int_equal(mapped, 48);
    assert_int_equal(claiming, 2 * 6);
    for (u64 at = 0; at < 3 * BIT(30); at += PAGE_SIZE) { /* and nothing is left out */
        u64 table = at - BIT(30) - 0x3fff000;
        unsigned prot;

        assert_int_equal(npt_lookup(&vm->virt.npt, first + at, &prot),
                         table < 16 * 2048 ? HPA_NONE : first + at);
    }
    fake_destroy(vm);
}

static void test_one_owner(void **state) {
    struct vm *vm = driver();
    struct config_vm c = config;

    strcpy(c.head.name, "other");
    assert_null(fake_vm(&c));
    assert_int_equal(fake_error, -EBUSY);
    assert_string_equal(fake_why, "PCI device 00:03.0 belongs to driver");
    assert_true(fake_get(nic, PCI_COMMAND, 2) & PCI_COMMAND_MASTER); /* untouched */
    fake_destroy(vm);
    vm = fake_vm(&c); /* and given again */
    assert_non_null(vm);
    fake_destroy(vm);
}

static void test_what_it_gets(void **state) {
    struct vm *vm = driver();
    struct takt_pci info;
    unsigned prot;

    assert_int_equal(fake_get(nic, PCI_COMMAND, 2), 7); /* INTx too */
    for (u64 at = 0; at < 0x20000; at += PAGE_SIZE) {
        assert_int_equal(npt_lookup(&vm->virt.npt, 0xfebc0000 + at, &prot), 0xfebc0000 + at);
        assert_int_equal(prot, NPT_RW);
    }
    assert_int_equal(npt_lookup(&vm->virt.npt, 0xfebe0000, NULL), HPA_NONE);
    assert_int_equal(npt_lookup(&vm->virt.npt, 0xfebbf000, NULL), HPA_NONE);
    assert_int_equal(vm_giver->info(vm, 0, 0x3000), 0);
    guestmem_read(&vm->mem, 0x3000, &info, sizeof(info));
    assert_int_equal(info.bdf, NIC);
    assert_int_equal(info.id, 0x100e8086);
    assert_int_equal(info.class_rev, 0x02000003);
    assert_int_equal(info.bar[0].addr, 0xfebc0000);
    assert_int_equal(info.bar[0].size, 0x20000);
    assert_int_equal(info.bar[0].io, 0);
    assert_int_equal(info.bar[1].size, 0);
    assert_int_equal(info.bar[1].io, 0xc040);
    assert_int_equal(info.bar[1].io_size, 0x40);
    assert_true(info.port > 0);
    /* all of its RAM in one piece: what a device gets as an address */
    for (u64 at = 0; at < config.memory; at += PAGE_SIZE)
        assert_int_equal(npt_lookup(&vm->virt.npt, at, NULL), at + info.dma_offset);
    assert_int_equal(vm_giver->info(vm, 0, config.memory), -EFAULT);
    fake_destroy(vm);
}

static bool pending(const struct vm *vm, u32 port) { return vm->events.shared->pending[0] >> port & 1; }

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
    assert_int_equal(vm_giver->eoi(vm, 0), 0);
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

static void eoi_beside(void) { vm_giver->eoi(racer, 0); }

/* An EOI and an interrupt at the same instant, on two pCPUs: the next EOI opens the line. */
static void test_eoi_beside_an_interrupt(void **state) {
    struct vm *vm = racer = driver();

    fake_interrupt(fake_pin.vector);
    fake_pin_race = interrupt_beside;
    vm_giver->eoi(vm, 0); /* the line is unmasked, and it interrupts before the EOI is over */
    assert_int_equal(vm->pci[0]->interrupts, 2);
    vm_giver->eoi(vm, 0);
    assert_false(fake_pin.masked);

    fake_pin_race = eoi_beside; /* of an event before */
    fake_interrupt(fake_pin.vector);
    vm_giver->eoi(vm, 0);
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
        vm_giver->eoi(vm, 0);
    }
    assert_int_equal(n, 20);
    vm_giver->eoi(vm, 0);
    assert_true(fake_pin.masked);
    fake_clock(1000 + NS_PER_MS);
    fake_advance(0);
    assert_false(fake_pin.masked);
    fake_interrupt(fake_pin.vector);
    assert_true(take(vm, port));
    vm_giver->eoi(vm, 0);
    assert_false(fake_pin.masked);
    for (u32 i = 0; i < 19; i++) { /* held again when it goes */
        fake_interrupt(fake_pin.vector);
        vm_giver->eoi(vm, 0);
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
    assert_int_equal(vm_giver->eoi(vm, 0), 0);
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
    /* INTB of device 2: pin 1 + 2 = 3 of the bridge, which is device 1 */
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
    for (n = 0; fake_get(nic, 0x42, 2) & 1 && n < 100; n++) fake_interrupt(vm->pci[0]->entry[0].vector);
    assert_int_equal(n, 20); /* a storm is held */
    assert_true(take(vm, port));
    vm_giver->eoi(vm, 0); /* that is for lines */
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

static u32 entry_word(const struct vm *vm, u32 n, u32 at) {
    return *(volatile u32 *)(vm->pci[0]->msix_table + 16 * n + at);
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

/* I4: the table is ours; of each entry there is an event, and a VM can mask it. */
static void test_msix(void **state) {
    struct vm *vm = msix_driver();
    struct pci_device *d = vm->pci[0];

    assert_int_equal(d->irq, PCI_MSIX);
    assert_int_equal(fake_get(nic, 0x62, 2) & 0xc000, 0x8000);
    for (u64 at = 0; at < 0x8000; at += PAGE_SIZE)
        assert_int_equal(npt_lookup(&vm->virt.npt, 0xfe000000 + at, NULL),
                         at == 0x2000 || at == 0x3000 ? HPA_NONE : 0xfe000000 + at);
    assert_int_equal(d->nr_vectors, PCI_MAX_VECTORS);
    for (u32 n = 0; n < PCI_MAX_VECTORS; n++) {
        assert_int_equal(entry_word(vm, n, 0), 0xfee00000 | vm->vcpu[0]->sched.cpu << 12);
        assert_int_equal(entry_word(vm, n, 4), 0);
        assert_int_equal(entry_word(vm, n, 8), d->entry[n].vector);
        assert_int_equal(entry_word(vm, n, 12), n > 0);
        assert_int_equal(table_read(vm, TABLE + 16 * n, 4), 0);
        assert_int_equal(table_read(vm, TABLE + 16 * n + 8, 4), d->entry[n].port);
        assert_int_equal(table_read(vm, TABLE + 16 * n + 12, 4), n > 0);
        for (u32 k = 0; k < n; k++) assert_int_not_equal(d->entry[k].port, d->entry[n].port);
        fake_interrupt(d->entry[n].vector);
        for (u32 k = 0; k < PCI_MAX_VECTORS; k++) assert_int_equal(take(vm, d->entry[k].port), k == n);
    }
    assert_int_equal(*(volatile u32 *)(d->msix_table + 16 * PCI_MAX_VECTORS), ~0u); /* not ours */
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

    memcpy(before, (const void *)vm->pci[0]->msix_table, 16 * PCI_MAX_VECTORS);
    for (u32 size = 1; size <= 8; size *= 2)
        for (u64 at = TABLE; at + size <= TABLE + 0x2000; at += size) {
            if (size != 4 || at % 16 != 12 || at >= TABLE + 16 * PCI_MAX_VECTORS)
                table_write(vm, at, (u8)size, 0xfee01000fee01000);
            if (size != 4 || at >= TABLE + 16 * PCI_MAX_VECTORS)
                assert_int_equal(table_read(vm, at, (u8)size), 0);
        }
    assert_memory_equal((const void *)vm->pci[0]->msix_table, before, 16 * PCI_MAX_VECTORS);
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
    for (n = 0; vm->state != VM_CRASHED && n < 1000; n++) fake_interrupt(vm->pci[0]->entry[0].vector);
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
}

/* Messages go where the vCPU is that the event is bound to. */
static void test_messages_follow(void **state) {
    struct pci_device *d;
    u32 first, other;
    struct vm *vm;

    config.vcpus = 2;
    vm = msix_driver();
    d = vm->pci[0];
    assert_int_equal(evtchn_vector(&vm->events, d->entry[1].port, 1, 0x40), 0);
    first = d->entry[1].cpu;
    other = vm->vcpu[1]->sched.cpu = !first;
    fake_clock(1000 + 10 * NS_PER_MS);
    fake_interrupt(d->entry[1].vector);
    fake_advance(0);
    assert_int_equal(entry_word(vm, 1, 0), 0xfee00000 | other << 12);
    assert_int_equal(entry_word(vm, 0, 0), 0xfee00000 | vm->vcpu[0]->sched.cpu << 12);
    assert_int_equal(entry_word(vm, 1, 12), 1); /* as masked as it was */
    assert_int_equal(entry_word(vm, 0, 12), 0);
    fake_no_messages = vm->vcpu[1]->sched.cpu = first;
    fake_clock(1000 + 20 * NS_PER_MS);
    fake_interrupt(d->entry[1].vector);
    fake_advance(0);
    assert_int_equal(entry_word(vm, 1, 0), 0xfee00000 | other << 12); /* where they can */
    fake_no_messages = ~0u;
    fake_destroy(vm);
}

/* I4, I5: of the registers a VM writes two bits of one. */
static void test_registers(void **state) {
    struct vm *vm = driver();
    u8 before[4096];

    memcpy(before, nic->space, sizeof(before));
    for (u32 size = 0; size < 9; size++)
        for (u32 at = 0; at < 5000; at++) {
            bool valid = (size == 1 || size == 2 || size == 4) && at % size == 0 && at < 4096;
            i64 err = vm_giver->write(vm, 0, at, size, ~0u);

            assert_int_equal(err, valid ? -EPERM : -EINVAL);
        }
    assert_memory_equal(nic->space, before, sizeof(before));
    assert_int_equal(vm_giver->write(vm, 0, PCI_COMMAND, 2, 3), 0);
    assert_int_equal(fake_get(nic, PCI_COMMAND, 2), 3);
    assert_int_equal(vm_giver->write(vm, 0, PCI_COMMAND, 2, 0x407), 0);
    assert_int_equal(fake_get(nic, PCI_COMMAND, 2), 0x407);
    assert_int_equal(vm_giver->write(vm, 0, PCI_COMMAND, 2, 0x405), -EPERM);
    assert_int_equal(vm_giver->write(vm, 0, PCI_COMMAND, 2, 0x507), -EPERM);
    fake_destroy(vm);
}

/* What is held of the device when the image is refused, or a BAR turns out to be in the VM's RAM, goes
 * back. */
static void test_undone(void **state) {
    strcpy(config.image, "absent");
    assert_null(fake_vm(&config));
    assert_string_equal(fake_why, "its image is not among the boot modules");
    strcpy(config.image, "null");
    config.memory = 2ull << 30;
    assert_null(fake_vm(&config));
    config.memory = 6 << 20;
    fake_destroy(driver());
}

/* A device that can reach another one unseen is given with it, or not at all. */
static void test_groups(void **state) {
    fake_pci_add(NIC + 1, 0x12345678, 0);
    nic->space[PCI_HEADER] = 0x80;
    init();
    refused(-EPERM, "PCI device 00:03.0 could reach 00:03.1 unseen: one VM gets both, or it needs"
                    " allow_shared_group = yes");
    config.allow_shared_group = true;
    fake_destroy(driver());
    config.allow_shared_group = false;
    config.pci[config.nr_pci++] = NIC + 1;
    fake_set(&fake_device[1], PCI_LINE, 1, 0xff);
    init();
    fake_destroy(driver());
}

/* ---- virtual functions, and VMs that run ---- */

#define CARD PCI_BDF(1, 0, 0)
#define VF0  (CARD + 0x80)

static struct fake_pci *card, *vf;

static void card_init(void) {
    struct fake_pci *port = fake_pci_add(PCI_BDF(0, 8, 0), 0x000c1b36, 0x06040000);

    port->space[PCI_HEADER] = 1;
    port->space[PCI_SECONDARY] = port->space[PCI_SUBORDINATE] = 1;
    fake_set(port, PCI_WINDOW, 4, 0xfe50fe40);
    fake_pci_cap(port, 0x54, PCI_CAP_EXPRESS);
    fake_pci_extended(port, 0x148, PCI_EXT_ACS);
    fake_set(port, 0x14c, 2, 0x7f);
    port->writable[0x14e] = 0x7f;
    card = fake_pci_add(CARD, 0x10c98086, 0x02000001);
    fake_pci_bar(card, 0, 0xfe400000, 0x20000, 0);
    fake_pci_cap(card, 0xa0, PCI_CAP_EXPRESS);
    fake_set(card, 0xa4, 4, BIT(28));
    fake_set(card, PCI_LINE, 2, 0);
    vf = &fake_device[fake_nr_devices];
    fake_pci_sriov(card, 0x160, 8, 0x80, 2);
    for (u32 i = 0; i < 8; i++) {
        fake_pci_cap(&vf[i], 0x70, PCI_CAP_MSIX);
        fake_set(&vf[i], 0x72, 2, 2);
        fake_set(&vf[i], 0x74, 4, 3);
    }
    pci_enumerate();
    assert_true(sriov_enable(3));
    sriov_find();
    give_init(&acpi, 1ull << 30, 6ull << 30);
    config.nr_pci = 0;
    no_vms();
}

static void wants(const char *text) {
    u64 asked;

    assert_int_equal(config_vf(text, &asked), 0);
    config.pci[config.nr_pci++] = (u32)asked;
}

static void test_virtual_functions(void **state) {
    struct vm *vm, *other;

    card_init();
    wants("igb0/any");
    wants("igb0/any");
    vm = driver();
    assert_int_equal(vm->pci[0]->bdf, VF0);
    assert_int_equal(vm->pci[1]->bdf, VF0 + 2);
    assert_int_equal(vm->pci[0]->burst, 8);
    assert_int_equal(fake_get(&vf[0], PCI_COMMAND, 2) & 7, 6);
    assert_int_equal(vf[0].resets, 1);
    assert_int_equal(npt_lookup(&vm->virt.npt, vm->pci[1]->bar[0].addr, NULL), vm->pci[1]->bar[0].addr);
    assert_int_equal(npt_lookup(&vm->virt.npt, vm->pci[1]->bar[0].addr + 0x4000, NULL),
                     HPA_NONE); /* the next one's */
    strcpy(config.head.name, "other");
    refused(-ENOENT, "there is no virtual function, or none left, as it is asked for");
    config.nr_pci = 0;
    wants("01:00.0/1");
    refused(-EBUSY, "PCI device 01:10.2 belongs to driver");
    config.pci[0] = CARD;
    fake_destroy(vm);
    other = driver(); /* the card itself, which loses them by its reset, and gets them back */
    assert_int_equal(card->resets, 1);
    assert_int_equal(fake_get(card, 0x168, 2), 9);
    fake_destroy(other);
}

/* What does not come back is given to nobody, and another takes its place. */
static void test_lost(void **state) {
    struct vm *vm;

    card_init();
    wants("igb0/any");
    vf[0].silent_ns = 3600 * NS_PER_S;
    assert_null(fake_vm(&config));
    assert_int_equal(fake_error, -EIO);
    assert_string_equal(fake_why, "PCI device 01:10.0: it did not come back from its reset");
    vm = driver();
    assert_int_equal(vm->pci[0]->bdf, VF0 + 2);
    fake_destroy(vm);
    config.nr_pci = 0;
    wants("igb0/0");
    refused(-EINVAL, "PCI device 01:10.0: it did not come back from its reset");
}

static int attach(struct vm *vm, const char *text) {
    u64 asked, at;
    int r;

    assert_int_equal(config_vf(text, &asked), 0);
    fake_clock(1000);
    do {
        at = 0;
        r = give_attach(vm, (u32)asked, &at);
        if (at) fake_clock(at);
    } while (r > 0);
    return r;
}

static int take_away(struct vm *vm, u32 bdf, bool force, u32 *steps) {
    u64 at;
    int r;

    fake_clock(1000);
    *steps = 0;
    do {
        at = 0;
        r = give_detach(vm, bdf, force, &at);
        if (at) fake_clock(at);
        ++*steps;
    } while (r > 0);
    return r;
}

static void says(struct vm *vm, u32 index, const char *what) {
    char text[32] = "?";

    vm_giver->tell(vm, index, text, sizeof(text));
    assert_string_equal(text, what);
}

static void test_hot(void **state) {
    struct pci_device *d;
    struct takt_pci info;
    struct vm *vm;
    u32 steps, ports = 0;

    card_init();
    vm = driver();
    says(vm, 0, "");
    for (u32 round = 0; round < 3; round++) {
        assert_int_equal(attach(vm, "igb0/any"), 0);
        assert_int_equal(attach(vm, "igb0/any"), 0);
        d = vm->pci[1];
        assert_int_equal(d->bdf, VF0 + 2);
        says(vm, 1, "01:10.2 given");
        assert_int_equal(vm_giver->info(vm, 1, 0x3000), 0);
        guestmem_read(&vm->mem, 0x3000, &info, sizeof(info));
        assert_int_equal(info.bdf, VF0 + 2);
        if (!round) ports = info.port;
        assert_int_equal(info.port, ports); /* none is lost */
        assert_int_equal(fake_get(&vf[1], PCI_COMMAND, 2) & 7, 6);
        assert_int_equal(vm_giver->let_go(vm, 1), -EINVAL); /* nobody asked */
        assert_int_equal(take_away(vm, VF0 + 2, false, &steps), 0);
        assert_in_range(steps, 200, 300); /* two seconds to let go */
        assert_null(d->owner);
        assert_int_equal(fake_get(&vf[1], PCI_COMMAND, 2) & 7, 2);
        assert_int_equal(npt_lookup(&vm->virt.npt, d->bar[0].addr, NULL), HPA_NONE);
        assert_int_equal(vm_giver->info(vm, 1, 0x3000), -ENOENT);
        assert_int_equal(vm_giver->eoi(vm, 1), -ENOENT);
        assert_int_equal(vm_giver->read(vm, 1, 0, 4), -ENOENT);
        assert_int_equal(vm_giver->write(vm, 1, 4, 2, 6), -ENOENT);
        /* who had it at hand */
        assert_int_equal(mediate_write(d, 4, 2, fake_get(&vf[1], 4, 2) | PCI_COMMAND_MASTER), -EPERM);
        says(vm, 1, "");
        assert_int_equal(take_away(vm, VF0, true, &steps), 0);
        assert_in_range(steps, 1, 30);
        assert_int_equal(fake_vectors_used, 0);
        assert_int_equal(vf[1].resets, 2 * (round + 1));
    }
    assert_int_equal(take_away(vm, VF0, true, &steps), -ENOENT);
    for (u32 i = 0; i < 3; i++) assert_int_equal(attach(vm, "igb0/any"), 0);
    assert_int_equal(attach(vm, "igb0/any"), -ENOENT);
    vf[1].silent_ns = 3600 * NS_PER_S;
    assert_int_equal(take_away(vm, VF0 + 2, true, &steps), 0); /* also if it does not come back */
    assert_true(pci_find(VF0 + 2)->lost);
    assert_int_equal(attach(vm, "igb0/any"), -ENOENT);
    fake_destroy(vm); /* with a gap */
    assert_null(pci_find(VF0)->owner);
}

/* A VM that has a virtual function and one that gets the card, in the middle of its reset. */
static struct vm *card_is_reset(struct vm **second) {
    struct vm *vm;

    card_init();
    wants("igb0/1");
    vm = driver();
    memset((void *)vm->pci[0]->msix_table, 0xff, 48);
    strcpy(config.head.name, "second");
    config.pci[0] = CARD;
    assert_int_equal(vm_create(&config, NULL, NULL), 0);
    fake_work_due();
    *second = vm_find("second");
    assert_int_equal(card->resets, 1);
    return vm;
}

static u32 vf_command(void) { return pci_read(VF0 + 2, PCI_COMMAND, 2) & 7; }

/* Who has one of the card's functions is told, waits, and goes on. */
static void test_card_reset_under_a_vm(void **state) {
    struct vm *second, *vm = card_is_reset(&second);
    struct pci_device *d = vm->pci[0];

    says(vm, 0, "01:10.2 reset");
    assert_false(d->msix_table[12] == 0);
    assert_int_equal(mediate_write(d, 4, 2, PCI_COMMAND_MASTER), -EPERM);
    assert_false(fake_get(&vf[1], PCI_COMMAND, 2) & PCI_COMMAND_MASTER); /* not even before it was reset */
    fake_interrupt(d->entry[0].vector);
    fake_work();
    assert_int_equal(second->state, VM_RUNNING);
    says(vm, 0, "01:10.2 given");
    assert_int_equal(vf_command(), 6);
    assert_int_equal(fake_get(&vf[1], 0x72, 2) & 0xc000, 0x8000);
    for (u32 n = 0; n < 3; n++) {
        assert_int_equal(entry_word(vm, n, 0), 0xfee00000 | vm->vcpu[0]->sched.cpu << 12);
        assert_int_equal(entry_word(vm, n, 8), d->entry[n].vector);
        assert_int_equal(entry_word(vm, n, 12), n > 0);
    }
    assert_int_equal(mediate_write(d, 4, 2, vf_command() | PCI_COMMAND_NO_INTX), 0);
    fake_destroy(second); /* and once more */
    assert_int_equal(card->resets, 2);
    assert_int_equal(vf_command(), 6);
    assert_int_equal(pci_read(VF0, PCI_COMMAND, 2) & 7, 2); /* nobody has this one */
    fake_destroy(vm);
    assert_int_equal(vf_command(), 2);
    vm_put(second);
}

/* Who has stopped, or is being destroyed, gets nothing back. */
static void test_card_reset_at_the_end(void **state) {
    struct vm *second, *vm = card_is_reset(&second);

    vm->config.on_crash = ON_CRASH_PRESERVE;
    vm_crash(vm, NULL, "of something");
    fake_work();
    assert_int_equal(vf_command(), 2);
    vm_destroy(vm, NULL, NULL);
    vm_destroy(second, NULL, NULL); /* both at once */
    fake_work();
    assert_int_equal(vf_command(), 2);
    assert_null(pci_find(VF0 + 2)->owner);
    vm_put(second);
    vm_put(vm);
}

/* What the card does not give back is lost, for who has it and for others. */
static void test_card_does_not_come_back(void **state) {
    struct vm *second, *vm = card_is_reset(&second);

    card->silent_until = ~0ull;
    fake_work();
    assert_int_equal(second->state, VM_DYING);
    assert_true(pci_find(CARD)->lost);
    says(vm, 0, "01:10.2 lost");
    assert_int_equal(fake_get(&vf[1], PCI_COMMAND, 2) & 7, 0);
    strcpy(config.head.name, "third");
    config.nr_pci = 0;
    wants("igb0/any");
    refused(-ENOENT, "there is no virtual function, or none left, as it is asked for");
    fake_destroy(vm);
    vm_put(second);
}

/* The VM lets go at once; it is destroyed in between; what fails goes back. */
static void test_hot_ends(void **state) {
    struct vm *vm;
    u32 steps;
    u64 at = 0;

    card_init();
    vm = driver();
    assert_int_equal(attach(vm, "igb0/any"), 0);
    assert_int_equal(give_detach(vm, VF0, false, &at), 1);
    says(vm, 0, "01:10.0 leaving");
    assert_int_equal(vm_giver->let_go(vm, 0), 0);
    assert_int_equal(take_away(vm, VF0, false, &steps), 0);
    assert_in_range(steps, 1, 30);

    vf[0].silent_ns = 3600 * NS_PER_S;
    assert_int_equal(attach(vm, "igb0/0"), -EIO);
    assert_null(pci_find(VF0)->owner);
    says(vm, 0, "");
    assert_int_equal(attach(vm, "igb0/0"), -EINVAL);

    assert_int_equal(give_attach(vm, CONFIG_VF | CONFIG_VF_NAMED | CONFIG_VF_ANY, &at), 1);
    vm_destroy(vm, NULL, NULL);
    assert_int_equal(give_attach(vm, CONFIG_VF | CONFIG_VF_NAMED | CONFIG_VF_ANY, &at), -EAGAIN);
    give_stop();
    fake_work();
    vm_put(vm);
    assert_null(pci_find(VF0 + 2)->owner);
}

/* Reset takes a tenth of a second, which nobody waits for; bus mastering is off all the while. */
static void test_reset_between(void **state) {
    struct vm *vm, *again;

    fake_pci_cap(nic, 0x60, PCI_CAP_EXPRESS);
    fake_set(nic, 0x64, 4, BIT(28));
    init();
    vm = driver();
    assert_int_equal(nic->resets, 1);
    vm_destroy(vm, NULL, NULL);
    vm_put(vm);
    fake_work_due();
    assert_int_equal(nic->resets, 2);
    assert_false(fake_get(nic, PCI_COMMAND, 2) & PCI_COMMAND_MASTER);
    again = vm_find("driver");
    assert_ptr_equal(pci_find(NIC)->owner, again);
    vm_put(again);
    assert_true(frame_free_count() < frames - 1536); /* not before the device is quiet */
    fake_work();
    assert_int_equal(fake_get(nic, PCI_BAR0, 4), 0xfebc0000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bad_places, setup, teardown),
        cmocka_unit_test_setup_teardown(test_too_many_ports, setup, teardown),
        cmocka_unit_test_setup_teardown(test_parts, setup, teardown),
        cmocka_unit_test_setup_teardown(test_one_owner, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_it_gets, setup, teardown),
        cmocka_unit_test_setup_teardown(test_line, setup, teardown),
        cmocka_unit_test_setup_teardown(test_eoi_beside_an_interrupt, setup, teardown),
        cmocka_unit_test_setup_teardown(test_storm_of_a_line, setup, teardown),
        cmocka_unit_test_setup_teardown(test_where_lines_lead, setup, teardown),
        cmocka_unit_test_setup_teardown(test_behind_a_bridge, setup, teardown),
        cmocka_unit_test_setup_teardown(test_msi, setup, teardown),
        cmocka_unit_test_setup_teardown(test_msix, setup, teardown),
        cmocka_unit_test_setup_teardown(test_msix_abuse, setup, teardown),
        cmocka_unit_test_setup_teardown(test_storm_of_messages, setup, teardown),
        cmocka_unit_test_setup_teardown(test_messages_follow, setup, teardown),
        cmocka_unit_test_setup_teardown(test_registers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_groups, setup, teardown),
        cmocka_unit_test_setup_teardown(test_virtual_functions, setup, teardown),
        cmocka_unit_test_setup_teardown(test_lost, setup, teardown),
        cmocka_unit_test_setup_teardown(test_hot, setup, teardown),
        cmocka_unit_test_setup_teardown(test_hot_ends, setup, teardown),
        cmocka_unit_test_setup_teardown(test_card_reset_under_a_vm, setup, teardown),
        cmocka_unit_test_setup_teardown(test_card_reset_at_the_end, setup, teardown),
        cmocka_unit_test_setup_teardown(test_card_does_not_come_back, setup, teardown),
        cmocka_unit_test_setup_teardown(test_undone, setup, teardown),
        cmocka_unit_test_setup_teardown(test_reset_between, setup, teardown),
    };

    return cmocka_run_group_tests(tests, group_setup, NULL);
}
